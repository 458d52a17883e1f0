"""Death at every line that a request executes, of the package and of the view: orders and records always agree."""

import gc
import os
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apps import orders
from tests.fixtures.lines import LIVED, PACKAGE, Lines, contents, die_at, in_child, stretches
from tests.transaction.faults import ONE, Books, Shop, is_first, is_replay, make_tables, opened

VIEW = orders.__file__
EVERY = 1 if os.environ.get("TEST_LONG") == "1" else 10  # on PostgreSQL a position costs a new connection or three
LEAST = 200  # lines of one request; fewer would mean that the tracer is blind


class Trial:
    """A database, an app that is only ever used in forked children, and another that retries after them."""

    def __init__(self, url: str, mortal: Shop, survivor: Shop) -> None:
        self.books, self._mortal, self._survivor = Books(url), mortal, survivor
        survivor.order("warm")  # what is loaded once, such as statements, is loaded here: the children inherit it
        survivor.close()
        code, seen = in_child(self._trace)
        assert code == LIVED, seen
        self.seen: list[tuple[str, int]] = [(path, line) for path, line in seen]  # in order, repetitions included

    def stretches(self, folder: Path) -> list[range]:
        """Join the lines between which no byte of any file in the folder changes: a death leaves nothing but files."""
        return stretches(VIEW, lambda: self._mortal.order("watched"), lambda: contents(folder))

    def _trace(self) -> list[tuple[str, int]]:
        with Lines(VIEW) as lines:
            answer = self._mortal.order("traced")
        assert is_first(answer), answer.data
        return lines.seen

    def die_at_each(self, positions: Iterable[int]) -> list[bool]:
        """Die at one position after the other; say of each whether the work was done by then."""
        return [self._named(position, self.die_at) for position in positions]

    def raise_at_each(self, positions: range, error: type[BaseException]) -> list[bool]:
        """Raise at one position after the other; say of each whether the work was done by then."""
        return [self._named(position, self.raise_at, error) for position in positions]

    def die_at(self, position: int) -> bool:
        """Die there, and retry as a client would."""
        key = f"died-{position}"
        die_at(VIEW, position, lambda: self._mortal.order(key))
        return self._retry(key)

    def raise_at(self, position: int, error: type[BaseException]) -> bool:
        """Raise there. What was answered is true, and the same process serves the retry."""
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
            found, again = self.books.of(key), self._mortal.order(key)
            return [answered, found.agrees, found.orders, again.status_code, is_replay(again)]

        code, told = in_child(act)
        assert code == LIVED, told
        answered, agreed, done, status, was_replayed = told
        assert answered in (None, 201, 500, 503)
        assert agreed
        assert done or answered != 201
        # What breaks while an answer is taken down leaves it finished without its body: done all the same.
        assert (status, was_replayed) == (201, bool(done)) or (status, done) == (410, 1)
        return self._retry(key, status) and bool(done)

    def _retry(self, key: str, status: int = 201) -> bool:
        found = self.books.of(key)
        *_, retried = self._survivor.order_until_definitive(key, status)
        again = self._survivor.order(key)
        self._survivor.close()  # no connection may be inherited by the next child

        assert found.agrees, found
        assert self.books.of(key) == ONE
        if found == ONE and status == 201:
            assert is_replay(retried)
        assert is_replay(again) or status == 410
        assert (again.status_code, again.data) == (status, retried.data)
        return found == ONE

    def _named(self, position: int, check: Callable[..., bool], *details: Any) -> bool:
        try:
            return check(position, *details)
        except AssertionError as error:
            path, line = self.seen[position - 1]
            error.add_note(f"at position {position} of {len(self.seen)}: {path}:{line}")
            raise


def sample(positions: int, every: int) -> range:
    """Every n-th position, from one that the seed chooses."""
    chosen = random.Random(os.environ.get("TEST_SEED", "0"))
    return range(1 + chosen.randrange(every), positions + 1, every)


@pytest.fixture
def sqlite_trial(tmp_path: Path) -> Iterator[Trial]:
    yield from trial_on(f"sqlite:///{tmp_path / 'orders.db'}")


@pytest.fixture
def postgres_trial(postgres_url: str) -> Iterator[Trial]:
    yield from trial_on(postgres_url)


def trial_on(url: str) -> Iterator[Trial]:
    make_tables(url)
    before = sys.gettrace()
    with opened(url) as mortal, opened(url) as survivor:
        gc.freeze()  # or each child would copy the memory that its first collection walks through
        yield Trial(url, mortal, survivor)
        gc.unfreeze()
    sys.settrace(before)


@pytest.mark.timeout(1800)  # the long run
def test_after_death_at_every_line_there_is_one_order_and_one_answer_on_sqlite(sqlite_trial, tmp_path):
    alike = sqlite_trial.stretches(tmp_path)
    edges = {position for stretch in alike for position in (stretch[0], stretch[-1])}
    positions = sorted(edges.union(sample(len(sqlite_trial.seen), 1 if EVERY == 1 else 40)))

    done = dict(zip(positions, sqlite_trial.die_at_each(positions), strict=True))

    assert [position for stretch in alike for position in stretch] == [*range(1, len(sqlite_trial.seen) + 1)]
    assert len(sqlite_trial.seen) > LEAST
    assert {path for path, _ in sqlite_trial.seen} > {VIEW, f"{PACKAGE}guards/transaction.py", f"{PACKAGE}extension.py"}
    assert [done[stretch[0]] for stretch in alike] == [done[stretch[-1]] for stretch in alike]
    assert list(done.values()) == sorted(done.values())  # undone up to the line that commits, and done from there on
    assert set(done.values()) == {False, True}


@pytest.mark.timeout(1800)  # the long run
def test_after_death_at_a_line_there_is_one_order_and_one_answer_on_postgresql(postgres_trial):
    positions = sample(len(postgres_trial.seen), EVERY)

    done = postgres_trial.die_at_each(positions)

    assert len(postgres_trial.seen) > LEAST
    assert len(done) >= len(postgres_trial.seen) // EVERY
    assert set(done) == {False, True}


@pytest.mark.timeout(1800)  # the long run
@pytest.mark.parametrize("error", [SystemExit, RuntimeError])
def test_after_an_exception_at_a_line_there_is_one_order_and_one_answer(sqlite_trial, error):
    positions = sample(len(sqlite_trial.seen), EVERY)

    done = sqlite_trial.raise_at_each(positions, error)

    assert len(done) >= len(sqlite_trial.seen) // EVERY
    assert set(done) == {False, True}
