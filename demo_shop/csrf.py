"""The shop accepts forms only from its own pages: each POST must carry the token of the session."""

import secrets
from hmac import compare_digest

from flask import Flask, abort, request, session


def csrf_token() -> str:
    """Give the session's token, generated on first use."""
    if "csrf" not in session:
        session["csrf"] = secrets.token_urlsafe(16)
    return str(session["csrf"])


def protect(app: Flask) -> None:
    """Check every POST that a browser would send with its cookie."""
    app.jinja_env.globals["csrf_token"] = csrf_token
    app.before_request(_check)


def is_resumed() -> bool:
    """Say whether the completer runs this request: without a cookie, there is nothing to abuse."""
    return "flask_idempotency.resumed" in request.environ


def _check() -> None:
    if request.method in ("GET", "HEAD", "OPTIONS") or request.path.startswith(("/api/", "/webhooks/")) or is_resumed():
        return  # the API and the webhook know no cookies
    given = request.headers.get("X-CSRF-Token") or request.form.get("csrf_token", "")
    if not compare_digest(given.encode(), str(session.get("csrf", "")).encode()) or not given:
        abort(403, "This form is too old, or not from this shop. Load the page again, then try once more.")
