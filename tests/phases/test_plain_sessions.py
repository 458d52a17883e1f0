"""Phases of apps without Flask-SQLAlchemy: ``db=`` is anything with an engine and a session."""

from types import SimpleNamespace

import pytest
from flask import Flask
from sqlalchemy import create_engine, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, scoped_session, sessionmaker

from flask_idempotency import Idempotency, effect, idempotent, phase, scopes
from tests.phases.conftest import KEY


class Base(DeclarativeBase):
    """The tables of this app."""


class Order(Base):
    """One order."""

    __tablename__ = "plain_order"

    id: Mapped[int] = mapped_column(primary_key=True)
    note: Mapped[str]


class Fail(Exception):
    """Raised by a view or a step that is to fail."""


class Plain:
    """An app with an engine and sessions of its own; its view is a phase, an effect and a phase."""

    def __init__(self, tables, way):
        self.tables, self.way = tables, way
        self.engine = create_engine(tables.url, pool_size=1, max_overflow=0, pool_timeout=0.5)
        Base.metadata.create_all(self.engine)
        self.app = Flask("plain")
        self.app.config["IDEMPOTENCY_HOUSEKEEPING"] = False
        factory = sessionmaker(self.engine)
        self.session = scoped_session(factory) if way == "scoped_session" else factory
        if way == "scoped_session":
            self.app.teardown_appcontext(lambda _: self.session.remove())
        Idempotency(self.app, db=SimpleNamespace(engine=self.engine, session=self.session), scope=scopes.everyone)
        self.view = self.work
        protected = idempotent(required=True, guard="lease")(lambda: self.view())
        self.app.add_url_rule("/", "view", protected, methods=["POST"])
        self.fails_at, self.ran, self.held = None, [], []

    def work(self):
        first = phase("first", self.step, "one")
        self.at("first")
        effect("call", lambda _: self.held.append(self.engine.pool.checkedout()))
        self.at("call")
        second = phase("second", self.step, "two")
        self.at("second")
        return {"ids": [first, second]}, 201

    def step(self, note):
        """Write an order as an app of this kind does."""
        self.ran.append(note)
        if self.way == "sessionmaker":
            with self.session() as session, session.begin():
                return self.write(session, note)
        return self.write(self.session, note)

    def write(self, session, note):
        order = Order(note=note)
        session.add(order)
        session.flush()
        self.at(f"in {note}")
        return order.id

    def at(self, place):
        if self.fails_at == place:
            self.fails_at = None
            raise Fail

    def send(self):
        return self.app.test_client().post("/", headers={"Idempotency-Key": KEY})

    @property
    def notes(self):
        return [note for (note,) in self.tables.sql("SELECT note FROM plain_order ORDER BY id")]

    def close(self):
        self.engine.dispose()
        self.app.extensions["idempotency"].store.close()


@pytest.fixture(params=["scoped_session", "sessionmaker"])
def plain(request, tables):
    """Each way to have sessions, on each database."""
    plain = Plain(tables, request.param)
    yield plain
    plain.close()


def test_phases_and_effects_take_place_once_and_are_replayed(plain):
    first, second = plain.send(), plain.send()

    assert (first.status_code, second.data) == (201, first.data)
    assert plain.notes == ["one", "two"]
    assert plain.held == [0]
    assert plain.engine.pool.checkedout() == 0


PLACES = {
    "in one": ([], ["one", "one", "two"]),
    "first": (["one"], ["one", "two"]),
    "call": (["one"], ["one", "two"]),
    "in two": (["one"], ["one", "two", "two"]),
    "second": (["one", "two"], ["one", "two"]),
}


@pytest.mark.parametrize(("place", "left", "ran"), [(place, *rest) for place, rest in PLACES.items()], ids=PLACES)
def test_a_retry_goes_on_after_the_last_step_that_was_done(plain, place, left, ran):
    plain.fails_at = place

    failed = plain.send()
    committed = plain.notes
    retried = plain.send()

    assert (failed.status_code, retried.status_code) == (500, 201)
    assert (committed, plain.notes) == (left, ["one", "two"])
    assert plain.ran == ran
    assert len(plain.held) == 1
    assert plain.engine.pool.checkedout() == 0


@pytest.mark.parametrize("plain", ["sessionmaker"], indirect=True)
@pytest.mark.parametrize("fails", ["in the step", "behind it"])
def test_what_a_session_opened_before_the_phase_writes_in_it_is_part_of_it(plain, fails):
    """It has a connection of its own already; in the phase it takes part in the phase's transaction."""
    plain.engine.pool._max_overflow = 1

    def view():
        with plain.session() as session:
            session.scalars(select(Order)).all()

            def step():
                session.add(Order(note="joined"))
                session.commit()
                if fails == "in the step":
                    raise Fail

            phase("work", step)
            raise Fail

    plain.view = view

    answers = [plain.send() for _ in range(3)]

    is_done = fails == "behind it"
    assert {answer.status_code for answer in answers} == {500}
    assert (plain.notes, plain.tables.progress()) == ((["joined"], ["work done 1"]) if is_done else ([], []))
    assert plain.engine.pool.checkedout() == 0


def test_a_session_that_the_step_makes_and_does_not_commit_leaves_nothing(plain):
    def step():
        session = plain.session()
        session.add(Order(note="forgotten"))
        session.flush()
        session.rollback()

    plain.view = lambda: ({"result": phase("work", step)}, 201)

    answer = plain.send()

    assert answer.status_code == 201
    assert plain.notes == []
    assert plain.engine.pool.checkedout() == 0


def test_a_step_whose_session_fails_to_flush_leaves_nothing(plain):
    def step():
        session = plain.session()
        session.add(Order(note="goes"))
        session.flush()
        session.add(Order(note=None))
        session.commit()

    def view():
        with pytest.raises(SQLAlchemyError):
            phase("work", step)
        return "no", 422

    plain.view = view

    answer = plain.send()

    assert answer.status_code == 422
    assert (plain.notes, plain.tables.checkpoints()) == ([], [])
    assert plain.engine.pool.checkedout() == 0
