"""Clients and servers that others have made, unchanged, against a protected app."""
