"""A shop for trying Flask-Idempotency: each module shows one idea, and uses only the extension's public names."""
