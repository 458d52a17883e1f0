"""A transaction for each test, rolled back at its end: nothing of a protected request is left for the next test."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, event
from sqlalchemy.orm import scoped_session, sessionmaker

from tests.ecosystem.apps.factory_boy import Factory
from tests.ecosystem.shop import REPLAYED, Shop

PACKAGE = "pytest, with a transaction for each test"
STEP = "Unchanged; the fixture is in [testing](guide/testing.md)."


class Isolated(Shop):
    """The plain shop, on both databases."""


@contextmanager
def transaction_on(shop: Any) -> Iterator[tuple[Any, Connection]]:
    """Begin a transaction that is rolled back at the end. SQLite's driver is made to begin when it is told to."""
    with shop.app.app_context():
        engine = shop.db.engine
    if engine.dialect.name == "sqlite" and not event.contains(engine, "begin", begin):
        engine.dispose()
        event.listen(engine, "connect", leave_it_to_us)
        event.listen(engine, "begin", begin)
    with engine.connect() as connection:
        transaction = connection.begin()
        try:
            yield engine, connection
        finally:
            transaction.rollback()


def leave_it_to_us(driver: Any, _: object) -> None:
    driver.isolation_level = None


def begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")


@contextmanager
def engine_replaced_by_connection(shop: Any) -> Iterator[None]:
    """Put the connection into the place of the engine, which Flask-SQLAlchemy's sessions ask first."""
    with shop.app.app_context():
        engines = shop.db.engines
    with transaction_on(shop) as (engine, connection):
        engines[None] = connection
        try:
            yield
        finally:
            engines[None] = engine


@contextmanager
def session_bound_to_a_connection(shop: Any) -> Iterator[None]:
    """Replace ``db.session`` by one that is bound to the connection and joins its transaction by savepoints."""
    with transaction_on(shop) as (_, connection):
        before = shop.db.session
        shop.db.session = scoped_session(sessionmaker(connection, join_transaction_mode="create_savepoint"))
        try:
            yield
        finally:
            shop.db.session.remove()
            shop.db.session = before


RECIPES = [engine_replaced_by_connection, session_bound_to_a_connection]
Recipe = Callable[[Any], AbstractContextManager[None]]


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
@pytest.mark.parametrize("isolated", RECIPES)
def test_a_test_sees_its_own_order_and_leaves_nothing_to_the_next(
    make_shop: Callable[..., Any], isolated: Recipe, database: str
) -> None:
    shop = make_shop(Isolated, database)

    for _ in range(2):  # two tests, one after the other, with the same key
        with isolated(shop):
            answers = [shop.send("tea") for _ in range(2)]
            assert [answer.status_code for answer in answers] == [201, 201]
            assert [REPLAYED in answer.headers for answer in answers] == [False, True]
            with shop.app.app_context():
                assert shop.db.session.query(shop.Order).count() == 1

        assert (shop.orders, shop.records) == ([], 0)
    assert shop.runs == ["tea", "tea"]


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
@pytest.mark.parametrize("isolated", RECIPES)
def test_a_request_that_fails_leaves_the_rows_that_the_test_has_made(
    make_shop: Callable[..., Any], isolated: Recipe, database: str
) -> None:
    shop = make_shop(Factory, database)

    with isolated(shop):
        shop.factory._meta.sqlalchemy_session = shop.db.session
        with shop.app.app_context():
            shop.factory(item="made by the test")
        shop.meanwhile = lambda: 1 / 0
        assert shop.send("tea").status_code == 500
        shop.meanwhile = lambda: None
        assert shop.send("tea").status_code == 201
        with shop.app.app_context():
            items = [item for (item,) in shop.db.session.query(shop.Order.item).order_by(shop.Order.id)]
        assert items == ["made by the test", "tea"]

    assert (shop.orders, shop.records) == ([], 0)
