"""Setting up: whatever makes no sense is refused at start, in one sentence and without secrets."""

import re
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import pytest
from flask import Blueprint, Flask
from flask.sansio.app import App
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.orm import scoped_session, sessionmaker

from flask_idempotency import Idempotency, effect, idempotent, phase, scopes
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
        ("redis://:s3cret@host:port", "is not a URL"),
        ("redis://:s3cret@host?colour=red", "is not a Redis URL"),
        ("mysql+mysqldb://user:s3cret@host/db", "names a driver that is not supported"),
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


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("memory://", "must be the URL of a Redis or Valkey server"),
        ("postgresql://user:s3cret@host/db", "must be the URL of a Redis or Valkey server"),
        ("s3cret", "must be the URL of a Redis or Valkey server"),
        ("redis://:s3cret@host:port", "is not a Redis URL"),
        ("redis://:s3cret@host?volatile=accepted", "is not a Redis URL"),
    ],
)
def test_a_hint_that_is_none_is_refused(url, words):
    sentence = refusal(scope=scopes.everyone, settings={"IDEMPOTENCY_HINT": url})

    assert sentence.startswith(f"IDEMPOTENCY_HINT {words}")


@pytest.mark.parametrize("store", ["sqlite:///s3cret.db", object(), 1], ids=["URL", "object", "number"])
def test_a_store_argument_that_is_none_is_refused(store):
    assert "store= must be a Store object" in refusal(scope=scopes.everyone, store=store)


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
    assert refusal(scope=scopes.everyone, **arguments).startswith("The records are kept in one place only")


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
    store = app.extensions["idempotency"].store.inner

    store.create()
    store.close()

    assert (tmp_path / "instance" / "records.db").exists()


@pytest.mark.parametrize("form", ["file:{}", "file://{}"])
def test_a_file_that_is_named_by_a_uri_lies_where_the_uri_says(tmp_path, monkeypatch, form):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "elsewhere" / "my records.db"
    app = Flask("file", instance_path=str(tmp_path / "instance"))
    uri = form.format(quote(str(path)))
    app.config.update(IDEMPOTENCY_STORE=f"sqlite:///{uri}?uri=true", IDEMPOTENCY_HOUSEKEEPING=False)
    Idempotency(app, scope=scopes.everyone)
    app.add_url_rule("/", "view", lambda: "ok", methods=["POST"])
    store = app.extensions["idempotency"].store.inner

    answers = [app.test_client().post("/", headers={"Idempotency-Key": "k"}) for _ in range(2)]
    store.check()
    store.close()

    assert answers[1].headers[REPLAYED] == "true"
    assert [each.name for each in tmp_path.iterdir()] == ["elsewhere"]
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("uri", ["file::memory:?cache=shared&uri=true", "file:records?mode=memory&uri=true"])
def test_a_database_in_memory_that_is_named_by_a_uri_makes_no_file(tmp_path, monkeypatch, uri):
    monkeypatch.chdir(tmp_path)
    app = Flask("memory", instance_path=str(tmp_path / "instance"))
    app.config["IDEMPOTENCY_STORE"] = f"sqlite:///{uri}"

    Idempotency(app, scope=scopes.everyone)
    app.extensions["idempotency"].store.create()

    assert isinstance(app.extensions["idempotency"].store.inner, MemoryStore)
    assert list(tmp_path.iterdir()) == []


def test_an_apps_own_database_holds_the_records(shop_url):
    app, db = Flask("db"), SQLAlchemy()
    app.config.update(SQLALCHEMY_DATABASE_URI=shop_url, IDEMPOTENCY_HOUSEKEEPING=False)
    db.init_app(app)
    Idempotency(app, db=db, scope=scopes.everyone)
    app.add_url_rule("/", "view", lambda: "ok", methods=["POST"])
    store = app.extensions["idempotency"].store.inner
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

    assert app.extensions["idempotency"].store.inner is store


def test_nothing_is_done_before_an_app_is_given():
    Idempotency(scope="nonsense", store="nonsense")


def test_importing_and_setting_up_starts_no_thread_and_opens_no_file(tmp_path):
    app = Flask("quiet", instance_path=str(tmp_path / "instance"))

    Idempotency(app, scope=scopes.everyone)

    assert list(tmp_path.iterdir()) == []


# -- what cannot be protected ------------------------------------------------------------------------------------------


class Quart(App):
    """An app as Quart's: the sans-IO half of Flask, and no `wsgi_app`."""

    default_config = Flask.default_config


def facts_of(app):
    """Whatever an extension may leave on an app."""
    return {name: repr(value) for name, value in getattr(app, "__dict__", {}).items()}


@pytest.mark.parametrize(
    "given", [Quart("asgi"), Blueprint("blueprint", __name__), object()], ids=["Quart", "blueprint", "object"]
)
def test_an_app_without_wsgi_app_is_refused_in_one_sentence_and_left_as_it_was(given):
    before = facts_of(given)

    with pytest.raises(ConfigError) as caught:
        Idempotency(given, scope=scopes.everyone)

    assert SENTENCE.fullmatch(str(caught.value))
    assert f"{type(given).__name__} has no wsgi_app" in str(caught.value)
    assert facts_of(given) == before


def served():
    app = Flask("served")
    app.test_client().get("/")
    return app


@pytest.mark.parametrize(
    ("make", "arguments", "error"),
    [
        (served, {"store": MemoryStore()}, AssertionError),
        (lambda: Flask("scopeless"), {"scope": None}, ConfigError),
        (lambda: Flask("senseless"), {"settings": {"IDEMPOTENCY_GUARD": "transaction"}}, ConfigError),
        (lambda: Flask("twophase"), {"twophase": True}, ConfigError),
    ],
    ids=["it has served a request", "no scope", "no database", "two-phase sessions"],
)
def test_an_app_that_is_refused_is_left_as_it_was(make, arguments, error, tmp_path):
    app, arguments = make(), dict(arguments)
    app.config.update(arguments.pop("settings", {}))
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    sessions = sessionmaker(engine, twophase=arguments.pop("twophase", False))
    if "store" not in arguments and "scope" not in arguments and "IDEMPOTENCY_GUARD" not in app.config:
        arguments["db"] = SimpleNamespace(engine=engine, session=sessions)
    before, class_ = facts_of(app), sessions.class_

    with pytest.raises(error):
        Idempotency(app, **{"scope": scopes.everyone, **arguments})

    assert facts_of(app) == before
    assert sessions.class_ is class_


# -- databases and drivers that cannot be shared -----------------------------------------------------------------------


def own_database(url, **options):
    """A `db` as an app without Flask-SQLAlchemy has it."""
    engine = create_engine(url, **options)
    return SimpleNamespace(engine=engine, session=scoped_session(sessionmaker(engine)))


@pytest.mark.parametrize("guard", [None, "lease", "transaction"])
@pytest.mark.parametrize("url", ["mssql+pymssql://u:s3cret@h/d"])
def test_a_database_that_cannot_hold_the_records_is_told_to_give_them_a_store_of_their_own(url, guard):
    db = own_database(url, module=SimpleNamespace(paramstyle="pyformat"))  # as if its driver were installed

    sentence = refusal(scope=scopes.everyone, db=db, settings={"IDEMPOTENCY_GUARD": guard})

    assert sentence.startswith(f"db= uses {make_url(url).get_backend_name()}, which cannot hold the records yet")
    assert "leave db= out" in sentence


def test_what_that_sentence_advises_works(tmp_path):
    app = Flask("advised", instance_path=str(tmp_path))
    app.config.update(IDEMPOTENCY_HOUSEKEEPING=False, SQLALCHEMY_DATABASE_URI="mssql+pymssql://u:s3cret@h/d")
    Idempotency(app, scope=scopes.everyone)
    app.add_url_rule("/", "view", lambda: effect("charge", lambda key: "paid"), methods=["POST"])

    answers = [app.test_client().post("/", headers={"Idempotency-Key": "k"}) for _ in range(2)]
    app.extensions["idempotency"].store.close()

    assert [answer.text for answer in answers] == ["paid", "paid"]
    assert answers[1].headers[REPLAYED] == "true"


@pytest.mark.postgresql
def test_psycopg2_works_under_the_lease_guard_with_connections_of_the_store_s_own(postgres_url):
    app = Flask("psycopg2")
    app.config.update(IDEMPOTENCY_GUARD="lease", IDEMPOTENCY_HOUSEKEEPING=False)
    db = own_database(make_url(postgres_url).set(drivername="postgresql+psycopg2"))
    Idempotency(app, db=db, scope=scopes.everyone)
    store, charges = app.extensions["idempotency"].store.inner, []
    store.create()

    @app.post("/")
    @idempotent(required=True)
    def view():
        db.session.execute(text("CREATE TABLE paid (id int)"))
        db.session.commit()
        db.session.execute(text("SELECT * FROM paid"))
        return effect("charge", lambda key: charges.append(key) or "paid")

    answers = [app.test_client().post("/", headers={"Idempotency-Key": "k"}) for _ in range(2)]
    store.close()
    db.session.remove()
    db.engine.dispose()

    assert [answer.status_code for answer in answers] == [200, 200], answers[0].text
    assert (answers[1].headers[REPLAYED], len(charges)) == ("true", 1)


@pytest.mark.postgresql
def test_psycopg2_is_told_what_a_phase_and_the_transaction_guard_need(postgres_url):
    url = make_url(postgres_url).set(drivername="postgresql+psycopg2")
    app = Flask("psycopg2")
    app.config.update(IDEMPOTENCY_GUARD="lease", IDEMPOTENCY_HOUSEKEEPING=False, TESTING=True)
    Idempotency(app, db=own_database(url), scope=scopes.everyone)
    app.extensions["idempotency"].store.create()
    app.add_url_rule("/", "phase", lambda: phase("one", dict), methods=["POST"])
    app.add_url_rule("/own", "own", idempotent(guard="transaction")(lambda: "ok"), methods=["POST"])
    needs = "needs the driver psycopg: write postgresql+psycopg://... in SQLALCHEMY_DATABASE_URI"

    with pytest.raises(ConfigError) as of_phase:
        app.test_client().post("/", headers={"Idempotency-Key": "k"})
    with pytest.raises(ConfigError) as of_view:
        app.test_client().post("/own", headers={"Idempotency-Key": "k"})
    app.extensions["idempotency"].store.close()

    assert str(of_phase.value) == f"phase() {needs}."
    assert str(of_view.value) == f'The decorator of \'own\': guard="transaction" {needs}, or set guard="lease".'
    assert refusal(scope=scopes.everyone, db=own_database(url)) == (
        f'guard="transaction" {needs}, or set IDEMPOTENCY_GUARD = "lease".'
    )
