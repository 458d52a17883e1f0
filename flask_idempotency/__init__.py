"""Flask-Idempotency: a protected request takes effect once and has one answer, however often it is sent."""

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = ["Idempotency", "after_commit", "effect", "exempt", "idempotent", "phase", "reference"]

if TYPE_CHECKING:
    from flask_idempotency.decorators import exempt, idempotent
    from flask_idempotency.extension import Idempotency, after_commit, reference
    from flask_idempotency.guards.phases import effect, phase
else:
    _PLACES = {"effect": "guards.phases", "phase": "guards.phases", "exempt": "decorators", "idempotent": "decorators"}

    def __getattr__(name: str) -> object:
        """Import what is public when it is first used: the client and the conformance tester need no Flask."""
        if name in ("client", "errors", "jobs", "receipts", "rules", "scopes", "signals", "stores", "webhooks"):
            return import_module(f"{__name__}.{name}")
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_PLACES.get(name, 'extension')}"), name)
        return value

    def __dir__() -> list[str]:
        return __all__
