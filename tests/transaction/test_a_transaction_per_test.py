"""Apps whose tests run in one transaction that is rolled back at the end: the request's work is a savepoint in it, so
nothing is left of order or record."""

from contextlib import contextmanager

import pytest
from flask import Flask
from flask_sqlalchemy_lite import SQLAlchemy as Lite
from sqlalchemy import create_engine, event, insert, select
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from flask_idempotency import Idempotency, idempotent, phase, scopes
from flask_idempotency.errors import IdempotencyError
from tests.transaction.test_taking_part import Base, Order

REPLAYED = "Idempotent-Replayed"


class Crash(Exception):
    """What a view raises after its commit."""


# -- the recipes -------------------------------------------------------------------------------------------------------


@contextmanager
def session_replaced(shop):
    """``db.session`` replaced by sessions on a connection, as SQLAlchemy's documentation has it."""
    with shop.app.app_context():
        connection, usual = shop.db.engine.connect(), shop.db.session
    transaction = connection.begin()
    factory = sessionmaker(bind=connection, join_transaction_mode="create_savepoint")
    shop.db.session = scoped_session(factory)
    yield
    shop.db.session.remove()
    shop.db.session = usual
    transaction.rollback()
    connection.close()


@contextmanager
def engines_replaced(shop):
    """Each engine replaced by a connection, as Flask-SQLAlchemy's maintainers advise."""
    with shop.app.app_context():
        engines = shop.db.engines
    engine = engines[None]
    connection = engine.connect()
    transaction = connection.begin()
    engines[None] = connection
    yield
    transaction.rollback()
    connection.close()
    engines[None] = engine


@contextmanager
def engines_replaced_and_savepoints(shop):
    """The same, with sessions that roll back to a savepoint."""
    shop.db.session.session_factory.configure(join_transaction_mode="create_savepoint")
    with engines_replaced(shop):
        yield
    shop.db.session.session_factory.configure(join_transaction_mode="conditional_savepoint")


@contextmanager
def made_by_flask_sqlalchemy(shop):
    """``db._make_scoped_session`` with a bind, and the engine replaced, for its sessions ask the engines first."""
    with engines_replaced(shop), shop.app.app_context():
        usual, connection = shop.db.session, shop.db.engine
        options = {"bind": connection, "binds": {}, "join_transaction_mode": "create_savepoint"}
        shop.db.session = shop.db._make_scoped_session(options)
        yield
        shop.db.session.remove()
        shop.db.session = usual


@contextmanager
def savepoint_begun_again(shop):
    """The recipe for SQLAlchemy 1.4: a savepoint on the connection, and a listener that begins it again."""
    with session_replaced(shop):
        connection = shop.db.session.get_bind()
        nested = connection.begin_nested()

        @event.listens_for(shop.db.session, "after_transaction_end")
        def begin_again(*_):
            nonlocal nested
            if not nested.is_active:
                nested = connection.begin_nested()

        yield
        event.remove(shop.db.session, "after_transaction_end", begin_again)


RECIPES = [
    session_replaced,
    engines_replaced,
    engines_replaced_and_savepoints,
    made_by_flask_sqlalchemy,
    savepoint_begun_again,
]


@pytest.fixture(params=RECIPES, ids=lambda recipe: recipe.__name__)
def isolated(shop, request):
    """`isolated()`: a context in which the shop's database is isolated by one of the recipes."""
    return lambda: request.param(shop)


def serve(shop, end=lambda: ("made", 201)):
    """Serve a view that places an order, commits it, and tries another in vain."""

    @idempotent
    def view():
        shop.db.session.add(shop.db.Order(note="one"))
        shop.db.session.commit()
        shop.db.session.add(shop.db.Order(note="in vain"))
        shop.db.session.flush()
        shop.db.session.rollback()
        return end()

    shop.serve(view)


def notes_inside(shop):
    """The orders as the test sees them."""
    with shop.app.app_context():
        found = shop.db.session.scalars(select(shop.db.Order.note).order_by(shop.db.Order.id)).all()
        shop.db.session.remove()
    return found


# -- what they are promised --------------------------------------------------------------------------------------------


def test_the_rollback_of_a_test_leaves_neither_order_nor_record(shop, isolated):
    serve(shop)
    with isolated():
        first = shop.send()

    assert (first.status_code, shop.notes, shop.records) == (201, [], 0)


def test_a_second_request_in_the_same_test_is_replayed(shop, isolated):
    serve(shop)
    with isolated():
        answers = [shop.send() for _ in range(3)]
        other = shop.send(data="another body")
        inside = notes_inside(shop)

    assert [(each.status_code, REPLAYED in each.headers) for each in answers] == [
        (201, False),
        (201, True),
        (201, True),
    ]
    assert other.status_code == 422
    assert inside == ["one"]
    assert (shop.notes, shop.records) == ([], 0)


def test_the_next_test_begins_with_nothing(shop, isolated):
    serve(shop)
    seen = []
    for _ in range(3):
        with isolated():
            answers = [shop.send() for _ in range(2)]
            seen.append(([REPLAYED in each.headers for each in answers], notes_inside(shop)))

    assert seen == [([False, True], ["one"])] * 3
    assert (shop.notes, shop.records, shop.engine.pool.checkedout()) == ([], 0, 0)


def test_a_failed_request_leaves_nothing_in_the_test_s_transaction_either(shop, isolated):
    ends = [lambda: ("made", 201), lambda: ("no", 503), Crash]

    def end():
        found = ends.pop()
        if found is Crash:
            raise Crash
        return found()

    serve(shop, end)
    with isolated():
        seen = [(shop.send().status_code, notes_inside(shop)) for _ in range(3)]

    assert seen == [(500, []), (503, []), (201, ["one"])]
    assert (shop.notes, shop.records) == ([], 0)


def test_what_a_lockout_has_committed_stays_in_the_test_s_transaction(shop, isolated):
    serve(shop, lambda: ("wrong PIN", 401))
    with isolated():
        statuses = [shop.send().status_code for _ in range(2)]
        inside = notes_inside(shop)

    assert (statuses, inside) == ([401, 401], ["one", "one"])
    assert (shop.notes, shop.records) == ([], 0)


def let_sqlalchemy_begin(engine):
    """Begin transactions on SQLite in time, as SQLAlchemy's documentation has it; its driver leaves savepoints out."""
    if engine.name == "sqlite":
        event.listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        engine.dispose()


def test_what_the_test_has_written_before_is_there_and_stays(shop, isolated):
    let_sqlalchemy_begin(shop.engine)

    def end():
        return str(shop.db.session.scalars(select(shop.db.User.name).order_by(shop.db.User.id)).all()), 500

    serve(shop, end)
    with isolated():
        with shop.app.app_context():
            shop.db.session.add(shop.db.User(name="Bob"))
            shop.db.session.commit()
        answer = shop.send()
        with shop.app.app_context():
            names = shop.db.session.scalars(select(shop.db.User.name).order_by(shop.db.User.id)).all()
            shop.db.session.remove()

    assert answer.text == "['Ada', 'Bob']"
    assert names == ["Ada", "Bob"]
    assert [name for _, name, _ in shop.rows()["user"]] == ["Ada"]


@pytest.mark.parametrize("is_flushed", [True, False], ids=["flushed", "not even flushed"])
def test_a_session_that_the_test_shares_with_the_request_goes_on(shop, isolated, is_flushed):
    serve(shop)
    with isolated(), shop.app.app_context():  # in which Flask serves the request too
        bob = shop.db.User(name="Bob")
        shop.db.session.add(bob)
        if is_flushed:
            shop.db.session.flush()
        answers = [shop.send() for _ in range(2)]
        bob.visits = 7
        shop.db.session.commit()
        visits = shop.db.session.scalars(select(shop.db.User.visits).order_by(shop.db.User.id)).all()
        shop.db.session.remove()

    assert [(each.status_code, REPLAYED in each.headers) for each in answers] == [(201, False), (201, True)]
    assert visits == [0, 7]
    assert (shop.notes, shop.records) == ([], 0)


def test_other_sessions_of_the_engine_take_part_in_the_test_s_transaction(shop, isolated):
    engine = shop.engine

    @idempotent
    def view():
        with Session(engine) as session, session.begin():
            session.add(shop.db.Order(note="one"))
        with engine.begin() as connection:
            connection.execute(insert(shop.db.Order).values(note="two"))
        return "made", 201

    shop.serve(view)
    with isolated():
        answers = [shop.send() for _ in range(2)]
        inside = notes_inside(shop)

    assert [(each.status_code, REPLAYED in each.headers) for each in answers] == [(201, False), (201, True)]
    assert (inside, shop.notes, shop.records) == (["one", "two"], [], 0)


def test_outside_of_the_test_s_transaction_everything_is_committed_as_ever(shop, isolated):
    serve(shop)
    with isolated():
        shop.send()

    answers = [shop.send() for _ in range(2)]

    assert [(each.status_code, REPLAYED in each.headers) for each in answers] == [(201, False), (201, True)]
    assert (shop.notes, shop.records) == (["one"], 1)


def test_the_lease_guard_is_refused_in_one_sentence(shop, isolated):
    shop.app.testing = True
    shop.serve(idempotent(guard="lease")(lambda: (phase("work", lambda: 1), ("made", 201))[1]))

    with isolated(), pytest.raises(IdempotencyError) as refused:
        shop.send()

    assert str(refused.value).endswith("give such a test a database of its own, or use guard='transaction'.")
    assert shop.records == 0


def test_a_connection_without_a_transaction_is_refused_in_one_sentence(shop):
    shop.app.testing = True
    serve(shop)
    with shop.app.app_context(), shop.db.engine.connect() as connection:
        usual, shop.db.session = shop.db.session, scoped_session(sessionmaker(bind=connection))
        with pytest.raises(IdempotencyError, match="on which no transaction is open; begin one"):
            shop.send()
        shop.db.session.remove()
        shop.db.session = usual

    assert (shop.notes, shop.records) == ([], 0)


def test_a_session_factory_that_is_bound_to_a_connection_is_isolated_too(store_url):
    engine = create_engine(store_url)
    factory = sessionmaker(engine)
    Base.metadata.create_all(engine)
    app = Flask("plain")
    app.config["IDEMPOTENCY_HOUSEKEEPING"] = False

    class Db:
        session, metadata = factory, Base.metadata

    Db.engine = engine
    Idempotency(app, db=Db, scope=scopes.everyone)
    app.extensions["idempotency"].store.create()

    @app.post("/")
    @idempotent
    def view():
        with factory() as session, session.begin():
            session.add(Order(note="one"))
        return "made", 201

    def count():
        with engine.connect() as connection:
            return len(connection.execute(select(Order)).all())

    connection = engine.connect()
    transaction = connection.begin()
    factory.configure(bind=connection, join_transaction_mode="create_savepoint")
    answers = [app.test_client().post("/", headers={"Idempotency-Key": "a"}) for _ in range(2)]
    transaction.rollback()
    connection.close()
    left = count()
    app.extensions["idempotency"].store.close()
    engine.dispose()

    assert [(each.status_code, REPLAYED in each.headers) for each in answers] == [(201, False), (201, True)]
    assert left == 0


def test_flask_sqlalchemy_lite_s_own_isolation_is_joined(store_url):
    app = Flask("lite")
    app.config.update(SQLALCHEMY_ENGINES={"default": store_url}, IDEMPOTENCY_HOUSEKEEPING=False)
    db = Lite(app)
    Idempotency(app, db=db, scope=scopes.everyone)
    app.extensions["idempotency"].store.create()
    with app.app_context():
        Base.metadata.create_all(db.engine)

    @app.post("/")
    @idempotent
    def view():
        db.session.add(Order(note="one"))
        db.session.commit()
        return "made", 201

    with db.test_isolation():
        answers = [app.test_client().post("/", headers={"Idempotency-Key": "a"}) for _ in range(2)]
    with app.app_context():
        left = db.session.scalars(select(Order)).all()
    app.extensions["idempotency"].store.close()
    with app.app_context():
        db.engine.dispose()

    assert [(each.status_code, REPLAYED in each.headers) for each in answers] == [(201, False), (201, True)]
    assert left == []
