"""``flask idempotency report``: what enforcing would change, from what shadow mode has observed."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click

from flask_idempotency.cli.group import commands
from flask_idempotency.core.observation import ERROR, Observation, Tally, digest_of_caller, tally
from flask_idempotency.core.scope import filed_under, scope_of
from flask_idempotency.errors import KeyMissing, RequestRefused
from flask_idempotency.state import current_state

WINDOW = 60.0  # seconds: clients that retry do so sooner, and people who mean it twice rarely do it as fast


@dataclass(slots=True)
class Period:
    """The time from the first to the last request that was seen, and how many there were."""

    since: float = 0.0
    until: float = 0.0
    requests: int = 0

    def noting(self, observations: Iterable[Observation]) -> Iterator[Observation]:
        """Pass observations on, and note each."""
        for seen in observations:
            self.since = self.since or seen.begun
            self.until = max(self.until, seen.begun)
            self.requests += 1
            yield seen


@commands.command("report")
@click.option("--json", "as_json", is_flag=True, help="Print the numbers as JSON.")
@click.option("--scope", "caller", help="Only the requests of this caller, as the scope function names him.")
@click.option(
    "--window",
    type=click.FloatRange(min=0),
    default=WINDOW,
    show_default=True,
    help="Seconds within which the same request without a key counts as a retry.",
)
def report(as_json: bool, caller: str | None, window: float) -> None:
    """Say what enforcing would change, by what was observed with IDEMPOTENCY_MODE = "shadow"."""
    state = current_state()
    state.observations.flush()
    seen: Iterable[Observation] = state.observations.read()
    if caller is not None:
        wanted = digest_of_caller(filed_under(scope_of(caller), state.settings.namespace))
        seen = (each for each in seen if each.caller == wanted)
    period = Period()
    tallies = tally(period.noting(seen), window)
    if as_json:
        click.echo(json.dumps(_as_data(period, tallies, window), indent=2))
        return
    for line in _as_text(period, tallies, window):
        click.echo(line)


def _as_data(period: Period, tallies: list[Tally], window: float) -> dict[str, Any]:
    return {
        "since": _when(period.since) if period.requests else None,
        "until": _when(period.until) if period.requests else None,
        "requests": period.requests,
        "window": window,
        "endpoints": [
            {
                "endpoint": each.endpoint,
                "method": each.method,
                "requests": each.requests,
                "with_key": each.keyed,
                "callers": len(each.callers),
                "callers_with_key": len(each.keyed_callers),
                "refused": dict(sorted(each.refused.items())),
                "reused": each.reused,
                "in_flight": each.in_flight,
                "replayed": each.replayed,
                "replayed_but_answered_differently": each.differed,
                "not_compared": each.not_compared,
                "repeated_without_key": each.repeated,
                "repeated_and_answered_differently": each.repeated_differed,
                "repeated_with_new_key": each.new_keys,
            }
            for each in tallies
        ],
    }


def _as_text(period: Period, tallies: list[Tally], window: float) -> Iterator[str]:
    if not period.requests:
        yield "No request has been observed."
        return
    yield f"{_many(period.requests, 'request')} from {_when(period.since)} to {_when(period.until)}."
    for each in tallies:
        yield ""
        yield f"{each.method} {each.endpoint}"
        yield f"  {_many(each.requests, 'request')}, {each.keyed} with a key;" + _callers(each)
        yield from (f"  - {sentence}" for sentence in _sentences(each, window) or ["Enforcing would change nothing."])


def _callers(each: Tally) -> str:
    known = len(each.callers)
    return f" {len(each.keyed_callers)} of {_many(known, 'caller')} sent keys" if known else " no caller was known"


def _sentences(each: Tally, window: float) -> list[str]:
    """Say in plain words what enforcing would change, the worst of today first."""
    found = []
    if each.replayed:
        found.append(
            f"{_many(each.replayed, 'retry', 'retries')} would get the first answer again. Today"
            f" {each.differed} of them got another answer than the first, and probably took effect again."
        )
    if each.in_flight:
        found.append(
            f"{_many(each.in_flight, 'duplicate')} came while the first was running, and would get 409"
            " (request-in-flight) or wait; today they ran beside it."
        )
    if each.reused:
        found.append(
            f"{_many(each.reused, 'request')} had the key of another request, and would get 422 (key-reused): find the"
            " client, and have it make a new key for each action."
        )
    found += [_refusal(code, count) for code, count in sorted(each.refused.items())]
    if each.repeated:
        found.append(
            f"{_many(each.repeated, 'request')} without a key repeated one of the same caller within {window:g} s, and"
            f" {each.repeated_differed} got another answer; with keys, retries among them would be harmless."
        )
    if each.new_keys:
        found.append(
            f"{_many(each.new_keys, 'request')} repeated one of the same caller within {window:g} s under another key:"
            " if these are retries, the client must keep its key."
        )
    if each.not_compared:
        found.append(
            f"{_many(each.not_compared, 'request')} had a known key, but the view did not read the body, or it is too"
            " large to compare."
        )
    return found


def _refusal(code: str, count: int) -> str:
    requests = _many(count, "request")
    if code == ERROR:
        return f"{requests} would fail with 500, because the scope or the key function does; the log says how."
    status = {kind.problem: kind.code for kind in RequestRefused.__subclasses__()}[code]
    without = " had no key, which is required, and" if code == KeyMissing.problem else ""
    return f"{requests}{without} would get {status} ({code})."


def _many(count: int, one: str, several: str | None = None) -> str:
    return f"{count} {one if count == 1 else several or one + 's'}"


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
