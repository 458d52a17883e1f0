"""Numbers for graphs and alerts, made from the signals and the store; ``prometheus_client`` must be installed."""

from typing import TYPE_CHECKING

from flask import Flask

from flask_idempotency.errors import ConfigError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["gauges", "prometheus"]


def prometheus(app: Flask, registry: "CollectorRegistry | None" = None) -> None:
    """Count an app's outcomes in Prometheus metrics, before or after ``init_app``; serving them is left to the app.

    The ``gauges`` of its store are added. *registry* is the client library's own by default; several apps may share it.
    """
    try:
        from prometheus_client import REGISTRY

        from flask_idempotency.telemetry.counting import count
        from flask_idempotency.telemetry.measuring import measure
    except ModuleNotFoundError as error:
        raise _not_installed("prometheus", error) from None
    count(app, REGISTRY if registry is None else registry)
    measure(app, REGISTRY if registry is None else registry)


def gauges(app: Flask, registry: "CollectorRegistry") -> None:
    """Show in a registry what an app's store holds, and no counts: for the one that is made to gather several workers.

    ``prometheus`` does this too. The store is asked while the registry is scraped.
    """
    try:
        from flask_idempotency.telemetry.measuring import measure
    except ModuleNotFoundError as error:
        raise _not_installed("gauges", error) from None
    measure(app, registry)


def _not_installed(name: str, error: ModuleNotFoundError) -> ConfigError:
    return ConfigError(f"telemetry.{name}: {error.name} is not installed; run: pip install flask-idempotency[metrics]")
