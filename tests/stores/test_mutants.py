"""Can the proof fail? Each mutant breaks one rule; the contract or the state machine must see it."""

import inspect
import itertools
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from flask_idempotency.core.record import Busy, Claim, Settled
from flask_idempotency.core.snapshot import Snapshot
from flask_idempotency.errors import ClaimLost, StoreUnavailable
from flask_idempotency.testing import LEASE, RETENTION, StoreContract, make_asked
from tests.stores import mutants
from tests.stores.machine import StoreMachine
from tests.stores.mutants import MUTANTS, Mutant
from tests.stores.worlds import SqlWorld, World

# Programs do not race, so they cannot see what only racers do; nor do they look at every kind of answer.
SEEN_BY_THE_CONTRACT_ALONE = {
    mutants.LooksThenWrites,
    mutants.MergesHeaders,
    mutants.KeepsBodiesAsText,
    mutants.TakesEmptyForNotKept,
}
# One store asked by one caller cannot tell whose clock it goes by.
SEEN_BY_THE_MACHINE_ALONE = {mutants.UsesApplicationClock}


def each(mutants: Iterable[type[Mutant]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("mutant", list(mutants), ids=lambda mutant: mutant.__name__)


@pytest.fixture
def world(mutant: type[Mutant], tmp_path: Path) -> Iterator[World]:
    store = mutant(tmp_path / "records.db")
    store.create()
    yield SqlWorld(store)
    store.close()


def promises_of(contract: type[StoreContract]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name each test of the contract, once for each of its parameters."""
    for name, test in inspect.getmembers(contract, inspect.isfunction):
        if name.startswith("test_"):
            marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
            for values in itertools.product(*(mark.args[1] for mark in marks)):
                yield name, {mark.args[0]: value for mark, value in zip(marks, values, strict=True)}


def first_breach(world: World) -> str | None:
    """Put a store to the contract, and name the first promise it breaks."""
    given = {"store": world.store, "let_pass": world.let_pass}
    for name, parameters in promises_of(StoreContract):
        test = getattr(StoreContract(), name)
        wanted = inspect.signature(test).parameters
        world.clear()
        try:
            test(**parameters, **{fixture: value for fixture, value in given.items() if fixture in wanted})
        except (AssertionError, ClaimLost, StoreUnavailable, pytest.fail.Exception):
            return name
    return None


@each(MUTANTS)
def test_a_mutant_works_as_long_as_nothing_goes_wrong(world: World):
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
def test_a_mutant_without_a_change_breaks_no_promise(world: World):
    assert first_breach(world) is None


@each(mutant for mutant in MUTANTS if mutant not in SEEN_BY_THE_MACHINE_ALONE)
def test_the_contract_names_the_promise_that_a_mutant_breaks(world: World):
    assert first_breach(world)


@each(mutant for mutant in MUTANTS if mutant not in SEEN_BY_THE_CONTRACT_ALONE)
def test_the_state_machine_finds_a_program_that_a_mutant_gets_wrong(world: World):
    search = settings(
        max_examples=400,
        stateful_step_count=50,
        phases=[Phase.generate],  # one bad program is enough; it need not be the shortest
        derandomize=True,  # the same programs every time: a mutant that was found stays found
        database=None,
    )

    with pytest.raises((AssertionError, ClaimLost, StoreUnavailable)):
        run_state_machine_as_test(partial(StoreMachine, world), settings=search)
