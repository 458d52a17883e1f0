"""How a claim is held while its view runs: in one transaction with the view's work, or by a lease."""
