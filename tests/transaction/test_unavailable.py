"""`unavailable="run"` where the app's own database is the store: a view that does not need it answers, one that does
fails as it would without a key, and after a lost connection the view's session begins afresh."""

import pytest
from flask import request
from sqlalchemy.exc import OperationalError

from flask_idempotency import idempotent
from flask_idempotency.errors import StoreUnavailable
from flask_idempotency.stores import file_locks
from flask_idempotency.stores.database import ConnectionLost
from tests.apps.shop import Gate
from tests.stores.others import meanwhile

UNPROTECTED = "Idempotency-Unprotected"


@pytest.fixture
def low(make_shop):
    """A shop with two views for low stakes: one writes an order, one does without the database."""
    shop = make_shop()
    shop.begin()

    def order():
        shop.db.session.add(shop.db.Order(note="tea"))
        shop.db.session.commit()
        return "ordered", 201

    shop.serve(idempotent(unavailable="run")(order))
    shop.serve(idempotent(unavailable="run")(lambda: "voted"), "/votes")
    return shop


def test_a_view_without_the_database_answers_and_one_with_it_fails_as_without_a_key(low, monkeypatch):
    with monkeypatch.context() as outage:

        def refuse(*_, **__):
            raise OperationalError("connect", {}, Exception("the server is down"))

        outage.setattr(low.engine.pool, "connect", refuse)
        vote, order = low.send("/votes"), low.send()

    assert (vote.status_code, vote.headers[UNPROTECTED]) == (200, "true")
    assert (order.status_code, order.headers[UNPROTECTED]) == (500, "true")
    assert low.send().status_code == 201
    assert (low.notes, low.records) == (["tea"], 1)


@pytest.mark.postgresql
def test_a_session_whose_connection_was_lost_before_the_claim_begins_afresh(make_postgres_shop):
    shop = make_postgres_shop()

    @shop.app.before_request
    def lose_the_connection():
        number = shop.db.session.execute(shop.db.text("SELECT pg_backend_pid()")).scalar_one()
        if "lose" in request.args:
            shop.sql("SELECT pg_terminate_backend(:number)", number=number)

    shop.begin()

    @idempotent(unavailable="run")
    def order():
        shop.db.session.add(shop.db.Order(note="tea"))
        shop.db.session.commit()
        return "ordered", 201

    shop.serve(order)

    answer = shop.send("/?lose=1")

    assert (answer.status_code, answer.headers[UNPROTECTED]) == (201, "true")
    assert (shop.notes, shop.records) == (["tea"], 0)


def test_without_locks_a_duplicate_does_not_run_beside_the_first_request(make_sqlite_shop, monkeypatch):
    monkeypatch.setattr(file_locks, "IS_AVAILABLE", False)
    shop, gate, runs = make_sqlite_shop(engine={"connect_args": {"timeout": 0.3}}), Gate(), []
    shop.begin()

    def mail():
        runs.append("mail")
        if len(runs) == 1:
            gate.stop()
        return "sent"

    shop.serve(idempotent(unavailable="run")(mail))

    with meanwhile(lambda: shop.send().status_code) as first:
        gate.wait_for_view()
        with meanwhile(shop.send) as answers:
            pass
        gate.open()

    assert (first, [answer.status_code for answer in answers], runs) == ([200], [503], ["mail"])


@pytest.mark.postgresql
def test_a_request_that_was_found_finished_does_not_run_when_its_connection_is_lost(make_postgres_shop, monkeypatch):
    shop, runs = make_postgres_shop(replay_cache=0), []

    @shop.app.before_request
    def read():
        shop.db.session.execute(shop.db.text("SELECT 1"))

    shop.begin()
    shop.serve(idempotent(unavailable="run")(lambda: runs.append("mail") or "sent"))
    first = shop.send()
    store = shop.app.extensions["idempotency"].store
    store.inner._repeated.clear()
    leave = store.leave

    def lose_the_connection(connection):
        shop.sql("SELECT pg_terminate_backend(:number)", number=connection.info.backend_pid)
        leave(connection)

    monkeypatch.setattr(store, "leave", lose_the_connection)
    second = shop.send()

    assert (first.status_code, second.status_code, runs) == (200, 503, ["mail"])


@pytest.mark.postgresql
def test_another_request_with_the_key_does_not_run_beside_the_first_when_its_connection_is_lost(
    make_postgres_shop, monkeypatch
):
    shop, gate, runs = make_postgres_shop(), Gate(), []
    shop.begin()

    def mail():
        runs.append("mail")
        if len(runs) == 1:
            gate.stop()
        return "sent"

    shop.serve(idempotent(unavailable="run")(mail))
    store = shop.app.extensions["idempotency"].store.inner
    take = store._take

    def take_or_lose(connection, asked, messages, patience, *say):
        if patience:  # the second look at a lock that somebody has
            raise ConnectionLost(retry_after=1)
        return take(connection, asked, messages, patience, *say)

    with meanwhile(lambda: shop.send(data="a").status_code) as first:
        gate.wait_for_view()
        monkeypatch.setattr(store, "_take", take_or_lose)
        second = shop.send(data="b")
        gate.open()

    assert (first, second.status_code, runs) == ([200], 503, ["mail"])


@pytest.mark.parametrize("flushes", [True, False])
def test_what_a_hook_has_written_is_not_lost_in_silence(make_shop, monkeypatch, flushes):
    shop, runs = make_shop(), []

    @shop.app.before_request
    def write():
        shop.db.session.add(shop.db.Order(note="audit"))
        if flushes:
            shop.db.session.flush()

    @shop.app.after_request
    def commit(response):
        shop.db.session.commit()
        return response

    shop.begin()
    shop.serve(idempotent(unavailable="run", guard="lease")(lambda: runs.append("ran") or "ran"))

    def refuse(*_, **__):
        raise StoreUnavailable(retry_after=1)

    monkeypatch.setattr(shop.app.extensions["idempotency"].store.inner, "claim", refuse)
    answer = shop.send()

    assert (answer.status_code, runs, shop.notes) == (503, [], [])
