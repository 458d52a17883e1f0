"""Can the proof fail? Each mutant breaks one rule, and the contract must see it, or else the state machine."""

import inspect
import itertools
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from flask_idempotency.core.quota import Quota
from flask_idempotency.core.record import Busy, Claim, Settled
from flask_idempotency.core.snapshot import Snapshot
from flask_idempotency.errors import IdempotencyError
from flask_idempotency.testing import (
    LEASE,
    RETENTION,
    CountingContract,
    CountingTransactionContract,
    StoreContract,
    TransactionContract,
    make_asked,
)
from tests.stores import mutants
from tests.stores.mutants import COUNTING_MUTANTS, MUTANTS, PHASE_MUTANTS, CountingMutant, Mutant, PhaseMutant
from tests.stores.worlds import SqlWorld

# One store asked by one caller cannot tell whose clock it goes by.
SEEN_BY_THE_MACHINE_ALONE = {mutants.UsesApplicationClock}

BREACHES = (AssertionError, IdempotencyError, sqlite3.Error, pytest.fail.Exception)


def each(mutants: Iterable[type[Mutant]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("mutant", list(mutants), ids=lambda mutant: mutant.__name__)


@pytest.fixture
def world(mutant: type[Mutant], tmp_path: Path) -> Iterator[SqlWorld]:
    store = mutant(tmp_path / "records.db")
    store.create()
    yield SqlWorld(store)
    store.close()


def promises_of(contract: type[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name each test of the contract, once for each of its parameters."""
    for name, test in inspect.getmembers(contract, inspect.isfunction):
        if name.startswith("test_"):
            marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
            for chosen in itertools.product(*map(parameters_of, marks)):
                yield name, {key: value for each in chosen for key, value in each.items()}


def parameters_of(mark: pytest.Mark) -> list[dict[str, Any]]:
    """Give each set of values that a mark parametrizes a test with."""
    names, values = mark.args
    return [{names: each} if isinstance(names, str) else dict(zip(names, each, strict=True)) for each in values]


@contextmanager
def given(world: SqlWorld) -> Iterator[dict[str, object]]:
    """Make the fixtures of the contracts for one test: an empty store, and an empty table beside it."""
    world.clear()
    with ExitStack() as connections:

        @cache
        def make_table() -> None:
            open_one().executescript("DROP TABLE IF EXISTS work; CREATE TABLE work (name text)")

        def open_one() -> sqlite3.Connection:
            connection = connections.enter_context(closing(sqlite3.connect(world.store._engine.url.database)))
            if isinstance(world.store, Mutant):
                connections.callback(world.store.leave, connection)  # as a pool does with what comes back to it
            return connection

        def connect() -> sqlite3.Connection:
            make_table()
            return open_one()

        def set_quota(quota: Quota | None) -> None:
            world.store.quota = quota

        yield {"store": world.store, "let_pass": world.let_pass, "connect": connect, "set_quota": set_quota}
        set_quota(None)


def first_breach(world: SqlWorld, contract: type[Any]) -> str | None:
    """Put a store to a contract, and name the first promise it breaks."""
    for name, parameters in sorted(promises_of(contract), key=lambda promise: "callers" in promise[1]):  # races last
        test = getattr(contract(), name)
        wanted = inspect.signature(test).parameters
        with given(world) as fixtures:
            try:
                test(**parameters, **{fixture: value for fixture, value in fixtures.items() if fixture in wanted})
            except BREACHES:
                return name
    return None


@each(MUTANTS)
def test_a_mutant_works_as_long_as_nothing_goes_wrong(world: SqlWorld):
    answer = Snapshot(201, (("Location", "/orders/1"),), b"done")

    claim = world.store.claim(make_asked(), LEASE)
    assert isinstance(claim, Claim)
    assert isinstance(world.store.claim(make_asked(), LEASE), Busy)
    world.store.renew(claim, LEASE)
    world.store.complete(claim, answer, RETENTION)
    found = world.store.claim(make_asked(), LEASE)

    assert isinstance(found, Settled)
    assert found.record.condition.answer == answer  # type: ignore[union-attr]  # completed above


@each([Mutant])
def test_a_mutant_without_a_change_breaks_no_promise(world: SqlWorld):
    assert first_breach(world, StoreContract) is None


@each(mutant for mutant in MUTANTS if mutant not in SEEN_BY_THE_MACHINE_ALONE)
def test_the_contract_names_the_promise_that_a_mutant_breaks(world: SqlWorld):
    assert first_breach(world, StoreContract)


@each([PhaseMutant])
def test_a_phase_mutant_without_a_change_breaks_no_promise(world: SqlWorld):
    assert first_breach(world, TransactionContract) is None


@each(PHASE_MUTANTS)
def test_the_contract_of_transactions_names_the_promise_that_a_mutant_breaks(world: SqlWorld):
    assert first_breach(world, TransactionContract)


@each([CountingMutant])
def test_a_counting_mutant_without_a_change_breaks_no_promise(world: SqlWorld):
    assert first_breach(world, CountingContract) is None
    assert first_breach(world, CountingTransactionContract) is None


@each(COUNTING_MUTANTS)
def test_a_contract_of_stores_that_count_names_the_promise_that_a_mutant_breaks(world: SqlWorld):
    assert first_breach(world, CountingContract) or first_breach(world, CountingTransactionContract)
