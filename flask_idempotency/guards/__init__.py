"""How a claim is held while its view runs: by one transaction with the view's work, or by a lease."""
