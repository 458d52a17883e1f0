"""Of a large table the figures are read from its indexes and a sample: no statement reads the whole."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from flask_idempotency.core.figures import Figures
from flask_idempotency.stores import open_store, sql_figures
from flask_idempotency.stores.sql import SqlStore
from flask_idempotency.stores.sqlite import SqliteStore
from flask_idempotency.testing import LEASE, MOMENT, RETENTION, make_asked
from flask_idempotency.testing.given import CREATED
from tests.stores.worlds import MariaWorld, PartitionedWorld, SqlWorld, claimed

FINISHED, EXPIRED, SAMPLE = 60, 20, 30


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Iterator[SqlStore]:
    store = open_store(f"sqlite:///{tmp_path / 'records.db'}")
    assert isinstance(store, SqliteStore)
    store.create()
    yield store
    store.close()


WORLDS = {
    "sqlite": ("sqlite_store", SqlWorld),
    "postgres": ("postgres_store", SqlWorld),
    "partitioned": ("one_partitioned_store", lambda store: PartitionedWorld(store, keeps_days=True)),
    "mariadb": ("mariadb_store", MariaWorld),
}


@pytest.fixture(params=list(WORLDS))
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SqlWorld:
    fixture, make = WORLDS[request.param]
    world: SqlWorld = make(request.getfixturevalue(fixture))
    world.clear()
    monkeypatch.setattr(sql_figures, "SAMPLE", SAMPLE)
    return world


def fill(world: SqlWorld) -> None:
    """Finish many records, a few of which expire; leave three running and two quarantined."""
    for number in range(EXPIRED + FINISHED):
        if number == EXPIRED:
            world.let_pass(RETENTION + MOMENT)
        world.store.complete(claimed(world.store.claim(make_asked(f"done-{number}"), LEASE)), CREATED, RETENTION)
    for number in range(3):
        claimed(world.store.claim(make_asked(f"running-{number}"), LEASE))
        world.let_pass(MOMENT)
    for number in range(2):
        world.store.quarantine(claimed(world.store.claim(make_asked(f"doubt-{number}"), LEASE)), "in doubt")


def test_of_a_large_table_what_an_operator_acts_on_is_exact_and_the_rest_is_near(world: SqlWorld):
    fill(world)

    figures = world.store.figures()

    assert figures.is_estimate
    assert (figures.running, figures.quarantined) == (3, 2)
    assert FINISHED / 2 < figures.finished < FINISHED * 2
    assert figures.expired == EXPIRED or (isinstance(world, PartitionedWorld) and 5 < figures.expired < EXPIRED * 2)
    assert figures.oldest_running is not None
    assert MOMENT * 3 <= figures.oldest_running < MOMENT * 4
    assert figures.reap_lag is not None
    assert MOMENT * 4 <= figures.reap_lag < MOMENT * 6


def test_of_a_very_large_table_the_quarantined_are_counted_by_an_index_or_not_at_all(
    world: SqlWorld, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sql_figures, "SCANNED", 0)
    fill(world)
    before = world.store.figures()

    table = "idempotency_record_open" if isinstance(world, PartitionedWorld) else "idempotency_record"
    world._run(f"CREATE INDEX {sql_figures.QUARANTINED} ON {table} (created_at)")
    after = world.store.figures()
    world._run(f"DROP INDEX {sql_figures.QUARANTINED}" + (f" ON {table}" if isinstance(world, MariaWorld) else ""))

    assert before.is_estimate
    assert (before.quarantined, after.quarantined) == (None, 2)


def test_counting_ends_somewhere(world: SqlWorld, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sql_figures, "COUNTED", 2)
    fill(world)

    figures = world.store.figures()

    assert figures.is_estimate
    assert figures.running >= 2
    assert figures.expired >= 2


@pytest.mark.parametrize("fixture", ["postgres_store", "one_partitioned_store"])
def test_postgresql_reads_no_table_from_end_to_end(request: pytest.FixtureRequest, fixture: str):
    world = SqlWorld(request.getfixturevalue(fixture))
    world.clear()
    world._run(MANY.format(table="idempotency_record" if fixture == "postgres_store" else "idempotency_record_open"))
    world._run("ANALYZE idempotency_record")

    for verb in ("figures_sample", "figures_running", "figures_expired"):
        statement = world.store._statement(verb).replace(world.store.mark.replace("NAME", "limit"), "100")
        plan = "\n".join(line for (line,) in world._run(f"EXPLAIN {statement}"))

        assert "Index" in plan
        assert "Seq Scan on idempotency_record_open" not in plan
        assert "Seq Scan on idempotency_record " not in plan


MANY = """
INSERT INTO {table} (id, scope, method, path, fingerprint, state, attempt, status, headers, created_at, expires_at)
SELECT sha256(n::text::bytea), 'ada', 'POST', '/orders', substr(sha256(n::text::bytea), 1, 16), 'finished', 1, 201, '',
       now(), now() + interval '1 day'
  FROM generate_series(1, 20000) AS n
"""


def test_a_file_that_is_the_apps_own_says_nothing_of_our_size(tmp_path: Path):
    own = open_store(f"sqlite:///{tmp_path / 'app.db'}", is_apps_own=True)
    own.create()

    assert own.figures() == Figures(0, 0, 0, 0, bytes=None)
    own.close()
