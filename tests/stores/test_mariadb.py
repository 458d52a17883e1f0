"""MariaDB as a store: what it is set up like, whom it refuses, and who waits for whose rows."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pymysql
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import MetaData, create_engine, inspect
from sqlalchemy.engine import make_url

from flask_idempotency.core.record import Busy, Claim, Settled
from flask_idempotency.errors import ClaimLost, ConfigError, StoreUnavailable
from flask_idempotency.stores import open_store
from flask_idempotency.stores.mariadb import MariaStore
from flask_idempotency.stores.mariadb_connection import render
from flask_idempotency.stores.mariadb_server import why_unfit
from flask_idempotency.testing import LEASE, RETENTION, make_asked
from flask_idempotency.testing.given import CREATED
from tests.fixtures.mariadb import MariaDBServer
from tests.fixtures.processes import eventually, free_port, race
from tests.stores.others import Child
from tests.stores.worlds import MariaWorld, claimed

Connect = Callable[[], Any]


@pytest.fixture
def opened() -> Iterator[Callable[[str], MariaStore]]:
    """`opened(url)`: a store that is closed after the test."""
    stores: list[MariaStore] = []

    def open_(url: str) -> MariaStore:
        store = open_store(url)
        assert isinstance(store, MariaStore)
        stores.append(store)
        return store

    yield open_
    for store in stores:
        store.close()


@pytest.fixture
def store(mariadb_store: MariaStore) -> MariaStore:
    return mariadb_store


@pytest.fixture
def connect(store: MariaStore) -> Iterator[Connect]:
    """Somebody else's connections to the database."""
    url, connections = store._engine.url, []

    def open_() -> Any:
        connections.append(pymysql.connect(host=url.host, port=url.port or 0, user=url.username, database=url.database))
        return connections[-1]

    yield open_
    for connection in connections:
        connection.close()


# -- tables ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("driver", ["mariadb+pymysql", "mysql+pymysql"])
def test_tables_of_a_metadata_are_those_of_init_and_alembic_proposes_nothing(
    mariadb: MariaDBServer, mariadb_url: str, opened: Callable[[str], MariaStore], driver: str
):
    store, metadata = opened(mariadb_url), MetaData()
    store.add_tables(metadata)
    engine = create_engine(make_url(mariadb_url).set(drivername=driver))
    shapes = []
    for make in (store.create, partial(metadata.create_all, engine)):
        make()
        with engine.connect() as connection:
            context = MigrationContext.configure(
                connection, opts={"compare_type": True, "compare_server_default": True}
            )
            proposed = compare_metadata(context, metadata)
            found = inspect(connection)
            shapes.append([str(found.get_columns(table)) + str(found.get_indexes(table)) for table in metadata.tables])
        store.check()
        metadata.drop_all(engine)
        assert proposed == []
    engine.dispose()

    assert shapes[0] == shapes[1]


def test_the_tables_do_not_depend_on_the_server_s_defaults(store: MariaStore):
    rows = MariaWorld(store)._run(
        "SELECT DISTINCT engine, table_collation FROM information_schema.tables"
        " WHERE table_schema = DATABASE() AND table_name LIKE 'idempotency%%'"
    )

    assert rows == [("InnoDB", "utf8mb4_nopad_bin")]


def test_many_may_create_the_tables_at_once(mariadb_url: str, opened: Callable[[str], MariaStore]):
    stores = [opened(mariadb_url) for _ in range(6)]

    race(6, lambda n: stores[n].create())

    for each in stores:
        each.check()


def test_missing_tables_are_one_sentence(mariadb_url: str, opened: Callable[[str], MariaStore]):
    with pytest.raises(ConfigError) as refusal:
        opened(mariadb_url).check()

    assert str(refusal.value) == ("The table idempotency_record does not exist; make it with: flask idempotency init")


def test_an_index_that_is_missing_is_made_by_an_upgrade(mariadb_url: str, opened: Callable[[str], MariaStore]):
    store = opened(mariadb_url)
    store.create()
    MariaWorld(store)._run("DROP INDEX idempotency_record_running ON idempotency_record")

    with pytest.raises(ConfigError, match="of version 4"):
        store.check()
    store.prepare()
    store.create()

    store.check()


# -- servers and accounts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("10.5.21-MariaDB-log", "MariaDB 10.5 is too old; use 10.6 or newer."),
        ("8.0.36", "The server is not MariaDB, but says that it is version 8.0.36; MySQL is not supported"),
        ("8.4.0-commercial", "The server is not MariaDB"),
        ("10.6.0-MariaDB", None),
        ("5.5.5-10.11.6-MariaDB-1:10.11.6+maria~deb12", None),
        ("11.4.2-MariaDB-ubu2404", None),
    ],
)
def test_a_server_is_judged_by_its_version(version: str, words: str | None):
    found = why_unfit(version)

    assert found is None if words is None else str(found).startswith(words)


def test_an_unfit_server_is_one_sentence_and_nothing_is_run(
    mariadb_url: str, opened: Callable[[str], MariaStore], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("flask_idempotency.stores.mariadb_server.why_unfit", lambda version: "Too old.")
    store = opened(mariadb_url)

    for use in (store.check, store.prepare, store.create):
        with pytest.raises(ConfigError, match=r"^Too old\.$"):
            use()
    with pytest.raises(StoreUnavailable):
        store.claim(make_asked(), LEASE)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"username": "stranger", "password": "s3cret"}, "check the user and the password"),
        ({"database": "nowhere"}, "create the database"),
        ({"port": None}, "check the host and the port"),
    ],
    ids=["wrong password", "no database", "unreachable"],
)
def test_a_server_that_does_not_let_us_in_is_a_503_with_advice_in_the_log(
    mariadb_url: str,
    opened: Callable[[str], MariaStore],
    caplog: pytest.LogCaptureFixture,
    change: dict[str, Any],
    words: str,
):
    if change.get("port", 0) is None:
        change = {"port": free_port()}
    url = make_url(mariadb_url).set(**change)

    store = opened(url.render_as_string(hide_password=False))

    with pytest.raises(StoreUnavailable):
        store.check()
    with pytest.raises(StoreUnavailable):
        store.claim(make_asked(), LEASE)

    assert words in caplog.text
    assert "s3cret" not in caplog.text


@pytest.fixture
def account(mariadb: MariaDBServer, mariadb_url: str) -> Iterator[Callable[[str], str]]:
    """`account(rights)`: the URL of an account that has these rights in the database."""
    database = make_url(mariadb_url).database

    def make(rights: str) -> str:
        mariadb.run("CREATE USER visitor@'127.0.0.1' IDENTIFIED BY 's3cret'")
        for table in ("idempotency_record", "idempotency_checkpoint"):
            mariadb.run(f"GRANT {rights} ON `{database}`.{table} TO visitor@'127.0.0.1'")
        return make_url(mariadb_url).set(username="visitor", password="s3cret").render_as_string(hide_password=False)

    yield make
    mariadb.run("DROP USER IF EXISTS visitor@'127.0.0.1'")


def test_an_account_that_may_only_touch_rows_can_do_everything(
    mariadb_url: str, opened: Callable[[str], MariaStore], account: Callable[[str], str]
):
    opened(mariadb_url).create()
    store = opened(account("SELECT, INSERT, UPDATE, DELETE"))

    store.check()
    store.complete(claimed(store.claim(make_asked(), LEASE)), CREATED, RETENTION)
    MariaWorld(store).let_pass(2 * RETENTION)
    store.claim(make_asked("abandoned"), LEASE)
    MariaWorld(store).let_pass(2 * RETENTION)

    assert store.reap(RETENTION / 2) == 1
    assert store.reap_abandoned(RETENTION) == (1, [])


def test_an_account_that_may_only_read_is_a_503_with_advice_in_the_log(
    mariadb_url: str, opened: Callable[[str], MariaStore], account: Callable[[str], str], caplog: Any
):
    opened(mariadb_url).create()
    store = opened(account("SELECT"))

    store.check()
    with pytest.raises(StoreUnavailable):
        store.claim(make_asked(), LEASE)

    assert "grant the account SELECT, INSERT, UPDATE and DELETE" in caplog.text


# -- rows that somebody holds ------------------------------------------------------------------------------------------


def test_a_claim_does_not_wait_for_a_row_that_is_not_committed(store: MariaStore, connect: Connect):
    connection = connect()
    store.enter(connection, make_asked(), patience=LEASE * 0, idle=LEASE)

    found = store.claim(make_asked(), LEASE)
    other = store.claim(make_asked(body="two books"), LEASE)

    assert found == Busy(make_asked().fingerprint, LEASE * 0)
    assert other == Busy(None, LEASE * 0)


def test_the_reaper_passes_over_a_row_that_somebody_holds_and_blocks_no_claim(store: MariaStore, connect: Connect):
    for key in ("held", "free"):
        store.complete(claimed(store.claim(make_asked(key), LEASE)), CREATED, RETENTION)
    MariaWorld(store).let_pass(3 * RETENTION)
    cursor = connect().cursor()
    cursor.execute(
        render("SELECT id FROM idempotency_record WHERE id = %(id)s FOR UPDATE", {"id": make_asked("held").id})
    )

    reaped = store.reap(RETENTION)

    assert reaped == 1


def test_a_reaper_in_the_middle_of_its_batch_blocks_no_claim_of_other_keys(store: MariaStore, connect: Connect):
    for number in range(20):
        store.complete(claimed(store.claim(make_asked(f"old-{number}"), LEASE)), CREATED, RETENTION)
    MariaWorld(store).let_pass(3 * RETENTION)
    connection = connect()
    cursor = connection.cursor()
    cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
    cursor.execute(render(store._statement("expired_ids"), {"grace": 0, "limit": 10}))
    ids = [id_ for (id_,) in cursor.fetchall()]
    cursor.execute(render(store._statement("reap"), {"ids": ids}))

    found = [store.claim(make_asked(f"new-{number}"), LEASE) for number in range(20)]
    connection.rollback()

    assert len(ids) == 10
    assert all(isinstance(each, Claim) for each in found)


def test_a_replay_does_not_wait_for_a_row_that_somebody_holds(store: MariaStore, connect: Connect):
    store.complete(claimed(store.claim(make_asked(), LEASE)), CREATED, RETENTION)
    cursor = connect().cursor()
    cursor.execute(render("SELECT id FROM idempotency_record WHERE id = %(id)s FOR UPDATE", {"id": make_asked().id}))

    assert isinstance(store.claim(make_asked(), LEASE), Settled)
    assert isinstance(store.enter(connect(), make_asked(), patience=LEASE * 0, idle=LEASE), Settled)


def test_who_releases_a_claim_that_was_taken_over_is_told_so(store: MariaStore):
    late = claimed(store.claim(make_asked(), LEASE))
    MariaWorld(store).let_pass(2 * LEASE)
    store.claim(make_asked(), LEASE)

    with pytest.raises(ClaimLost):
        store.release(late)


# -- texts and bytes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", [("abc", "ABC"), ("abc", "àbc"), ("abc", "abc "), ("ß", "ss")])
def test_names_that_mariadb_usually_takes_for_the_same_are_not(store: MariaStore, pair: tuple[str, str]):
    rows = MariaWorld(store)._run(
        "SELECT count(*) FROM (SELECT point FROM idempotency_record WHERE false UNION SELECT :one UNION SELECT :two)"
        " AS names",
        one=pair[0],
        two=pair[1],
    )
    (collation,) = MariaWorld(store)._run(
        "SELECT DISTINCT collation_name FROM information_schema.columns WHERE table_schema = DATABASE()"
        " AND table_name LIKE 'idempotency%%' AND collation_name IS NOT NULL"
    )

    assert rows == [(2,)]
    assert collation == ("utf8mb4_nopad_bin",)


def test_values_in_statements_need_no_escaping():
    values = {"text": "'; DROP TABLE x; -- \\ ☃", "bytes": b"'\\\x00", "none": None, "number": 7, "ids": [b"a", b"b"]}

    found = render("%(text)s %(bytes)s %(none)s %(number)s %(ids)s", values)

    assert found == "_utf8mb4 x'273b2044524f50205441424c4520783b202d2d205c20e29883' x'275c00' NULL 7 (x'61', x'62')"


def test_a_value_of_another_type_is_a_mistake():
    with pytest.raises(TypeError, match="no statement takes a object"):
        render("%(value)s", {"value": object()})


# -- processes ---------------------------------------------------------------------------------------------------------


def claim_one(store: MariaStore) -> str:
    return type(store.claim(make_asked("race"), LEASE)).__name__


def test_of_many_processes_that_claim_at_once_one_gets_it(store: MariaStore):
    url = store._engine.url.render_as_string(hide_password=False)

    found = Counter(race(12, claim_one, ready=partial(_open, url), processes=3))

    assert found == {"Claim": 1, "Busy": 11}


def _open(url: str, _: int) -> Any:
    return open_store(url)


def test_a_forked_worker_leaves_its_parent_s_connections_alone(store: MariaStore):
    store.find(make_asked().id)
    ours = MariaWorld(store)._run("SELECT CONNECTION_ID()")

    with Child(
        lambda: MariaWorld(store)._run("SELECT CONNECTION_ID()")[0][0], lambda: os.getpid() and store.close()
    ) as child:
        theirs = int(child.step())
        child.step()
        again = MariaWorld(store)._run("SELECT CONNECTION_ID()")

    assert again == ours
    assert theirs != ours[0][0]


def test_closing_leaves_no_connection_behind(mariadb: MariaDBServer, mariadb_url: str):
    database = str(make_url(mariadb_url).database)
    with closing(open_store(mariadb_url)) as store:
        store.create()
        store.check()
        opened = len(mariadb.backends(database))

    assert opened == 1
    eventually(lambda: not mariadb.backends(database))
