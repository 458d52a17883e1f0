"""Ordinary views of ordinary apps: protected they answer and write as they do unprotected, and once.

Each is sent to two shops with a fresh database each, one of them protected, and to that one a second time.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from flask import Flask, Response, abort, g, jsonify, make_response, request, stream_with_context
from flask.views import MethodView
from sqlalchemy import delete, event, insert, select, text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm.exc import ObjectDeletedError

from flask_idempotency import idempotent

Prepare = Callable[[Flask, Any], None]


@dataclass(frozen=True)
class Style:
    """A way to write a view, and what becomes of it."""

    make: Callable[[Any], Callable[..., Any]]
    prepare: Prepare | None = None  # hooks that stand before ours
    is_decorated: bool = False  # with @idempotent, where it is protected
    is_kept: bool = True  # and replayed
    leaves_rows: bool = True  # False: a transient answer, after which even what was committed is taken back
    is_streamed: bool = False  # so that its body is not kept
    hook_commits: bool = False  # a hook before ours commits at every request, replayed or not
    only: str = ""  # the one technology that knows it

    def __str__(self) -> str:
        return self.make.__name__


GALLERY: list[Style] = []


def style(**options: Any) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Hang a view in the gallery. The function is given ``db`` and gives the view."""

    def hang(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        GALLERY.append(Style(make, **options))
        return make

    return hang


def plain(**options: Any) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Hang a view in the gallery that is a function of ``db`` and nothing else."""

    def hang(view: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def make(db: Any) -> Callable[[], Any]:
            return lambda: view(db)

        make.__name__ = view.__name__
        GALLERY.append(Style(make, **options))
        return view

    return hang


# -- committing --------------------------------------------------------------------------------------------------------


@plain()
def add_and_commit(db):
    db.session.add(db.Order(note="one"))
    db.session.commit()
    return "made", 201


@plain()
def read_attributes_after_the_commit(db):
    order = db.Order(note="one")
    db.session.add(order)
    db.session.commit()
    return {"id": order.id, "note": order.note}, 201


@plain()
def refresh_after_the_commit(db):
    order = db.Order(note="one")
    db.session.add(order)
    db.session.commit()
    db.session.refresh(order)
    return {"id": order.id}, 201


@plain()
def commit_without_expiry(db):
    db.session().expire_on_commit = False
    order = db.Order(note="one")
    db.session.add(order)
    db.session.commit()
    return {"id": order.id, "note": order.note}, 201


@plain()
def two_commits(db):
    db.session.add(db.Order(note="one"))
    db.session.commit()
    db.session.add(db.Order(note="two"))
    db.session.commit()
    return "made", 201


@plain()
def change_after_the_commit_and_commit_again(db):
    order = db.Order(note="new")
    db.session.add(order)
    db.session.commit()
    order.note = f"order {order.id}"
    db.session.commit()
    return {"note": order.note}, 201


@plain()
def commit_twenty_times_in_a_loop(db):
    for number in range(20):
        db.session.add(db.Order(note=str(number)))
        db.session.commit()
    return {"count": db.session.query(db.Order).count()}, 201


@plain()
def flush_for_the_id_and_commit(db):
    order = db.Order(note="one")
    db.session.add(order)
    db.session.flush()
    db.session.add(db.Line(order_id=order.id, item="tea"))
    db.session.commit()
    return {"id": order.id}, 201


@plain()
def a_parent_with_children(db):
    db.session.add(db.Order(note="one", lines=[db.Line(item="tea"), db.Line(item="milk")]))
    db.session.commit()
    return "made", 201


@plain()
def a_block_that_commits(db):
    with db.session.begin():
        db.session.add(db.Order(note="one"))
    with db.session.begin():
        db.session.add(db.Order(note="two"))
    return "made", 201


@plain()
def a_block_that_fails_and_is_survived(db):
    try:
        with db.session.begin():
            db.session.add(db.Order(note="one"))
            db.session.flush()
            raise LookupError
    except LookupError:
        with db.session.begin():
            db.session.add(db.Order(note="two"))
    return "made", 201


@plain()
def change_what_was_there(db):
    user = db.session.get(db.User, 1)
    user.visits += 1
    db.session.commit()
    return {"visits": user.visits}


@plain()
def delete_what_was_there(db):
    db.session.delete(db.session.get(db.User, 1))
    db.session.commit()
    return "", 204


@plain()
def merge(db):
    db.session.merge(db.User(id=1, name="Ada Lovelace"))
    db.session.merge(db.User(id=7, name="Grace"))
    db.session.commit()
    return "merged"


@plain()
def commit_nothing(db):
    db.session.commit()
    return "nothing", 202


@plain()
def no_database_at_all(db):
    return "nothing", 202


# -- rolling back ------------------------------------------------------------------------------------------------------


@plain()
def roll_back_and_refuse(db):
    db.session.add(db.Order(note="one"))
    db.session.flush()
    db.session.rollback()
    return "no", 400


@plain()
def roll_back_after_a_commit(db):
    db.session.add(db.Order(note="stays"))
    db.session.commit()
    db.session.add(db.Order(note="goes"))
    db.session.flush()
    db.session.rollback()
    return {"count": db.session.query(db.Order).count()}, 201


@plain()
def roll_back_what_a_commit_before_changed(db):
    user = db.session.get(db.User, 1)
    user.visits = 1
    db.session.commit()
    user.visits = 2
    db.session.flush()
    db.session.rollback()
    return {"visits": user.visits}


@plain()
def roll_back_nothing(db):
    db.session.rollback()
    db.session.add(db.Order(note="one"))
    db.session.commit()
    return "made", 201


@plain()
def roll_back_twice_and_commit_twice(db):
    for note in ("one", "two"):
        db.session.add(db.Order(note=f"not {note}"))
        db.session.flush()
        db.session.rollback()
        db.session.rollback()
        db.session.add(db.Order(note=note))
        db.session.commit()
        db.session.commit()
    return {"count": db.session.query(db.Order).count()}, 201


@plain()
def roll_back_what_reading_an_expired_object_flushed(db):
    order = db.Order(note="stays")
    db.session.add(order)
    db.session.commit()
    db.session.add(db.Order(note="goes"))
    known = order.id
    db.session.rollback()
    return {"id": known, "count": db.session.query(db.Order).count()}, 201


@plain()
def commit_what_reading_an_expired_object_flushed(db):
    order = db.Order(note="one")
    db.session.add(order)
    db.session.commit()
    db.session.add(db.Order(note="two"))
    known = order.id
    db.session.commit()
    db.session.add(db.Order(note="goes"))
    db.session.refresh(order)
    db.session.rollback()
    return {"id": known, "count": db.session.query(db.Order).count()}, 201


@plain()
def survive_an_integrity_error_when_reading_an_expired_object(db):
    order = db.Order(number="N-1")
    db.session.add(order)
    db.session.commit()
    db.session.add(db.Order(number="N-1"))
    try:
        assert order.number == "N-1"
    except IntegrityError:
        db.session.rollback()
    db.session.add(db.Order(number=f"{order.number}-2"))
    db.session.commit()
    return "made", 201


@plain()
def roll_back_after_only_reading_again(db):
    order = db.Order(note="stays")
    db.session.add(order)
    db.session.commit()
    assert order.note == "stays"
    db.session.rollback()
    order.note = "changed"
    db.session.commit()
    return {"note": order.note}, 201


@plain()
def survive_that_what_is_read_again_is_gone(db):
    order = db.Order(note="one")
    db.session.add(order)
    db.session.commit()
    db.session.execute(delete(db.Order), execution_options={"synchronize_session": False})
    db.session.commit()
    try:
        return {"note": order.note}
    except ObjectDeletedError:
        db.session.rollback()
        db.session.expunge(order)  # SQLite gives its number to the next
        db.session.add(db.Order(note="two"))
        db.session.commit()
        return "gone", 202


@plain()
def lock_an_object_when_it_is_read_again(db):
    user = db.session.get(db.User, 1)
    db.session.commit()
    db.session.refresh(user, with_for_update=True)
    user.visits += 1
    db.session.commit()
    return {"visits": user.visits}


@plain()
def never_commit(db):
    db.session.add(db.Order(note="one"))
    return "forgotten", 201


@plain()
def commit_and_forget_the_rest(db):
    db.session.add(db.Order(note="one"))
    db.session.commit()
    db.session.add(db.Order(note="forgotten"))
    return "made", 201


@plain()
def refuse_with_a_dirty_session(db):
    order = db.Order(note="wrong")
    db.session.add(order)
    db.session.flush()
    if order.note == "wrong":
        return {"errors": ["note"]}, 422
    db.session.commit()
    return "made", 201


@plain()
def survive_an_integrity_error(db):
    db.session.add(db.Order(number="N-1"))
    db.session.commit()
    try:
        db.session.add(db.Order(number="N-1"))
        db.session.commit()
    except IntegrityError:
        db.session.rollback()
        db.session.add(db.Order(number="N-2"))
        db.session.commit()
    return "made", 201


@plain()
def survive_an_integrity_error_as_the_first_thing(db):
    try:
        db.session.add(db.User(id=1, name="Ada"))
        db.session.flush()
    except IntegrityError:
        db.session.rollback()
    db.session.add(db.User(name="Grace"))
    db.session.commit()
    return "made", 201


@plain()
def refuse_after_a_failed_flush_that_nobody_rolled_back(db):
    db.session.add(db.Order(note="stays"))
    db.session.commit()
    db.session.add(db.User(id=1, name="another"))
    try:
        db.session.flush()
    except IntegrityError:
        return {"error": "taken"}, 422
    return "made", 201


# -- savepoints --------------------------------------------------------------------------------------------------------


@plain()
def a_savepoint(db):
    with db.session.begin_nested():
        db.session.add(db.Order(note="one"))
    db.session.commit()
    return "made", 201


@plain()
def a_savepoint_that_fails(db):
    db.session.add(db.Order(number="N-1"))
    try:
        with db.session.begin_nested():
            db.session.add(db.Order(number="N-1"))
    except IntegrityError:
        db.session.add(db.Order(number="N-2"))
    db.session.commit()
    return "made", 201


@plain()
def a_savepoint_in_each_turn_of_a_loop(db):
    taken = []
    for number in ("N-1", "N-2", "N-1", "N-3"):
        try:
            with db.session.begin_nested():
                db.session.add(db.Order(number=number))
        except IntegrityError:
            taken.append(number)
    db.session.commit()
    return {"taken": taken}, 201


@plain()
def savepoints_in_savepoints_between_commits(db):
    db.session.add(db.Order(note="one"))
    db.session.commit()
    outer = db.session.begin_nested()
    db.session.add(db.Order(note="two"))
    inner = db.session.begin_nested()
    db.session.add(db.Order(note="three"))
    inner.rollback()
    outer.commit()
    db.session.commit()
    nested = db.session.begin_nested()
    db.session.add(db.Order(note="four"))
    nested.rollback()
    db.session.commit()
    return {"count": db.session.query(db.Order).count()}, 201


@plain()
def a_savepoint_open_at_a_rollback(db):
    db.session.begin_nested()
    db.session.add(db.Order(note="goes"))
    db.session.flush()
    db.session.rollback()
    db.session.add(db.Order(note="stays"))
    db.session.commit()
    return "made", 201


# -- core and SQL ------------------------------------------------------------------------------------------------------


@plain()
def core_statements(db):
    number = db.session.execute(insert(db.Order).values(note="one")).inserted_primary_key[0]
    db.session.execute(insert(db.Order), [{"note": "two"}, {"note": "three"}])
    db.session.execute(update(db.Order).where(db.Order.id == number).values(note="changed"))
    db.session.execute(delete(db.Order).where(db.Order.note == "three"))
    db.session.commit()
    return {"notes": list(db.session.scalars(select(db.Order.note).order_by(db.Order.id)))}, 201


@plain()
def upsert_by_text(db):
    user = db.engine.dialect.identifier_preparer.quote_identifier("user")
    clause = "ON DUPLICATE KEY" if db.engine.dialect.name == "mariadb" else "ON CONFLICT (id) DO"
    update = f"{clause} UPDATE" if db.engine.dialect.name == "mariadb" else f"{clause} UPDATE SET"
    db.session.execute(
        text(f"INSERT INTO {user} (id, name, visits) VALUES (1, 'Ada', 1) {update} visits = {user}.visits + 5")
    )
    db.session.commit()
    return "counted"


@plain()
def insert_returning(db):
    number = db.session.scalar(insert(db.Order).values(note="one").returning(db.Order.id))
    db.session.commit()
    return {"id": number}, 201


@plain()
def bulk_save_objects(db):
    db.session.bulk_save_objects([db.Order(note="one"), db.Order(note="two")])
    db.session.commit()
    return "made", 201


@plain()
def bulk_insert_and_update_mappings(db):
    db.session.bulk_insert_mappings(db.Order, [{"id": 1, "note": "one"}, {"id": 2, "note": "two"}])
    db.session.bulk_update_mappings(db.Order, [{"id": 2, "note": "changed"}])
    db.session.commit()
    return "made", 201


@plain()
def update_by_query(db):
    changed = db.session.query(db.User).update({"visits": db.User.visits + 1})
    db.session.commit()
    return {"changed": changed}


@plain()
def the_sessions_connection(db):
    db.session.connection().execute(text("INSERT INTO orders (note) VALUES ('one')"))
    db.session.commit()
    return "made", 201


@plain()
def driver_sql(db):
    db.session.connection().exec_driver_sql("INSERT INTO orders (note) VALUES ('one')")
    db.session.commit()
    return "made", 201


@plain()
def the_connections_own_savepoint(db):
    connection = db.session.connection()
    with connection.begin_nested() as savepoint:
        connection.execute(text("INSERT INTO orders (note) VALUES ('goes')"))
        savepoint.rollback()
    connection.execute(text("INSERT INTO orders (note) VALUES ('stays')"))
    db.session.commit()
    return "made", 201


@plain()
def ask_the_bind_for_its_dialect(db):
    dialects = {db.session.get_bind().dialect.name, db.session.connection().dialect.name, db.engine.dialect.name}
    db.session.add(db.Order(note="one"))
    db.session.commit()
    return {"dialects": list(dialects)}, 201


@plain()
def read_row_by_row(db):
    db.session.add_all([db.Order(note=str(number)) for number in range(30)])
    db.session.commit()
    found = [note for (note,) in db.session.execute(select(db.Order.note).execution_options(yield_per=7))]
    return {"found": len(found)}, 201


@plain(only="postgresql")
def select_for_update(db):
    user = db.session.scalars(select(db.User).with_for_update()).one()
    user.visits += 1
    db.session.commit()
    return {"visits": user.visits}


@plain(only="postgresql")
def copy_through_the_drivers_cursor(db):
    cursor = db.session.connection().connection.cursor()
    with cursor, cursor.copy("COPY orders (note) FROM STDIN") as copy:
        copy.write_row(("one",))
        copy.write_row(("two",))
    db.session.commit()
    return {"count": db.session.query(db.Order).count()}, 201


@plain(only="postgresql")
def a_lock_and_a_setting_of_the_transaction(db):
    db.session.execute(text("SELECT pg_advisory_xact_lock(1), set_config('lock_timeout', '3s', true)"))
    db.session.add(db.Order(note=db.session.scalar(text("SHOW lock_timeout"))))
    db.session.commit()
    return "made", 201


def begin_by_hand(app, db):
    """SQLAlchemy's recipe for transactions in SQLite: the driver begins none, so that savepoints and DDL take part."""
    with app.app_context():
        engine = db.engine

    @event.listens_for(engine, "connect")
    def leave_transactions_alone(connection, _):
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection):
        connection.exec_driver_sql("BEGIN")


@plain(only="sqlite", prepare=begin_by_hand)
def transactions_are_begun_by_hand(db):
    db.session.add(db.Order(note="one"))
    db.session.commit()
    db.session.add(db.Order(note="goes"))
    db.session.flush()
    db.session.rollback()
    with db.session.begin_nested():
        db.session.add(db.Order(note="two"))
    db.session.commit()
    return {"count": db.session.query(db.Order).count()}, 201


# -- the session's own life --------------------------------------------------------------------------------------------


@plain()
def remove_the_session_in_the_middle(db):
    db.session.add(db.Order(note="one"))
    db.session.commit()
    db.session.add(db.Order(note="goes"))
    db.session.flush()
    db.session.remove()
    db.session.add(db.Order(note="two"))
    db.session.commit()
    return "made", 201


@plain()
def close_the_session_in_the_middle(db):
    db.session.add(db.Order(note="goes"))
    db.session.flush()
    db.session.close()
    db.session.add(db.Order(note="stays"))
    db.session.commit()
    db.session.close()
    return "made", 201


@plain()
def reset_the_session_in_the_middle(db):
    db.session.add(db.Order(note="goes"))
    db.session.flush()
    db.session.reset()
    db.session.add(db.Order(note="stays"))
    db.session.commit()
    return "made", 201


@plain()
def remove_the_session_at_the_end(db):
    db.session.add(db.Order(note="one"))
    db.session.commit()
    db.session.remove()
    return "made", 201


@plain()
def detached_objects(db):
    order = db.Order(note="one")
    db.session.add(order)
    db.session.commit()
    known = order.id
    db.session.expunge_all()
    again = db.session.get(db.Order, known)
    return {"same": again is order, "note": again.note}, 201


# -- answers -----------------------------------------------------------------------------------------------------------


@plain()
def get_or_404(db):
    order = db.get_or_404(db.Order, 99)
    return {"id": order.id}


@plain()
def abort_after_a_commit(db):
    db.session.add(db.Order(note="stays"))
    db.session.commit()
    abort(410)


@plain(is_kept=False, leaves_rows=False)
def abort_with_a_conflict_after_a_commit(db):
    db.session.add(db.Order(note="taken back"))
    db.session.commit()
    abort(409)


@plain(is_kept=False)
def abort_with_a_conflict_before_any_commit(db):
    db.session.add(db.Order(note="goes"))
    db.session.flush()
    abort(409)


@plain()
def a_response_object(db):
    db.session.add(db.Order(note="one"))
    db.session.commit()
    response = make_response(jsonify(done=True), 201)
    response.headers["X-Order"] = "1"
    return response


@plain(is_streamed=True)
def a_stream_of_what_was_read_before(db):
    db.session.add_all([db.Order(note="one"), db.Order(note="two")])
    db.session.commit()
    notes = list(db.session.scalars(select(db.Order.note).order_by(db.Order.id)))
    return Response((f"{note}\n" for note in notes), 201, mimetype="text/plain")


@plain(is_streamed=True)
def a_stream_that_reads_as_it_goes(db):
    db.session.add_all([db.Order(note="one"), db.Order(note="two")])
    db.session.commit()

    def read():
        yield from db.session.scalars(select(db.Order.note).order_by(db.Order.id))

    return Response(stream_with_context(read()), 201, mimetype="text/plain")


@plain()
def a_lazy_relationship_in_the_answer(db):
    order = db.Order(note="one", lines=[db.Line(item="tea"), db.Line(item="milk")])
    db.session.add(order)
    db.session.commit()
    return jsonify(id=order.id, items=[line.item for line in order.lines]), 201


@plain()
def an_object_from_the_body(db):
    order = db.Order(**request.get_json())
    db.session.add(order)
    db.session.commit()
    return {"number": order.number}, 201


# -- kinds of views ----------------------------------------------------------------------------------------------------


@style()
def a_class(db):
    class Orders(MethodView):
        def post(self):
            db.session.add(db.Order(note="one"))
            db.session.commit()
            return {"count": db.session.query(db.Order).count()}, 201

    return Orders.as_view("orders")


@style()
def a_coroutine(db):
    async def view():
        order = db.Order(note="one")
        db.session.add(order)
        await asyncio.gather(asyncio.sleep(0))
        db.session.commit()
        return {"id": order.id}, 201

    return view


@plain(is_decorated=True)
def a_decorated_view(db):
    db.session.add(db.Order(note="one"))
    db.session.commit()
    return "made", 201


# -- what happens before and beside ------------------------------------------------------------------------------------


def load_user(app, db):
    @app.before_request
    def load():
        g.user = db.session.get(db.User, 1)


def count_visit(app, db):
    @app.before_request
    def count():
        g.user = db.session.get(db.User, 1)
        g.user.visits += 1
        db.session.flush()


def count_visit_later(app, db):
    @app.before_request
    def count():
        g.user = db.session.get(db.User, 1)
        g.user.visits += 1


def count_visit_and_commit(app, db):
    @app.before_request
    def count():
        g.user = db.session.get(db.User, 1)
        g.user.visits += 1
        db.session.commit()


def answer_conflicts(app, db):
    @app.errorhandler(IntegrityError)
    def handle(error):
        db.session.rollback()
        return {"error": "taken"}, 409


def answer_conflicts_for_good(app, db):
    @app.errorhandler(IntegrityError)
    def handle(error):
        db.session.rollback()
        return {"error": "taken"}, 422


@plain(prepare=load_user, is_decorated=True)
def a_user_is_loaded_before_a_decorated_view(db):
    db.session.add(db.Order(note=g.user.name))
    db.session.commit()
    return {"for": g.user.name}, 201


@plain(prepare=load_user)
def a_user_is_loaded_first(db):
    db.session.add(db.Order(note=g.user.name))
    db.session.commit()
    return {"for": g.user.name}, 201


@plain(prepare=load_user)
def a_user_that_was_loaded_first_is_changed(db):
    g.user.name = "Ada Lovelace"
    db.session.commit()
    db.session.rollback()
    return {"for": g.user.name}


@plain(prepare=load_user)
def a_user_is_loaded_first_and_the_work_rolled_back(db):
    db.session.add(db.Order(note="goes"))
    db.session.flush()
    db.session.rollback()
    db.session.add(db.Order(note=g.user.name))
    db.session.commit()
    return "made", 201


@plain(prepare=load_user)
def a_user_is_loaded_first_and_the_session_removed(db):
    name = g.user.name
    db.session.remove()
    db.session.add(db.Order(note=name))
    db.session.commit()
    return "made", 201


@plain(prepare=load_user)
def a_user_is_loaded_first_and_a_savepoint_fails(db):
    try:
        with db.session.begin_nested():
            db.session.add_all([db.Order(number="N-1"), db.Order(number="N-1")])
    except IntegrityError:
        db.session.add(db.Order(note=g.user.name))
    db.session.commit()
    return "made", 201


@plain(prepare=count_visit)
def a_visit_is_counted_first_and_committed_by_the_view(db):
    db.session.add(db.Order(note="one"))
    db.session.commit()
    return {"visits": g.user.visits}, 201


@plain(prepare=count_visit_later)
def a_visit_is_counted_in_memory_first_and_committed_by_the_view(db):
    db.session.add(db.Order(note="one"))
    db.session.commit()
    return {"visits": g.user.visits}, 201


@plain(prepare=count_visit)
def a_visit_is_counted_first_and_nothing_is_committed(db):
    return {"visits": g.user.visits}


@plain(prepare=count_visit)
def a_visit_is_counted_first_and_rolled_back_by_the_view(db):
    db.session.rollback()
    db.session.add(db.Order(note="one"))
    db.session.commit()
    return {"visits": g.user.visits}, 201


@plain(prepare=count_visit_later)
def a_visit_is_counted_in_memory_first_and_nothing_is_committed(db):
    return {"visits": g.user.visits}


@plain(prepare=count_visit_and_commit, hook_commits=True)
def a_visit_is_counted_and_committed_first(db):
    db.session.add(db.Order(note="one"))
    db.session.commit()
    return {"visits": g.user.visits}, 201


@plain(prepare=answer_conflicts, is_kept=False)
def a_conflict_answered_by_a_handler(db):
    db.session.add(db.User(id=1, name="another"))
    db.session.commit()
    return "made", 201


@plain(prepare=answer_conflicts_for_good)
def a_conflict_answered_for_good_after_a_commit(db):
    db.session.add(db.Order(note="stays"))
    db.session.commit()
    db.session.add(db.User(id=1, name="another"))
    db.session.commit()
    return "made", 201


# -- the visitors ------------------------------------------------------------------------------------------------------

BODY = {"number": "N-1", "note": "from the body"}


@pytest.fixture
def show(make_shop):
    """`show(style, is_protected=…)`: a shop on a fresh database that serves one view."""
    shown = []

    def open_shop(style, *, is_protected):
        if shown:
            shown[-1].drop()
        shop = make_shop(is_protected=is_protected)
        shown.append(shop)
        if style.prepare is not None:
            style.prepare(shop.app, shop.db)
        shop.begin()
        view = style.make(shop.db)
        shop.serve(idempotent(view) if style.is_decorated and is_protected else view)
        return shop

    return open_shop


def technologies(style):
    return [style.only] if style.only else ["sqlite", "postgresql", "mariadb"]


CASES = [
    pytest.param(style, technology, id=f"{style}-{technology}")
    for style in GALLERY
    for technology in technologies(style)
]


@pytest.fixture
def store_url(request, technology, tmp_path):
    """Only the technology that the case names."""
    if technology == "sqlite":
        return f"sqlite:///{tmp_path / 'shop.db'}"
    return request.getfixturevalue(f"{technology.removesuffix('ql')}_url")


@pytest.mark.parametrize(("style", "technology"), CASES)
def test_protected_it_does_what_it_does_unprotected_and_once(show, style):
    plain = show(style, is_protected=False)
    wanted = plain.send(key=None, json=BODY)
    wanted_rows, no_rows = plain.rows(), {"user": [(1, "Ada", 0)], "orders": [], "line": []}
    protected = show(style, is_protected=True)

    first = protected.send(json=BODY)
    rows_after_first = protected.rows()
    second = protected.send(json=BODY)

    assert wanted.status_code < 500
    assert (first.status_code, first.data) == (wanted.status_code, wanted.data)
    assert rows_after_first == (wanted_rows if style.leaves_rows else no_rows)
    assert ("Idempotent-Replayed" in second.headers) is (style.is_kept and not style.is_streamed)
    assert second.status_code == (410 if style.is_streamed else first.status_code)
    if not style.is_streamed:
        assert second.data == first.data
    if not style.hook_commits:
        assert protected.rows() == rows_after_first
    assert protected.records == int(style.is_kept)
    assert protected.engine.pool.checkedout() == 0
