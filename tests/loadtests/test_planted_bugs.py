"""Is every mutant one? Each bug takes hold in the extension as it is today, and shows in its own story and in no other.

The stories are told in this process, with a till and a gateway of their own; what the flood makes of the same bugs is
told in test_mutants.py.
"""

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from flask_idempotency import effect, idempotent, opening, phase
from flask_idempotency import request as requests_way
from flask_idempotency.core.record import Claim
from flask_idempotency.guards import phases
from flask_idempotency.guards.lease import LeaseAttempt
from flask_idempotency.stores import database, open_store, sqlite
from flask_idempotency.stores.postgres import PostgresStore
from flask_idempotency.stores.sql import SqlStore
from flask_idempotency.stores.tables import SqlTables
from flask_idempotency.testing import make_asked
from tests.fixtures.processes import race
from tests.mutants import MUTANTS, create_app
from tests.mutants.planting import Bed, NothingThere
from tests.stores.worlds import SqlWorld
from tests.transaction.conftest import Shop

LEASE = timedelta(seconds=30)
ONCE = {"orders": 1, "payments": 1, "charges": 1}
INNOCENT = "innocent"
ON_POSTGRES = {"no unique id"}


@pytest.fixture
def bed() -> Iterator[Bed]:
    """The extension, as it was again after the test."""
    bed = Bed()
    yield bed
    bed.clear()


class Till:
    """A shop with a checkout in phases and a view in one transaction, and a gateway that charges once for each key."""

    def __init__(self, url: str) -> None:
        self.shop = Shop(url, lease=LEASE)
        self.shop.begin()
        self.charged: dict[str, int] = {}
        self.meanwhile: list[Callable[[], object]] = []  # what happens while the gateway, or the view, is at work
        self.shop.serve(idempotent(required=True, guard="lease")(self._check_out), "/checkout")
        self.shop.serve(idempotent(self._review), "/review")

    def send(self, path: str = "/checkout") -> Any:
        """Send the same request again; each path has a key of its own."""
        return self.shop.send(path, f"intent-{path[1:]}")

    def send_after_the_lease(self) -> None:
        """Let the lease pass, and send the same request from beside."""
        store = open_store(self.shop.url)
        assert isinstance(store, SqlStore)
        SqlWorld(store).let_pass(LEASE + timedelta(seconds=1))
        store.close()
        self.send_beside("/checkout")

    def send_beside(self, path: str) -> None:
        """Send the same request in another thread, and wait for its end."""
        rival = threading.Thread(target=self.send, args=(path,))
        rival.start()
        rival.join(20)

    def counts(self) -> dict[str, int]:
        """Count what was done."""
        ((orders,),), ((payments,),) = (self.shop.sql(f"SELECT count(*) FROM {name}") for name in ("orders", "line"))
        return {"orders": orders, "payments": payments, "charges": len(self.charged)}

    def _check_out(self) -> Any:
        order = phase("order_placed", self._place)
        effect("charge", partial(self._charge, order))
        phase("order_paid", self._pay, order)
        return {"order": order}, 201

    def _review(self) -> Any:
        self._act()
        self._place()
        self.shop.db.session.commit()
        return {}, 201

    def _place(self) -> int:
        order = self.shop.db.Order(note="wanted")
        self.shop.db.session.add(order)
        self.shop.db.session.flush()
        return int(order.id)

    def _pay(self, order: int) -> None:
        self.shop.db.session.add(self.shop.db.Line(order_id=order, item="paid"))

    def _charge(self, order: int, key: str) -> int:
        self.charged.setdefault(key, order)
        self._act()
        return order

    def _act(self) -> None:
        if self.meanwhile:
            self.meanwhile.pop()()


@pytest.fixture
def till(store_url: str) -> Iterator[Till]:
    """A till on SQLite and on PostgreSQL."""
    till = Till(store_url)
    yield till
    till.shop.close()


@pytest.fixture
def till_on_postgres(postgres_url: str) -> Iterator[Till]:
    """A till on PostgreSQL alone."""
    till = Till(postgres_url)
    yield till
    till.shop.close()


@pytest.fixture
def postgres_store(postgres_url: str) -> Iterator[SqlStore]:
    """A store without a shop."""
    store = open_store(postgres_url)
    assert isinstance(store, SqlStore)
    store.create()
    yield store
    store.close()


def plant(bed: Bed, name: str) -> None:
    if name != INNOCENT:
        MUTANTS[name](bed)


def lose_answer() -> None:
    raise TimeoutError("charged, and nobody hears of it")


# -- in fair weather -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [INNOCENT, *(name for name in MUTANTS if name not in ON_POSTGRES)])
def test_without_faults_and_retries_a_shop_with_the_bug_does_its_work(bed, till, name):
    plant(bed, name)

    answers = [till.send("/checkout").status_code, till.send("/review").status_code]

    assert answers == [201, 201]
    assert till.counts() == ONCE | {"orders": 2}  # a review is one too here


def test_without_faults_and_retries_a_shop_without_a_unique_id_does_its_work(bed, till_on_postgres):
    plant(bed, "no unique id")

    answers = [till_on_postgres.send(path).status_code for path in ("/checkout", "/review", "/checkout", "/review")]

    assert answers == [201] * 4
    assert till_on_postgres.counts() == ONCE | {"orders": 2}


# -- each in its own story -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "status", "done"),
    [
        (INNOCENT, 201, {}),
        ("protection off", 201, {"orders": 2, "charges": 2}),
        ("no fence", 201, {}),
        ("delete on error", 201, {"orders": 2}),
        ("effect key per attempt", 201, {"charges": 2}),
        ("5xx stored", 503, {"payments": 0}),
    ],
)
def test_a_retry_after_a_lost_answer_shows_the_bug(bed, till, name, status, done):
    plant(bed, name)
    till.meanwhile.append(lose_answer)

    first, second = till.send(), till.send()

    assert first.status_code >= 500
    assert second.status_code == status
    assert till.counts() == ONCE | done


def test_a_failure_that_was_stored_is_given_again_as_a_replay(bed, till):
    plant(bed, "5xx stored")
    till.meanwhile.append(lose_answer)

    answers = [till.send() for _ in range(3)]

    assert [answer.headers.get("Idempotent-Replayed") for answer in answers] == [None, "true", "true"]


@pytest.mark.parametrize(("name", "payments"), [(INNOCENT, 1), ("no fence", 2)])
def test_a_worker_that_slept_through_its_lease_shows_the_bug(bed, till, name, payments):
    plant(bed, name)
    till.meanwhile.append(till.send_after_the_lease)

    answer = till.send()

    assert answer.status_code == 201
    assert till.counts() == ONCE | {"payments": payments}


@pytest.mark.parametrize(("name", "reviews"), [(INNOCENT, 1), ("no unique id", 2)])
def test_a_copy_that_comes_while_a_transaction_runs_shows_the_bug(bed, till_on_postgres, name, reviews):
    plant(bed, name)
    till_on_postgres.meanwhile.append(partial(till_on_postgres.send_beside, "/review"))

    answer = till_on_postgres.send("/review")

    assert answer.status_code == 201
    assert till_on_postgres.counts()["orders"] == reviews


def test_two_that_look_at_once_are_both_let_in_without_a_unique_id(bed, postgres_store):
    plant(bed, "no unique id")
    postgres_store.prepare()
    gate = threading.Barrier(2, timeout=10)
    bed.replace(SqlStore, "find", look_together(gate))

    found = race(2, lambda _: postgres_store.claim(make_asked(), LEASE))

    assert [type(each) for each in found] == [Claim, Claim]


def look_together(gate: threading.Barrier) -> Callable[..., Any]:
    """Make a look that nobody comes back from alone."""
    find = SqlStore.find

    def look(store: SqlStore, record: Any) -> Any:
        found = find(store, record)
        gate.wait()
        return found

    return look


# -- that none fades away --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MUTANTS)
def test_a_bug_can_be_taken_out_again_and_leaves_nothing(bed, name):
    before = places()

    MUTANTS[name](bed)
    planted = places()
    bed.clear()

    assert planted != before
    assert places() == before


def places() -> list[dict[str, object]]:
    """All that a bug may be planted in."""
    owners = (opening, requests_way, phases, database, sqlite, LeaseAttempt, SqlTables, SqlStore, PostgresStore)
    return [dict(vars(owner)) for owner in owners]


def test_a_bug_is_not_planted_where_nothing_is(bed):
    with pytest.raises(NothingThere, match="no renamed"):
        bed.replace(phases, "renamed", print)


def test_a_bug_is_not_planted_in_what_a_class_has_from_another(bed):
    with pytest.raises(NothingThere, match="no release"):
        bed.replace(PostgresStore, "release", print)


@pytest.mark.parametrize("technology", ["postgres", "sqlite"])
def test_a_statement_that_says_something_else_by_now_is_not_reworded_in_silence(bed, technology):
    with pytest.raises(NothingThere, match="does not say"):
        bed.reword(technology, "complete", "AND owner = :owner", "")


def test_a_bug_that_needs_postgresql_is_not_planted_on_sqlite_in_silence(bed, tmp_path):
    plant(bed, "no unique id")

    with pytest.raises(NothingThere, match="PostgreSQL"):
        open_store(f"sqlite:///{tmp_path / 'records.db'}")


def test_a_bug_of_no_name_is_none():
    with pytest.raises(KeyError):
        create_app("no fense")
