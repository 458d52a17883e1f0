"""Death at every line that a request executes, of the package and of the view: orders and records always agree."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apps import orders
from tests.apps.trials import Trial, sample, untraced
from tests.fixtures.lines import PACKAGE, die_at
from tests.tiers import is_quick
from tests.transaction.faults import ONE, Books, is_replay, make_tables, opened

VIEW = orders.__file__
EVERY = 40 if is_quick() else 10  # on PostgreSQL a position costs a new connection or three
LEAST = 200  # lines of one request; fewer would mean that the tracer is blind


class OrderTrial(Trial):
    """An order, and death or an exception at a line of it."""

    def die_at(self, position: int) -> bool:
        """Die there, and retry as a client would; say whether the work was done by then."""
        key = f"died-{position}"
        die_at(VIEW, position, lambda: self._mortal.order(key))
        return self._retry(key)

    def raise_at(self, position: int, error: type[BaseException]) -> bool:
        """Raise there. What was answered is true, and the same process serves the retry; say likewise."""
        key = f"raised-{error.__name__}-{position}"

        def look() -> list[Any]:
            found = self.books.of(key)
            return [found.agrees, found.orders]

        answered, agreed, done, status, was_replayed = self.raise_in_child(key, position, error, look)
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
        return bool(found == ONE)


@pytest.fixture
def sqlite_trial(tmp_path: Path) -> Iterator[OrderTrial]:
    yield from trial_on(f"sqlite:///{tmp_path / 'orders.db'}")


@pytest.fixture
def postgres_trial(postgres_url: str) -> Iterator[OrderTrial]:
    yield from trial_on(postgres_url)


def trial_on(url: str) -> Iterator[OrderTrial]:
    make_tables(url)
    with opened(url) as mortal, opened(url) as survivor, untraced():
        yield OrderTrial(VIEW, Books(url), mortal, survivor)


@pytest.mark.timeout(1800)  # the long run
def test_after_death_at_every_line_there_is_one_order_and_one_answer_on_sqlite(sqlite_trial, tmp_path):
    alike = sqlite_trial.stretches(tmp_path)
    edges = {position for stretch in alike for position in (stretch[0], stretch[-1])}
    positions = sorted(edges.union(sample(len(sqlite_trial.seen), 40)))

    done = dict(zip(positions, sqlite_trial.at_each(positions, sqlite_trial.die_at), strict=True))

    assert [position for stretch in alike for position in stretch] == [*range(1, len(sqlite_trial.seen) + 1)]
    assert len(sqlite_trial.seen) > LEAST
    assert {path for path, _ in sqlite_trial.seen} > {
        VIEW,
        f"{PACKAGE}guards/transaction.py",
        f"{PACKAGE}extension.py",
    }
    assert [done[stretch[0]] for stretch in alike] == [done[stretch[-1]] for stretch in alike]
    assert list(done.values()) == sorted(done.values())  # undone up to the line that commits, and done from there on
    assert set(done.values()) == {False, True}


@pytest.mark.timeout(1800)  # the long run
def test_after_death_at_a_line_there_is_one_order_and_one_answer_on_postgresql(postgres_trial):
    positions = sample(len(postgres_trial.seen), EVERY)

    done = postgres_trial.at_each(positions, postgres_trial.die_at)

    assert len(postgres_trial.seen) > LEAST
    assert len(done) >= len(postgres_trial.seen) // EVERY
    assert set(done) == {False, True}


@pytest.mark.timeout(1800)  # the long run
@pytest.mark.parametrize("error", [SystemExit, RuntimeError])
def test_after_an_exception_at_a_line_there_is_one_order_and_one_answer(sqlite_trial, error):
    positions = sample(len(sqlite_trial.seen), EVERY)

    done = sqlite_trial.at_each(positions, sqlite_trial.raise_at, error)

    assert len(done) >= len(sqlite_trial.seen) // EVERY
    assert set(done) == {False, True}
