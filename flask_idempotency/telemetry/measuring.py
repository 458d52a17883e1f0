"""Prometheus gauges of what the store holds, read while they are scraped. They are absent if the store cannot be asked.

They tell of the store and not of a process: every worker of an app gives the same.
"""

import logging
from collections.abc import Iterator
from threading import Event, Lock, Thread
from time import monotonic
from weakref import WeakKeyDictionary, WeakSet

from flask import Flask
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from flask_idempotency.core.figures import Figures
from flask_idempotency.errors import StoreUnavailable
from flask_idempotency.state import NAME, State
from flask_idempotency.stores.forks import start_afresh_in_child

LIFETIME = 5.0  # seconds for which figures are shown again: two scrapers of one process ask the store once
PATIENCE = 2.0  # seconds that a scrape waits for the store; a slow store must not cost all other metrics of the app

log = logging.getLogger("flask_idempotency")


class Gauges(Collector):
    """The gauges of one registry: the sums of the apps that it measures."""

    def __init__(self) -> None:
        self.apps: WeakSet[Flask] = WeakSet()

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Name the gauges, without asking a store."""
        yield from _families([])

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Read the gauges. A store that does not answer in time is left out."""
        read = [reading_of(app).read(app.extensions[NAME]) for app in list(self.apps) if NAME in app.extensions]
        yield from _families([each for each in read if each is not None])


class Reading:
    """The last figures of one app's store. One thread at a time asks for new ones."""

    def __init__(self) -> None:
        self.start_afresh()
        start_afresh_in_child(self)

    def start_afresh(self) -> None:
        """Know nothing: a forked process has not the thread that was asking."""
        self._lock = Lock()
        self._at = 0.0
        self._figures: Figures | None = None
        self._asked: Event | None = None  # set when the answer to the question that is being asked is there

    def read(self, state: State) -> Figures | None:
        """Give the figures, a few seconds old at most; None if they are not to be had in time."""
        with self._lock:
            if self._figures is not None and monotonic() - self._at < LIFETIME:
                return self._figures
            asked = self._asked
            if asked is None:
                asked = self._asked = Event()
                Thread(target=self._ask, args=(state, asked), name="idempotency-gauges", daemon=True).start()
        asked.wait(PATIENCE)
        with self._lock:
            return self._figures if asked.is_set() else None

    def _ask(self, state: State, asked: Event) -> None:
        figures = None
        try:
            figures = state.ready_store().figures()
        except StoreUnavailable:
            pass  # which was logged, with what to do
        except Exception:
            log.exception("the store could not be counted, so its gauges are absent")
        finally:
            with self._lock:
                self._figures, self._at, self._asked = figures, monotonic(), None
                asked.set()


def reading_of(app: Flask) -> Reading:
    """Give the reading that all registries of an app share; some are made for one scrape."""
    found: Reading = app.extensions.setdefault("idempotency_reading", Reading())
    return found


_GAUGES: WeakKeyDictionary[CollectorRegistry, Gauges] = WeakKeyDictionary()


def measure(app: Flask, registry: CollectorRegistry) -> None:
    """Have a registry show what an app's store holds."""
    reading_of(app)
    if registry not in _GAUGES:  # else another app shares it
        gauges = _GAUGES[registry] = Gauges()
        registry.register(gauges)
    _GAUGES[registry].apps.add(app)


def _families(read: list[Figures]) -> Iterator[GaugeMetricFamily]:
    """Give each gauge, with a value if there is one."""
    quarantined = [each.quarantined for each in read if each.quarantined is not None]
    yield _gauge("running_records", "Records that are running.", [each.running for each in read])
    yield _gauge("quarantined_records", "Records that wait for manual review.", quarantined)
    yield _gauge("live_records", "Records that have not expired.", [each.live for each in read])
    yield _gauge("expired_records", "Records that have expired and are not reaped.", [each.expired for each in read])
    yield _gauge("store_bytes", "What the records take in the store.", [each.bytes for each in read if each.bytes])
    oldest = [each.oldest_running.total_seconds() for each in read if each.oldest_running is not None]
    yield _gauge("oldest_running_seconds", "Age of the oldest running record; 0: none.", _at_most(oldest, read))
    lags = [each.reap_lag.total_seconds() for each in read if each.reap_lag is not None]
    yield _gauge("reap_lag_seconds", "Since the oldest unreaped record expired; 0: none.", _at_most(lags, read))


def _at_most(seconds: list[float], read: list[Figures]) -> list[float]:
    return [max(seconds, default=0.0)] if read else []


def _gauge(name: str, words: str, values: "list[int] | list[float]") -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"idempotency_{name}", words)
    if values:
        family.add_metric([], sum(values))
    return family
