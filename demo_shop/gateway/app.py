"""The payment gateway's app: configuration, extensions, blueprints, in this order.

It is an ordinary service for other services: every POST needs a key, the scope is the caller's API key, and the records
are in the gateway's own database, so that a charge and its record are one commit.
"""

import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
from flask import Flask, Response, current_app
from flask.cli import with_appcontext
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from werkzeug.exceptions import BadRequest, HTTPException, UnsupportedMediaType

from demo_shop.gateway.charges import charges
from demo_shop.gateway.events import send_events
from demo_shop.gateway.knobs import LosesAnswers, knobs
from demo_shop.gateway.ledger import ledger
from demo_shop.gateway.models import db
from flask_idempotency import Idempotency, scopes

ROOT = Path(__file__).resolve().parents[2]

idempotency = Idempotency(db=db, scope=scopes.credential)


class BadSetting(click.ClickException):
    """A setting is invalid; the message says what to write instead."""


def create_app(environ: Mapping[str, str] | None = None, **config: Any) -> Flask:
    """Make the gateway from its environment; *config* overrides it."""
    app = Flask(__name__)
    app.config.update(read_environment(os.environ if environ is None else environ), **config)

    db.init_app(app)
    idempotency.init_app(app)

    for room in (charges, ledger, knobs):
        app.register_blueprint(room)
    app.add_url_rule("/health", "health", health)
    app.register_error_handler(BadRequest, say_in_json)
    app.register_error_handler(UnsupportedMediaType, say_in_json)
    app.after_request(harden)
    app.cli.add_command(init)
    app.cli.add_command(send_events)
    hold = app.config["GATEWAY_HOLD_SECONDS"]
    app.wsgi_app = LosesAnswers(app.wsgi_app, hold)  # type: ignore[method-assign]  # the documented way
    return app


def read_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """Read the configuration from the environment."""
    if not environ.get("GATEWAY_API_KEY"):
        raise BadSetting("GATEWAY_API_KEY is not set; `make demo` generates one, for the shop too.")
    data = Path(environ.get("DEMO_DATA") or ROOT / "var").resolve()
    return {
        "GATEWAY_API_KEY": environ["GATEWAY_API_KEY"],
        "SQLALCHEMY_DATABASE_URI": database_url(environ.get("GATEWAY_DATABASE_URL"), data / "gateway.sqlite"),
        "SQLALCHEMY_ENGINE_OPTIONS": {"pool_pre_ping": True},
        "DEMO_LAB": environ.get("DEMO_LAB") == "1",
        "GATEWAY_SLOW_SECONDS": float(environ.get("GATEWAY_SLOW_SECONDS", 6)),  # longer than the shop waits
        "GATEWAY_HOLD_SECONDS": float(environ.get("GATEWAY_HOLD_SECONDS", 30)),  # longer than anybody waits
        "GATEWAY_WEBHOOK_URL": environ.get("GATEWAY_WEBHOOK_URL", ""),
        "GATEWAY_WEBHOOK_SECRET": webhook_secret(environ),
        "MAX_CONTENT_LENGTH": 64 * 1024,
        "IDEMPOTENCY_RETENTION": timedelta(days=7),  # longer than the shop keeps its own: an effect may come back late
    }


def webhook_secret(environ: Mapping[str, str]) -> str:
    """Read the secret that signs events, without which none are sent."""
    found = environ.get("GATEWAY_WEBHOOK_SECRET", "")
    if environ.get("GATEWAY_WEBHOOK_URL") and not found:
        raise BadSetting("GATEWAY_WEBHOOK_SECRET is not set, and signs what is sent to GATEWAY_WEBHOOK_URL.")
    return found


def database_url(given: str | None, file: Path) -> str:
    """Give a URL for SQLAlchemy: a SQLite file, or PostgreSQL by way of psycopg."""
    if not given:
        file.parent.mkdir(parents=True, exist_ok=True)
        return f"sqlite:///{file}"
    try:
        url = make_url(given)
    except (ArgumentError, ValueError):
        raise BadSetting("GATEWAY_DATABASE_URL is not a URL; write postgresql://user:password@host/database.") from None
    if url.get_backend_name() in ("postgres", "postgresql"):
        url = url.set(drivername="postgresql+psycopg")
    return url.render_as_string(hide_password=False)


@click.command("init")
@click.pass_context
@with_appcontext
def init(context: click.Context) -> None:
    """Create the tables, and those of the extension by its own command, unless they exist."""
    db.create_all()
    extension = current_app.cli.commands["idempotency"]
    assert isinstance(extension, click.Group), "the extension brings a group of commands"
    context.invoke(extension.commands["init"])


def health() -> Any:
    """Report whether the gateway can work."""
    try:
        db.session.execute(text("SELECT 1"))
    except SQLAlchemyError:
        return {"status": "the database cannot be reached"}, 503
    return {"status": "ok"}


def say_in_json(error: HTTPException) -> Any:
    """Answer errors as JSON."""
    return {"error": error.description}, error.code


def harden(response: Response) -> Response:
    """Forbid the ledger to load anything from elsewhere, or to be framed."""
    response.headers["Content-Security-Policy"] = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'"
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "no-referrer"
    return response
