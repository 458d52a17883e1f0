"""Third-party clients and servers, unchanged, against a protected app."""
