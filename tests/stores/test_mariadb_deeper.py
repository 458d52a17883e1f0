"""MariaDB at length: the contract of transactions, random programs, mutants that the contracts must see."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pymysql
import pytest
from sqlalchemy.pool import PoolProxiedConnection

from flask_idempotency.errors import IdempotencyError
from flask_idempotency.stores.database import Message, Rows, load_statement
from flask_idempotency.stores.mariadb import MariaStore
from flask_idempotency.testing import KeyedTransactionContract, StoreContract
from tests.stores.test_mutants import promises_of
from tests.stores.test_state_machine import play
from tests.stores.worlds import MariaWorld

BREACHES = (AssertionError, IdempotencyError, pymysql.err.Error, pytest.fail.Exception)


class TestMariaDB(KeyedTransactionContract):
    level = "READ COMMITTED"

    @pytest.fixture
    def store(self, mariadb_store: MariaStore) -> MariaStore:
        return mariadb_store

    @pytest.fixture
    def let_pass(self, store: MariaStore) -> Callable[..., None]:
        return MariaWorld(store).let_pass

    @pytest.fixture
    def connect(self, store: MariaStore) -> Iterator[Callable[[], Any]]:
        url = store._engine.url
        with ExitStack() as connections:

            def connect() -> Any:
                connection = pymysql.connect(
                    host=url.host,
                    port=url.port or 0,
                    user=url.username,
                    database=url.database,
                    init_command=f"SET SESSION TRANSACTION ISOLATION LEVEL {self.level}",
                )
                connections.callback(lambda: connection.close() if connection.open else None)
                connections.callback(lambda: connection.rollback() if connection.open else None)
                return connection

            first = connect()
            first.cursor().execute("CREATE TABLE IF NOT EXISTS work (name text)")
            first.cursor().execute("DELETE FROM work")
            first.commit()
            yield connect


class TestMariaDBAtRepeatableRead(TestMariaDB):
    """As MariaDB has it by default: what a transaction has read once, it reads again."""

    level = "REPEATABLE READ"


class LossyMariaDB(MariaStore):
    """Loses the connection after a statement was carried out and before its answer arrived."""

    loses_next = False

    def _execute(self, connection: PoolProxiedConnection, messages: Sequence[Message]) -> list[Rows]:
        rows = super()._execute(connection, messages)
        if self.loses_next:
            self.loses_next = False
            raise self._driver_error("the answer was lost")
        return rows


class LossyWorld(MariaWorld):
    store: LossyMariaDB

    def lose_next_answer(self) -> None:
        self.store.loses_next = True


def test_the_mariadb_store_does_as_foretold_though_answers_are_lost(mariadb_store: MariaStore):
    play(LossyWorld(LossyMariaDB(mariadb_store._engine)), share=0.3)


# What a hurried author might write: a verb, what its statement says, what it says instead, and promises that see it.
MUTANTS = {
    "completes without a token": ("complete", "id = :id AND token = :token", "id = :id", "complete"),
    "completes at any point": ("complete", " AND point <=> :point", "", ""),
    "fences by the record alone": ("fence_step", "id = :id AND token = :token", "id = :id", "phase"),
    "fences without the point": ("fence_step", " AND point <=> :previous", "", "phase"),
    "lets a lease run on in a phase": ("prolong", "SET lease_until =", "SET created_at =", "phase"),
    "takes over a lease that lasts": ("take_over", "lease_until <= UTC_TIMESTAMP(6) AND ", "", "lease"),
    "takes over for another request": ("take_over", " AND fingerprint = :fingerprint\n", "\n", ""),
    "counts leases that were ended": ("take_over", "attempt + (token IS NOT NULL)", "attempt + 1", "lease"),
    "takes over without end": ("take_over", " AND attempt <= :takeovers", "", "quarantin"),
    "releases for anybody": ("release", "id = :id AND token = :token", "id = :id", "release"),
    "renews for anybody": ("renew", "id = :id AND token = :token", "id = :id", "renew"),
    "replays what has expired": ("find", " AND (state <> 'finished' OR expires_at > UTC_TIMESTAMP(6))", "", "expire"),
    "reaps at once": ("expired_ids", " - INTERVAL :grace MICROSECOND", "", "reap"),
    "reaps what runs": ("expired_ids", "state = 'finished' AND expires_at <", "created_at <", "reap"),
    "reaps progress": ("untouched_ids", " AND (point IS NULL OR point = :request)", "", "abandoned"),
    "forgets no checkpoint": ("drop_checkpoints", "record_id = :id", "record_id = NULL", "checkpoint"),
    "restarts an effect's time": ("mark", "idempotency_checkpoint.at, VALUES(at))", "VALUES(at), VALUES(at))", "sen"),
    "sets the state first": (
        "mark",
        "at = IF(",
        "state = VALUES(state), generation = VALUES(generation), at = IF(",
        "sen",
    ),
    "leaves its row behind": ("vacate", "id = :id AND", "id = NULL AND", "without_a_record"),
}


class Mutant(MariaStore):
    """The real store, but for one line of one statement; that line must exist."""

    change: tuple[str, str, str] = ("", "", "")

    def _statement(self, verb: str) -> str:
        text, (changed, said, says) = load_statement(self.technology, verb, ":NAME"), self.change
        if verb == changed:
            assert said in text, f"{verb}.sql does not say {said!r}"
            text = text.replace(said, says)
        return re.sub(r":([a-z]+)\b", r"%(\1)s", text)


@pytest.fixture
def given(mariadb_store: MariaStore) -> Iterator[Callable[[MariaStore], dict[str, object]]]:
    """`given(store)`: the fixtures of both contracts."""
    url = mariadb_store._engine.url
    with ExitStack() as connections:

        def connect() -> Any:
            connection = pymysql.connect(host=url.host, port=url.port or 0, user=url.username, database=url.database)
            connections.callback(lambda: connection.close() if connection.open else None)
            return connection

        def give(store: MariaStore) -> dict[str, object]:
            connections.close()
            MariaWorld(store).clear()
            cursor = connect().cursor()
            cursor.execute("CREATE TABLE IF NOT EXISTS work (name text)")
            cursor.execute("TRUNCATE work")
            return {"store": store, "let_pass": MariaWorld(store).let_pass, "connect": connect}

        yield give


@pytest.mark.parametrize("name", MUTANTS)
def test_the_contract_sees_every_mutant(mariadb_store: MariaStore, given: Callable[[MariaStore], Any], name: str):
    *change, word = MUTANTS[name]
    mutant = type("Mutated", (Mutant,), {"change": tuple(change)})(mariadb_store._engine)
    mutant._statement(change[0])

    seen = []
    for contract in (StoreContract, KeyedTransactionContract):
        for promise, parameters in promises_of(contract):
            if word in promise and not seen:
                fixtures = given(mutant)
                test = getattr(contract(), promise)
                wanted = test.__code__.co_varnames[: test.__code__.co_argcount + test.__code__.co_kwonlyargcount]
                try:
                    test(**{key: value for key, value in fixtures.items() if key in wanted}, **parameters)
                except BREACHES:
                    seen.append(promise)

    assert seen
