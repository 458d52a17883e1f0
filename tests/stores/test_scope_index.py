"""The index by which a quota counts: made where there is a quota, on every table of records, and nowhere else."""

from datetime import timedelta

import pytest

from flask_idempotency.core.quota import Quota
from flask_idempotency.errors import ConfigError
from flask_idempotency.stores import open_store
from flask_idempotency.stores.postgres import PostgresStore
from flask_idempotency.testing import RETENTION
from tests.stores.conftest import make_partitioned
from tests.stores.worlds import SqlWorld

INDEXED = """
SELECT table_of.relname::text
  FROM pg_index
  JOIN pg_class AS table_of ON table_of.oid = indrelid
  JOIN pg_class AS index_of ON index_of.oid = indexrelid
 WHERE indisvalid AND table_of.relname LIKE 'idempotency_record%' AND index_of.relname LIKE '%_scope'
 ORDER BY 1
"""
INTERRUPTED = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'idempotency_record_scope'::regclass"
WITH_RECORDS = "SELECT relname::text FROM pg_class WHERE relkind = 'r' AND relname ~ '^idempotency_record' ORDER BY 1"


@pytest.fixture
def store(postgres_url):
    store = open_store(postgres_url)
    yield store
    store.close()


def indexed(store: PostgresStore) -> list[str]:
    return [name for (name,) in SqlWorld(store)._run(INDEXED)]


def with_records(store: PostgresStore) -> list[str]:
    return [name for (name,) in SqlWorld(store)._run(WITH_RECORDS)]


def test_without_a_quota_nobody_has_it(store):
    store.create()
    make_partitioned(store)

    assert indexed(store) == []


def test_tables_that_are_in_use_get_it_when_a_quota_is_set(store):
    store.create()
    store.quota = Quota(records=1)
    with pytest.raises(ConfigError, match="IDEMPOTENCY_QUOTA counts"):
        store.check()

    store.create()

    store.check()
    assert indexed(store) == ["idempotency_record"]


@pytest.mark.parametrize("quota_first", [True, False], ids=["quota first", "partitions first"])
def test_every_partition_has_it(store, quota_first):
    store.quota = Quota(records=1) if quota_first else None
    store.create()
    make_partitioned(store)
    store.quota = Quota(records=1)
    store.partition(RETENTION)

    store.upkeep(timedelta(days=5), None)  # which makes more days

    store.check()
    assert indexed(store) == with_records(store)
    assert len(indexed(store)) > 6


def test_one_that_was_left_unfinished_is_made_again(store):
    store.quota = Quota(records=1)
    store.create()
    SqlWorld(store)._run(INTERRUPTED)
    with pytest.raises(ConfigError):
        store.check()

    store.create()

    store.check()
    assert indexed(store) == ["idempotency_record"]


def test_making_it_again_changes_nothing(store):
    store.quota = Quota(records=1)
    store.create()

    assert store._run("index_scopes") == []
