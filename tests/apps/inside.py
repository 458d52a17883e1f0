"""What the fault tests of both guards share: an app in this process that takes orders, and a view of its database."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

import pytest
import sqlalchemy
from flask import Flask
from sqlalchemy.pool import NullPool
from werkzeug.test import TestResponse

from flask_idempotency.core.key import Key
from flask_idempotency.core.scope import record_id, scope_of
from flask_idempotency.stores import open_store
from tests.apps.guarded_outside import REPLAYED
from tests.fixtures.mariadb import MariaDBServer
from tests.fixtures.postgres import Postgres
from tests.fixtures.processes import Answer, eventually

Found = TypeVar("Found")


def make_tables(url: str, metadata: sqlalchemy.MetaData) -> None:
    """Make an app's tables and the extension's in an empty database."""
    store = open_store(url)
    store.create()
    store.close()
    metadata.create_all(sqlalchemy.create_engine(url, poolclass=NullPool))


def id_of(key: str) -> bytes:
    return record_id(scope_of("everyone"), Key(key))


class Books(Generic[Found]):
    """Reads a database over connections that are never broken, and keeps none."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.kind = sqlalchemy.make_url(url).get_backend_name()
        ansi = {"init_command": "SET sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES')"}
        own = ansi if self.kind == "mariadb" else {}  # it would take "order" for a text
        self._engine = sqlalchemy.create_engine(url, poolclass=NullPool, connect_args=own)

    def of(self, key: str) -> Found:
        """Count everything about a key in one statement, so that nothing can happen in between."""
        raise NotImplementedError

    def ask(self, statement: str, **values: object) -> list[Any]:
        """Run one statement, and commit it."""
        with self._engine.begin() as connection:
            found = connection.execute(sqlalchemy.text(statement), values)
            return list(found.fetchall()) if found.returns_rows else []


class Shop:
    """An app in this process that takes orders."""

    def __init__(self, app: Flask, path: str = "/orders") -> None:
        self.app, self.path = app, path

    def order(self, key: str, *, path: str | None = None, body: Any = None, **headers: str) -> TestResponse:
        """Order once. Headers are written X_Answer="201"; they say how the view is to behave, or what goes wrong."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()} | {"Idempotency-Key": key}
        client = self.app.test_client(use_cookies=False)
        return client.post(path or self.path, json=body or {"intent": key}, headers=sent, buffered=True)

    def order_until_definitive(
        self, key: str, wanted: int = 201, let_pass: Callable[[str], object] = lambda _: None
    ) -> list[TestResponse]:
        """Retry as a client would; give every answer, the definitive one last.

        *let_pass* lets the time pass that such a client waits for the key, if that is long.
        """
        answers: list[TestResponse] = []

        def attempt() -> bool:
            answers.append(self.order(key))
            assert answers[-1].status_code in (wanted, 409, 503), answers[-1].data
            is_definitive = answers[-1].status_code == wanted
            if not is_definitive:
                let_pass(key)
            return is_definitive

        eventually(attempt, 15, what=f"a definitive answer for {key}")
        return answers

    @property
    def engine(self) -> sqlalchemy.Engine:
        """The app's own."""
        with self.app.app_context():
            engine: sqlalchemy.Engine = self.app.extensions["sqlalchemy"].engine
            return engine

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()
        self.app.extensions["idempotency"].store.close()


@contextmanager
def closing_at_the_end(shop: Shop) -> Iterator[Shop]:
    """Close a shop, whatever happens in it."""
    try:
        yield shop
    finally:
        shop.close()


def is_first(answer: TestResponse) -> bool:
    return answer.status_code == 201 and REPLAYED not in answer.headers


def is_replay(answer: TestResponse) -> bool:
    return answer.status_code == 201 and answer.headers.get(REPLAYED) == "true"


def refusal(answer: TestResponse | Answer) -> tuple[int, str]:
    """Give status and code of a refusal; a retryable one must say when."""
    status = answer.status if isinstance(answer, Answer) else answer.status_code
    told: Any = answer.json
    if status in (409, 503) and told["code"] != "quarantined":
        assert int(answer.headers["Retry-After"]) >= 1
    return status, told["code"]


@contextmanager
def database(kind: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    """A database of one kind for all tests of a module."""
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'shop.db'}"
        return
    server: Postgres | MariaDBServer = request.getfixturevalue(kind.removesuffix("ql"))
    name = server.create_database()
    try:
        yield server.url(name)
    finally:
        server.drop_database(name)
