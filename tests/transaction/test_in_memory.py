"""A SQLite database in memory, as test suites use it: its records are beside it, and are forgotten with its rows."""

import pytest
from flask import Flask
from flask_sqlalchemy_lite import SQLAlchemy as Lite
from sqlalchemy import event
from sqlalchemy.pool import StaticPool

from flask_idempotency import Idempotency, scopes
from tests.transaction.conftest import make_database
from tests.transaction.test_a_transaction_per_test import RECIPES
from tests.transaction.test_taking_part import Base, Order

REPLAYED = "Idempotent-Replayed"


class Shop:
    """An app whose orders and records are in memory, for all tests of a suite."""

    def __init__(self, url="sqlite://"):
        self.app, self.db = Flask("memory"), make_database()
        self.app.config.update(SQLALCHEMY_DATABASE_URI=url, IDEMPOTENCY_HOUSEKEEPING=False, TESTING=True)
        self.db.init_app(self.app)
        Idempotency(self.app, db=self.db, scope=scopes.everyone)
        self.app.add_url_rule("/", "view", self.view, methods=["POST"])
        with self.app.app_context():
            self.db.create_all()

    def view(self):
        self.db.session.add(self.db.Order(note="one"))
        self.db.session.commit()
        return {"orders": self.db.session.query(self.db.Order).count()}, 201

    def send(self):
        return self.app.test_client().post("/", headers={"Idempotency-Key": "key"})

    def is_run_once(self):
        """Send a request twice; say whether it ran once, and in an empty shop."""
        first, second = self.send(), self.send()
        assert (REPLAYED in first.headers, REPLAYED in second.headers) == (False, True)
        return first.json == second.json == {"orders": 1}


@pytest.fixture
def shop():
    shop = Shop()
    yield shop
    with shop.app.app_context():
        shop.db.engine.dispose()


def begin_where_sqlalchemy_begins(engine):
    """Add the two listeners that SQLAlchemy's page on SQLite shows."""

    @event.listens_for(engine, "connect")
    def leave_it_to_us(connection, _):
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection):
        connection.exec_driver_sql("BEGIN")


def test_tables_that_are_dropped_and_made_again_leave_no_record(shop):
    for _ in range(3):
        assert shop.is_run_once()
        with shop.app.app_context():
            shop.db.session.remove()
            shop.db.drop_all()
            shop.db.create_all()


def test_a_database_that_is_closed_leaves_no_record(shop):
    for _ in range(2):
        assert shop.is_run_once()
        with shop.app.app_context():
            shop.db.engine.dispose()
            shop.db.create_all()


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.__name__)
def test_a_transaction_per_test_leaves_no_record(recipe):
    shop = Shop()
    with shop.app.app_context():
        shop.db.engine.dispose()
        begin_where_sqlalchemy_begins(shop.db.engine)
        shop.db.create_all()

    for _ in range(3):
        with recipe(shop):
            assert shop.is_run_once()

    assert shop.is_run_once()  # what a test has rolled back is not replayed behind it either
    with shop.app.app_context():
        shop.db.engine.dispose()


def test_what_is_rolled_back_in_a_view_leaves_the_records_alone(shop):
    assert shop.is_run_once()
    with shop.app.app_context():
        shop.db.session.add(shop.db.Order(note="two"))
        shop.db.session.rollback()

    assert REPLAYED in shop.send().headers


def test_another_database_that_is_dropped_leaves_the_records_alone(shop):
    assert shop.is_run_once()
    other = Shop()
    with other.app.app_context():
        other.db.drop_all()
        other.db.engine.dispose()

    assert REPLAYED in shop.send().headers


def test_flask_sqlalchemy_lite_s_tables_that_are_dropped_leave_no_record():
    app, db = Flask("lite"), Lite()
    app.config.update(IDEMPOTENCY_HOUSEKEEPING=False, TESTING=True)
    app.config["SQLALCHEMY_ENGINES"] = {"default": {"url": "sqlite://", "poolclass": StaticPool}}
    db.init_app(app)
    Idempotency(app, db=db, scope=scopes.everyone)

    @app.post("/")
    def view():
        db.session.add(Order(note="one"))
        db.session.commit()
        return "made", 201

    for _ in range(2):
        with app.app_context():
            Base.metadata.create_all(db.engine)
        answers = [app.test_client().post("/", headers={"Idempotency-Key": "key"}) for _ in range(2)]
        assert [REPLAYED in answer.headers for answer in answers] == [False, True]
        with app.app_context():
            Base.metadata.drop_all(db.engine)
    with app.app_context():
        db.engine.dispose()
