"""A connection that a hook took from the engine before the claim is no part of the request: it writes nothing."""

from contextlib import suppress

import pytest
from flask import Flask, g
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import text

from flask_idempotency import Idempotency, idempotent, phase, scopes
from flask_idempotency.errors import WorkRefused

ADD = text("INSERT INTO orders (tea) VALUES (2)")


@pytest.fixture
def app(store_url):
    """Its hook takes a connection for each request, as Flask's documentation has it for drivers; `act` is the view."""
    app = Flask("orders")
    app.config.update(SQLALCHEMY_DATABASE_URI=store_url, IDEMPOTENCY_HOUSEKEEPING=False, PROPAGATE_EXCEPTIONS=False)
    app.db = db = SQLAlchemy(app)
    Idempotency(app, db=db, scope=scopes.everyone)

    @app.before_request
    def connect():
        g.connection = db.engine.connect()

    @app.teardown_request
    def close(error):
        g.connection.close()

    app.post("/orders")(idempotent(lambda: app.act()))
    app.post("/phases", endpoint="phases")(idempotent(guard="lease")(lambda: app.act()))
    with app.app_context():
        db.create_all()
        with db.engine.begin() as connection:
            connection.execute(text("CREATE TABLE orders (id INTEGER, tea INTEGER)"))
        yield app
        db.engine.dispose()


def send(app, path="/orders"):
    return app.test_client().post(path, headers={"Idempotency-Key": "1"})


def rows(app):
    with app.db.engine.connect() as connection:
        return connection.execute(text("SELECT count(*) FROM orders")).scalar()


def test_what_a_view_would_write_beside_its_transaction_is_refused_in_a_sentence(app, caplog):
    app.act = lambda: (g.connection.execute(ADD), g.connection.commit(), ("done", 201))[2]

    answers = [send(app).status_code for _ in range(2)]

    assert (answers, rows(app)) == ([500, 500], 0)
    assert "take the connection in the view or step, or use db.session" in caplog.text


def test_nothing_is_kept_of_a_view_that_catches_the_refusal(app):
    def act():
        app.db.session.execute(ADD)
        app.db.session.commit()
        with suppress(WorkRefused):
            g.connection.execute(ADD)
        return "done", 201

    app.act = act

    assert (send(app).status_code, rows(app)) == (500, 0)


def test_a_view_may_read_through_such_a_connection(app):
    app.act = lambda: (str(g.connection.execute(text("SELECT count(*) FROM orders")).scalar()), 201)

    assert [send(app).status_code for _ in range(2)] == [201, 201]


def test_a_connection_that_is_taken_in_the_view_is_part_of_the_request(app):
    def act():
        with app.db.engine.begin() as connection:
            connection.execute(ADD)
        return "done", 201

    app.act = act

    assert ([send(app).status_code for _ in range(2)], rows(app)) == ([201, 201], 1)


def test_without_a_key_the_connection_works_as_ever(app):
    app.act = lambda: (g.connection.execute(ADD), g.connection.commit(), ("done", 201))[2]

    assert (app.test_client().post("/orders").status_code, rows(app)) == (201, 1)


def test_what_it_commits_outside_of_a_phase_is_left_to_a_person(app):
    def act():
        g.connection.execute(ADD)
        g.connection.commit()
        phase("nothing", lambda: None)
        return "done", 201

    app.act = act

    answers = [send(app, "/phases").status_code for _ in range(3)]

    assert (answers, rows(app)) == ([500, 409, 409], 1)
