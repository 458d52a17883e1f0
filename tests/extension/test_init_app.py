"""Setting up: whatever makes no sense is refused at start, in one sentence and without secrets."""

import re
from pathlib import Path

import pytest
from flask import Flask
from flask_sqlalchemy import SQLAlchemy

from flask_idempotency import Idempotency, scopes
from flask_idempotency.errors import ConfigError
from flask_idempotency.stores.memory import MemoryStore
from tests.apps.shop import REPLAYED

SENTENCE = re.compile(r"[A-Z@_a-z][^\n]*[.?]|.*flask idempotency init|.*\[postgres\]")


def refusal(**arguments):
    """The sentence with which an app is refused."""
    settings = arguments.pop("settings", {})
    app = Flask("refused")
    app.config.update(settings)
    with pytest.raises(ConfigError) as caught:
        Idempotency(app, **arguments)
    sentence = str(caught.value)
    assert SENTENCE.fullmatch(sentence), sentence
    assert "s3cret" not in sentence
    assert "idempotency" not in app.extensions
    return sentence


# -- who is asking -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "scope",
    [None, "alice", 42, scopes.session_field, lambda request: "alice", {"scope": 1}],
    ids=["none", "text", "number", "a field without its name", "a function of the request", "a dict"],
)
def test_s04_without_a_scope_the_ready_made_ones_are_listed(scope):
    sentence = refusal(scope=scope)

    for name in scopes.__all__:
        assert f"scopes.{name}" in sentence


@pytest.mark.parametrize("scope", [lambda name="alice": name, max], ids=["a default", "it does not say what it takes"])
def test_a_scope_that_may_need_no_arguments_is_accepted(scope):
    app = Flask("accepted")

    Idempotency(app, scope=scope, store=MemoryStore())

    assert "idempotency" in app.extensions


# -- where the records live --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://:s3cret@host/0", "redis is not available yet"),
        ("rediss://:s3cret@host/0", "rediss is not available yet"),
        ("mysql://user:s3cret@host/db", "mysql is not available yet"),
        ("mysql+pymysql://user:s3cret@host/db", "mysql is not available yet"),
        ("mariadb://user:s3cret@host/db", "mariadb is not available yet"),
        ("oracle://user:s3cret@host/db", "oracle is not a known store"),
        ("postgresql//user:s3cret@host", "is not a URL"),
        ("postgresql://user:s3cret@host:port/db", "is not a URL"),
        ("user:s3cret@host", "is not a URL"),
        ("://s3cret", "is not a URL"),
        (" ", "is not a URL"),
        ("", "must be a URL"),
        (42, "must be a URL"),
        (b"sqlite:///s3cret", "must be a URL"),
        (["s3cret"], "must be a URL"),
    ],
)
def test_a_store_that_is_none_is_refused(url, words):
    sentence = refusal(scope=scopes.everyone, settings={"IDEMPOTENCY_STORE": url})

    assert words in sentence
    assert sentence.startswith("IDEMPOTENCY_STORE")


@pytest.mark.parametrize("store", ["sqlite:///s3cret.db", object(), 1], ids=["URL", "object", "number"])
def test_a_store_argument_that_is_none_is_refused(store):
    assert "store= must be a store" in refusal(scope=scopes.everyone, store=store)


@pytest.mark.parametrize(
    "arguments",
    [
        {"store": MemoryStore(), "settings": {"IDEMPOTENCY_STORE": "memory://"}},
        {"store": MemoryStore(), "db": SQLAlchemy()},
        {"db": SQLAlchemy(), "settings": {"IDEMPOTENCY_STORE": "memory://"}},
    ],
    ids=["store and setting", "store and db", "db and setting"],
)
def test_two_places_for_the_records_are_refused(arguments):
    assert refusal(scope=scopes.everyone, **arguments).startswith("Name one place for the records")


@pytest.mark.parametrize(
    "db", [SQLAlchemy(), object(), "postgresql://user:s3cret@host/db"], ids=["early", "object", "URL"]
)
def test_a_db_that_is_none_or_not_ready_is_refused(db):
    assert "call db.init_app(app) first" in refusal(scope=scopes.everyone, db=db)


def test_with_neither_the_records_live_in_a_file_of_the_instance_folder(tmp_path):
    app = Flask("file", instance_path=str(tmp_path / "instance"))
    Idempotency(app, scope=scopes.everyone)
    app.config["IDEMPOTENCY_HOUSEKEEPING"] = False
    app.add_url_rule("/", "view", lambda: "ok", methods=["POST"])
    state = app.extensions["idempotency"]

    assert not Path(app.instance_path).exists()
    try:
        answers = [app.test_client().post("/", headers={"Idempotency-Key": "k"}) for _ in range(2)]
    finally:
        state.housekeeper.stop()
        state.store.close()

    assert answers[1].headers[REPLAYED] == "true"
    assert (tmp_path / "instance" / "idempotency.sqlite").exists()


def test_a_relative_file_lies_in_the_instance_folder_too(tmp_path):
    app = Flask("file", instance_path=str(tmp_path / "instance"))
    app.config["IDEMPOTENCY_STORE"] = "sqlite:///records.db"
    Idempotency(app, scope=scopes.everyone)
    store = app.extensions["idempotency"].store

    store.create()
    store.close()

    assert (tmp_path / "instance" / "records.db").exists()


def test_an_apps_own_database_holds_the_records(shop_url):
    app, db = Flask("db"), SQLAlchemy()
    app.config.update(SQLALCHEMY_DATABASE_URI=shop_url, IDEMPOTENCY_HOUSEKEEPING=False)
    db.init_app(app)
    Idempotency(app, db=db, scope=scopes.everyone)
    app.add_url_rule("/", "view", lambda: "ok", methods=["POST"])
    store = app.extensions["idempotency"].store
    store.create()

    answers = [app.test_client().post("/", headers={"Idempotency-Key": "k"}) for _ in range(2)]

    with app.app_context():
        rows = db.session.execute(db.text("SELECT count(*) FROM idempotency_record")).scalar()
        db.session.remove()
        db.engine.dispose()
    store.close()
    assert (answers[1].headers[REPLAYED], rows) == ("true", 1)


def test_a_store_that_says_it_is_empty_is_a_store(shop_url):
    class Sized(MemoryStore):
        def __len__(self):
            return 0

    app, store = Flask("sized"), Sized()

    Idempotency(app, scope=scopes.everyone, store=store)

    assert app.extensions["idempotency"].store is store


def test_nothing_is_done_before_an_app_is_given():
    Idempotency(scope="nonsense", store="nonsense")


def test_importing_and_setting_up_starts_no_thread_and_opens_no_file(tmp_path):
    app = Flask("quiet", instance_path=str(tmp_path / "instance"))

    Idempotency(app, scope=scopes.everyone)

    assert list(tmp_path.iterdir()) == []
