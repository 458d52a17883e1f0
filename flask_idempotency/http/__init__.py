"""Translates between Flask's objects and the values of the core. Nothing here calls a store."""
