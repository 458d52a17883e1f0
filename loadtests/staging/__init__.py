"""A run: the servers, the flood, the settlement, and the way from start to verdict."""
