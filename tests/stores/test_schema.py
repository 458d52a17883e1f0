"""Every version that the tables have had is upgraded in place, and becomes what a new database gets."""

from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from sqlalchemy import Column, Index, Integer, MetaData, Table, inspect

from flask_idempotency.core.record import Busy, Finished, Settled
from flask_idempotency.core.scope import RecordId
from flask_idempotency.core.snapshot import NotKept, Snapshot, pack
from flask_idempotency.errors import ConfigError
from flask_idempotency.stores import include_object, open_store
from flask_idempotency.stores.schema import HISTORY, VERSION, Structure
from flask_idempotency.testing import LEASE, RETENTION, make_asked
from tests.fixtures.processes import race
from tests.stores.worlds import SqlWorld, claimed

SCHEMAS = Path(__file__).parent / "schemas"
OLDER = sorted(HISTORY.keys() - {VERSION})
DONE = Snapshot(201, (("Location", "/orders/1"), ("X-Name", "Zoë")), b'{"id": 1}')
DECLINED = NotKept(402, "/orders/2")

# What versions 1 and 2 stored as the headers of both, by their own code.
FIRST_HEADERS = {
    "done": r"""j0ie+Loj/1BI34O/[["Location","/orders/1"],["X-Name","Zo\u00eb"]]""",
    "declined": """IW4at0IKzP/pXbgc[["Location","/orders/2"]]""",
}
# SQLAlchemy 2.0 cannot say it.
OPTIONS = {
    "sqlite": "SELECT wr FROM pragma_table_list WHERE name = :table",
    "postgres": "SELECT reloptions FROM pg_class WHERE oid = to_regclass(:table)",
}
REST_OF_A_LONG_FINGERPRINT = bytes(range(17))


def asked_for(key):
    """A request whose record's id will not change with the rules for making one."""
    return replace(make_asked(key), id=RecordId(sha256(key.encode()).digest()))


@pytest.fixture
def store(store_url):
    with closing(open_store(store_url, is_apps_own=True)) as store:
        yield store


def make_older(store, version):
    """Make the tables as that version made them."""
    statements = (SCHEMAS / f"{store.technology}-{version}.sql").read_text()
    lines = [line for line in statements.splitlines() if not line.startswith("--")]
    if store.technology == "sqlite":
        store._path.touch()
    store._with_connection(
        lambda connection: [store._say(connection, (each, {})) for each in "\n".join(lines).split(";") if each.strip()]
    )


def insert_older(store, version):
    """Have a finished record, one without a body, one that runs and one that is quarantined, as they were stored."""
    length = 33 if version < 3 else 16
    for key, state, answer in (
        ("done", "finished", DONE),
        ("declined", "finished", DECLINED),
        ("running", "running", None),
        ("quarantined", "quarantined", None),
    ):
        asked = asked_for(key)
        fingerprint = (bytes(asked.fingerprint) + REST_OF_A_LONG_FINGERPRINT)[:length]
        status = headers = body = None
        if answer is not None:
            status, headers, body = pack(asked.id, answer)
            if version < 3:
                headers = FIRST_HEADERS[key]
        cast = "::smallint" if store.technology == "postgres" else ""
        now = "clock_timestamp()" if store.technology == "postgres" else "(julianday('now') - 2440587.5) * 86400.0"
        until = f"{now} + :lease"
        SqlWorld(store)._run(
            "INSERT INTO idempotency_record (id, scope, method, path, fingerprint, state, token, attempt, created_at,"
            f" lease_until, expires_at, status, headers, body) SELECT :id, :scope, 'POST', '/orders', :fingerprint,"
            f" '{state}', :token, 2, {now}, {until if state == 'running' else 'NULL'},"
            f" {until if state == 'finished' else 'NULL'}, :status{cast}, :headers, :body",
            id=asked.id,
            scope=asked.scope,
            fingerprint=fingerprint,
            token=b"t" * 16,
            lease=store._from_duration(LEASE),
            status=status,
            headers=headers,
            body=body,
        )


def shape(store):
    """Say what the tables are like, in SQLAlchemy's words; columns in any order."""
    found = inspect(store._engine)
    return {
        table: {
            "columns": sorted((c["name"], str(c["type"]), c["nullable"]) for c in found.get_columns(table)),
            "key": found.get_pk_constraint(table)["constrained_columns"],
            "indexes": sorted(
                (i["name"], i["column_names"], bool(i["unique"]), where(i)) for i in found.get_indexes(table)
            ),
            "checks": sorted(rule(c["sqltext"]) for c in found.get_check_constraints(table)),
            "options": SqlWorld(store)._run(OPTIONS[store.technology], table=table),
        }
        for table in ("idempotency_record", "idempotency_checkpoint")
    }


def where(index):
    options = index.get("dialect_options", {})
    text = options.get("postgresql_where", options.get("sqlite_where"))
    return str(text).strip("()").replace("::text", "")


def rule(text):
    return text.lower().replace("octet_length", "length").replace("(", "").replace(")", "").replace("::text", "")


def test_the_store_makes_the_tables_of_this_version(store):
    store.create()

    store.check()
    assert store._structure().version == VERSION


@pytest.mark.parametrize("version", OLDER)
def test_an_older_version_is_told_in_one_sentence(store, version):
    make_older(store, version)

    with pytest.raises(ConfigError) as refusal:
        store.check()

    told = 2 if (store.technology, version) == ("sqlite", 1) else version  # there the two are the same
    assert str(refusal.value) == (
        f"The tables are of version {told}, and this release of Flask-Idempotency wants {VERSION}; upgrade them"
        f" with{' a migration, or with' if version == 4 else ''}: flask idempotency init"
    )


@pytest.mark.parametrize("version", OLDER)
def test_an_upgrade_makes_of_every_version_what_a_new_database_gets(store, store_url, version, tmp_path):
    make_older(store, version)
    store.create()
    upgraded = shape(store)
    store.check()

    SqlWorld(store)._run("DROP TABLE idempotency_record")
    SqlWorld(store)._run("DROP TABLE idempotency_checkpoint")
    store.create()

    assert upgraded == shape(store)


@pytest.mark.parametrize("version", OLDER)
def test_an_upgrade_loses_no_record(store, version, caplog):
    make_older(store, version)
    insert_older(store, version)

    store.create()

    found = {key: store.find(asked_for(key).id) for key in ("done", "declined", "running", "quarantined")}
    assert found["done"].condition.answer == DONE
    assert found["declined"].condition.answer == DECLINED
    assert isinstance(found["done"].condition, Finished)
    assert [found[key].asked for key in found] == [asked_for(key) for key in found]
    assert [found[key].attempt for key in found] == [2] * 4
    assert isinstance(store.claim(asked_for("done"), LEASE), Settled)
    assert isinstance(store.claim(asked_for("running"), LEASE), Busy)
    assert isinstance(store.claim(asked_for("quarantined"), LEASE), Settled)
    store.complete(claimed(store.claim(asked_for("new"), LEASE)), DONE, RETENTION)
    assert not caplog.records


def test_a_damaged_answer_of_the_first_version_stays_damaged(store, caplog):
    make_older(store, 1)
    insert_older(store, 1)
    SqlWorld(store)._run("UPDATE idempotency_record SET status = 500 WHERE status = 201")

    store.create()

    assert store.find(asked_for("done").id).condition.answer == NotKept(500)
    assert "snapshot_damaged" in caplog.text


def test_a_version_without_an_index_can_be_used_until_it_is_upgraded(store):
    make_older(store, 4)

    store.prepare()

    assert claimed(store.claim(asked_for("new"), LEASE)).attempt == 1


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_version_without_a_column_is_refused_before_the_first_claim(store, version):
    make_older(store, version)

    with pytest.raises(ConfigError, match=r"^The tables are of version \d, and this release"):
        store.prepare()


def test_a_newer_version_is_told_in_one_sentence_and_can_be_used(store):
    store.create()
    SqlWorld(store)._run("ALTER TABLE idempotency_record ADD COLUMN to_come text")

    with pytest.raises(ConfigError) as refusal:
        store.check()
    store.prepare()

    assert str(refusal.value) == (
        "The tables are of a newer version than this release of Flask-Idempotency knows; use the release that upgraded"
        " them."
    )


def test_an_upgrade_that_fails_leaves_everything_as_it_was(store, monkeypatch):
    make_older(store, 1)
    insert_older(store, 1)
    before = SqlWorld(store)._run("SELECT * FROM idempotency_record ORDER BY id")
    monkeypatch.setattr("flask_idempotency.stores.tables.reseal", lambda *_: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        store.create()

    assert SqlWorld(store)._run("SELECT * FROM idempotency_record ORDER BY id") == before
    monkeypatch.undo()
    store.create()
    store.check()


@pytest.mark.parametrize("version", [1, 4])
def test_of_many_who_upgrade_at_once_one_does_and_the_others_wait(store, store_url, version):
    make_older(store, version)
    insert_older(store, version)
    stores = [open_store(store_url, is_apps_own=True) for _ in range(4)]

    race(4, lambda n: stores[n].create())

    for each in stores:
        each.check()
        each.close()
    assert store.find(asked_for("done").id).condition.answer == DONE


def test_an_embedded_store_upgrades_itself_on_first_use(tmp_path):
    with closing(open_store(f"sqlite:///{tmp_path / 'records.db'}")) as store:
        make_older(store, 3)
        insert_older(store, 3)

        store.prepare()

        store.check()
        assert store.find(asked_for("done").id).condition.answer == DONE


def test_every_version_has_its_schema_here():
    assert {path.stem for path in SCHEMAS.glob("*.sql")} == {
        f"{technology}-{version}" for technology in ("postgres", "sqlite") for version in OLDER
    }
    assert [*HISTORY] == list(range(1, VERSION + 1))


def test_a_database_without_tables_has_no_version():
    assert Structure.from_rows([]).version is None


@pytest.mark.parametrize(("name", "expected"), [("idempotency_record", False), ("orders", True)])
def test_include_object_keeps_alembic_away_from_the_tables_and_what_is_on_them(name, expected):
    table = Table(name, MetaData(), Column("n", Integer))

    assert include_object(table, name, "table", True, None) is expected
    assert include_object(Index("i", table.c.n), "i", "index", True, None) is expected
    assert include_object(table.c.n, "n", "column", True, None) is expected
