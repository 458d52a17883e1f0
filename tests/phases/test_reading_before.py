"""A view that has read before its phase: the phase is opened where it has read, and nobody can tell the difference."""

import pytest
from flask_sqlalchemy.session import Session
from sqlalchemy import create_engine, event, func, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session as PlainSession
from sqlalchemy.orm import contains_eager

from flask_idempotency import effect, phase
from flask_idempotency.errors import IdempotencyError
from tests.phases.conftest import Desk
from tests.transaction.conftest import make_database


def add(desk, note):
    """Add an order to the session."""
    desk.db.session.add(desk.db.Order(note=note))


def look(desk, session=None):
    """Look something up."""
    return (session or desk.db.session).scalar(select(func.count()).select_from(desk.db.Order))


def serve_reading(desk, step, before=look):
    """Serve a view that reads, and then has a phase; `desk.got` is what the step gives."""
    desk.got = None

    def view():
        before(desk)
        desk.got = phase("work", step)
        return "made", 201

    desk.serve(view)


def test_it_needs_no_second_connection(make_postgres_desk):
    desk = make_postgres_desk()
    given_back = []
    event.listen(desk.engine, "checkin", lambda *_: given_back.append("back"))
    serve_reading(desk, lambda: add(desk, "one"))

    assert desk.send().status_code == 201
    assert given_back == ["back"]
    assert desk.notes == ["one"]


def reads_again(desk):
    return desk.db.session.get(desk.db.User, 1)


def locks(desk):
    return desk.db.session.scalars(select(desk.db.User).with_for_update()).one()


@pytest.mark.parametrize("find", [reads_again, locks], ids=lambda find: find.__name__)
@pytest.mark.parametrize("calls_out", [True, False], ids=["behind an effect", "at once"])
@pytest.mark.parametrize("level", [None, "REPEATABLE READ", "SERIALIZABLE"])
def test_what_another_has_changed_since_the_view_read_it_is_not_lost(make_postgres_desk, level, calls_out, find):
    desk = make_postgres_desk(engine={"isolation_level": level} if level else {})

    def visit_meanwhile(_=""):
        desk.sql('UPDATE "user" SET visits = visits + 5')

    def visit():
        find(desk).visits += 1

    def view():
        desk.db.session.get(desk.db.User, 1)
        effect("call", visit_meanwhile) if calls_out else visit_meanwhile()
        phase("work", visit)
        return "made", 201

    desk.serve(view)

    assert desk.send().status_code == 201
    assert desk.sql('SELECT visits FROM "user"') == [(6,)]


def test_what_the_view_has_loaded_in_its_own_way_is_as_it_loaded_it(make_desk):
    desk = make_desk()
    desk.sql("INSERT INTO orders (id, note) VALUES (1, 'a cart')")
    for number, item in enumerate(["chosen", "not chosen"], 1):
        desk.sql(f"INSERT INTO line (id, order_id, item) VALUES ({number}, 1, '{item}')")
    order, line = desk.db.Order, desk.db.Line

    def view():
        chosen = select(order).join(order.lines).filter(line.item == "chosen").options(contains_eager(order.lines))
        cart = desk.db.session.scalars(chosen).unique().one()
        desk.sql("UPDATE line SET item = 'changed' WHERE id = 1")
        return phase("work", lambda: [each.item for each in cart.lines]), 201

    desk.serve(view)

    assert desk.send().json == ["changed"]


def test_who_keeps_objects_over_a_commit_keeps_them_in_a_step_too(make_desk):
    desk = make_desk(db=make_database(expire_on_commit=False))
    statements = []

    def view():
        user = desk.db.session.get(desk.db.User, 1)
        event.listen(desk.engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
        return phase("work", lambda: user.name), 201

    desk.serve(view)

    assert desk.send().text == "Ada"
    assert statements == []


def test_another_session_of_the_step_is_told_apart(make_desk):
    desk = make_desk()

    def step():
        mine, other = desk.db.session(), desk.db.session.session_factory()
        add(desk, "one")
        mine.commit()
        look(desk, other)
        add(desk, "two")
        mine.commit()
        other.rollback()

    serve_reading(desk, step)

    assert desk.send().status_code == 201
    assert desk.notes == ["one", "two"]


def test_what_a_session_sets_when_it_begins_is_set_in_the_step(make_postgres_desk):
    desk = make_postgres_desk()

    def name_tenant(session, transaction, connection):
        connection.execute(text("SELECT set_config('app.tenant', 'acme', true)"))

    with desk.app.app_context():
        event.listen(desk.db.session.session_factory, "after_begin", name_tenant)
    serve_reading(desk, lambda: desk.db.session.scalar(text("SELECT current_setting('app.tenant', true)")))

    assert desk.send().status_code == 201
    assert desk.got == "acme"


@pytest.mark.parametrize("has_read", [True, False])
def test_what_is_set_when_a_connection_leaves_the_pool_is_set_in_the_step(make_postgres_desk, has_read):
    desk = make_postgres_desk()
    desk.sql("CREATE SCHEMA acme")
    desk.sql("CREATE TABLE acme.orders (LIKE orders INCLUDING ALL)")
    event.listen(
        desk.engine, "checkout", lambda driver, *_: driver.cursor().execute("SET LOCAL search_path TO acme, public")
    )
    serve_reading(desk, lambda: add(desk, "one"), before=look if has_read else lambda desk: None)

    assert desk.send().status_code == 201
    assert desk.sql("SELECT note FROM acme.orders") == [("one",)]
    assert desk.notes == []


def name_tenant(connection):
    connection.exec_driver_sql("SET app.tenant = 'acme'")


def name_tenant_and_commit(connection):
    name_tenant(connection)
    connection.commit()


def name_tenant_unseen(connection):
    connection.connection.cursor().execute("SET app.tenant = 'acme'")


@pytest.mark.parametrize("has_read", [True, False])
@pytest.mark.parametrize("listener", [name_tenant, name_tenant_and_commit, name_tenant_unseen])
def test_what_is_set_when_a_connection_is_made_is_set_in_the_step_and_its_work_is_kept(
    make_postgres_desk, listener, has_read
):
    desk = make_postgres_desk()
    event.listen(desk.engine, "engine_connect", listener)

    def step():
        add(desk, "one")
        return desk.db.session.scalar(text("SELECT current_setting('app.tenant', true)"))

    serve_reading(desk, step, before=look if has_read else lambda desk: None)

    assert desk.send().status_code == 201
    assert (desk.got, desk.notes) == ("acme", ["one"])


@pytest.mark.parametrize(("usual", "chosen"), [("SERIALIZABLE", "READ COMMITTED"), ("READ COMMITTED", "SERIALIZABLE")])
def test_a_level_that_was_chosen_for_reading_is_not_the_steps(make_postgres_desk, usual, chosen):
    desk = make_postgres_desk(engine={"isolation_level": usual})

    def read_at_another_level(desk):
        desk.db.session.connection(execution_options={"isolation_level": chosen})
        look(desk)

    serve_reading(
        desk, lambda: desk.db.session.scalar(text("SHOW transaction_isolation")), before=read_at_another_level
    )

    assert desk.send().status_code == 201
    assert desk.got == usual.lower()


class Routed(Session):
    """Reads where it likes, and writes to the leader, as SQLAlchemy's documentation has it."""

    leader = follower = None

    def get_bind(self, *args, **options):
        return self.leader if self._flushing else self.follower


def test_a_session_that_reads_elsewhere_keeps_the_phase_where_it_belongs(postgres_url, make_postgres_desk):
    db = make_database()
    db.session.session_factory.class_ = Routed
    desk = make_postgres_desk(db=db)
    read_only = create_engine(postgres_url, connect_args={"options": "-c default_transaction_read_only=on"})
    Routed.leader, Routed.follower = desk.engine, read_only
    serve_reading(desk, lambda: add(desk, "one"))

    answer = desk.send()
    read_only.dispose()

    assert answer.status_code == 201
    assert desk.notes == ["one"]


def test_a_connection_in_autocommit_mode_is_no_place_for_a_phase(make_postgres_desk):
    desk = make_postgres_desk()

    def read_by_the_statement(desk):
        desk.db.session.connection(execution_options={"isolation_level": "AUTOCOMMIT"})
        look(desk)

    serve_reading(desk, lambda: add(desk, "one"), before=read_by_the_statement)

    assert desk.send().status_code == 201
    assert desk.notes == ["one"]


def test_what_was_written_to_another_bind_before_is_not_committed_by_the_phase(make_desk, tmp_path):
    desk = make_desk(binds={"elsewhere": f"sqlite:///{tmp_path / 'elsewhere.sqlite'}"})
    with desk.app.app_context():
        elsewhere = desk.db.engines["elsewhere"]
    with elsewhere.begin() as connection:
        connection.execute(text("CREATE TABLE letter (name text)"))

    def write_elsewhere(desk):
        look(desk)
        connection = desk.db.session.connection(bind_arguments={"bind": elsewhere})
        connection.execute(text("INSERT INTO letter VALUES ('outside')"))

    serve_reading(desk, lambda: add(desk, "one"), before=write_elsewhere)

    assert desk.send().status_code == 201
    with elsewhere.connect() as connection:
        assert connection.execute(text("SELECT * FROM letter")).all() == []


def test_a_session_that_finds_its_bind_by_table_may_read_before_a_phase(make_desk):
    desk = make_desk()
    others = []

    def read_by_table(desk):
        others.append(PlainSession(binds={desk.db.Order: desk.db.engine}))
        look(desk, others[-1])

    serve_reading(
        desk, lambda: (others[-1].add(desk.db.Order(note="one")), others[-1].flush())[1], before=read_by_table
    )

    assert desk.send().status_code == 201
    assert desk.notes == ["one"]
    others[-1].close()


def test_a_refused_write_leaves_nothing_in_the_session(make_desk):
    desk = make_desk()
    seen = []

    def view():
        user = desk.db.session.get(desk.db.User, 1)
        user.visits = 7
        desk.db.session.flush()
        with pytest.raises(IdempotencyError, match="outside of a phase"):
            phase("work", bool)
        seen.append(user.visits)
        raise ZeroDivisionError

    desk.serve(view)
    desk.send()

    assert seen == [0]


def test_a_flush_that_failed_is_a_mistake_of_the_view_and_not_of_the_store(make_desk):
    desk = make_desk()

    def flush_in_vain(desk):
        desk.db.session.add(desk.db.Line(item="of no order"))
        with pytest.raises(Exception, match=r"NOT NULL|not-null"):
            desk.db.session.flush()

    serve_reading(desk, lambda: add(desk, "one"), before=flush_in_vain)

    assert desk.send().status_code == 500


@pytest.mark.parametrize("is_effect", [False, True])
def test_a_reading_that_failed_is_a_mistake_of_the_view_and_not_of_the_store(make_postgres_desk, is_effect, caplog):
    desk = make_postgres_desk()

    def view():
        with pytest.raises(DBAPIError):
            desk.db.session.execute(text("SELECT 1 / 0"))
        effect("call", lambda key: "called") if is_effect else phase("work", bool)

    desk.serve(view)

    assert desk.send().status_code == 500
    assert "roll it back first" in caplog.text
    assert desk.engine.pool.checkedout() == 0


def test_whoever_is_stopped_while_the_phase_is_opened_leaves_no_connection_behind(make_postgres_desk, monkeypatch):
    desk: Desk = make_postgres_desk()
    store = desk.app.extensions["idempotency"].store.inner
    fence = store.fence

    class TooLate(Exception):
        """Raised by an alarm of the app's own."""

    def fence_and_be_stopped(connection, *args, **options):
        fence(connection, *args, **options)
        connection.pgconn.send_query_params(b"SELECT 1", None)  # whose answer is never read
        raise TooLate

    serve_reading(desk, lambda: add(desk, "one"))
    monkeypatch.setattr(store, "fence", fence_and_be_stopped)
    stopped = desk.send()
    monkeypatch.undo()
    retried = desk.send()

    assert (stopped.status_code, retried.status_code) == (500, 201)
    assert desk.notes == ["one"]
    assert desk.engine.pool.checkedout() == 0
