"""Where an app serves its receipts, if it does: noted when the blueprint is registered, before or after init_app."""

from flask import Flask, current_app, url_for

_NAME = "idempotency_receipts"  # in app.extensions: the endpoint


def note_receipts(app: Flask, endpoint: str) -> None:
    """Remember the endpoint of an app's receipts; the first one counts."""
    app.extensions.setdefault(_NAME, endpoint)


def has_receipts(app: Flask | None = None) -> bool:
    """Say whether an app serves receipts."""
    return _NAME in (app or current_app).extensions


def receipt_url(reference: str) -> str:
    """Give the address of a receipt."""
    return url_for(current_app.extensions[_NAME], reference=reference)
