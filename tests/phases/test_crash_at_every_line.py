"""Death, an exception, or sleep beyond the lease at every line of a checkout: one order, one charge, one answer."""

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.apps import checkout
from tests.apps.trials import Trial, sample, untraced
from tests.fixtures.gateway import Gateway
from tests.fixtures.lines import PACKAGE, Lines, die_at
from tests.phases.faults import NOTHING, ONE, Books, Shop, is_first, is_replay, make_tables, opened
from tests.tiers import is_quick

VIEW = checkout.__file__
STEP = 2 if is_quick() else 1  # how much larger the steps between two lines are that are tried
LEAST = 500  # lines of one checkout; fewer would mean that the tracer is blind
ROOMS = (
    "guards/phases.py",
    "guards/phase_transaction.py",
    "guards/lease.py",
    "sessions/joined.py",
    "sessions/joinable.py",
    "sessions/shared.py",
    "sessions/session_connection.py",
    "decorators.py",
    "stores/sql.py",
    "stores/rows.py",
    "core/checkpoint.py",
)


class Sleeper:
    """A forked copy of this process that checks out, and falls asleep at one line until it is woken.

    As with `die_at`, it ends before where a server is waited for in fewer lines than another time.
    """

    def __init__(self, shop: Shop, key: str, position: int) -> None:
        word, self._say = os.pipe()
        told, tell = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            logging.disable()
            try:

                def sleep() -> None:
                    os.write(tell, b"asleep\n")
                    os.read(word, 1)

                with Lines(VIEW, position, sleep):
                    answer = shop.order(key)
                result = [answer.status_code, is_first(answer), answer.get_data(as_text=True)]
                os.write(tell, json.dumps(result).encode() + b"\n")
            except BaseException as error:  # noqa: BLE001  # told to the parent, whose test then fails
                os.write(tell, json.dumps(repr(error)).encode() + b"\n")
            finally:
                os._exit(0)  # nothing of pytest's may run twice
        os.close(word)
        os.close(tell)
        self._told = os.fdopen(told)
        self._first = self._told.readline()

    def wake(self) -> Any:
        """Let it go on; give status, whether it was a first answer, and body."""
        is_asleep = self._first == "asleep\n"
        if is_asleep:
            os.write(self._say, b".")
        answer = json.loads(self._told.readline() if is_asleep else self._first)
        self._told.close()
        os.close(self._say)
        os.waitpid(self.pid, 0)
        assert isinstance(answer, list), answer
        return answer


class CheckoutTrial(Trial):
    """A checkout, and death, an exception or sleep at a line of it."""

    books: Books

    def die_at(self, position: int) -> str | None:
        """Die there, and retry as a client would; say in which state the record was left."""
        key = f"died-{position}"
        die_at(VIEW, position, lambda: self._mortal.order(key))
        left = self.books.of(key)
        assert max(left.orders, left.payments, left.receipts, left.charges) <= 1
        assert left.state != "finished" or left == ONE
        self._retry(key, was_done=left == ONE)
        return left.state

    def raise_at(self, position: int, error: type[BaseException]) -> str | None:
        """Raise there. What was answered is true, and the same process serves the retry; give the state left."""
        key = f"raised-{error.__name__}-{position}"

        def look() -> list[Any]:
            left = self.books.of(key)
            return [left.state, left == ONE]

        answered, state, was_done, status, was_replayed = self.raise_in_child(key, position, error, look)
        assert answered in (None, 201, 409, 500, 503)
        assert was_done or answered != 201
        assert status in (201, 409, 410)
        assert was_replayed <= was_done
        self._retry(key, was_done=was_done or status == 201, status=410 if status == 410 else 201)
        return cast(str | None, state)

    def sleep_at(self, position: int) -> str:
        """Fall asleep there until another attempt has run to its end, then go on; say what became of the sleeper."""
        key = f"asleep-{position}"
        sleeper = Sleeper(self._mortal, key, position)
        was_free = self.books.lapse(key)
        if not was_free and self.books.kind == "postgresql":
            self.books.end_idle_transactions()
            was_free = self.books.lapse(key)
        # More than once: a claim that the sleeper had sent may only be taken, with a lease that runs, after the lapse.
        answers = self._survivor.order_until_definitive(key, let_pass=self.books.lapse) if was_free else [None]
        other = answers[-1]
        self._survivor.close()
        meanwhile = self.books.of(key) if other is not None else NOTHING
        status, woke_as_first, body = sleeper.wake()

        # What the sleeper does after the other has answered for good changes nothing, and its client learns the same.
        if other is not None:
            assert meanwhile == ONE
            assert self.books.of(key) == ONE
            assert not (is_first(other) and woke_as_first)
            assert status in (201, 409, 503), body
            assert status != 201 or body == other.get_data(as_text=True)
        else:
            assert (status, woke_as_first) == (201, True), body
        self._retry(key, was_done=True)
        return "undisturbed" if other is None else "overtaken" if is_first(other) else "done before"

    def _retry(self, key: str, *, was_done: bool, status: int = 201) -> None:
        *_, retried = self._survivor.order_until_definitive(key, status, self.books.lapse)
        again = self._survivor.order(key)
        self._survivor.close()  # no connection may be inherited by the next child

        assert self.books.of(key) == ONE
        assert status == 410 or is_replay(again)
        assert status == 410 or is_replay(retried) == was_done
        assert (again.status_code, again.data) == (status, retried.data)


@pytest.fixture
def sqlite_trial(tmp_path: Path, gateway: Gateway) -> Iterator[CheckoutTrial]:
    yield from trial_on(f"sqlite:///{tmp_path / 'checkout.db'}", gateway)


@pytest.fixture
def postgres_trial(postgres_url: str, gateway: Gateway) -> Iterator[CheckoutTrial]:
    yield from trial_on(postgres_url, gateway)


def trial_on(url: str, gateway: Gateway) -> Iterator[CheckoutTrial]:
    make_tables(url)
    with opened(url, gateway) as mortal, opened(url, gateway) as survivor, untraced():
        yield CheckoutTrial(VIEW, Books(url, gateway), mortal, survivor)


def in_order(states: list[str | None]) -> bool:
    """Say whether a run was first not begun, then running, then finished, and never went back."""
    return states == sorted(states, key=[None, "running", "finished"].index)


@pytest.mark.timeout(1800)  # the long run
def test_after_death_at_every_line_there_is_one_of_everything_on_sqlite(sqlite_trial, tmp_path):
    alike = sqlite_trial.stretches(tmp_path)
    edges = {position for stretch in alike for position in (stretch[0], stretch[-1])}
    positions = sorted(edges.union(sample(len(sqlite_trial.seen), 150 * STEP)))

    states = sqlite_trial.at_each(positions, sqlite_trial.die_at)

    assert [position for stretch in alike for position in stretch] == [*range(1, len(sqlite_trial.seen) + 1)]
    left = dict(zip(positions, states, strict=True))
    assert [left[stretch[0]] for stretch in alike] == [left[stretch[-1]] for stretch in alike]
    assert len(sqlite_trial.seen) > LEAST
    assert {path for path, _ in sqlite_trial.seen} > {VIEW, *(PACKAGE + room for room in ROOMS)}
    assert in_order(states)
    assert set(states) == {None, "running", "finished"}


@pytest.mark.timeout(1800)  # the long run
def test_after_death_at_a_line_there_is_one_of_everything_on_postgresql(postgres_trial):
    states = postgres_trial.at_each(sample(len(postgres_trial.seen), 150 * STEP), postgres_trial.die_at)

    assert len(postgres_trial.seen) > LEAST
    assert in_order(states)
    assert set(states) == {None, "running", "finished"}


@pytest.mark.timeout(1800)  # the long run
@pytest.mark.parametrize("error", [SystemExit, RuntimeError])
def test_after_an_exception_at_a_line_there_is_one_of_everything(sqlite_trial, error):
    states = sqlite_trial.at_each(sample(len(sqlite_trial.seen), 80 * STEP), sqlite_trial.raise_at, error)

    assert set(states) == {None, "running", "finished"}


@pytest.mark.timeout(1800)  # the long run
def test_an_owner_overtaken_at_a_line_changes_nothing_when_it_wakes_on_sqlite(sqlite_trial):
    fates = sqlite_trial.at_each(sample(len(sqlite_trial.seen), 40 * STEP), sqlite_trial.sleep_at)

    assert set(fates) == {"overtaken", "done before", "undisturbed"}  # a SQLite file has one writer
    assert fates.count("overtaken") > len(fates) / 3


@pytest.mark.timeout(1800)  # the long run
def test_an_owner_overtaken_at_a_line_changes_nothing_when_it_wakes_on_postgresql(postgres_trial):
    fates = postgres_trial.at_each(sample(len(postgres_trial.seen), 120 * STEP), postgres_trial.sleep_at)

    assert set(fates) == {"overtaken", "done before"}
