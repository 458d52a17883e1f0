"""The clients: customers with bad habits, what they send and what they remember."""
