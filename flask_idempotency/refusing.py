"""A refusal on its way out: given its reference and its document, and told of."""

from flask_idempotency import signals
from flask_idempotency.core.reference import Reference
from flask_idempotency.errors import Quarantined, RequestRefused
from flask_idempotency.http import problem
from flask_idempotency.state import State


def dress(state: State, refusal: RequestRefused, known: Reference | None) -> RequestRefused:
    """Give a refusal its reference and its document, and tell of it."""
    refusal.reference = refusal.reference or known
    if refusal.retryable:
        refusal.retry_after = max(1, refusal.retry_after or 1)
    refusal.response = problem.render(refusal, state.settings.docs_url)
    signals.tell(signals.refused, reference=refusal.reference, problem=refusal.problem, status=refusal.code)
    if isinstance(refusal, Quarantined):
        signals.tell(signals.quarantined, reference=refusal.reference)
    return refusal
