"""Numbers and traces, made from what happens to requests and from the store. Each function names what it needs."""

from typing import TYPE_CHECKING

from flask import Flask

from flask_idempotency.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider
    from prometheus_client import CollectorRegistry

__all__ = ["gauges", "opentelemetry", "prometheus"]


def opentelemetry(app: Flask, tracer_provider: "TracerProvider | None" = None) -> None:
    """Say in an app's traces what became of each request with a key, before or after ``init_app``.

    The request's span, which another instrumentation starts, gets attributes; a claim, a phase, an effect and a commit
    get spans inside of it; a replay gets a link to the span of the run that made its answer. *tracer_provider* is the
    global one by default.
    """
    try:
        from flask_idempotency.telemetry.tracing import follow
    except ModuleNotFoundError as error:
        raise _not_installed("opentelemetry", error, "otel") from None
    follow(app, tracer_provider)


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


def _not_installed(name: str, error: ModuleNotFoundError, extra: str = "metrics") -> ConfigError:
    return ConfigError(f"telemetry.{name}: {error.name} is not installed; run: pip install flask-idempotency[{extra}]")
