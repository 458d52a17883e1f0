"""The proof: clients that flood a shop with retries, deliberate faults, and an auditor that shares no code with either.

Nothing here imports the extension or the shop: it uses HTTP, and SQL only to audit.
"""
