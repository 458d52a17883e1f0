"""Where an app serves its rules, if it does: noted when the blueprint is registered, before or after init_app."""

from flask import Flask, current_app, has_app_context, has_request_context, url_for

from flask_idempotency.settings import IS_PAGE

_NAME = "idempotency_rules"  # in app.extensions: the endpoint


def note_rules(app: Flask, endpoint: str) -> None:
    """Remember the endpoint of an app's rules; the first one counts."""
    app.extensions.setdefault(_NAME, endpoint)


def rules_url() -> str | None:
    """Give the absolute address of the app's own rules; None without any, or where the app does not know its host."""
    endpoint = current_app.extensions.get(_NAME) if has_app_context() else None
    if endpoint is None or not (has_request_context() or current_app.config["SERVER_NAME"]):
        return None
    url = url_for(endpoint, _external=True)
    return url if IS_PAGE.fullmatch(url) else None  # the Host header may be anything
