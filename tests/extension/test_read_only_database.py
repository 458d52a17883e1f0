"""A database that takes no writes: 503 before the view runs, and one sentence in the log; never a 500."""

import logging
from contextlib import closing

import psycopg
import pytest
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import event

from flask_idempotency import Idempotency, scopes
from flask_idempotency.stores import open_store


@pytest.fixture
def make_shop():
    """`make_shop(url, guard)`: an app that inserts an order, over a database that exists."""
    made = []

    def make(url, guard):
        app, db = Flask("shop"), SQLAlchemy()
        app.config.update(SQLALCHEMY_DATABASE_URI=url, IDEMPOTENCY_GUARD=guard, IDEMPOTENCY_HOUSEKEEPING=False)
        db.init_app(app)
        Idempotency(app, db=db, scope=scopes.everyone)

        @app.post("/orders")
        def create():
            app.config["RUNS"] = app.config.get("RUNS", 0) + 1
            db.session.execute(db.text("INSERT INTO orders (note) VALUES ('tea')"))
            db.session.commit()
            return "", 201

        made.append((app, db))
        return app, db

    yield make
    for app, db in made:
        app.extensions["idempotency"].store.close()
        with app.app_context():
            db.engine.dispose()


def order(app, key):
    return app.test_client().post("/orders", headers={"Idempotency-Key": key})


def errors(caplog):
    return [each.message for each in caplog.records if each.levelno >= logging.ERROR]


READS = "GRANT USAGE ON SCHEMA public TO {0}; GRANT SELECT ON ALL TABLES IN SCHEMA public TO {0}"
ROLES = {
    "may only read": (READS, "grant the role"),
    "has read-only transactions": (
        f"{READS.replace('SELECT', 'ALL')}; ALTER ROLE {{0}} SET default_transaction_read_only = on",
        "takes no writes",
    ),
}


@pytest.mark.parametrize("guard", ["transaction", "lease"])
@pytest.mark.parametrize("role", ROLES)
def test_a_role_that_may_not_write_is_503_and_one_sentence(postgres_url, make_shop, caplog, guard, role):
    grants, advice = ROLES[role]
    with closing(open_store(postgres_url)) as store:
        store.create()
    with psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as owner:
        owner.execute("CREATE TABLE orders (note text)")
        assert order(make_shop(postgres_url, guard)[0], "done").status_code == 201
        name = f"reader_{abs(hash(postgres_url)) % 10**9}"
        owner.execute(f"CREATE ROLE {name} LOGIN; {grants.format(name)}")
        try:
            app, db = make_shop(postgres_url.replace("postgres@", f"{name}@"), guard)

            refused = order(app, "new")

            assert (refused.status_code, refused.json["code"]) == (503, "store-unavailable")
            assert "RUNS" not in app.config
            (said,) = errors(caplog)
            replay = order(app, "done")  # a lease is asked for by writing, so there it has to wait
            assert (replay.status_code, "Idempotent-Replayed" in replay.headers) == (
                (201, True) if guard == "transaction" else (503, False)
            )
            assert advice in said
            assert owner.execute("SELECT count(*) FROM orders").fetchone() == (1,)
        finally:
            with app.app_context():
                db.engine.dispose()
            app.extensions["idempotency"].store.close()
            owner.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


@pytest.mark.parametrize("guard", ["transaction", "lease"])
def test_a_sqlite_file_that_takes_no_writes_is_503_and_one_sentence_while_replays_go_on(
    tmp_path, make_shop, caplog, guard
):
    app, db = make_shop(f"sqlite:///{tmp_path / 'shop.db'}", guard)
    app.test_cli_runner().invoke(args=["idempotency", "init"])
    with app.app_context(), db.engine.begin() as connection:
        connection.execute(db.text("CREATE TABLE orders (note text)"))
    assert order(app, "done").status_code == 201
    caplog.clear()
    engines = [app.extensions["idempotency"].store.inner._engine]
    with app.app_context():
        engines.append(db.engine)
    for engine in engines:
        engine.dispose()
        event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA query_only = on"))

    refused, replay = order(app, "new"), order(app, "done")

    assert (refused.status_code, refused.json["code"]) == (503, "store-unavailable")
    assert (replay.status_code, replay.headers["Idempotent-Replayed"]) == (201, "true")
    assert app.config["RUNS"] == (2 if guard == "transaction" else 1)  # there the view's first write meets it
    with app.app_context():
        assert db.session.scalar(db.text("SELECT count(*) FROM orders")) == 1
    (said,) = errors(caplog)
    assert "let the app write the file" in said
