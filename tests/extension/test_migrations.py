"""The tables belong to the app's metadata: create_all makes them, and Alembic creates and keeps them."""

import os
import re
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import MetaData
from sqlalchemy.orm import scoped_session, sessionmaker

from flask_idempotency import Idempotency, scopes
from flask_idempotency.stores import TABLES, open_store
from tests.fixtures.processes import ROOT
from tests.stores.test_schema import make_older

CONVENTION = {
    "ix": "ix_%(column_0_label)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
APP = """
import os
from flask import Flask
from flask_migrate import Migrate
from flask_sqlalchemy import SQLAlchemy
from flask_idempotency import Idempotency, scopes
from sqlalchemy import MetaData

db = SQLAlchemy(metadata=MetaData(naming_convention={convention}))
idempotency = Idempotency(scope=scopes.everyone)

def create_app():
    app = Flask(__name__)
    app.config["SQLALCHEMY_DATABASE_URI"] = os.environ["DATABASE"]
    db.init_app(app)
    Migrate(app, db)
    {early}
    define_models()
    {late}
    return app

def define_models():
    class Order(db.Model):
        id = db.Column(db.Integer, primary_key=True)
        note = db.Column(db.String(50), index=True)

if __name__ == "__main__":
    import logging, sys
    runner = create_app().test_cli_runner()
    for command in sys.argv[1:]:
        print("-- next --")
        logging.getLogger("alembic").handlers = [logging.StreamHandler(sys.stdout)]
        done = runner.invoke(args=command.split())
        print(done.output)
        if done.exit_code:
            sys.exit(done.output)
"""
PROTECT = "idempotency.init_app(app, db=db)"
ORDERS = {
    "before the models": {"early": PROTECT, "late": "", "convention": None},
    "after the models": {"early": "", "late": PROTECT, "convention": CONVENTION},
}


@pytest.fixture
def store(store_url):
    with closing(open_store(store_url, is_apps_own=True)) as store:
        yield store


@pytest.fixture
def flask(store_url, tmp_path):
    """`flask("db init", "db migrate")`: run commands of an app with Flask-Migrate; gives what the last one says."""

    def run(*commands):
        command = [sys.executable, "wsgi.py", *commands]
        environment = {"DATABASE": store_url, "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout.split("-- next --")[-1]

    return run


@pytest.fixture(params=ORDERS)
def app_file(request, tmp_path) -> Path:
    path = tmp_path / "wsgi.py"
    path.write_text(textwrap.dedent(APP).format(**ORDERS[request.param]))
    return path


def migrations(folder: Path) -> list[str]:
    return [path.read_text() for path in sorted((folder / "migrations/versions").glob("*.py"))]


def test_the_first_migration_makes_the_tables_and_the_second_proposes_nothing(flask, app_file, store):
    again = flask("db init", "db migrate", "db upgrade", "db migrate")

    (made,) = migrations(app_file.parent)
    assert re.findall(r"op\.create_table\('(\w+)'", made) == [*sorted(TABLES), "order"]
    assert "No changes in schema detected" in again
    store.check()


@pytest.mark.parametrize("app_file", ["before the models"], indirect=True)
def test_tables_that_init_has_made_are_neither_dropped_nor_changed(flask, app_file, store):
    flask("idempotency init", "db init", "db migrate")

    (made,) = migrations(app_file.parent)
    assert "idempotency" not in made
    assert "create_table('order'" in made


@pytest.mark.parametrize("app_file", ["before the models"], indirect=True)
def test_a_migration_upgrades_tables_that_lack_an_index(flask, app_file, store):
    make_older(store, 4)
    again = flask("db init", "db migrate", "db upgrade", "db migrate")

    store.check()
    assert "No changes in schema detected" in again


@pytest.mark.parametrize("app_file", ["before the models"], indirect=True)
def test_a_running_app_makes_no_tables_in_the_app_s_own_database(app_file, store_url, flask, store):
    app, db = make_app(store_url)
    app.post("/")(lambda: ("", 201))

    answer = app.test_client().post("/", headers={"Idempotency-Key": "k"})

    close(app, db)
    assert answer.status_code == 503
    flask("db init", "db migrate")
    assert "create_table('idempotency_record'" in migrations(app_file.parent)[0]


# -- create_all --------------------------------------------------------------------------------------------------------


def make_app(url, db=None, **metadata):
    app = Flask("shop")
    app.config.update(SQLALCHEMY_DATABASE_URI=url, IDEMPOTENCY_HOUSEKEEPING=False)
    db = db or SQLAlchemy(metadata=MetaData(**metadata))
    db.init_app(app)
    Idempotency(app, db=db, scope=scopes.everyone)
    return app, db


def close(app, db):
    app.extensions["idempotency"].store.close()
    with app.app_context():
        db.engine.dispose()


@pytest.mark.parametrize(
    "metadata", [{}, {"naming_convention": CONVENTION}, {"schema": "shop"}], ids=["plain", "names", "schema"]
)
def test_create_all_makes_what_init_makes_whatever_the_app_s_metadata_is_like(store_url, store, metadata):
    app, db = make_app(store_url, **metadata)

    with app.app_context():
        db.create_all()

    close(app, db)
    store.check()


def test_two_apps_may_share_one_db_object(store_url, tmp_path):
    app, db = make_app(store_url)
    other, _ = make_app(f"sqlite:///{tmp_path / 'other.db'}", db)

    for each in (app, other):
        with each.app_context():
            db.create_all()
        each.post("/")(lambda: ("", 201))

    answers = [each.test_client().post("/", headers={"Idempotency-Key": "k"}) for each in (app, other)]
    assert [(answer.status_code, "Idempotent-Replayed" in answer.headers) for answer in answers] == [(201, False)] * 2
    for each in (app, other):
        close(each, db)


def test_an_object_like_flask_sqlalchemy_s_may_have_metadata_or_none(store_url):
    engine = sqlalchemy.create_engine(store_url)
    metadata = MetaData()

    class Database:
        def __init__(self, **more):
            self.engine, self.session = engine, scoped_session(sessionmaker(engine))
            vars(self).update(more)

    for db in (Database(), Database(metadata=metadata)):
        app = Flask("shop")
        Idempotency(app, db=db, scope=scopes.everyone)
        app.extensions["idempotency"].store.close()

    assert set(metadata.tables) == set(TABLES)
    engine.dispose()


def test_a_store_of_its_own_leaves_the_app_s_metadata_alone(tmp_path):
    db = SQLAlchemy()
    app = Flask("shop")
    app.config.update(SQLALCHEMY_DATABASE_URI="sqlite://", IDEMPOTENCY_STORE=f"sqlite:///{tmp_path / 'records.db'}")
    db.init_app(app)

    Idempotency(app, scope=scopes.everyone)

    assert set(db.metadata.tables) == set()
