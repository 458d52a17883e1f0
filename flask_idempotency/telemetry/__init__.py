"""Numbers for graphs and alerts, made from the signals alone. Each function needs the package it is named after."""

from typing import TYPE_CHECKING

from flask import Flask

from flask_idempotency.errors import ConfigError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["prometheus"]


def prometheus(app: Flask, registry: "CollectorRegistry | None" = None) -> None:
    """Count an app's outcomes in Prometheus metrics, before or after ``init_app``; serving them is left to the app.

    *registry* is the client library's own by default. Several apps may share one.
    """
    try:
        from prometheus_client import REGISTRY

        from flask_idempotency.telemetry.counting import count
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"telemetry.prometheus: {error.name} is not installed; run: pip install flask-idempotency[metrics]"
        ) from None
    count(app, REGISTRY if registry is None else registry)
