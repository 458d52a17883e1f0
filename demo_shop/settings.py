"""The shop's settings from its environment; a missing or invalid one is reported in one clear sentence."""

import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mariadb": "mariadb+pymysql",
    "mysql": "mariadb+pymysql",
}
ROOT = Path(__file__).resolve().parent.parent


class BadSetting(Exception):
    """A setting is missing or invalid; the message says what to write instead."""


def read_settings(environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Read the app's configuration from the environment."""
    data = Path(environ.get("DEMO_DATA") or ROOT / "var").resolve()
    secret = environ.get("SECRET_KEY")
    if not secret:
        raise BadSetting("SECRET_KEY is not set; `make demo` makes one, or: export SECRET_KEY=$(openssl rand -hex 32)")
    return {
        "SECRET_KEY": secret,
        "SQLALCHEMY_DATABASE_URI": database_url(environ.get("DATABASE_URL"), data / "shop.sqlite"),
        "SQLALCHEMY_ENGINE_OPTIONS": {"pool_pre_ping": True},
        "GATEWAY_URL": environ.get("GATEWAY_URL", "http://127.0.0.1:8001").rstrip("/"),
        "GATEWAY_PAGE": environ.get("GATEWAY_PAGE", ""),  # where people find it, if they can
        "GATEWAY_API_KEY": environ.get("GATEWAY_API_KEY", ""),
        "GATEWAY_WEBHOOK_SECRET": environ.get("GATEWAY_WEBHOOK_SECRET", ""),  # without it, events are not received
        "GATEWAY_TIMEOUT": seconds(environ, "DEMO_GATEWAY_TIMEOUT_SECONDS", 4),  # below the lease: its caller notices
        "DEMO_LAB": environ.get("DEMO_LAB") == "1",
        "SESSION_COOKIE_HTTPONLY": True,
        "SESSION_COOKIE_SAMESITE": "Lax",
        "SESSION_COOKIE_SECURE": environ.get("DEMO_HTTPS") == "1",
        "PERMANENT_SESSION_LIFETIME": timedelta(hours=12),
        "MAX_CONTENT_LENGTH": 64 * 1024,
        "IDEMPOTENCY_HINT": environ.get("HINT_URL") or None,
        "IDEMPOTENCY_LEASE": timedelta(seconds=seconds(environ, "DEMO_LEASE_SECONDS", 10)),
        "IDEMPOTENCY_RETENTION": timedelta(seconds=seconds(environ, "DEMO_RETENTION_SECONDS", 72 * 3600)),
    }


def seconds(environ: Mapping[str, str], name: str, default: float) -> float:
    """Read a duration."""
    try:
        given = float(environ.get(name) or default)
    except ValueError:
        given = 0
    if not 0 < given < 10**9:
        raise BadSetting(f"{name} must be a number of seconds, such as {default:g}.")
    return given


def database_url(given: str | None, file: Path) -> str:
    """Give a URL for SQLAlchemy; PostgreSQL always by way of psycopg, and MariaDB by way of PyMySQL."""
    if not given:
        file.parent.mkdir(parents=True, exist_ok=True)
        return f"sqlite:///{file}"
    try:
        url = make_url(given)
    except ArgumentError:
        raise BadSetting("DATABASE_URL is not a URL; write it like postgresql://user:password@host/database.") from None
    if url.get_backend_name() == "sqlite":
        return given
    driver = DRIVERS.get(url.get_backend_name())
    if driver is None:
        raise BadSetting(
            f"DATABASE_URL names {url.get_backend_name()}; the shop runs on PostgreSQL, MariaDB or SQLite."
        )
    return url.set(drivername=driver).render_as_string(hide_password=False)
