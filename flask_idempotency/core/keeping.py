"""Which answers are final and kept, and which are transient and leave nothing behind."""

# The caller may be let in, slow down or come back later: the same request can still succeed.
TRANSIENT = frozenset({401, 403, 408, 409, 425, 429})
# About the caller, not the action: the count of wrong passwords that a view has committed stays, or anybody could
# switch a lockout off by sending a key.
ABOUT_THE_CALLER = frozenset({401, 403, 429})
LEFT = (
    "{endpoint} answered {status} with changes that were written and not committed, and would be lost: commit them in"
    " the view or in an after_request hook, for teardown is too late, or roll them back."
)
LOST = (
    "{endpoint} answered {status} with changes that were not committed yet, and an error after the view rolled them"
    " back: commit in the view, or let the after_request hook that commits raise the error."
)


def is_final(status: int) -> bool:
    """Say whether an answer of this status is kept by default. A 5xx never is: unknown is not final."""
    return 200 <= status < 500 and status not in TRANSIENT


def work_stands(status: int) -> bool:
    """Say whether what a view has committed stays behind an answer of this status that is not kept."""
    return status in ABOUT_THE_CALLER


def is_success(status: int) -> bool:
    """Say whether an answer tells its client that something was done: then it must not be lost behind it."""
    return status < 400
