"""The published contracts on partitioned tables: on every PostgreSQL, and behind a pooler."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from flask_idempotency.core.record import Busy
from flask_idempotency.stores.postgres import PostgresStore
from flask_idempotency.testing import LEASE, RETENTION, StoreContract, make_asked
from flask_idempotency.testing.given import CREATED
from flask_idempotency.testing.work import done, enter, work
from tests.fixtures.processes import needs
from tests.stores.conftest import make_partitioned
from tests.stores.test_contract_elsewhere import PGBOUNCER, odd_store, pooled_store
from tests.stores.test_state_machine import LossyPostgres, play
from tests.stores.test_transaction_contract import OnPostgres
from tests.stores.worlds import PartitionedWorld, claimed

__all__ = ["odd_store", "pooled_store"]


class OnPartitions:
    """What has expired is reaped row by row, as where a day has no partition."""

    @pytest.fixture
    def store(self, any_partitioned_store: PostgresStore) -> PostgresStore:
        PartitionedWorld(any_partitioned_store).clear()
        return any_partitioned_store

    @pytest.fixture
    def let_pass(self, store: PostgresStore) -> Callable[..., None]:
        return PartitionedWorld(store).let_pass


class TestRecords(OnPartitions, StoreContract):
    pass


class Transactions(OnPostgres):
    def test_a_record_that_appeared_meanwhile_undoes_the_work(self, store, connect) -> None:
        """No key spans the partitions, so the lock decides between the two guards too: nothing appears meanwhile."""
        connection = connect()
        claim = claimed(enter(store, connection))
        work(connection, "kept")

        found = store.claim(make_asked(), LEASE)

        assert found == Busy(make_asked().fingerprint, timedelta(0))
        store.finish(connection, claim, make_asked(), CREATED, RETENTION)
        assert done(connect()) == ["kept"]


class TestTransactions(OnPartitions, Transactions):
    pass


class OnDays(OnPartitions):
    """What has expired stays in the partition of its day, and nobody sees it."""

    @pytest.fixture
    def let_pass(self, store: PostgresStore) -> Callable[..., None]:
        return PartitionedWorld(store, keeps_days=True).let_pass


class RecordsInDays(StoreContract):
    # They are dropped with their day instead; see test_partitions.py.
    test_reaping_deletes_what_expired_longer_ago_than_the_grace = None
    test_reaping_takes_no_more_than_it_is_told_to = None
    test_reaping_takes_the_checkpoints_with_their_record = None
    test_what_was_resolved_is_forgotten_and_reaped_like_everything = None


class TestRecordsInDays(OnDays, RecordsInDays):
    pass


class TestTransactionsInDays(OnDays, Transactions):
    pass


@pytest.fixture(scope="module")
def odd_partitioned_store(odd_store: PostgresStore) -> PostgresStore:
    make_partitioned(odd_store)
    return odd_store


@pytest.fixture(scope="module")
def pooled_partitioned_store(pooled_store: PostgresStore) -> PostgresStore:
    make_partitioned(pooled_store)
    return pooled_store


class TestRecordsUnderARoleOfOddHabits(OnDays, RecordsInDays):
    @pytest.fixture
    def store(self, odd_partitioned_store: PostgresStore) -> PostgresStore:
        PartitionedWorld(odd_partitioned_store).clear()
        return odd_partitioned_store


class TestTransactionsUnderARoleOfOddHabits(OnDays, Transactions):
    prepare_threshold = None

    @pytest.fixture
    def store(self, odd_partitioned_store: PostgresStore) -> PostgresStore:
        PartitionedWorld(odd_partitioned_store).clear()
        return odd_partitioned_store


@needs(PGBOUNCER, "pgbouncer")
class TestRecordsBehindPgbouncer(OnDays, RecordsInDays):
    @pytest.fixture
    def store(self, pooled_partitioned_store: PostgresStore) -> PostgresStore:
        PartitionedWorld(pooled_partitioned_store).clear()
        return pooled_partitioned_store


@needs(PGBOUNCER, "pgbouncer")
class TestTransactionsBehindPgbouncer(OnDays, Transactions):
    prepare_threshold = None

    @pytest.fixture
    def store(self, pooled_partitioned_store: PostgresStore) -> PostgresStore:
        PartitionedWorld(pooled_partitioned_store).clear()
        return pooled_partitioned_store


def test_partitioned_tables_do_as_foretold_though_answers_are_lost(one_partitioned_store: PostgresStore):
    store = LossyPostgres(one_partitioned_store._engine)

    play(LossyPartitionedWorld(store), share=0.3)


class LossyPartitionedWorld(PartitionedWorld):
    store: LossyPostgres

    def lose_next_answer(self) -> None:
        self.store.loses_next = True
