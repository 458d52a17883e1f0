"""Whatever uses the app's engine inside a protected view is part of its transaction: other sessions, plain connections,
nested app contexts. A thread beside the view is not, and is named in the log."""

import threading

import gevent
import pytest
from flask import Flask, copy_current_request_context, g
from flask_sqlalchemy_lite import SQLAlchemy as Lite
from sqlalchemy import String, create_engine, func, insert, select
from sqlalchemy.exc import StatementError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from flask_idempotency import Idempotency, idempotent, phase, scopes
from flask_idempotency.errors import IdempotencyError
from flask_idempotency.sessions import pool
from flask_idempotency.stores import open_store
from tests.fixtures.processes import eventually
from tests.transaction.conftest import Shop

REPLAYED = "Idempotent-Replayed"


class Crash(Exception):
    """What a view raises after its commit."""


@pytest.fixture(autouse=True)
def nothing_warned_yet(monkeypatch):
    monkeypatch.setattr(pool, "_WARNED", set())


def serve_beside(shop):
    shop.serve(lambda: (in_a_nested_app_context(shop), ("beside", 201))[1], "/beside")


def serve_with_a_crash(shop, work, guard="transaction"):
    """Serve a view that does its work and crashes at the first try, and one that it may send a request to."""
    crashes = [Crash]
    serve_beside(shop)

    def view():
        work() if guard == "transaction" else phase("work", work)
        if crashes:
            raise crashes.pop()
        return "made", 201

    shop.serve(idempotent(guard=guard)(view))


def assert_takes_part(shop):
    """Nothing is left of the try that crashed, and the retry's work is there once."""
    first = shop.send()
    left = shop.notes
    others = [shop.send() for _ in range(2)]

    assert (first.status_code, left) == (500, [])
    assert [(each.status_code, REPLAYED in each.headers) for each in others] == [(201, False), (201, True)]
    assert shop.notes == ["beside"]
    assert shop.engine.pool.checkedout() == 0


# -- other ways to the same engine -------------------------------------------------------------------------------------


def by_a_second_sessionmaker(shop):
    with sessionmaker(shop.db.engine)() as session:
        session.add(shop.db.Order(note="beside"))
        session.commit()


def by_a_session_made_by_hand(shop):
    with Session(shop.db.engine) as session, session.begin():
        session.add(shop.db.Order(note="beside"))


def by_a_second_scoped_session(shop):
    registry = scoped_session(sessionmaker(shop.db.engine))
    registry.add(shop.db.Order(note="beside"))
    registry.commit()
    registry.remove()


def by_a_second_sessionmaker_with_options(shop):
    with sessionmaker(shop.db.engine.execution_options(schema_translate_map={"other": None}))() as session:
        session.execute(insert(shop.db.Order).values(note="beside"))
        session.commit()


def by_engine_begin(shop):
    with shop.db.engine.begin() as connection:
        connection.execute(insert(shop.db.Order).values(note="beside"))


def by_engine_connect(shop):
    with shop.db.engine.connect() as connection:
        connection.execute(insert(shop.db.Order).values(note="in vain"))
        connection.rollback()
        connection.execute(insert(shop.db.Order).values(note="beside"))
        connection.commit()
        connection.execute(insert(shop.db.Order).values(note="not committed"))


def by_raw_connection(shop):
    raw = shop.db.engine.raw_connection()
    raw.cursor().execute("INSERT INTO orders (note) VALUES ('beside')")
    raw.commit()
    raw.cursor().execute("INSERT INTO orders (note) VALUES ('not committed')")
    raw.close()


def in_a_nested_app_context(shop):
    with shop.app.app_context():
        shop.db.session.add(shop.db.Order(note="beside"))
        shop.db.session.commit()


def in_a_nested_app_context_after_the_session_of_the_view(shop):
    shop.db.session.scalar(select(func.count()).select_from(shop.db.Order))
    in_a_nested_app_context(shop)


def in_two_nested_app_contexts(shop):
    with shop.app.app_context():
        in_a_nested_app_context(shop)


def in_a_request_context_that_was_pushed(shop):
    with shop.app.test_request_context("/elsewhere"):
        shop.db.session.add(shop.db.Order(note="beside"))
        shop.db.session.commit()


def in_an_app_context_inside_of_such_a_request_context(shop):
    with shop.app.test_request_context("/elsewhere"):
        in_a_nested_app_context(shop)


def by_engine_begin_inside_of_such_a_request_context(shop):
    with shop.app.test_request_context("/elsewhere"):
        by_engine_begin(shop)


def by_engine_begin_behind_such_a_request_context(shop):
    with shop.app.test_request_context("/elsewhere"):
        shop.app.preprocess_request()
    by_engine_begin(shop)


def in_a_request_without_a_key_that_is_dispatched_by_hand(shop):
    with shop.app.test_request_context("/beside", method="POST"):
        assert shop.app.full_dispatch_request().status_code == 201


def in_a_request_without_a_key_that_is_sent_to_the_app_itself(shop):
    assert shop.send("/beside", key=None).status_code == 201


WAYS = [
    by_a_second_sessionmaker,
    by_a_session_made_by_hand,
    by_a_second_scoped_session,
    by_a_second_sessionmaker_with_options,
    by_engine_begin,
    by_engine_connect,
    by_raw_connection,
    in_a_nested_app_context,
    in_a_nested_app_context_after_the_session_of_the_view,
    in_two_nested_app_contexts,
    in_a_request_context_that_was_pushed,
    in_an_app_context_inside_of_such_a_request_context,
    by_engine_begin_inside_of_such_a_request_context,
    by_engine_begin_behind_such_a_request_context,
    in_a_request_without_a_key_that_is_dispatched_by_hand,
    in_a_request_without_a_key_that_is_sent_to_the_app_itself,
]


@pytest.mark.parametrize("guard", ["transaction", "lease"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_a_view_writes_beside_its_session_is_part_of_its_transaction(shop, way, guard):
    serve_with_a_crash(shop, lambda: way(shop), guard)
    if guard == "transaction":
        assert_takes_part(shop)
    else:  # the phase is done when the view crashes
        assert [shop.send().status_code for _ in range(2)] == [500, 201]
        assert shop.notes == ["beside"]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_a_step_writes_beside_its_session_goes_if_the_step_fails(shop, way):
    crashes = [Crash]
    serve_beside(shop)

    def step():
        way(shop)
        if crashes:
            raise crashes.pop()

    shop.serve(idempotent(guard="lease")(lambda: (phase("work", step), ("made", 201))[1]))

    assert (shop.send().status_code, shop.notes) == (500, [])
    assert (shop.send().status_code, shop.notes) == (201, ["beside"])


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_without_a_key_the_same_rows_are_committed_at_once(shop, way):
    serve_with_a_crash(shop, lambda: way(shop))

    assert shop.send(key=None).status_code == 500
    assert shop.notes == ["beside"]


@pytest.mark.parametrize("decorate", [idempotent, lambda view: view], ids=["decorated", "undecorated"])
def test_a_nested_app_context_in_an_async_view_is_part_of_its_transaction(shop, decorate):
    statuses = [201, 500]

    async def view():
        in_a_nested_app_context(shop)
        return "made", statuses.pop()

    shop.serve(decorate(view))

    assert (shop.send().status_code, shop.notes) == (500, [])
    assert (shop.send().status_code, shop.notes) == (201, ["beside"])


def test_sessions_of_two_factories_see_each_other_s_rows(shop):
    seen = []

    def work():
        shop.db.session.add(shop.db.Order(note="beside"))
        shop.db.session.flush()
        with Session(shop.db.engine) as session:
            seen.append(session.scalars(select(shop.db.Order.note)).all())
        shop.db.session.commit()

    serve_with_a_crash(shop, work)

    assert_takes_part(shop)
    assert seen == [["beside"], ["beside"]]


def test_a_pool_of_one_connection_is_enough(make_shop):
    shop = make_shop(engine={"pool_size": 1, "max_overflow": 0, "pool_timeout": 1})
    shop.begin()

    def work():
        for way in WAYS:
            way(shop)

    serve_with_a_crash(shop, work)

    assert [shop.send().status_code for _ in range(2)] == [500, 201]
    assert shop.notes == ["beside"] * len(WAYS)


def test_an_option_of_the_connection_itself_is_refused_before_anything_is_written(shop):
    shop.app.testing = True

    @idempotent
    def view():
        with shop.db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(insert(shop.db.Order).values(note="twice"))
        return "made", 201

    shop.serve(view)

    with pytest.raises(IdempotencyError, match="leave the isolation level alone in a protected view"):
        shop.send()
    assert (shop.notes, shop.records) == ([], 0)


def test_a_connection_that_outlives_its_request_says_so(shop):
    kept = []

    @idempotent
    def view():
        kept.append(shop.db.engine.connect())
        kept[0].execute(select(shop.db.Order)).all()
        return "made", 201

    shop.serve(view)

    assert shop.send().status_code == 201
    with pytest.raises(StatementError, match="a request that has ended; open another one"):
        kept[0].execute(select(shop.db.Order))


def test_a_session_that_outlives_its_request_works_on_a_connection_of_its_own(shop):
    kept = []

    @idempotent
    def view():
        kept.append(Session(shop.db.engine))
        kept[0].scalars(select(shop.db.Order)).all()
        return "made", 201

    shop.serve(view)

    assert shop.send().status_code == 201
    with kept[0] as session:
        session.add(shop.db.Order(note="later"))
        session.commit()
    assert shop.notes == ["later"]


def test_engines_that_were_not_given_are_left_alone(shop, tmp_path):
    other = create_engine(f"sqlite:///{tmp_path / 'other.db'}", poolclass=NullPool)
    shop.db.metadata.create_all(other)

    def work():
        with other.begin() as connection:
            connection.execute(insert(shop.db.Order).values(note="elsewhere"))

    serve_with_a_crash(shop, work)

    assert shop.send().status_code == 500
    with other.connect() as connection:
        assert connection.scalars(select(shop.db.Order.note)).all() == ["elsewhere"]


# -- sessions from before the claim ------------------------------------------------------------------------------------


@pytest.fixture
def handed_on(make_shop):
    """`handed_on(work)`: a shop whose hook opens a session of a second sessionmaker and reads; the view gets it."""

    def make(before, guard="transaction"):
        shop = make_shop()

        @shop.app.before_request
        def open_session():
            g.session = Session(shop.db.engine)
            before(shop)

        @shop.app.teardown_request
        def close_session(_):
            g.session.close()

        shop.begin()

        def work():
            g.session.add(shop.db.Order(note="beside"))
            g.session.commit()

        serve_with_a_crash(shop, work, guard)
        return shop

    return make


def reads(shop):
    g.session.scalars(select(shop.db.User)).all()


def both_read(shop):
    shop.db.session.scalars(select(shop.db.User)).all()
    reads(shop)


def writes(shop):
    g.session.add(shop.db.Order(note="before"))
    g.session.flush()


@pytest.mark.parametrize("before", [reads, both_read], ids=["alone", "beside db.session"])
def test_a_session_that_has_read_before_the_claim_takes_part(handed_on, before):
    assert_takes_part(handed_on(before))


@pytest.mark.parametrize("before", [reads, both_read], ids=["alone", "beside db.session"])
def test_a_session_that_has_read_before_a_phase_takes_part_in_it(handed_on, before):
    shop = handed_on(before, "lease")

    assert [shop.send().status_code for _ in range(2)] == [500, 201]
    assert shop.notes == ["beside"]


def test_what_a_session_alone_has_written_before_the_claim_is_part_of_it(handed_on):
    shop = handed_on(writes)

    assert (shop.send().status_code, shop.notes) == (500, [])
    assert (shop.send().status_code, shop.notes) == (201, ["before", "beside"])


def test_what_a_second_session_has_written_before_the_claim_is_refused_in_one_sentence(make_postgres_shop):
    shop = make_postgres_shop()  # on SQLite the first session could not begin beside it
    shop.app.testing = True

    @shop.app.before_request
    def open_sessions():
        shop.db.session.scalars(select(shop.db.User)).all()
        g.session = Session(shop.db.engine)
        writes(shop)

    shop.begin()
    shop.serve(idempotent(lambda: ("made", 201)))

    with pytest.raises(IdempotencyError, match=r"^Two sessions were in use when @idempotent claimed this request"):
        shop.send()
    assert (shop.notes, shop.records) == ([], 0)


# -- threads -----------------------------------------------------------------------------------------------------------


def in_a_thread(work):
    thread = threading.Thread(target=copy_current_request_context(work))
    thread.start()
    thread.join()


def in_a_greenlet(work):
    gevent.spawn(copy_current_request_context(work)).get()


BESIDE = [in_a_thread, in_a_greenlet]


@pytest.mark.parametrize("start", BESIDE, ids=lambda start: start.__name__)
def test_a_thread_with_a_copied_context_is_not_part_of_the_transaction_and_is_named_once(
    make_postgres_shop, start, caplog
):
    shop = make_postgres_shop()  # on SQLite it would wait for the view that waits for it
    shop.begin()
    serve_with_a_crash(shop, lambda: start(lambda: in_a_nested_app_context(shop)))

    statuses = [shop.send().status_code for _ in range(2)]

    assert statuses == [500, 201]
    assert shop.notes == ["beside", "beside"]
    warnings = [each.getMessage() for each in caplog.records if "outside_of_transaction" in each.getMessage()]
    assert len(warnings) == 1
    assert "a thread started by / uses the app's database" in warnings[0]
    assert "after_commit()" in warnings[0]


@pytest.mark.parametrize("start", BESIDE, ids=lambda start: start.__name__)
def test_what_a_thread_does_elsewhere_is_no_reason_to_warn(shop, start, caplog):
    seen = []
    serve_with_a_crash(shop, lambda: start(lambda: seen.append(1)))

    shop.send()

    assert seen == [1]
    assert "outside_of_transaction" not in caplog.text


def test_a_thread_without_a_request_is_not_named(make_postgres_shop, caplog):
    shop = make_postgres_shop()
    shop.begin()

    def work():
        thread = threading.Thread(target=in_a_nested_app_context, args=[shop])
        thread.start()
        eventually(lambda: not thread.is_alive(), within=10)

    serve_with_a_crash(shop, work)

    shop.send()

    assert shop.notes == ["beside"]
    assert "outside_of_transaction" not in caplog.text


# -- Flask-SQLAlchemy-Lite ---------------------------------------------------------------------------------------------


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "lite_order"

    id: Mapped[int] = mapped_column(primary_key=True)
    note: Mapped[str] = mapped_column(String)


@pytest.fixture
def lite(store_url):
    """An app with Flask-SQLAlchemy-Lite: ``lite.db``, ``lite.app`` and ``lite.notes()``."""
    store = open_store(store_url)
    store.create()
    store.close()
    app = Flask("lite")
    app.config.update(SQLALCHEMY_ENGINES={"default": store_url}, IDEMPOTENCY_HOUSEKEEPING=False)
    db = Lite(app)
    Idempotency(app, db=db, scope=scopes.everyone)
    outside = create_engine(store_url, poolclass=NullPool)
    Base.metadata.create_all(outside)

    def notes():
        with Session(outside) as session:
            return session.scalars(select(Order.note).order_by(Order.id)).all()

    app.db, app.notes = db, notes
    yield app
    with app.app_context():
        db.engine.dispose()
    app.extensions["idempotency"].store.close()
    outside.dispose()


@pytest.mark.parametrize("guard", ["transaction", "lease"])
@pytest.mark.parametrize("has_read", [False, True], ids=["at once", "after reading"])
def test_flask_sqlalchemy_lite_takes_part(lite, guard, has_read):
    crashes = [Crash]

    @lite.before_request
    def look():
        if has_read:
            lite.db.session.scalars(select(Order)).all()

    def work():
        lite.db.session.add(Order(note="beside"))
        if guard == "transaction":
            lite.db.session.commit()
        if crashes:
            raise crashes.pop()

    @lite.post("/")
    @idempotent(guard=guard)
    def view():
        work() if guard == "transaction" else phase("work", work)
        return "made", 201

    def send():
        return lite.test_client().post("/", headers={"Idempotency-Key": "order-1"})

    first, left = send(), lite.notes()
    others = [send() for _ in range(2)]

    assert (first.status_code, left) == (500, [])
    assert [(each.status_code, REPLAYED in each.headers) for each in others] == [(201, False), (201, True)]
    assert lite.notes() == ["beside"]


def test_a_session_on_another_apps_database_does_not_lead_the_claim_there(make_shop, tmp_path):
    """Both apps are protected, and who is asking is looked up in the other one's database."""
    shop, other = make_shop(), Shop(f"sqlite:///{tmp_path / 'other.sqlite'}")
    other.begin()

    @shop.app.before_request
    def look_up():
        g.session = Session(other.engine)
        g.session.get(other.db.User, 1)

    @shop.app.teardown_request
    def close(_):
        g.session.close()

    shop.begin()

    @shop.serve
    def view():
        shop.db.session.add(shop.db.Order(note="here"))
        shop.db.session.commit()
        return "", 201

    answers = [shop.send() for _ in range(2)]
    found = (shop.notes, shop.records, other.notes, other.records)
    other.close()

    assert [answer.status_code for answer in answers] == [201, 201]
    assert found == (["here"], 1, [], 0)


def test_a_protected_request_to_another_app_leaves_the_transaction_of_the_view_as_it_was(shop, tmp_path):
    another = Shop(f"sqlite:///{tmp_path / 'another.sqlite'}")
    another.begin()
    another.serve(lambda: (in_a_nested_app_context(another), ("another", 201))[1])

    def work():
        assert another.send().status_code == 201
        by_engine_begin(shop)

    serve_with_a_crash(shop, work)

    assert_takes_part(shop)
    assert (another.notes, another.records) == (["beside"], 1)
    another.close()
