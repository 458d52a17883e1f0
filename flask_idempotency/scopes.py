"""Ready-made scope functions. Each names the caller, or returns None for an unknown one.

A key counts only together with its scope: one caller never sees, blocks or delays another's records.
"""

from collections.abc import Callable
from hashlib import sha256

from flask import request, session

__all__ = ["credential", "everyone", "flask_login", "remote_addr", "session_field"]


def credential() -> str | None:
    """The digest of the Authorization header. Only for credentials that outlive a retry, such as API keys:
    a refreshed token counts as another caller, whose retry runs again.
    """
    header = request.headers.get("Authorization")
    return sha256(header.encode("utf-8", "surrogatepass")).hexdigest() if header else None


def flask_login() -> str | None:
    """The id of the user that Flask-Login has logged in."""
    from flask_login import current_user  # an optional dependency

    id_ = current_user.get_id() if current_user.is_authenticated else None
    return None if id_ is None else str(id_)


def session_field(name: str) -> Callable[[], object]:
    """A field of Flask's signed session, such as ``session_field("user_id")``."""

    def scope() -> object:
        return session.get(name)

    scope.__qualname__ = scope.__name__ = f"session_field({name!r})"
    return scope


def remote_addr() -> str | None:
    """The caller's network address, for services on a private network. Behind a proxy, set up ProxyFix first."""
    return request.remote_addr


def everyone() -> str:
    """One scope for everybody, for apps with a single caller: any caller can get another caller's answer."""
    return "everyone"
