"""OpenTelemetry: every request has one span, replays and refusals included."""

from typing import Any, ClassVar

from opentelemetry.instrumentation.flask import FlaskInstrumentor
from opentelemetry.instrumentation.psycopg import PsycopgInstrumentor
from opentelemetry.instrumentation.sqlalchemy import SQLAlchemyInstrumentor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from flask_idempotency import telemetry
from tests.ecosystem.shop import Shop

PACKAGE = "OpenTelemetry (flask, sqlalchemy, psycopg)"
STEP = "Unchanged, in any order of registration: `telemetry.opentelemetry(app)` adds to its spans."


class Before(Shop):
    """Flask is instrumented before us, SQLAlchemy's engine and the driver too."""

    databases = ("sqlite", "postgresql")
    order: ClassVar[tuple[str, ...]] = ("instrument", "protect", "trace")

    def build(self) -> None:
        self.start_tracing()
        for step in self.order:
            getattr(self, step)()
        self.app.post("/orders")(self.view)

    def instrument(self) -> None:
        """Have a span started for each request."""
        FlaskInstrumentor().instrument_app(self.app, tracer_provider=self.provider)

    def trace(self) -> None:
        """Have it say what became of the request."""
        telemetry.opentelemetry(self.app, self.provider)

    def start_tracing(self) -> None:
        """Collect spans in memory; the driver is instrumented before the first connection is made."""
        self.spans = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.spans))
        PsycopgInstrumentor().instrument(tracer_provider=self.provider, enable_commenter=False)
        with self.app.app_context():
            SQLAlchemyInstrumentor().instrument(engine=self.db.engine, tracer_provider=self.provider)

    @property
    def requests(self) -> list[ReadableSpan]:
        """The spans of requests."""
        return [span for span in self.spans.get_finished_spans() if span.kind == SpanKind.SERVER]

    @property
    def statuses(self) -> list[int]:
        """The status in every span of a request."""
        return [dict(span.attributes or {}).get("http.status_code") for span in self.requests]

    def named(self, name: str) -> list[ReadableSpan]:
        """The spans of a name."""
        return [span for span in self.spans.get_finished_spans() if span.name == name]

    def statements(self, scope: str) -> list[str]:
        """The statements of one instrumentation's spans."""
        finished: list[Any] = list(self.spans.get_finished_spans())
        return [
            span.attributes["db.statement"]
            for span in finished
            if scope in span.instrumentation_scope.name and "db.statement" in span.attributes
        ]

    def close(self) -> None:
        FlaskInstrumentor().uninstrument_app(self.app)
        SQLAlchemyInstrumentor().uninstrument()
        PsycopgInstrumentor().uninstrument()
        self.provider.shutdown()
        super().close()


class After(Before):
    """Flask is instrumented after us."""

    order = ("trace", "protect", "instrument")
