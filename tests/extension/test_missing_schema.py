"""A store that is not set up: one sentence at start, 503 until it is, and then it works without a restart."""

import logging
import os
import subprocess
import sys
import textwrap

import click
import pytest
from flask import Flask
from flask_sqlalchemy import SQLAlchemy

from flask_idempotency import Idempotency, scopes
from flask_idempotency.errors import StoreUnavailable
from flask_idempotency.stores import open_store
from flask_idempotency.stores.memory import MemoryStore
from tests.apps.shop import Shop
from tests.fixtures.processes import ROOT

MISSING = "The table idempotency_record does not exist; make it with: flask idempotency init"


@pytest.fixture
def make_bare(postgres_url):
    """Shops over a PostgreSQL database without the table."""
    stores = []

    def make():
        stores.append(open_store(postgres_url))
        return Shop(stores[-1])

    yield make
    for store in stores:
        store.close()


def ours(caplog):
    return [(record.levelno, record.message) for record in caplog.records if record.name == "flask_idempotency"]


def test_a_missing_table_is_one_sentence_in_the_log_at_start(make_bare, caplog):
    make_bare()

    assert ours(caplog) == [(logging.ERROR, MISSING)]


@pytest.mark.parametrize(("command", "said"), [("run", True), ("init", False), ("shell", False)])
def test_a_command_other_than_run_is_not_told_at_start(make_bare, caplog, command, said):
    with click.Context(click.Command(command), info_name=command):
        make_bare()

    assert bool(ours(caplog)) == said


@pytest.mark.parametrize("path", ["/orders", "/plain"])
def test_until_init_requests_get_503_and_then_it_works_without_a_restart(make_bare, caplog, path):
    shop = make_bare()
    caplog.clear()

    before = [shop.send(path) for _ in range(2)]
    without_a_key = shop.send(path, None)
    made = shop.app.test_cli_runner().invoke(args=["idempotency", "init"])
    after = [shop.send(path) for _ in range(2)]

    assert [(answer.status_code, answer.json["code"]) for answer in before] == [(503, "store-unavailable")] * 2
    assert int(before[0].headers["Retry-After"]) >= 1
    assert without_a_key.status_code == 201
    assert (logging.CRITICAL, MISSING) in ours(caplog)
    assert made.output == "The store is ready.\n"
    assert [answer.status_code for answer in after] == [201, 201]
    assert (after[1].headers["Idempotent-Replayed"], shop.n) == ("true", 2)


def test_a_store_that_cannot_be_reached_at_start_is_one_sentence_and_no_error(caplog):
    class Down(MemoryStore):
        def check(self):
            raise StoreUnavailable

    app = Flask("down")

    Idempotency(app, store=Down(), scope=scopes.everyone)

    assert ours(caplog) == [
        (
            logging.ERROR,
            "The store cannot be reached, so protected requests get 503: check its URL, and its server.",
        )
    ]


def test_a_store_in_order_says_nothing(caplog, shop):
    assert ours(caplog) == []


def test_flask_idempotency_init_can_be_run_from_a_shell(postgres_url, tmp_path):
    (tmp_path / "wsgi.py").write_text(
        textwrap.dedent("""
            import os
            from flask import Flask
            from flask_idempotency import Idempotency, scopes

            app = Flask(__name__)
            app.config["IDEMPOTENCY_STORE"] = os.environ["STORE"]
            Idempotency(app, scope=scopes.everyone)
        """)
    )

    def flask(*arguments):
        command = [sys.executable, "-m", "flask", "--app", tmp_path / "wsgi.py", "idempotency", *arguments]
        run = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=60,
            env={"STORE": postgres_url, "PYTHONPATH": str(ROOT), "PATH": ""},
        )
        return run.returncode, run.stdout, run.stderr

    assert flask("check") == (1, "", f"Error: {MISSING}\n")
    assert flask("init") == (0, "The store is ready.\n", "")
    code, told, wrong = flask("check")
    assert (code, told.splitlines()[0], wrong) == (0, "The store can be used.", "")  # and warnings of this server


# -- an embedded store that cannot be made ---------------------------------------------------------------------------


def test_an_embedded_store_that_cannot_be_made_is_one_sentence_and_503(tmp_path, monkeypatch, caplog):
    def fail(*_, **__):
        raise PermissionError(13, "Permission denied")

    app = Flask("shop", instance_path=str(tmp_path / "instance"))
    monkeypatch.setattr(os, "mkdir", fail)
    Idempotency(app, scope=scopes.everyone)
    app.post("/orders")(lambda: ("", 201))

    answer = app.test_client().post("/orders", headers={"Idempotency-Key": "k"})
    without_a_key = app.test_client().post("/orders")

    assert (answer.status_code, answer.json["code"]) == (503, "store-unavailable")
    assert without_a_key.status_code == 201
    path = tmp_path / "instance" / "idempotency.sqlite"
    advice = "name a file that the app may write in IDEMPOTENCY_STORE."
    assert ours(caplog) == [(logging.CRITICAL, f"{path} cannot be written: Permission denied; {advice}")]


def test_an_embedded_store_in_a_place_that_cannot_be_written_is_said_at_start(tmp_path, caplog):
    (tmp_path / "instance").touch()  # a file where the folder should be

    Idempotency(Flask("shop", instance_path=str(tmp_path / "instance")), scope=scopes.everyone)

    (said,) = ours(caplog)
    assert said[0] == logging.ERROR
    assert said[1].endswith("cannot be written; name a file that the app may write in IDEMPOTENCY_STORE.")


# -- the app's own database ------------------------------------------------------------------------------------------


@pytest.fixture
def make_own(store_url):
    """Apps whose records are in their own database."""
    made = []

    def make():
        app, db = Flask("own"), SQLAlchemy()
        app.config.update(SQLALCHEMY_DATABASE_URI=store_url, IDEMPOTENCY_HOUSEKEEPING=False)
        db.init_app(app)
        Idempotency(app, db=db, scope=scopes.everyone)
        app.post("/orders")(lambda: ("", 201))
        made.append((app, db))
        return app, db

    yield make
    for app, db in made:
        app.extensions["idempotency"].store.close()
        with app.app_context():
            db.engine.dispose()


def test_a_factory_that_makes_the_tables_after_init_app_starts_without_a_word(make_own, caplog):
    app, db = make_own()
    with app.app_context():
        db.create_all()

    answers = [order(app, "k") for _ in range(2)]

    assert [answer.status_code for answer in answers] == [201, 201]
    assert ours(caplog) == []


def test_tables_of_the_app_s_own_database_that_are_really_missing_are_told_at_the_first_request(make_own, caplog):
    app, db = make_own()
    at_start = ours(caplog)

    answer = order(app, "k")

    assert at_start == []
    assert (answer.status_code, answer.json["code"]) == (503, "store-unavailable")
    sentence = MISSING.replace("with:", "with a migration, with db.create_all(), or with:")
    assert ours(caplog) == [(logging.CRITICAL, sentence)]
    with app.app_context():
        db.create_all()
    assert order(app, "k").status_code == 201


def test_tables_of_the_app_s_own_database_of_another_version_are_told_at_start(make_own, caplog):
    app, db = make_own()
    with app.app_context():
        db.create_all()
        with db.engine.begin() as connection:
            connection.execute(db.text("DROP INDEX idempotency_record_running"))

    make_own()

    (said,) = ours(caplog)
    assert said[0] == logging.ERROR
    assert "upgrade them with a migration, or with: flask idempotency init" in said[1]


# -- a table that is dropped after the start -------------------------------------------------------------------------


@pytest.fixture
def make_guarded(store_url):
    """Shops whose records are in their own database, under either guard."""
    shops = []

    def make(guard):
        app, db = Flask("shop"), SQLAlchemy()
        app.config.update(SQLALCHEMY_DATABASE_URI=store_url, IDEMPOTENCY_HOUSEKEEPING=False, IDEMPOTENCY_GUARD=guard)
        db.init_app(app)
        Idempotency(app, db=db, scope=scopes.everyone)
        app.test_cli_runner().invoke(args=["idempotency", "init"])
        shops.append((app, db))
        return app, db

    yield make
    for app, db in shops:
        app.extensions["idempotency"].store.close()
        with app.app_context():
            db.engine.dispose()


def drop_table(app, db):
    with app.app_context(), db.engine.begin() as connection:
        connection.execute(db.text("DROP TABLE idempotency_record"))


def order(app, key):
    return app.test_client().post("/orders", headers={"Idempotency-Key": key})


@pytest.mark.parametrize(
    ("guard", "when"),  # a transaction keeps the table from being dropped while it lasts
    [("transaction", "between two requests"), ("lease", "between two requests"), ("lease", "while a view runs")],
)
def test_a_table_that_is_dropped_after_the_start_is_503_and_a_word_about_init(make_guarded, caplog, guard, when):
    app, db = make_guarded(guard)
    acts = []
    app.post("/orders")(lambda: ([act() for act in acts] and None) or ("", 201))
    assert order(app, "before").status_code == 201
    if when == "while a view runs":
        acts.append(lambda: drop_table(app, db))
    else:
        drop_table(app, db)

    refused = order(app, "k")
    acts.clear()
    again = order(app, "k")
    app.test_cli_runner().invoke(args=["idempotency", "init"])
    healed = order(app, "k2")

    assert (refused.status_code, again.status_code) == (503, 503)
    assert any(text.endswith("; make the tables with: flask idempotency init") for _, text in ours(caplog))
    assert healed.status_code == 201
