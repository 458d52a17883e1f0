"""Apps without Flask-SQLAlchemy: ``db=`` is anything with an engine and a session. And what is refused at the start."""

from types import SimpleNamespace

import pytest
from flask import Flask
from sqlalchemy import String, create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from flask_idempotency import Idempotency, idempotent, scopes
from flask_idempotency.errors import ConfigError
from flask_idempotency.stores import open_store
from flask_idempotency.stores.postgres import PostgresStore
from flask_idempotency.stores.sqlite import SqliteStore
from tests.transaction.conftest import make_database

REPLAYED = "Idempotent-Replayed"


def make_table(url):
    """Make the table of the records."""
    store = open_store(url)
    store.create()
    store.close()


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "plain_order"

    id: Mapped[int] = mapped_column(primary_key=True)
    note: Mapped[str] = mapped_column(String)


class OwnSession(Session):
    """A session class of the app's own, with something of its own."""

    def note_everything(self):
        return list(self.scalars(select(Order.note).order_by(Order.id)))


class Plain:
    """An app with an engine and a session of its own; its view does ``shop.work(session)``, then ``shop.end()``."""

    def __init__(self, url, way):
        self.engine = create_engine(url, pool_size=2, max_overflow=0, pool_timeout=1)
        self.outside = create_engine(url, poolclass=NullPool)
        Base.metadata.create_all(self.engine)
        make_table(url)
        self.app = Flask("plain")
        self.app.config["IDEMPOTENCY_HOUSEKEEPING"] = False
        factory = sessionmaker(self.engine, class_=OwnSession)
        self.session = scoped_session(factory) if way == "scoped_session" else factory
        Idempotency(self.app, db=SimpleNamespace(engine=self.engine, session=self.session), scope=scopes.everyone)
        if way == "scoped_session":
            self.app.teardown_appcontext(lambda _: self.session.remove())
        view = {"scoped_session": self.view_with_scoped, "sessionmaker": self.view_with_block}[way]
        self.app.add_url_rule("/", "orders", view, methods=["POST"])
        self.end = lambda: ("made", 201)

    def view_with_scoped(self):
        self.work(self.session)
        return self.end()

    def view_with_block(self):
        with self.session() as session:
            self.work(session)
            return self.end()

    def work(self, session):
        session.add(Order(note="one"))
        session.commit()
        session.add(Order(note="goes"))
        session.flush()
        session.rollback()

    def send(self, key="order-1", **options):
        headers = {} if key is None else {"Idempotency-Key": key}
        return self.app.test_client().post("/", headers=headers, **options)

    @property
    def notes(self):
        with Session(self.outside) as session:
            return list(session.scalars(select(Order.note).order_by(Order.id)))

    def close(self):
        self.engine.dispose()
        self.app.extensions["idempotency"].store.close()


@pytest.fixture(params=["scoped_session", "sessionmaker"])
def plain(request, store_url):
    """Each way to have sessions, on each database."""
    plain = Plain(store_url, request.param)
    yield plain
    plain.close()


# -- exactly once ------------------------------------------------------------------------------------------------------


def test_it_takes_effect_once_and_is_replayed(plain):
    first, second = plain.send(), plain.send()

    assert (first.status_code, second.status_code) == (201, 201)
    assert [REPLAYED in answer.headers for answer in (first, second)] == [False, True]
    assert plain.notes == ["one"]
    assert plain.engine.pool.checkedout() == 0


def test_a_failure_takes_back_what_was_committed_and_the_retry_runs(plain):
    plain.end = lambda: ("no", 500)
    first = plain.send()
    left = plain.notes
    plain.end = lambda: ("made", 201)

    second = plain.send()

    assert (first.status_code, second.status_code) == (500, 201)
    assert left == []
    assert plain.notes == ["one"]
    assert plain.engine.pool.checkedout() == 0


def test_what_was_not_committed_is_missed_or_was_taken_back(plain):
    def work(session):
        session.add(Order(note="forgotten"))
        session.flush()

    plain.work = work

    answer = plain.send()

    # A block has ended its session, and with it what was not committed; a scoped session is still open.
    assert answer.status_code == (500 if isinstance(plain.session, scoped_session) else 201)
    assert plain.notes == []


def test_without_a_key_sessions_commit_as_they_go(plain):
    plain.end = lambda: (f"{plain.notes}", 500)

    answer = plain.send(key=None)

    assert answer.text == "['one']"
    assert plain.notes == ["one"]


def test_sessions_keep_the_class_and_the_methods_that_the_app_gave_them(plain):
    seen = []

    def work(session):
        real = session() if isinstance(session, scoped_session) else session
        session.add(Order(note="one"))
        session.commit()
        seen.append((isinstance(real, OwnSession), real.note_everything()))

    plain.work = work

    plain.send()

    assert seen == [(True, ["one"])]


def test_one_session_after_the_other_is_joined(plain):
    def work(_):
        for note in ("one", "two"):
            with plain.session() as session, session.begin():
                session.add(Order(note=note))

    plain.work = work
    plain.end = lambda: (f"{plain.notes}", 201)

    first, second = plain.send(), plain.send()

    assert first.text == second.text == "[]"
    assert plain.notes == ["one", "two"]
    assert plain.engine.pool.checkedout() == 0


def test_a_session_on_another_engine_is_left_alone(plain, tmp_path):
    other = create_engine(f"sqlite:///{tmp_path / 'other.db'}", poolclass=NullPool)
    Base.metadata.create_all(other)

    def work(_):
        with Session(other) as session:
            session.add(Order(note="elsewhere"))
            session.commit()

    plain.work = work
    plain.end = lambda: ("no", 500)

    plain.send()

    with Session(other) as session:
        assert list(session.scalars(select(Order.note))) == ["elsewhere"]
    assert plain.notes == []


@pytest.mark.parametrize("plain", ["scoped_session"], indirect=True)
def test_a_session_that_a_loader_has_opened_before_is_joined(plain):

    def load():
        plain.session.scalars(select(Order)).all()

    plain.app.before_request_funcs[None].insert(0, load)

    first, second = plain.send(), plain.send()

    assert (first.status_code, second.status_code) == (201, 201)
    assert REPLAYED in second.headers
    assert plain.notes == ["one"]
    assert plain.engine.pool.checkedout() == 0


# -- refused at the start ----------------------------------------------------------------------------------------------


class NoEngine:
    session = sessionmaker()


class NoSession:
    engine = create_engine("sqlite:///somewhere.db")


class SessionIsNoFactory:
    engine = create_engine("sqlite:///somewhere.db")
    session = object()


@pytest.mark.parametrize(
    ("db", "complaint"),
    [
        (object(), "db= must be"),
        (NoEngine(), "db= must be"),
        (NoSession(), "db= must be"),
        (SessionIsNoFactory(), "db= must have an engine, and a session that is"),
        ("sqlite:///somewhere.db", "db= must be"),
    ],
    ids=["nothing", "no engine", "no session", "no factory", "a URL"],
)
def test_a_db_that_is_none_is_refused_in_one_sentence(db, complaint):
    app = Flask("refused")

    with pytest.raises(ConfigError, match=complaint) as refused:
        Idempotency(app, db=db, scope=scopes.everyone)

    assert str(refused.value).endswith(".")
    assert "\n" not in str(refused.value)
    assert "idempotency" not in app.extensions


def test_a_flask_sqlalchemy_object_that_does_not_know_the_app_is_refused():
    with pytest.raises(ConfigError, match=r"call db\.init_app\(app\) first"):
        Idempotency(Flask("refused"), db=make_database(), scope=scopes.everyone)


@pytest.fixture
def engine(store_url):
    engine = create_engine(store_url)
    yield engine
    engine.dispose()


@pytest.fixture
def protect():
    """`protect(app, db=…)`: an app of which nothing is left open, whatever becomes of the test."""
    apps = []

    def make(app, **options):
        Idempotency(app, scope=scopes.everyone, **options)
        apps.append(app)

    yield make
    for app in apps:
        app.extensions["idempotency"].store.close()


@pytest.fixture
def another_driver(monkeypatch):
    """Have the stores take another driver than the one that is here."""
    monkeypatch.setattr(PostgresStore, "drivers", ("another",))
    monkeypatch.setattr(SqliteStore, "drivers", ("another",))


def test_a_driver_that_cannot_be_joined_is_refused_with_what_to_write(engine, another_driver):
    with pytest.raises(ConfigError) as refused:
        Idempotency(
            Flask("refused"), db=SimpleNamespace(engine=engine, session=sessionmaker(engine)), scope=scopes.everyone
        )

    assert f"needs the driver another: write {engine.name}+another://" in str(refused.value)
    assert 'IDEMPOTENCY_GUARD = "lease"' in str(refused.value)


def test_a_driver_that_cannot_be_joined_will_do_for_the_lease_guard(engine, another_driver, protect):
    app = Flask("leased")
    app.config["IDEMPOTENCY_GUARD"] = "lease"

    protect(app, db=SimpleNamespace(engine=engine, session=sessionmaker(engine)))

    assert app.extensions["idempotency"].policy().guard == "lease"


def test_a_view_may_not_choose_what_its_driver_cannot_do(store_url, engine, another_driver, protect):
    make_table(store_url)
    app = Flask("leased")
    app.config.update(IDEMPOTENCY_GUARD="lease", IDEMPOTENCY_HOUSEKEEPING=False, TESTING=True)
    protect(app, db=SimpleNamespace(engine=engine, session=sessionmaker(engine)))
    app.add_url_rule("/", "view", idempotent(guard="transaction")(lambda: ("made", 201)), methods=["POST"])

    with pytest.raises(ConfigError, match="needs the driver another"):
        app.test_client().post("/", headers={"Idempotency-Key": "key"})


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_a_database_in_memory_has_the_lease_guard(url):
    app, db = Flask("memory"), make_database()
    app.config.update(SQLALCHEMY_DATABASE_URI=url, IDEMPOTENCY_HOUSEKEEPING=False)
    db.init_app(app)
    Idempotency(app, db=db, scope=scopes.everyone)

    @app.post("/")
    def view():
        db.session.add(db.Order(note="one"))
        db.session.commit()
        return "made", 201

    with app.app_context():
        db.create_all()

    first, second = (app.test_client().post("/", headers={"Idempotency-Key": "key"}) for _ in range(2))

    assert app.extensions["idempotency"].policy().guard == "lease"
    assert (first.status_code, second.status_code) == (201, 201)
    assert REPLAYED in second.headers
    with app.app_context():
        assert db.session.query(db.Order).count() == 1
        db.session.remove()
        db.engine.dispose()


def test_the_transaction_guard_in_memory_is_refused():
    app, db = Flask("memory"), make_database()
    app.config.update(SQLALCHEMY_DATABASE_URI="sqlite://", IDEMPOTENCY_GUARD="transaction")
    db.init_app(app)

    with pytest.raises(ConfigError, match="on a server or in a file"):
        Idempotency(app, db=db, scope=scopes.everyone)


def test_the_transaction_guard_without_a_db_is_refused(store_url):
    app = Flask("refused")
    app.config.update(IDEMPOTENCY_STORE=store_url, IDEMPOTENCY_GUARD="transaction")

    with pytest.raises(ConfigError, match=r"init_app\(app, db=db\)"):
        Idempotency(app, scope=scopes.everyone)


def test_a_view_that_wants_the_transaction_guard_without_a_db_is_refused(store_url, protect):
    make_table(store_url)
    app = Flask("refused")
    app.config.update(IDEMPOTENCY_STORE=store_url, IDEMPOTENCY_HOUSEKEEPING=False, TESTING=True)
    protect(app)
    runs = []
    app.add_url_rule("/", "view", idempotent(guard="transaction")(lambda: runs.append(1)), methods=["POST"])

    with pytest.raises(ConfigError, match=r"init_app\(app, db=db\)"):
        app.test_client().post("/", headers={"Idempotency-Key": "key"})

    assert runs == []
