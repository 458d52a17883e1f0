"""Which answers are final and kept, and which are transient and leave nothing behind."""

# The caller may be let in, slow down or come back later: the same request can still succeed.
TRANSIENT = frozenset({401, 403, 408, 409, 425, 429})


def is_final(status: int) -> bool:
    """Say whether an answer of this status is kept by default. A 5xx never is: unknown is not final."""
    return 200 <= status < 500 and status not in TRANSIENT
