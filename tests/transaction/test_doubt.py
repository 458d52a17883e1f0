"""A COMMIT whose end nobody told: whoever asks gets the truth or is asked to come back, and never a guess."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from flask_idempotency.core.key import Key
from flask_idempotency.core.record import Busy, Claim
from flask_idempotency.core.reference import reference_of
from flask_idempotency.core.scope import record_id, scope_of
from flask_idempotency.errors import StoreUnavailable
from flask_idempotency.stores import pipeline, postgres, postgres_server, postgres_transaction
from flask_idempotency.stores.postgres_locks import record_lock
from flask_idempotency.testing import make_asked
from tests.fixtures.postgres import PostgresServer
from tests.fixtures.processes import eventually
from tests.fixtures.proxy import Proxy
from tests.stores.others import meanwhile
from tests.transaction.faults import NOTHING, ONE, Books, Shop, is_first, is_replay, make_tables, opened, refusal

KEY = "order-1"
UNAVAILABLE, UNKNOWN = (503, "store-unavailable"), (503, "outcome-unknown")
IN_FLIGHT, REUSED = (409, "request-in-flight"), (422, "key-reused")


@pytest.fixture
def books(postgres_url: str) -> Books:
    make_tables(postgres_url)
    return Books(postgres_url)


@pytest.fixture
def near(books: Books) -> Iterator[Shop]:
    """A shop beside the proxy, for what others do."""
    with opened(books.url) as shop:
        yield shop


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger.jsonl"


@pytest.fixture
def shop(books: Books, proxy: Proxy, ledger: Path) -> Iterator[Shop]:
    """A shop behind the proxy, warm."""
    with opened(proxy.through(books.url), ledger=ledger) as shop:
        assert is_first(shop.order("warm"))
        yield shop


@pytest.fixture
def before_looking(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], list[str]]:
    """`before_looking(act)`: have something done just before the shop asks what became of its COMMIT."""
    return lambda act: do_before_looking(shop, act, monkeypatch)


def do_before_looking(shop: Shop, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns what the looks brought: a list that grows."""
    store = shop.app.extensions["idempotency"].store
    look_again, looks = store.look_again, []

    def look(asked: Any) -> Any:
        act()
        looks.append("began")
        found = look_again(asked)
        looks.append("found" if found else "absent")
        return found

    monkeypatch.setattr(store, "look_again", look)
    return looks


def afterwards(ledger: Path) -> int:
    """How often an after_commit function was run for our key."""
    return sum('"after_commit"' in line and f'"{KEY}"' in line for line in ledger.read_text().splitlines())


# -- the connection is reset -----------------------------------------------------------------------------------------


def test_a_commit_whose_answer_was_lost_is_answered_as_the_success_it_is(shop, proxy, books, ledger, before_looking):
    looks = before_looking(lambda: None)
    cut = proxy.cut_after(b"COMMIT")

    answer = shop.order(KEY)

    assert cut.wait(5)
    assert looks == ["began", "found"]
    assert is_first(answer)
    assert books.of(KEY) == ONE
    assert afterwards(ledger) == 1
    again = shop.order(KEY)
    assert is_replay(again)
    assert again.data == answer.data


def test_a_commit_that_never_arrived_is_told_as_such_and_the_retry_runs(shop, proxy, books, ledger, before_looking):
    looks = before_looking(lambda: None)
    cut = proxy.cut_before(b"COMMIT")

    answer = shop.order(KEY)

    assert cut.wait(5)
    assert looks == ["began", "absent"]
    assert refusal(answer) == UNAVAILABLE
    assert books.of(KEY) == NOTHING
    assert afterwards(ledger) == 0
    assert is_first(shop.order(KEY))
    assert books.of(KEY) == ONE
    assert afterwards(ledger) == 1


def test_a_commit_that_never_arrived_while_a_duplicate_ran_is_answered_with_the_duplicates_answer(
    shop, near, proxy, books, ledger, before_looking
):
    duplicates = []
    looks = before_looking(lambda: duplicates.append(in_time(near)))
    proxy.cut_before(b"COMMIT")

    answer = shop.order(KEY)

    assert looks == ["began", "found"]
    assert is_first(duplicates[0])
    assert is_replay(answer)
    assert answer.data == duplicates[0].data
    assert books.of(KEY) == ONE
    assert afterwards(ledger) == 0


def test_a_commit_that_never_arrived_while_another_body_ran_under_the_key_is_refused(
    shop, near, proxy, books, before_looking
):
    other = {"intent": KEY, "note": "another body"}
    before_looking(lambda: in_time(near, body=other))
    proxy.cut_before(b"COMMIT")

    answer = shop.order(KEY)

    assert refusal(answer) == REUSED
    assert books.of(KEY) == ONE
    assert is_replay(near.order(KEY, body=other))


def in_time(shop: Shop, **options: Any) -> Any:
    """Order as soon as the lost transaction has let go of its locks."""
    return eventually(lambda: done if (done := shop.order(KEY, **options)).status_code == 201 else None)


@contextlib.contextmanager
def holding_the_lock(url: str) -> Iterator[Callable[[], None]]:
    """`hold()`: be a transaction that has the record's lock, as the one in doubt may still have it."""
    scope = scope_of("everyone")
    number = record_lock(reference_of(record_id(scope, Key(KEY))), scope)
    with psycopg.connect(url.replace("+psycopg", "")) as connection:

        def hold() -> None:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", [number])
            held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
            assert connection.execute(held).fetchone() == (1,)

        yield hold


def test_while_the_transaction_in_doubt_may_still_commit_nobody_is_told_that_it_did_not(
    shop, proxy, books, before_looking, monkeypatch
):
    monkeypatch.setattr(postgres_transaction, "DOUBT_TIMEOUT", postgres_transaction.DOUBT_TIMEOUT / 10)
    proxy.cut_before(b"COMMIT")
    with holding_the_lock(books.url) as hold:
        looks = before_looking(hold)

        answer = shop.order(KEY)

    assert refusal(answer) == UNKNOWN
    assert looks == ["began"]
    assert is_first(shop.order(KEY))
    assert books.of(KEY) == ONE


def test_a_finished_key_is_replayed_though_somebody_who_only_looks_has_its_locks(shop, books):
    first = shop.order(KEY)
    with holding_the_lock(books.url) as hold:
        hold()

        again = shop.order(KEY)
        other = shop.order(KEY, body={"intent": KEY, "note": "another body"})

    assert is_replay(again)
    assert again.data == first.data
    assert refusal(other) == REUSED


def test_a_server_that_falls_silent_at_commit_leaves_the_outcome_unknown(shop, proxy, books, monkeypatch):
    monkeypatch.setattr(pipeline, "ANSWER_TIMEOUT", 0.5)
    monkeypatch.setattr(postgres, "CONNECT_TIMEOUT", 2)
    silent = threading.Event()

    def fall_silent(piece: bytes) -> bool:
        if b"COMMIT" in piece and not silent.is_set():
            silent.set()
            proxy._open.clear()  # in the proxy's own thread: what follows this piece waits
        return False

    proxy.cut_after(fall_silent)
    answer = shop.order(KEY)
    proxy.pass_through()

    assert silent.is_set()
    assert refusal(answer) == UNKNOWN
    *_, final = shop.order_until_definitive(KEY)
    assert is_replay(shop.order(KEY))
    assert shop.order(KEY).data == final.data
    assert books.of(KEY) == ONE


# -- the connection is lost while the view runs ----------------------------------------------------------------------


def end_backends(books: Books) -> None:
    """End every other connection to the database, as an administrator does."""
    books.ask(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


@pytest.mark.parametrize(
    "what", [{}, {"X_No_More": "1"}, {"X_Answer": "look"}, {"X_Answer": "404"}], ids=["writes", "rests", "reads", "404"]
)
def test_a_view_whose_connection_was_ended_leaves_nothing_and_the_retry_runs(shop, books, ledger, what):
    shop.app.config["MEANWHILE"] = lambda: end_backends(books)

    answer = shop.order(KEY, **what)
    shop.app.config["MEANWHILE"] = None

    assert refusal(answer) == UNAVAILABLE
    assert books.of(KEY) == NOTHING
    assert afterwards(ledger) == 0
    assert is_first(shop.order(KEY))
    assert books.of(KEY) == ONE


def test_a_view_that_fails_by_itself_after_its_connection_was_ended_leaves_nothing(shop, books):
    shop.app.config["MEANWHILE"] = lambda: end_backends(books)

    answer = shop.order(KEY, X_Answer="raise")
    shop.app.config["MEANWHILE"] = None

    assert answer.status_code == 503
    assert books.of(KEY) == NOTHING
    assert is_first(shop.order(KEY))


# -- a standby that does not answer ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mortal(postgres_bindir: Path, postgres_servers: object) -> Iterator[PostgresServer]:
    """A server of this module's own, whose settings may be changed."""
    with PostgresServer(postgres_bindir) as server:
        yield server


@pytest.fixture
def mortal_books(mortal: PostgresServer) -> Books:
    url = mortal.url(mortal.create_database())
    make_tables(url)
    return Books(url)


@pytest.fixture
def ghost(mortal: PostgresServer) -> Iterator[Callable[[bool], None]]:
    """`ghost(True)`: have every COMMIT wait for a standby that does not exist; `ghost(False)`: no longer."""

    def switch(is_on: bool) -> None:
        with psycopg.connect(mortal.url(driver="postgresql"), autocommit=True) as connection:
            connection.execute("SET synchronous_commit = local")
            connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{'ghost' if is_on else ''}'")
            connection.execute("SELECT pg_reload_conf()")
        if is_on:
            eventually(lambda: commits_wait(mortal), what="commits that wait")

    yield switch
    switch(False)


def waiting_for_ghost(server: PostgresServer) -> list[int]:
    return [pid for (pid,) in server._run("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'")]


def commits_wait(server: PostgresServer) -> bool:
    """Commit something and see: a reloaded setting is not felt everywhere at once."""
    with contextlib.closing(psycopg.connect(server.url(driver="postgresql"), autocommit=True)) as probe:
        pid, wire = probe.info.backend_pid, probe.pgconn
        wire.send_query(b"SELECT pg_logical_emit_message(true, 'probe', 'probe')")

        def is_answered() -> bool:
            wire.consume_input()
            return not wire.is_busy()

        eventually(lambda: is_answered() or pid in waiting_for_ghost(server))
        answered = is_answered()
    server._run(f"SELECT pg_terminate_backend({pid}, 5000)")
    return not answered


def test_a_client_cut_off_while_commit_waits_for_a_standby_is_told_that_nobody_knows(mortal, mortal_books, ghost):
    with (
        Proxy(mortal.host, mortal.port) as proxy,
        opened(proxy.through(mortal_books.url)) as shop,
        opened(mortal_books.url) as near,
    ):
        shop.order("warm")
        near.order("warm")
        ghost(True)

        with meanwhile(lambda: shop.order(KEY)) as given:
            eventually(lambda: waiting_for_ghost(mortal), what="a COMMIT that waits")
            proxy.cut()
        seen_meanwhile, duplicate = mortal_books.of(KEY), near.order(KEY)
        other = near.order(KEY, body={"intent": KEY, "note": "another body"})
        ghost(False)
        *_, final = near.order_until_definitive(KEY)

        assert refusal(given[0]) == UNKNOWN
        assert seen_meanwhile == NOTHING  # a read proves nothing: it is committed later
        assert refusal(duplicate) == IN_FLIGHT
        assert refusal(other) == REUSED
        assert is_replay(final)
        assert mortal_books.of(KEY) == ONE


def cancel_the_wait(server: PostgresServer) -> None:
    (pid,) = eventually(lambda: waiting_for_ghost(server), what="a COMMIT that waits")
    server._run(f"SELECT pg_cancel_backend({pid})")


def test_a_commit_that_gave_up_waiting_for_its_standby_is_a_success_once_the_standby_has_it(
    mortal, mortal_books, ghost, monkeypatch
):
    with opened(mortal_books.url) as shop:
        shop.order("warm")
        looks = do_before_looking(shop, lambda: None, monkeypatch)
        ghost(True)

        with meanwhile(lambda: shop.order(KEY)) as given:
            cancel_the_wait(mortal)
            eventually(lambda: looks and waiting_for_ghost(mortal), what="a look that waits for the standby too")
            ghost(False)

        assert looks == ["began", "found"]
        assert is_first(given[0])
        assert mortal_books.of(KEY) == ONE
        again = shop.order(KEY)
        assert is_replay(again)
        assert again.data == given[0].data


@pytest.mark.parametrize("how", ["the look waits too long", "the look gives up waiting too"])
def test_a_commit_that_gave_up_waiting_for_its_standby_is_unknown_until_the_standby_has_it(
    mortal, mortal_books, ghost, monkeypatch, how
):
    is_silent = how == "the look waits too long"
    with opened(mortal_books.url) as shop:
        shop.order("warm")
        looks = do_before_looking(
            shop, lambda: is_silent and monkeypatch.setattr(pipeline, "ANSWER_TIMEOUT", 0.5), monkeypatch
        )
        ghost(True)

        with meanwhile(lambda: shop.order(KEY)) as given:
            cancel_the_wait(mortal)
            if not is_silent:
                eventually(lambda: looks and waiting_for_ghost(mortal), what="a look that waits for the standby too")
                cancel_the_wait(mortal)
        ghost(False)

        assert looks == ["began"]
        assert refusal(given[0]) == UNKNOWN
        assert is_replay(eventually(lambda: done if (done := shop.order(KEY)).status_code == 201 else None))
        assert mortal_books.of(KEY) == ONE


def test_a_retry_is_replayed_while_the_standby_lacks_a_commit_that_gave_up_waiting_for_it(
    mortal, mortal_books, ghost, monkeypatch
):
    """PostgreSQL shows such a commit to every reader: decision 64 says why we do not hide it again."""
    with opened(mortal_books.url) as shop, opened(mortal_books.url) as other_worker:
        shop.order("warm")
        do_before_looking(shop, lambda: monkeypatch.setattr(pipeline, "ANSWER_TIMEOUT", 0.5), monkeypatch)
        ghost(True)

        with meanwhile(lambda: shop.order(KEY)) as given:
            cancel_the_wait(mortal)
        is_still_waiting = waiting_for_ghost(mortal)
        retries = [worker.order(KEY) for worker in (shop, other_worker, shop)]
        ghost(False)
        later = other_worker.order(KEY)

        assert refusal(given[0]) == UNKNOWN
        assert is_still_waiting
        assert [is_replay(retry) for retry in (*retries, later)] == [True] * 4
        assert {retry.data for retry in retries} == {later.data}
        assert mortal_books.of(KEY) == ONE


def test_a_commit_that_waits_for_its_standby_is_neither_shown_nor_run_again(mortal, mortal_books, ghost, monkeypatch):
    with opened(mortal_books.url) as shop, opened(mortal_books.url) as other_worker:
        for each in (shop, other_worker):
            each.order("warm")
        ghost(True)
        monkeypatch.setattr(pipeline, "ANSWER_TIMEOUT", 0.5)

        first = shop.order(KEY)
        retries = [worker.order(KEY) for worker in (shop, other_worker)]
        seen_meanwhile = mortal_books.of(KEY)
        ghost(False)
        *_, final = other_worker.order_until_definitive(KEY)

        assert refusal(first) == UNKNOWN
        assert [refusal(retry) for retry in retries] == [IN_FLIGHT] * 2
        assert seen_meanwhile == NOTHING
        assert is_replay(final)
        assert mortal_books.of(KEY) == ONE


def test_no_time_limit_of_ours_shows_a_commit_that_waits_for_its_standby(mortal, mortal_books, ghost, monkeypatch):
    monkeypatch.setattr(postgres_server, "STATEMENT_TIMEOUT", timedelta(seconds=0.3))
    monkeypatch.setattr(pipeline, "ANSWER_TIMEOUT", 1)
    with opened(mortal_books.url) as shop:
        store = shop.app.extensions["idempotency"].store
        store.find(make_asked().id)
        ghost(True)

        with pytest.raises(StoreUnavailable):
            store.claim(make_asked(), timedelta(seconds=30))

        assert waiting_for_ghost(mortal)
        assert mortal_books.ask("SELECT count(*) FROM idempotency_record") == [(0,)]


def test_the_reaper_does_not_wait_for_a_standby(mortal, mortal_books, ghost):
    with opened(mortal_books.url) as shop:
        shop.order("expired")
        mortal_books.ask("UPDATE idempotency_record SET expires_at = expires_at - interval '1 year'")
        ghost(True)

        reaped = shop.app.extensions["idempotency"].store.reap(timedelta(0))

        assert reaped == 1
        assert waiting_for_ghost(mortal) == []


def test_a_commit_that_gave_up_waiting_and_cannot_be_looked_for_is_unknown(mortal, mortal_books, ghost, monkeypatch):
    monkeypatch.setattr(postgres_transaction, "DOUBT_TIMEOUT", postgres_transaction.DOUBT_TIMEOUT / 10)
    with opened(mortal_books.url) as shop, holding_the_lock(mortal_books.url) as hold:
        shop.order("warm")
        looks = do_before_looking(shop, hold, monkeypatch)
        ghost(True)

        with meanwhile(lambda: shop.order(KEY)) as given:
            cancel_the_wait(mortal)
        ghost(False)

        assert refusal(given[0]) == UNKNOWN
        assert looks == ["began"]
        assert is_replay(shop.order(KEY))
        assert mortal_books.of(KEY) == ONE


# -- locks are not let go at one instant -----------------------------------------------------------------------------

MANY_LOCKS = "SELECT count(pg_advisory_xact_lock(n)) FROM generate_series(1, 5000) n"  # to let go of them takes long


def test_the_same_request_is_never_taken_for_another_while_a_failed_one_lets_go_of_its_locks(near, books):
    store, url = near.app.extensions["idempotency"].store, books.url.replace("+psycopg", "")
    times = {"patience": timedelta(0), "idle": timedelta(seconds=30)}
    refusals: list[Busy] = []

    with psycopg.connect(url) as holder, psycopg.connect(url) as other:
        for number in range(150):
            asked = make_asked(f"order-{number}")
            assert isinstance(store.enter(holder, asked, **times), Claim)
            holder.execute(MANY_LOCKS)
            store.keep(holder)  # or they would be let go first, with the savepoint
            with meanwhile(holder.rollback):
                while not isinstance(found := store.enter(other, asked, **times), Claim):
                    refusals.append(found)
                    other.rollback()
            other.rollback()

    assert refusals
    assert [refused for refused in refusals if refused.fingerprint is None] == []
