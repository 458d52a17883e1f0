"""The proof: clients that flood a shop with retries, faults on purpose, and an auditor who shares no code with either.

Nothing here imports the extension or the shop: it speaks HTTP, and SQL only to audit.
"""
