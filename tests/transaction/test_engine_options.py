"""An engine with execution options of its own, such as a schema for each tenant, is the app's database all the same."""

from contextlib import closing
from types import SimpleNamespace

import pytest
from flask import Flask, g
from flask_sqlalchemy.session import Session as FlaskSession
from sqlalchemy import create_engine, text
from sqlalchemy.orm import scoped_session, sessionmaker

from flask_idempotency import Idempotency, idempotent, phase, scopes
from flask_idempotency.errors import ConfigError
from flask_idempotency.stores import open_store
from tests.transaction.conftest import make_database


class Crash(Exception):
    """What a view raises after its commit."""


class OfTenant(FlaskSession):
    """A session that finds its tables in the tenant's schema."""

    def get_bind(self, *args, **options):
        engine = super().get_bind(*args, **options)
        tenant = g.get("tenant")
        return engine.execution_options(schema_translate_map={None: tenant}) if tenant else engine


@pytest.fixture
def tenants(make_postgres_shop):
    """A shop whose orders go to the schema of a tenant."""
    shop = make_postgres_shop(db=make_database(class_=OfTenant))

    @shop.app.before_request
    def know_the_tenant():
        g.tenant = "one"

    shop.begin()
    for tenant in ("one", "two"):
        shop.sql(f"CREATE SCHEMA {tenant}")
        shop.sql(f"CREATE TABLE {tenant}.orders (LIKE public.orders INCLUDING ALL)")
    return shop


def notes_of(shop, schema):
    """The orders of a schema."""
    return [note for (note,) in shop.sql(f"SELECT note FROM {schema}.orders ORDER BY id")]


def add(shop, note="one"):
    shop.db.session.add(shop.db.Order(note=note))


@pytest.mark.parametrize("has_read", [False, True], ids=["has read nothing", "has read before"])
def test_a_session_of_a_tenant_takes_part_in_the_request_s_transaction(tenants, has_read):
    crashes = [Crash]

    @tenants.app.before_request
    def look():
        if has_read:
            tenants.db.session.query(tenants.db.Order).count()

    @idempotent
    def view():
        add(tenants)
        tenants.db.session.commit()
        if crashes:
            raise crashes.pop()
        return "made", 201

    tenants.serve(view)

    first = tenants.send()
    left = notes_of(tenants, "one")
    others = [tenants.send() for _ in range(2)]

    assert (first.status_code, left) == (500, [])
    assert [answer.status_code for answer in others] == [201, 201]
    assert [notes_of(tenants, schema) for schema in ("one", "two", "public")] == [["one"], [], []]


def test_a_step_of_a_tenant_is_undone_if_it_fails_and_done_once(tenants):
    crashes = [Crash]

    def step():
        add(tenants)
        tenants.db.session.commit()
        if crashes:
            raise crashes.pop()

    tenants.serve(idempotent(guard="lease")(lambda: (phase("work", step), ("made", 201))[1]))

    first = tenants.send()
    left = notes_of(tenants, "one")
    second = tenants.send()

    assert (first.status_code, left) == (500, [])
    assert (second.status_code, notes_of(tenants, "one")) == (201, ["one"])


def test_two_tenants_in_one_request_are_refused_and_nothing_goes_to_the_wrong_one(tenants, caplog):
    @idempotent
    def view():
        add(tenants)
        tenants.db.session.commit()
        g.tenant = "two"
        add(tenants)
        tenants.db.session.commit()
        return "made", 201

    tenants.serve(view)

    answer = tenants.send()

    assert answer.status_code == 500
    assert "keep to one set of options in a protected view" in caplog.text
    assert [notes_of(tenants, schema) for schema in ("one", "two", "public")] == [[], [], []]


def test_options_that_change_nothing_about_a_transaction_are_no_reason_to_refuse_a_second_session(make_postgres_shop):
    shop = make_postgres_shop(engine={"execution_options": {"logging_token": "shop"}})
    shop.begin()

    @idempotent
    def view():
        add(shop)
        with shop.db.session.session_factory() as other:
            count = other.query(shop.db.Order).count()
        shop.db.session.commit()
        return {"seen": count}, 201

    shop.serve(view)

    assert shop.send().status_code == 201
    assert shop.notes == ["one"]


# -- a level of isolation ----------------------------------------------------------------------------------------------


@pytest.fixture
def serve_plainly(postgres_url):
    """`serve_plainly(is_given)`: a view that commits, on sessions of an engine with a level of isolation of its own."""
    with closing(open_store(postgres_url)) as store:
        store.create()
    engine = create_engine(postgres_url)
    of_sessions = engine.execution_options(isolation_level="REPEATABLE READ")
    session, apps = scoped_session(sessionmaker(of_sessions)), []
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE orders (level text)"))

    def serve(is_given):
        app = Flask("plain")
        app.config["IDEMPOTENCY_HOUSEKEEPING"] = False
        database = SimpleNamespace(engine=of_sessions if is_given else engine, session=session)
        Idempotency(app, db=database, scope=scopes.everyone)
        apps.append(app)

        @app.post("/")
        @idempotent
        def view():
            session.execute(text("INSERT INTO orders SELECT current_setting('transaction_isolation')"))
            session.commit()
            return "made", 201

        app.teardown_appcontext(lambda _: session.remove())
        return app.test_client()

    def orders():
        with engine.connect() as connection:
            return connection.execute(text("SELECT level FROM orders")).scalars().all()

    yield serve, orders
    for app in apps:
        app.extensions["idempotency"].store.close()
    engine.dispose()


def test_a_level_of_isolation_that_only_the_sessions_have_is_refused_in_one_sentence(serve_plainly, caplog):
    serve, orders = serve_plainly

    answer = serve(is_given=False).post("/", headers={"Idempotency-Key": "abc"})

    assert answer.status_code == 500
    assert "give those options to create_engine, or the engine that has them to init_app" in caplog.text
    assert orders() == []


def test_an_engine_with_a_level_of_isolation_can_be_given_as_the_app_s_own(serve_plainly):
    serve, orders = serve_plainly
    client = serve(is_given=True)

    answers = [client.post("/", headers={"Idempotency-Key": "abc"}) for _ in range(2)]

    assert [answer.status_code for answer in answers] == [201, 201]
    assert orders() == ["repeatable read"]


def test_sessions_that_commit_in_two_phases_are_refused_at_start(make_postgres_shop):
    shop = make_postgres_shop(db=make_database(twophase=True))

    with pytest.raises(ConfigError, match=r"^Sessions with twophase=True cannot share"):
        shop.begin()
