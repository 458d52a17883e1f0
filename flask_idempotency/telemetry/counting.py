"""Prometheus metrics of what the signals tell. No label is a key, a scope or a reference."""

from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from blinker import NamedSignal
from flask import Flask, has_request_context, request
from prometheus_client import CollectorRegistry, Counter, Histogram

from flask_idempotency import signals
from flask_idempotency.errors import ConfigError
from flask_idempotency.telemetry.outcomes import OUTCOMES, outcome_of

NONE = "none"  # the label of a request that was refused before its view's guard was known, and of a receipt
SHORT = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)  # seconds, for statements
LONG = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds, for views


class Metrics:
    """The metrics of one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ["endpoint", "guard"]
        counter = partial(Counter, namespace="idempotency", registry=registry)
        histogram = partial(Histogram, namespace="idempotency", registry=registry)
        self.requests = counter(
            "requests",
            "Requests by outcome: first, replayed, not_kept, handed_over, accepted, unprotected, or a refusal's code.",
            [*labels, "outcome"],
        )
        self.guard_seconds = histogram(
            "guard_seconds",
            "Time spent on idempotency itself: reading, claiming, storing; without waiting and the view.",
            [*labels, "outcome"],
            buckets=SHORT,
        )
        self.view_seconds = histogram("view_seconds", "Time spent in the view and in hooks.", labels, buckets=LONG)
        self.wait_seconds = histogram("wait_seconds", "Time duplicates waited for an answer.", labels, buckets=LONG)
        self.counters: dict[NamedSignal, Counter] = {
            signals.taken_over: counter("takeovers", "Attempts that took over an expired lease.", labels),
            signals.claim_lost: counter("claims_lost", "Runs that lost their claim to another attempt.", labels),
            signals.effect_undecided: counter("effects_undecided", "Effects whose outcome was unknown.", labels),
            signals.quarantined: counter("quarantined", "Records that need manual review.", labels),
        }
        self.late = counter("late_finishes", "Answers stored after their request had ended.")
        self.reaped = counter("reaped", "Expired and abandoned records that were deleted.")


_COUNTED = "flask_idempotency.counted"  # by which metrics a request was counted, in its environ

_METRICS: WeakKeyDictionary[CollectorRegistry, Metrics] = WeakKeyDictionary()


def count(app: Flask, registry: CollectorRegistry) -> None:
    """Count what an app's signals tell in the metrics of a registry."""
    counted: set[CollectorRegistry] = app.extensions.setdefault("idempotency_metrics", set())
    if registry in counted:
        raise ConfigError("telemetry.prometheus was already called for this app and registry: call it once.")
    counted.add(registry)
    if registry not in _METRICS:  # else another app shares it
        _METRICS[registry] = Metrics(registry)
    metrics = _METRICS[registry]
    receivers: dict[NamedSignal, Callable[..., None]] = {
        **{signal: partial(_end, metrics, outcome) for signal, outcome in OUTCOMES.items()},
        **{signal: partial(_happen, counter) for signal, counter in metrics.counters.items()},
        signals.refused: partial(_refuse, metrics),
        signals.reaped: partial(_reap, metrics),
    }
    for signal, receiver in receivers.items():
        signal.connect(receiver, sender=app, weak=False)


def _end(
    metrics: Metrics,
    outcome: str,
    app: Flask,
    *,
    endpoint: str | None,
    guard: str | None,
    seconds: float | None,
    waited: float | None,
    ran: float | None,
    late: bool = False,
    **_: Any,
) -> None:
    """Count a request by its outcome, and note where its time went."""
    if late:  # its request was answered before, with outcome-unknown
        metrics.late.inc()
        return
    if _is_counted(metrics):
        return
    about = endpoint or NONE, guard or NONE
    metrics.requests.labels(*about, outcome).inc()
    if seconds is not None and waited is not None and ran is not None:
        metrics.guard_seconds.labels(*about, outcome).observe(max(0.0, seconds - waited - ran))
        if waited:
            metrics.wait_seconds.labels(*about).observe(waited)
        if ran:
            metrics.view_seconds.labels(*about).observe(ran)


def _is_counted(metrics: Metrics) -> bool:
    """Say whether the current request was counted before, and note that it is: a refusal in a view ends its run too."""
    if not has_request_context():
        return False
    counted: set[Metrics] = request.environ.setdefault(_COUNTED, set())
    is_counted = metrics in counted
    counted.add(metrics)
    return is_counted


def _refuse(metrics: Metrics, app: Flask, *, problem: str, status: int, **facts: Any) -> None:
    _end(metrics, outcome_of(problem, status), app, **facts)


def _happen(counter: Counter, app: Flask, *, endpoint: str | None, guard: str | None, **_: Any) -> None:
    counter.labels(endpoint or NONE, guard or NONE).inc()


def _reap(metrics: Metrics, app: Flask, *, count: int, **_: Any) -> None:
    metrics.reaped.inc(count)
