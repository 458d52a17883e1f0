"""Helpers of the contracts: how a test brings a store into a state and reads it back."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from threading import Barrier
from typing import TypeVar

from flask_idempotency.core.checkpoint import Checkpoint, Kind, Progress
from flask_idempotency.core.lifecycle import TAKEOVERS
from flask_idempotency.core.record import Asked, Busy, Claim, Finished, Quarantined, Record, Running, Settled
from flask_idempotency.core.snapshot import Snapshot
from flask_idempotency.stores import Store
from flask_idempotency.testing.given import LEASE, MOMENT, LetPass, make_asked

T = TypeVar("T")

OTHER = Snapshot(200, (), b"another answer")

# -- arranging -------------------------------------------------------------------------------------------------------


def begin(store: Store, key: str = "order-1") -> Claim:
    """Claim a record that must be free."""
    return claimed(store.claim(make_asked(key), LEASE))


def misplaced_claim(asked: Asked, claim: Claim) -> Claim:
    """Make a claim on *asked* with the token of another record, which must give no access to it."""
    return replace(claim, id=asked.id, fingerprint=asked.fingerprint, attempt=1, taken_over=False, point=None)


def let_run_out(store: Store, let_pass: LetPass, times: int) -> list[int]:
    """Let this many owners claim in turn and die; give the numbers of their attempts."""
    attempts = []
    for _ in range(times):
        attempts.append(begin(store).attempt)
        let_pass(LEASE)
    return attempts


def wear_out(store: Store, let_pass: LetPass) -> None:
    """Let one more owner die than a record allows."""
    let_run_out(store, let_pass, TAKEOVERS + 1)
    assert isinstance(store.claim(make_asked(), LEASE), Settled)


def make_phase(name: str, position: int = 1, result: str | None = None) -> Checkpoint:
    """Make the checkpoint of a completed phase."""
    return Checkpoint(name, Kind.PHASE, position, result=result)


def make_effect(
    state: Progress, generation: int = 1, *, name: str = "charge", position: int = 1, result: str | None = None
) -> Checkpoint:
    """Make a checkpoint of an effect."""
    return Checkpoint(name, Kind.EFFECT, position, state, generation, result)


def race(callers: int, call: Callable[[], T]) -> list[T]:
    """Call the same function in several threads at one instant; give the result of each."""
    return race_each([call] * callers)


def race_each(calls: Iterable[Callable[[], T]]) -> list[T]:
    """Call each function in a thread of its own, all at one instant; give their results in the same order."""
    racers = list(calls)
    line = Barrier(len(racers), timeout=60)  # a racer that never comes must not hang the test

    def run(call: Callable[[], T]) -> T:
        line.wait()
        return call()

    with ThreadPoolExecutor(len(racers)) as threads:
        return list(threads.map(run, racers))


# -- asserting -------------------------------------------------------------------------------------------------------


def claimed(found: Claim | Busy | Settled) -> Claim:
    """Give the claim; anything else fails the test."""
    assert isinstance(found, Claim), f"expected a claim, got {found}"
    return found


def only_claim(found: Iterable[Claim | Busy | Settled]) -> Claim:
    """Give the one claim among the answers; none or two fail the test."""
    claims = [each for each in found if isinstance(each, Claim)]
    assert len(claims) == 1, f"{len(claims)} callers got the claim"
    return claims[0]


def record_of(store: Store, key: str = "order-1") -> Record:
    """Give the record, which must exist."""
    record = store.find(make_asked(key).id)
    assert record is not None, "the record is gone"
    return record


def lease_of(store: Store) -> Running:
    """Give the record's condition, which must be running."""
    condition = record_of(store).condition
    assert isinstance(condition, Running), f"expected a running record, got {condition}"
    return condition


def outcome_of(store: Store) -> Finished:
    """Give the record's condition, which must be finished."""
    condition = record_of(store).condition
    assert isinstance(condition, Finished), f"expected a finished record, got {condition}"
    return condition


def progress_of(store: Store, key: str = "order-1") -> list[Checkpoint]:
    """Give the checkpoints of a record as they were written, without their ages, which change by themselves."""
    return [replace(each, age=timedelta(0)) for each in store.checkpoints(make_asked(key).id)]


def everything_in(store: Store) -> object:
    """Give everything that can be seen of a store, with ages rounded so that it equals a later look."""
    return [
        (
            replace(record, condition=_at_rest(record)),
            [replace(each, age=timedelta(minutes=round(each.age / MOMENT))) for each in _made(store, record)],
        )
        for record in sorted(store.browse(), key=lambda record: record.asked.id)
    ]


def _at_rest(record: Record) -> Running | Finished | Quarantined:
    match record.condition:
        case Running() as running:
            return replace(running, lease_left=timedelta(0))
        case condition:
            return condition


def _made(store: Store, record: Record) -> list[Checkpoint]:
    return store.checkpoints(record.asked.id)
