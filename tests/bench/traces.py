"""What traces cost a request: none where they are off, and little where they are on."""

import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

from flask import Flask
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from flask_idempotency import telemetry
from tests.bench.apps import Case, closing, make_app, post
from tests.bench.timing import measure

TARGET = 0.05


class Nowhere(SpanExporter):
    """Takes spans and sends them nowhere: what a collector costs is not ours."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def show_traces(rounds: int) -> None:
    """Print what our spans, attributes and links add, as a part of an unprotected request."""
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        url = f"sqlite:///{Path(folder) / 'shop.sqlite'}"
        plain, spanned, traced = make_app(url), make_app(url, "transaction"), make_app(url, "transaction")
        telemetry.opentelemetry(traced, provider)
        for app in (spanned, traced):
            _instrument(app, provider)
        stack.enter_context(closing(plain, spanned, traced))
        again = {app: str(uuid4()) for app in (spanned, traced)}
        for app, key in again.items():
            post(app, key)
        cases = [
            Case("unprotected", lambda: post(plain)),
            Case("first run", lambda: post(spanned, str(uuid4()))),
            Case("first run, with our traces", lambda: post(traced, str(uuid4()))),
            Case("replay", lambda: post(spanned, again[spanned])),
            Case("replay, with our traces", lambda: post(traced, again[traced])),
        ]
        base, *others = measure("traces", cases, rounds)
    provider.shutdown()
    print(f"Traces, SQLite, transaction guard, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print("  What our spans and attributes add to a request that has a span, as a part of an unprotected one:")
    for name, without, with_ours in (("first run", *others[:2]), ("replay", *others[2:])):
        wall, cpu = (with_ours.wall - without.wall) / base.wall, (with_ours.cpu - without.cpu) / base.cpu
        over = "  over" if round(max(wall, cpu), 2) > TARGET else ""
        print(f"  {name:30}{wall:6.2f} wall{cpu:7.2f} CPU  (target: ≤ {TARGET:.2f}){over}")
    print(flush=True)


def _instrument(app: Flask, provider: TracerProvider) -> None:
    """Start a span for each request, as an instrumentation of WSGI does."""
    tracer, wsgi_app = provider.get_tracer("bench"), app.wsgi_app

    def serve(environ, start_response):  # type: ignore[no-untyped-def]  # as in WSGI
        with tracer.start_as_current_span("POST /orders"):
            return wsgi_app(environ, start_response)

    app.wsgi_app = serve  # type: ignore[method-assign]  # the documented way
