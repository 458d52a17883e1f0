"""A shop to try Flask-Idempotency in: each room shows one idea, and uses nothing but the extension's public names."""
