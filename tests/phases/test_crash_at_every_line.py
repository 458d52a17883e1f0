"""Death, an exception, or sleep beyond the lease at every line of a checkout: one order, one charge, one answer."""

import gc
import json
import logging
import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apps import checkout
from tests.fixtures.gateway import Gateway
from tests.fixtures.lines import LIVED, PACKAGE, Lines, contents, die_at, in_child, stretches
from tests.phases.faults import NOTHING, ONE, Books, Shop, is_first, is_replay, make_tables, opened

VIEW = checkout.__file__
IS_LONG = os.environ.get("TEST_LONG") == "1"
LEAST = 500  # lines of one checkout; fewer would mean that the tracer is blind
ROOMS = (
    "guards/phases.py",
    "guards/phase_transaction.py",
    "guards/lease.py",
    "sessions/joined.py",
    "extension.py",
    "stores/sql.py",
    "core/checkpoint.py",
)


class Sleeper:
    """A forked copy of this process that checks out, and falls asleep at one line until it is woken."""

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
        assert self._told.readline() == "asleep\n"

    def wake(self) -> Any:
        """Let it go on; give status, whether it was a first answer, and body."""
        os.write(self._say, b".")
        answer = json.loads(self._told.readline())
        self._told.close()
        os.close(self._say)
        os.waitpid(self.pid, 0)
        assert isinstance(answer, list), answer
        return answer


class Trial:
    """A database, an app that is only ever used in forked children, and another that retries after them."""

    def __init__(self, url: str, gateway: Gateway, mortal: Shop, survivor: Shop) -> None:
        self.books, self._mortal, self._survivor = Books(url, gateway), mortal, survivor
        for number, shop in enumerate([mortal, survivor]):
            assert is_first(shop.order(f"warm-{number}"))  # what is loaded once is loaded here: children inherit it
            shop.close()
        code, seen = in_child(self._trace)
        assert code == LIVED, seen
        self.seen: list[tuple[str, int]] = [(path, line) for path, line in seen]  # in order, repetitions included

    def stretches(self, folder: Path) -> list[range]:
        """Join the lines between which no byte changes in the folder, where database and gateway have their files."""
        return stretches(VIEW, lambda: self._mortal.order("watched"), lambda: contents(folder))

    def _trace(self) -> list[tuple[str, int]]:
        with Lines(VIEW) as lines:
            answer = self._mortal.order("traced")
        assert is_first(answer), answer.data
        return lines.seen

    def at_each(self, positions: list[int], check: Callable[..., Any], *details: Any) -> list[Any]:
        """Do something at one position after the other; give what each brought."""
        return [self._named(position, check, *details) for position in positions]

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

        def fail() -> None:
            raise error

        def act() -> list[Any]:
            answered = None
            try:
                with Lines(VIEW, position, fail) as lines:
                    answered = self._mortal.order(key).status_code
            except error:
                pass
            assert len(lines.seen) >= position
            gc.collect()  # a traceback may hold the connection; in a server the next requests make it go away
            left, again = self.books.of(key), self._mortal.order(key)
            return [answered, left.state, left == ONE, again.status_code, is_replay(again)]

        code, told = in_child(act)
        assert code == LIVED, told
        answered, state, was_done, status, was_replayed = told
        assert answered in (None, 201, 409, 500, 503)
        assert was_done or answered != 201
        assert status in (201, 409, 410), told
        assert was_replayed <= was_done
        self._retry(key, was_done=was_done or status == 201, status=410 if status == 410 else 201)
        return state  # type: ignore[no-any-return]  # it is what the child read

    def sleep_at(self, position: int) -> str:
        """Fall asleep there until another attempt has run to its end, then go on; say what became of the sleeper."""
        key = f"asleep-{position}"
        sleeper = Sleeper(self._mortal, key, position)
        was_free = self.books.lapse(key)
        if not was_free and self.books.kind == "postgresql":
            self.books.end_idle_transactions()
            was_free = self.books.lapse(key)
        other = self._survivor.order(key) if was_free else None
        self._survivor.close()
        meanwhile = self.books.of(key) if other is not None else NOTHING
        status, woke_as_first, body = sleeper.wake()

        # What the sleeper does after the other has answered for good changes nothing, and its client learns the same.
        if other is not None:
            assert other.status_code == 201, other.data
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
        *_, retried = self._survivor.order_until_definitive(key, self.books, status)
        again = self._survivor.order(key)
        self._survivor.close()  # no connection may be inherited by the next child

        assert self.books.of(key) == ONE
        assert status == 410 or is_replay(again)
        assert status == 410 or is_replay(retried) == was_done
        assert (again.status_code, again.data) == (status, retried.data)

    def _named(self, position: int, check: Callable[..., Any], *details: Any) -> Any:
        try:
            return check(position, *details)
        except AssertionError as error:
            path, line = self.seen[position - 1]
            error.add_note(f"at position {position} of {len(self.seen)}: {path}:{line}")
            raise


def sample(trial: Trial, every: int) -> list[int]:
    """Every n-th position, from one that the seed chooses, and the last; on a long run, all."""
    step, last = 1 if IS_LONG else every, len(trial.seen)
    first = 1 + random.Random(os.environ.get("TEST_SEED", "0")).randrange(step)
    return sorted({*range(first, last + 1, step), last})


@pytest.fixture
def sqlite_trial(tmp_path: Path, gateway: Gateway) -> Iterator[Trial]:
    yield from trial_on(f"sqlite:///{tmp_path / 'checkout.db'}", gateway)


@pytest.fixture
def postgres_trial(postgres_url: str, gateway: Gateway) -> Iterator[Trial]:
    yield from trial_on(postgres_url, gateway)


def trial_on(url: str, gateway: Gateway) -> Iterator[Trial]:
    make_tables(url)
    before = sys.gettrace()
    with opened(url, gateway) as mortal, opened(url, gateway) as survivor:
        gc.freeze()  # or each child would copy the memory that its first collection walks through
        yield Trial(url, gateway, mortal, survivor)
        gc.unfreeze()
    sys.settrace(before)


def in_order(states: list[str | None]) -> bool:
    """Say whether a run was first not begun, then running, then finished, and never went back."""
    return states == sorted(states, key=[None, "running", "finished"].index)


@pytest.mark.timeout(1800)  # the long run
def test_after_death_at_every_line_there_is_one_of_everything_on_sqlite(sqlite_trial, tmp_path):
    alike = sqlite_trial.stretches(tmp_path)
    edges = {position for stretch in alike for position in (stretch[0], stretch[-1])}
    positions = sorted(edges.union(sample(sqlite_trial, 150)))

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
    states = postgres_trial.at_each(sample(postgres_trial, 150), postgres_trial.die_at)

    assert len(postgres_trial.seen) > LEAST
    assert in_order(states)
    assert set(states) == {None, "running", "finished"}


@pytest.mark.timeout(1800)  # the long run
@pytest.mark.parametrize("error", [SystemExit, RuntimeError])
def test_after_an_exception_at_a_line_there_is_one_of_everything(sqlite_trial, error):
    states = sqlite_trial.at_each(sample(sqlite_trial, 80), sqlite_trial.raise_at, error)

    assert set(states) == {None, "running", "finished"}


@pytest.mark.timeout(1800)  # the long run
def test_an_owner_overtaken_at_a_line_changes_nothing_when_it_wakes_on_sqlite(sqlite_trial):
    fates = sqlite_trial.at_each(sample(sqlite_trial, 40), sqlite_trial.sleep_at)

    assert set(fates) == {"overtaken", "done before", "undisturbed"}  # a SQLite file has one writer
    assert fates.count("overtaken") > fates.count("undisturbed")


@pytest.mark.timeout(1800)  # the long run
def test_an_owner_overtaken_at_a_line_changes_nothing_when_it_wakes_on_postgresql(postgres_trial):
    fates = postgres_trial.at_each(sample(postgres_trial, 120), postgres_trial.sleep_at)

    assert set(fates) == {"overtaken", "done before"}
