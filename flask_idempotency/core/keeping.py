"""Which answers are final and kept, and which are transient and not kept."""

# The caller may be let in, slow down or come back later: the same request can still succeed.
TRANSIENT = frozenset({401, 403, 408, 409, 425, 429})
# About the caller, not the action. What the view has committed stays, such as the count of wrong passwords: otherwise
# a key could be used to bypass a lockout.
ABOUT_THE_CALLER = frozenset({401, 403, 429})
LEFT = (
    "{endpoint} answered {status} with changes that were written but not committed, and would be lost: commit them in"
    " the view or in an after_request hook (teardown is too late), or roll them back."
)
LEFT_BY_RUN = (
    "{endpoint} returned with changes that were written but not committed, and would be lost: commit them in it, under"
    " the lease guard in a step, phase(name, step), or roll them back."
)
LOST = (
    "{endpoint} answered {status} with uncommitted changes, and an error after the view rolled them back: commit in the"
    " view, or let the after_request hook that commits raise the error."
)


def is_final(status: int, *, keeps_failures: bool = False) -> bool:
    """Say whether an answer of this status is kept by default. A 5xx is not: it says that the outcome is unknown.

    With *keeps_failures* it is kept, as Stripe does with what a view has answered.
    """
    return 200 <= status < (600 if keeps_failures else 500) and status not in TRANSIENT


def work_stands(status: int) -> bool:
    """Say whether what a view has committed stays, although its answer of this status is not kept."""
    return status in ABOUT_THE_CALLER


def is_success(status: int) -> bool:
    """Say whether an answer tells its client that something was done; then the work must not be lost."""
    return status < 400
