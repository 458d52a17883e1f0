"""The checkout: a charge in a foreign system between two transactions of our own, under the lease guard."""
