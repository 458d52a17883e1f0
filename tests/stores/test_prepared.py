"""Statements that PostgreSQL keeps ready: on the store's own connections, and on the app's where those remember."""

import gc
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from flask_idempotency.core.checkpoint import Checkpoint, Kind
from flask_idempotency.core.record import Claim, Settled
from flask_idempotency.core.snapshot import Snapshot
from flask_idempotency.stores import open_store, pipeline
from flask_idempotency.stores.database import WrittenBefore
from flask_idempotency.stores.postgres import PostgresStore
from flask_idempotency.stores.postgres_server import driver_of
from flask_idempotency.testing import LEASE, RETENTION, make_asked
from tests.stores.worlds import claimed, plain

DONE = Snapshot(201, (("Location", "/orders/1"),), b"done")
PLACED = Checkpoint("placed", Kind.PHASE, 1)


@pytest.fixture
def store(postgres_store: PostgresStore) -> PostgresStore:
    return postgres_store


def prepared(session: psycopg.Connection[Any]) -> int:
    """How many statements of ours a connection holds ready."""
    (row,) = session.execute("SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'idempotency%'").fetchall()
    return int(row[0])


def test_the_store_s_own_connections_keep_its_statements_ready(store: PostgresStore):
    store.complete(claimed(store.claim(make_asked(), LEASE)), DONE, RETENTION)

    with closing(store._engine.raw_connection()) as connection:
        assert prepared(driver_of(connection)) >= 2


def test_a_store_goes_on_where_its_connection_forgets_what_was_prepared(postgres_store: PostgresStore):
    store = open_store(plain(postgres_store))  # with one connection of its own
    assert isinstance(store, PostgresStore)
    store.claim(make_asked(), LEASE)
    with closing(store._engine.raw_connection()) as connection:
        driver_of(connection).execute("DEALLOCATE ALL")

    found = store.claim(make_asked("order-2"), LEASE)
    store.close()

    assert isinstance(found, Claim)
    assert not store._prepares


def test_a_statement_that_is_sent_twice_at_once_is_prepared_once(store: PostgresStore):
    fresh = open_store(plain(store))
    made = fresh.claim(make_asked(), LEASE)
    fresh.quarantine(claimed(made), "nobody knows")

    reopened = fresh.reopen(make_asked().id, "ada", [("charge", '"no"'), ("mail", '"no"')])
    fresh.close()

    assert reopened


def run_once(store: PostgresStore, session: Any, key: str) -> None:
    """One request under the transaction guard, with a little work."""
    asked = make_asked(key)
    claim = claimed(store.enter(session, asked, patience=timedelta(0), idle=LEASE))
    session.execute("INSERT INTO work VALUES (%s)", [key])
    store.finish(session, claim, asked, DONE, RETENTION)


def run_phase(store: PostgresStore, session: Any, key: str, forget: Callable[[], object] = int) -> None:
    """One phase of a request under the lease guard, with a little work, after which the connection may forget."""
    claim, made = claimed(store.claim(make_asked(key), LEASE)), PLACED
    store.fence(session, claim, made, idle=LEASE)
    session.execute("INSERT INTO work VALUES (%s)", [key])
    forget()
    store.commit_phase(session, claim, made)


def worked(store: PostgresStore) -> list[str]:
    """Whose work is committed."""
    with psycopg.connect(plain(store)) as observer:
        return [name for (name,) in observer.execute("SELECT name FROM work ORDER BY name").fetchall()]


@pytest.fixture
def workplace(store: PostgresStore) -> Iterator[psycopg.Connection[Any]]:
    """An app's connection, and a table to work on."""
    with psycopg.connect(plain(store)) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS work (name text)")
        connection.execute("DELETE FROM work")
        connection.commit()
        yield connection


def test_the_app_s_connections_keep_the_statements_of_both_guards_ready(store: PostgresStore, workplace: Any):
    run_once(store, workplace, "order-1")
    run_phase(store, workplace, "order-2")

    assert prepared(workplace) == 6  # to lock, to look and to finish; a bound, a fence and the end of a phase


def test_nothing_is_prepared_where_the_app_prepares_nothing(store: PostgresStore, workplace: Any):
    workplace.prepare_threshold = None
    run_once(store, workplace, "order-1")
    run_phase(store, workplace, "order-2")

    assert prepared(workplace) == 0
    assert worked(store) == ["order-1", "order-2"]


@pytest.mark.parametrize("run", [run_once, run_phase])
def test_a_connection_that_has_forgotten_what_was_prepared_is_not_taught_again(
    store: PostgresStore, workplace: Any, run: Callable[..., None]
):
    run(store, workplace, "order-1")
    workplace.execute("DEALLOCATE ALL")
    workplace.commit()

    run(store, workplace, "order-2")
    run(store, workplace, "order-3")

    assert worked(store) == ["order-1", "order-2", "order-3"]
    assert prepared(workplace) == 0


def test_what_psycopg_lets_the_server_forget_is_prepared_again(store: PostgresStore, workplace: Any):
    workplace.prepare_threshold = 0  # it prepares at once, and lets all be forgotten after a rollback
    run_once(store, workplace, "order-1")
    workplace.execute("INSERT INTO work VALUES ('undone')")
    workplace.rollback()
    assert prepared(workplace) == 0
    workplace.commit()

    run_once(store, workplace, "order-2")

    assert worked(store) == ["order-1", "order-2"]
    assert prepared(workplace) == 3


def test_what_a_nested_rollback_lets_the_server_forget_is_prepared_again(store: PostgresStore, workplace: Any):
    workplace.prepare_threshold = 0
    run_once(store, workplace, "order-1")
    asked = make_asked("order-2")
    claim = claimed(store.enter(workplace, asked, patience=timedelta(0), idle=LEASE))
    workplace.execute("SAVEPOINT nested")
    workplace.execute("INSERT INTO work VALUES ('undone')")
    workplace.execute("ROLLBACK TO SAVEPOINT nested")  # as session.begin_nested() does

    store.finish(workplace, claim, asked, DONE, RETENTION)
    run_once(store, workplace, "order-3")

    assert worked(store) == ["order-1", "order-3"]
    assert prepared(workplace) == 3


def test_a_connection_that_forgets_in_the_middle_loses_no_work(store: PostgresStore, workplace: Any):
    run_once(store, workplace, "order-1")
    asked = make_asked("order-2")
    claim = claimed(store.enter(workplace, asked, patience=timedelta(0), idle=LEASE))
    workplace.execute("INSERT INTO work VALUES ('order-2')")
    workplace.execute("DEALLOCATE ALL")

    store.finish(workplace, claim, asked, DONE, RETENTION)

    assert worked(store) == ["order-1", "order-2"]
    assert isinstance(store.claim(asked, LEASE), Settled)


def test_a_connection_that_forgets_in_the_middle_of_a_phase_loses_no_work(store: PostgresStore, workplace: Any):
    run_phase(store, workplace, "order-1")

    run_phase(store, workplace, "order-2", forget=lambda: workplace.execute("DEALLOCATE ALL"))

    assert worked(store) == ["order-1", "order-2"]
    assert [each.name for each in store.checkpoints(make_asked("order-2").id)] == [PLACED.name]


def test_what_was_written_before_a_phase_is_seen_on_a_connection_that_forgets(store: PostgresStore, workplace: Any):
    run_phase(store, workplace, "order-1")
    claim = claimed(store.claim(make_asked("order-2"), LEASE))
    workplace.execute("INSERT INTO work VALUES ('order-2')")
    workplace.execute("DEALLOCATE ALL")

    with pytest.raises(WrittenBefore):
        store.fence(workplace, claim, PLACED, idle=LEASE, ends_reading=True)


def test_work_that_is_undone_stays_undone_where_the_connection_forgets(store: PostgresStore, workplace: Any):
    run_once(store, workplace, "order-1")
    asked = make_asked("order-2")
    claim = claimed(store.enter(workplace, asked, patience=timedelta(0), idle=LEASE))
    workplace.execute("INSERT INTO work VALUES ('order-2')")
    workplace.execute("DEALLOCATE ALL")

    store.finish(workplace, claim, asked, DONE, RETENTION, undo=True)

    assert worked(store) == ["order-1"]
    assert isinstance(store.claim(asked, LEASE), Settled)


def test_a_name_that_somebody_else_has_taken_stops_nobody(store: PostgresStore, workplace: Any):
    run_once(store, workplace, "order-1")
    names = [name for (name,) in workplace.execute("SELECT name FROM pg_prepared_statements").fetchall()]
    with psycopg.connect(plain(store)) as other:
        for name in names:
            other.execute(f"PREPARE {name} AS SELECT 1")  # as behind a pooler that gives us another's connection
        other.commit()

        run_once(store, other, "order-2")

        assert worked(store) == ["order-1", "order-2"]


def test_what_is_known_of_a_connection_goes_with_it(store: PostgresStore, workplace: Any):
    run_once(store, workplace, "order-1")
    before = len(pipeline._PREPARED)
    for n in range(5):
        with psycopg.connect(plain(store)) as connection:
            run_once(store, connection, f"short-{n}")
        del connection
    gc.collect()

    assert len(pipeline._PREPARED) <= before
