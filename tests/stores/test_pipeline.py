"""What is sent below psycopg's cursors: every value arrives as it is, whatever the connection's settings are."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from flask_idempotency.stores.pipeline import converse
from flask_idempotency.stores.postgres import PostgresStore
from tests.stores.worlds import plain

VALUES: dict[str, tuple[str, object]] = {
    "text": ("text", "tea"),
    "text beyond ASCII": ("text", "café"),
    "empty text": ("text", ""),
    "bytes": ("bytea", b"\x00\xff\\"),
    "no bytes": ("bytea", b""),
    "number": ("bigint", 2**63 - 1),
    "number below zero": ("bigint", -(2**63)),
    "duration": ("interval", timedelta(days=40, hours=3, microseconds=7)),
    "duration below zero": ("interval", -timedelta(microseconds=1)),
    "nothing": ("text", None),
}


@pytest.fixture(params=["UTF8", "LATIN1"])
def connection(postgres_store: PostgresStore, request: pytest.FixtureRequest) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(plain(postgres_store), client_encoding=request.param) as made:
        made.execute("SET intervalstyle = 'sql_standard'")
        yield made


@pytest.mark.parametrize("prepares", [False, True])
@pytest.mark.parametrize("name", VALUES)
def test_a_value_arrives_as_it_is(connection: psycopg.Connection[Any], name: str, prepares: bool):
    type_, value = VALUES[name]
    ask = (f"SELECT %(value)s::{type_}, %(value)s::{type_} IS NULL", {"value": value})

    replies = converse(connection, [ask, ask], prepares=prepares)

    assert [*replies.rows(0), *replies.rows(1)] == [(value, value is None)] * 2


def test_text_with_a_nul_is_refused_and_never_cut_short(connection: psycopg.Connection[Any]):
    with pytest.raises(psycopg.DataError, match="NUL"):
        converse(connection, [("SELECT %(value)s::text", {"value": "tea\0 and more"})])

    assert converse(connection, [("SELECT 1", {})]).rows(0) == [(1,)]


def test_an_error_leaves_the_connection_usable(connection: psycopg.Connection[Any]):
    with pytest.raises(psycopg.errors.DivisionByZero):
        converse(connection, [("SELECT 1", {}), ("SELECT 1 / %(by)s::int", {"by": 0}), ("SELECT 2", {})])

    connection.rollback()
    assert converse(connection, [("SELECT 1", {})]).rows(0) == [(1,)]


COMMIT_FAILS = """
CREATE TEMPORARY TABLE work (note text);
CREATE FUNCTION pg_temp.refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'not at this level' USING errcode = '40001'; END $$;
CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON work DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION pg_temp.refuse()
"""


@pytest.mark.parametrize("prepares", [False, True])
@pytest.mark.parametrize("others", [0, 1])
def test_a_commit_that_fails_behind_its_statements_is_an_error(
    connection: psycopg.Connection[Any], others: int, prepares: bool
):
    connection.rollback()
    connection.autocommit = True  # so the last statement is committed without a word, and may fail then
    connection.execute(COMMIT_FAILS)
    messages = [("INSERT INTO work VALUES (%(note)s) RETURNING note", {"note": "lost"})] + [("SELECT 1", {})] * others

    for _ in range(2):
        with pytest.raises(psycopg.errors.SerializationFailure):
            converse(connection, messages, prepares=prepares)

    assert converse(connection, [("SELECT count(*) FROM work", {})]).rows(0) == [(0,)]


def test_a_connection_that_is_lost_on_the_way_is_an_error(connection: psycopg.Connection[Any]):
    end = "SELECT pg_terminate_backend(pg_backend_pid())"

    with pytest.raises(psycopg.OperationalError):
        converse(connection, [("SELECT 1", {}), (end, {}), ("SELECT 2", {})])
