"""Flask-Idempotency: a protected request takes effect once and has one answer, however often it is sent."""

from flask_idempotency.extension import Idempotency, after_commit, exempt, idempotent, reference
from flask_idempotency.guards.phases import effect, phase

__all__ = ["Idempotency", "after_commit", "effect", "exempt", "idempotent", "phase", "reference"]
