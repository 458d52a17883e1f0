"""prometheus-flask-exporter: its page shows our metrics too."""

from prometheus_client import CollectorRegistry
from prometheus_flask_exporter import PrometheusMetrics

from flask_idempotency import telemetry
from tests.ecosystem.shop import Shop

PACKAGE = "prometheus-flask-exporter"
STEP = "Unchanged: `telemetry.prometheus(app)` adds our metrics to the same page."


class Counted(Shop):
    """Both count in one registry, which the exporter serves."""

    def build(self) -> None:
        registry = CollectorRegistry()
        PrometheusMetrics(self.app, registry=registry)
        self.protect()
        telemetry.prometheus(self.app, registry)
        self.app.post("/orders")(self.view)
