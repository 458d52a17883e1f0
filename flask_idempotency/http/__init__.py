"""Flask's objects to values and back. Nothing here calls a store."""
