"""Somebody has locked our tables, for a migration perhaps: we give up in time, and the server gives up before us."""

import contextlib
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
import pytest

from flask_idempotency.core.checkpoint import Checkpoint, Kind
from flask_idempotency.errors import OutcomeUnknown, RequestRefused, StoreUnavailable
from flask_idempotency.stores import TABLES, open_store, postgres_phase, postgres_server, postgres_transaction
from flask_idempotency.stores.pipeline import ANSWER_TIMEOUT
from flask_idempotency.stores.postgres import PostgresStore
from flask_idempotency.stores.postgres_server import LOCK_TIMEOUT, STATEMENT_TIMEOUT
from flask_idempotency.testing import LEASE, RETENTION, make_asked
from tests.fixtures.postgres import Postgres
from tests.fixtures.processes import eventually, needs
from tests.stores.others import meanwhile
from tests.stores.test_contract_elsewhere import PGBOUNCER, pooled
from tests.stores.worlds import claimed
from tests.transaction.faults import NOTHING, Books, is_first, is_replay, make_tables, opened, refusal

KEY = "order-1"
UNAVAILABLE = (503, "store-unavailable")
WAITING = """
    SELECT count(*) FROM pg_stat_activity
     WHERE datname = current_database() AND wait_event_type = 'Lock' AND pid <> pg_backend_pid()
"""


@pytest.fixture(params=["direct", pytest.param("pooled", marks=needs(PGBOUNCER, "pgbouncer"))])
def url(request: pytest.FixtureRequest, postgres: Postgres, postgres_url: str) -> Iterator[str]:
    """The same database, by the straight way or through a pooler in transaction mode."""
    make_tables(postgres_url)
    if request.param == "direct":
        yield postgres_url
        return
    with pooled(postgres) as pooler:
        yield pooler.url(postgres_url.rpartition("/")[2])


@pytest.fixture(autouse=True)
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the server give up after a tenth of its time: what is tested is who gives up first, and what is left."""
    short = LOCK_TIMEOUT / 10
    monkeypatch.setattr(postgres_server, "STATEMENT_TIMEOUT", STATEMENT_TIMEOUT / 10)
    for module in (postgres_server, postgres_transaction, postgres_phase):
        monkeypatch.setattr(module, "LOCK_TIMEOUT", short)
    bound = f"SET LOCAL lock_timeout = {short // timedelta(milliseconds=1)}"
    monkeypatch.setattr(postgres_transaction, "BOUND_LAST", (bound, {}))


def test_the_server_gives_up_before_we_do():
    assert LOCK_TIMEOUT < STATEMENT_TIMEOUT < timedelta(seconds=ANSWER_TIMEOUT)


@pytest.fixture
def books(postgres_url: str, url: str) -> Books:
    return Books(postgres_url)


@pytest.fixture
def locking(postgres_url: str) -> Callable[..., contextlib.AbstractContextManager[None]]:
    """`with locking(mode, *tables)`: somebody holds a lock on our tables."""

    @contextlib.contextmanager
    def lock(mode: str = "ACCESS EXCLUSIVE", *tables: str) -> Iterator[None]:
        with psycopg.connect(postgres_url.replace("+psycopg", "")) as holder:
            holder.execute(f"LOCK TABLE {', '.join(tables or TABLES)} IN {mode} MODE")
            yield
            holder.rollback()

    return lock


def waiting(books: Books) -> int:
    """How many of the server's processes wait for a lock."""
    return int(books.ask(WAITING)[0][0])


def no_longer_than(given: list[Any], call: Callable[[], Any]) -> Callable[[], None]:
    """Have *call* note how long it took."""

    def run() -> None:
        start = time.monotonic()
        try:
            given.append(call())
        except RequestRefused as error:
            given.append(error)
        given.append(time.monotonic() - start)

    return run


@pytest.mark.parametrize("guard", ["transaction", "lease"])
def test_a_request_that_meets_a_locked_table_is_refused_in_time_and_leaves_nothing_behind(
    url: str, books: Books, locking: Any, guard: str
):
    with opened(url, GUARD=guard, engine={"connect_args": {"prepare_threshold": None}}) as shop:
        shop.order("warm")
        given: list[Any] = []
        with locking():
            no_longer_than(given, lambda: shop.order(KEY))()
            left = waiting(books)
        found = books.of(KEY)

        answer, took = given
        assert refusal(answer) == UNAVAILABLE
        assert LOCK_TIMEOUT.total_seconds() / 10 < took < ANSWER_TIMEOUT
        assert left == 0
        assert found == NOTHING
        assert is_first(shop.order(KEY))
        assert is_replay(shop.order(KEY))
        assert books.of(KEY).orders == 1


@pytest.mark.parametrize("guard", ["transaction", "lease"])
def test_a_replay_that_meets_a_locked_table_is_refused_in_time(url: str, books: Books, locking: Any, guard: str):
    with opened(url, GUARD=guard, engine={"connect_args": {"prepare_threshold": None}}) as shop:
        shop.order(KEY)
        given: list[Any] = []
        with locking():
            no_longer_than(given, lambda: shop.order(KEY))()
            left = waiting(books)

        assert refusal(given[0]) == UNAVAILABLE
        assert given[1] < ANSWER_TIMEOUT
        assert left == 0
        assert is_replay(shop.order(KEY))


def test_an_answer_that_meets_a_table_which_takes_no_writes_is_rolled_back_with_its_work(
    url: str, books: Books, locking: Any
):
    with opened(url, engine={"connect_args": {"prepare_threshold": None}}) as shop, contextlib.ExitStack() as ends:
        shop.order("warm")
        given: list[Any] = []
        shop.app.config["MEANWHILE"] = lambda: ends.enter_context(locking("SHARE"))  # as CREATE INDEX does

        no_longer_than(given, lambda: shop.order(KEY))()
        shop.app.config["MEANWHILE"], left = None, waiting(books)
        ends.close()

        assert refusal(given[0]) == UNAVAILABLE
        assert given[1] < ANSWER_TIMEOUT
        assert left == 0
        assert books.of(KEY) == NOTHING
        assert is_first(shop.order(KEY))


# -- what the housekeeping thread and people do ----------------------------------------------------------------------


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    store = open_store(url)
    assert isinstance(store, PostgresStore)
    yield store
    store.close()


VERBS: dict[str, Callable[[PostgresStore, Any], object]] = {
    "claim": lambda store, claim: store.claim(make_asked("another"), LEASE),
    "claim again": lambda store, claim: store.claim(make_asked(), LEASE),
    "renew": lambda store, claim: store.renew(claim, LEASE),
    "release": lambda store, claim: store.release(claim),
    "find": lambda store, claim: store.find(claim.id),
    "checkpoints": lambda store, claim: store.checkpoints(claim.id),
    "checkpoint": lambda store, claim: store.checkpoint(claim, Checkpoint("charge", Kind.EFFECT, 1)),
    "position": lambda store, claim: store.position(claim),
    "quarantine": lambda store, claim: store.quarantine(claim, "because"),
    "reap": lambda store, claim: store.reap(timedelta(0)),
    "reap abandoned": lambda store, claim: store.reap_abandoned(RETENTION),
    "abandoned": lambda store, claim: store.abandoned(timedelta(0)),
    "browse": lambda store, claim: store.browse(),
}


def test_whatever_meets_a_locked_table_is_given_up_by_the_server_too(store: PostgresStore, books: Books, locking: Any):
    claim = claimed(store.claim(make_asked(), LEASE))
    given: dict[str, list[object]] = {}

    with locking(), contextlib.ExitStack() as together:
        for verb, act in VERBS.items():
            given[verb] = together.enter_context(meanwhile(partial(act, store, claim)))
        together.close()
        left = waiting(books)

    refused = [verb for verb, (found,) in given.items() if isinstance(found, (StoreUnavailable, OutcomeUnknown))]
    assert refused == list(VERBS)
    assert left == 0
    assert [record.asked for record in store.browse()] == [make_asked()]
    assert store.position(claim) is None


@pytest.mark.parametrize("when", ["at its fence", "at its end"])
def test_a_phase_that_meets_a_locked_table_is_rolled_back_in_time(
    url: str, store: PostgresStore, books: Books, locking: Any, when: str
):
    claim = claimed(store.claim(make_asked(), LEASE))
    made, given = Checkpoint("placed", Kind.PHASE, 1), list[Any]()
    with psycopg.connect(url.replace("+psycopg", ""), prepare_threshold=None) as desk, contextlib.ExitStack() as ends:
        if when == "at its fence":
            ends.enter_context(locking())
            no_longer_than(given, lambda: store.fence(desk, claim, made, idle=LEASE))()
        else:
            store.fence(desk, claim, made, idle=LEASE)
            ends.enter_context(locking("SHARE", "idempotency_checkpoint"))
            no_longer_than(given, lambda: store.commit_phase(desk, claim, made))()
        left = waiting(books)
        desk.rollback()

    assert isinstance(given[0], StoreUnavailable)
    assert given[1] < ANSWER_TIMEOUT
    assert left == 0
    assert store.position(claim) is None
    assert store.checkpoints(claim.id) == []


def test_making_the_tables_waits_as_long_as_it_takes(
    url: str, books: Books, locking: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(postgres_server, "LOCK_TIMEOUT", timedelta(milliseconds=150))
    monkeypatch.setattr(postgres_server, "STATEMENT_TIMEOUT", timedelta(milliseconds=300))
    books.ask("DROP INDEX idempotency_record_running")
    waits = WAITING + " AND state_change < clock_timestamp() - interval '500 ms'"
    with contextlib.closing(open_store(url)) as store, contextlib.ExitStack() as ends:
        ends.enter_context(locking("SHARE ROW EXCLUSIVE", "idempotency_record"))

        with meanwhile(store.create) as given:
            eventually(lambda: books.ask(waits) == [(1,)], what="an upgrade that waits for longer than a request would")
            ends.close()

    assert given == [None]
    assert books.ask("SELECT count(*) FROM pg_indexes WHERE indexname = 'idempotency_record_running'") == [(1,)]


def test_a_statement_that_takes_too_long_is_given_up_by_the_server_too(store: PostgresStore, books: Books):
    store.claim(make_asked("warm"), LEASE)
    books.ask(
        "CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN NEW; END $$"
    )
    books.ask("CREATE TRIGGER linger BEFORE INSERT ON idempotency_record FOR EACH ROW EXECUTE FUNCTION linger()")
    given: list[Any] = []

    no_longer_than(given, lambda: store.claim(make_asked(), LEASE))()

    assert isinstance(given[0], StoreUnavailable)
    assert given[1] < ANSWER_TIMEOUT
    assert books.ask("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == [(0,)]
    assert store.find(make_asked().id) is None
