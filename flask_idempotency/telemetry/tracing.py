"""OpenTelemetry spans and attributes of what the signals and the steps tell. None is a key, a scope or a body."""

import re
from collections.abc import Callable
from contextvars import Token
from functools import partial
from typing import Any

from blinker import NamedSignal
from flask import Flask, has_request_context, request
from opentelemetry import context, trace
from opentelemetry.trace import Span, SpanContext, StatusCode, TraceFlags, TracerProvider

from flask_idempotency import signals, steps
from flask_idempotency.core.decision import Replay
from flask_idempotency.core.snapshot import TRACE
from flask_idempotency.errors import BodyNotKept, CheckpointUnknown, ConfigError, Quarantined, RequestInFlight
from flask_idempotency.http import exchange
from flask_idempotency.telemetry.outcomes import OUTCOMES, outcome_of

STATES = {
    "first": "finished",
    "replayed": "finished",
    BodyNotKept.problem: "finished",
    "handed_over": "running",
    "accepted": "running",
    RequestInFlight.problem: "running",
    CheckpointUnknown.problem: "running",
    Quarantined.problem: "quarantined",
}
"""The state of the record by the outcome of a request, where it follows from that."""

_SPAN = "flask_idempotency.span"  # the request's span, in its environ
_REFUSED = "flask_idempotency.was_refused"  # whether a refusal was told of: the end of its run is no other outcome
_STORED = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-01")  # as in W3C's traceparent; only sampled traces are stored


def follow(app: Flask, provider: TracerProvider | None) -> None:
    """Put what an app's signals and steps tell into the traces of a provider, or of the global one."""
    if "idempotency_traced" in app.extensions:
        raise ConfigError("telemetry.opentelemetry was already called for this app: call it once.")
    app.extensions["idempotency_traced"] = True
    tracer = trace.get_tracer("flask_idempotency", tracer_provider=provider)
    app.preprocess_request = _noting_span(app)  # type: ignore[method-assign]  # no hook is certain to be the last
    receivers: dict[NamedSignal, Callable[..., Any]] = {
        **{signal: partial(_end, outcome) for signal, outcome in OUTCOMES.items()},
        signals.claimed: _claim,
        signals.replayed: _replay,  # with a link
        signals.released: _release,  # unless it was refused
        signals.refused: _refuse,
        steps.begun: partial(_begin, tracer),
    }
    for signal, receiver in receivers.items():
        signal.connect(receiver, sender=app, weak=False)


def _noting_span(app: Flask) -> Callable[..., Any]:
    """Wrap an app's ``preprocess_request``: behind its hooks the current span is the request's own."""
    preprocess = app.preprocess_request

    def run(*args: Any, **options: Any) -> Any:  # newer versions of Flask pass the context
        answer = preprocess(*args, **options)
        _span_of_request()
        return answer

    return run


def _span_of_request() -> Span:
    """Give the span of the current request, or of the job that is like one; else one that records nothing."""
    if not has_request_context():
        return trace.INVALID_SPAN
    environ = request.environ
    if _SPAN not in environ:
        environ[_SPAN] = trace.get_current_span()
    span: Span = environ[_SPAN]
    return span


# -- steps -------------------------------------------------------------------------------------------------------------


def _begin(tracer: trace.Tracer, app: Flask, *, kind: str, name: str | None) -> Callable[[BaseException | None], None]:
    """Start the span of a step, inside of the current one: without any, the request is not traced."""
    if not _span_of_request().is_recording() or not trace.get_current_span().is_recording():
        return lambda _: None
    span = tracer.start_span(f"idempotency {kind}" if name is None else f"idempotency {kind} {name}")
    return partial(_finish, span, context.attach(trace.set_span_in_context(span)))


def _finish(span: Span, token: Token[context.Context], error: BaseException | None) -> None:
    """End the span of a step. The message of an exception may quote a row, so that only its class is told."""
    if error is not None and span.is_recording():
        span.set_status(StatusCode.ERROR, type(error).__name__)
        span.set_attribute("error.type", type(error).__name__)
    context.detach(token)
    span.end()


# -- outcomes ----------------------------------------------------------------------------------------------------------


def _end(outcome: str, app: Flask, *, guard: str | None, reference: str | None, **_: Any) -> None:
    """Set the attributes of the request's span. There is none any more for an answer that is stored late."""
    span = _span_of_request()
    if not span.is_recording():
        return
    facts = {"outcome": outcome, "guard": guard, "reference": reference, "state": STATES.get(outcome)}
    if outcome == "not_kept" and guard == "lease":
        facts["state"] = "running"  # under the transaction guard there is no record
    span.set_attributes({f"idempotency.{name}": fact for name, fact in facts.items() if fact is not None})


def _claim(app: Flask, *, attempt: int, **_: Any) -> None:
    """Have the trace of this run stored with its answer, if anybody will find it there."""
    span = _span_of_request()
    if attempt > 1:
        span.set_attribute("idempotency.attempt", attempt)
    here, found = span.get_span_context(), exchange.peek(request.environ)
    if found is not None and here.trace_flags.sampled:
        found.trace = f"00-{here.trace_id:032x}-{here.span_id:016x}-01"


def _replay(app: Flask, **facts: Any) -> None:
    """Link the replay to the run that made its answer."""
    _end("replayed", app, **facts)
    match exchange.peek(request.environ):
        case exchange.Exchange(course=Replay(snapshot)):
            first = _STORED.fullmatch(dict(snapshot.headers).get(TRACE, ""))
            if first is not None:
                ids = int(first[1], 16), int(first[2], 16)
                _span_of_request().add_link(
                    SpanContext(*ids, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
                )


def _refuse(app: Flask, *, problem: str, status: int, **facts: Any) -> None:
    request.environ[_REFUSED] = True
    _end(outcome_of(problem, status), app, **facts)


def _release(app: Flask, **facts: Any) -> None:
    """Note that nothing is kept, unless a phase or effect was refused: then the client gets that refusal."""
    if has_request_context() and _REFUSED not in request.environ:
        _end("not_kept", app, **facts)
