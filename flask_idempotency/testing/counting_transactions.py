"""A scope that has used up its quota enters no transaction for a new record; whatever exists works as before."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from flask_idempotency.core.quota import Quota
from flask_idempotency.core.record import Busy, Claim, Quarantined, Settled
from flask_idempotency.core.snapshot import Snapshot
from flask_idempotency.errors import ClaimLost, QuotaExceeded
from flask_idempotency.stores import CountingStore, TransactionalStore
from flask_idempotency.testing.acting import claimed
from flask_idempotency.testing.counting import SetQuota
from flask_idempotency.testing.given import CREATED, LEASE, RETENTION, LetPass, make_asked
from flask_idempotency.testing.work import Connect, begun, done, work, work_and_finish

ONE = Quota(records=1)


class CountingAndTransactionalStore(CountingStore, TransactionalStore):
    """A store that is both."""


class CountingTransactionContract:
    """What every ``CountingStore`` promises that is also transactional. Subclass it as ``TransactionContract``."""

    @pytest.fixture
    def store(self) -> CountingAndTransactionalStore:
        """Give a store that is set up for a quota and holds no record."""
        raise NotImplementedError("Override the fixture `store`: an empty store, created with a quota.")

    @pytest.fixture
    def let_pass(self, store: CountingAndTransactionalStore) -> LetPass:
        """Give a function that makes *store* believe that a duration has passed, without waiting for it."""
        raise NotImplementedError("Override the fixture `let_pass`: move the store's clock, or the times it holds.")

    @pytest.fixture
    def connect(self, store: CountingAndTransactionalStore) -> Connect:
        """Give a function that opens another of the driver's connections to the database of *store*."""
        raise NotImplementedError("Override the fixture `connect`: connections to a database with a table `work`.")

    @pytest.fixture
    def set_quota(self, store: CountingAndTransactionalStore) -> Iterator[SetQuota]:
        """Give a function that sets the quota of each scope for the rest of a test."""

        def set_quota(quota: Quota) -> None:
            store.quota = quota

        yield set_quota
        store.quota = None

    def test_a_new_record_is_refused_at_the_entry(
        self, store: CountingAndTransactionalStore, connect: Connect, set_quota: SetQuota
    ) -> None:
        """The view does not run, and no transaction is left open."""
        set_quota(ONE)
        work_and_finish(store, connect())
        connection = connect()

        with pytest.raises(QuotaExceeded) as refused:
            enter(store, connection, "order-2")

        assert (refused.value.retry_after or 0) >= 1
        assert not store.has_begun(connection)
        assert store.find(make_asked("order-2").id) is None

    def test_what_was_done_before_stays_and_the_transaction_remains_open(
        self, store: CountingAndTransactionalStore, connect: Connect, set_quota: SetQuota
    ) -> None:
        """A refusal is not the app's failure."""
        set_quota(ONE)
        work_and_finish(store, connect())
        connection = connect()
        work(connection, "before")

        with pytest.raises(QuotaExceeded):
            enter(store, connection, "order-2")
        work(connection, "after")
        connection.commit()

        assert done(connect()) == ["after", "before", "finished"]

    def test_a_refused_request_holds_nothing(
        self, store: CountingAndTransactionalStore, connect: Connect, set_quota: SetQuota, let_pass: LetPass
    ) -> None:
        """As soon as there is room, it runs, on any connection."""
        set_quota(ONE)
        work_and_finish(store, connect())
        refused, later = connect(), connect()
        with pytest.raises(QuotaExceeded):
            enter(store, refused, "order-2")
        let_pass(RETENTION)

        claim = claimed(enter(store, later, "order-2"))
        store.finish(later, claim, make_asked("order-2"), CREATED, RETENTION)

        assert store.find(make_asked("order-2").id) is not None

    def test_an_existing_record_is_answered_as_ever(
        self, store: CountingAndTransactionalStore, connect: Connect, set_quota: SetQuota
    ) -> None:
        """Replays and duplicates of what is running need no room, even if there is more than the quota allows."""
        store.claim(make_asked("running"), LEASE)
        store.claim(make_asked("another"), LEASE)
        work_and_finish(store, connect())
        set_quota(ONE)

        running, finished = (enter(store, connect(), key) for key in ("running", "order-1"))

        assert isinstance(running, Busy)
        assert isinstance(finished, Settled)

    def test_a_record_that_was_left_by_a_lease_is_resumed(
        self, store: CountingAndTransactionalStore, connect: Connect, set_quota: SetQuota
    ) -> None:
        """It takes the place of a record that counts already."""
        store.claim(make_asked("another"), LEASE)
        store.release(claimed(store.claim(make_asked(), LEASE)))
        set_quota(ONE)

        work_and_finish(store, connect())

        with pytest.raises(QuotaExceeded):
            enter(store, connect(), "order-2")

    def test_an_expired_record_is_a_new_one(
        self, store: CountingAndTransactionalStore, connect: Connect, set_quota: SetQuota, let_pass: LetPass
    ) -> None:
        """Its key needs room like any other."""
        set_quota(ONE)
        work_and_finish(store, connect())
        let_pass(RETENTION)
        store.claim(make_asked("order-2"), LEASE)

        with pytest.raises(QuotaExceeded):
            enter(store, connect(), "order-1")

    def test_stored_bytes_count(
        self, store: CountingAndTransactionalStore, connect: Connect, set_quota: SetQuota
    ) -> None:
        """As they do under leases."""
        set_quota(Quota(bytes=10_000))
        work_and_finish(store, connect(), Snapshot(200, (), b"x" * 9_000))
        connection = connect()
        claim = claimed(enter(store, connection, "order-2"))
        store.finish(connection, claim, make_asked("order-2"), Snapshot(200, (), b"x" * 1_000), RETENTION)

        with pytest.raises(QuotaExceeded):
            enter(store, connect(), "order-3")

    def test_within_a_test_its_own_records_count(
        self, store: CountingAndTransactionalStore, connect: Connect, set_quota: SetQuota
    ) -> None:
        """Nobody else sees them, but the test expects what a client would see."""
        set_quota(ONE)
        connection = connect()
        claim = claimed(enter(store, connection, "order-1", within=True))
        store.finish(connection, claim, make_asked(), CREATED, RETENTION)

        with pytest.raises(QuotaExceeded):
            enter(store, connection, "order-2", within=True)
        replay = enter(store, connection, "order-1", within=True)

        assert isinstance(replay, Settled)

    def test_a_view_that_ends_the_transaction_by_itself_is_left_to_a_person_all_the_same(
        self, store: CountingAndTransactionalStore, connect: Connect, set_quota: SetQuota
    ) -> None:
        """No quota lets a request run twice."""
        connection = connect()
        claim = claimed(enter(store, connection, "order-1"))
        work(connection, "before")
        connection.commit()
        store.claim(make_asked("order-2"), LEASE)
        set_quota(ONE)

        with pytest.raises(ClaimLost):
            store.finish(connection, claim, make_asked(), CREATED, RETENTION)
        connection.rollback()
        found = enter(store, connect(), "order-1")

        assert isinstance(found, Settled)
        assert isinstance(found.record.condition, Quarantined)


def enter(
    store: CountingAndTransactionalStore, connection: Any, key: str, *, within: bool = False
) -> Claim | Busy | Settled:
    """Enter a transaction under this key, and begin it if that is still to be done."""
    found = store.enter(connection, make_asked(key), patience=timedelta(0), idle=LEASE, within=within)
    return begun(store, connection, found)
