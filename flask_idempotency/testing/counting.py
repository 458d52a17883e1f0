"""A scope that has used up its quota gets no new record; whatever exists works as before."""

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from flask_idempotency.core.checkpoint import REQUEST, Checkpoint, Kind
from flask_idempotency.core.quota import Quota
from flask_idempotency.core.record import Asked, Busy, Claim, Settled
from flask_idempotency.core.snapshot import NotKept, Snapshot
from flask_idempotency.errors import QuotaExceeded
from flask_idempotency.stores import CountingStore
from flask_idempotency.testing.acting import claimed, race
from flask_idempotency.testing.given import CREATED, LEASE, MOMENT, RETENTION, LetPass, make_asked

TWO = Quota(records=2)
LARGE = Quota(bytes=10_000)
SetQuota = Callable[[Quota], None]
STORED_REQUEST = Checkpoint(REQUEST, Kind.REQUEST, position=0, result='"' + "x" * 10_000 + '"')


class CountingContract:
    """What every ``CountingStore`` promises, with claims that are held by leases. Subclass it as ``StoreContract``."""

    @pytest.fixture
    def store(self) -> CountingStore:
        """Give a store that is set up for a quota and holds no record."""
        raise NotImplementedError("Override the fixture `store`: an empty store, created with a quota.")

    @pytest.fixture
    def let_pass(self, store: CountingStore) -> LetPass:
        """Give a function that makes *store* believe that a duration has passed, without waiting for it."""
        raise NotImplementedError("Override the fixture `let_pass`: move the store's clock, or the times it holds.")

    @pytest.fixture
    def set_quota(self, store: CountingStore) -> Iterator[SetQuota]:
        """Give a function that sets the quota of each scope for the rest of a test."""

        def set_quota(quota: Quota) -> None:
            store.quota = quota

        yield set_quota
        store.quota = None

    def test_a_scope_may_have_as_many_live_records_as_its_quota_says(
        self, store: CountingStore, set_quota: SetQuota
    ) -> None:
        """Running or finished, each counts as one; the one too many is refused, and leaves nothing."""
        set_quota(TWO)
        claim(store, "running")
        finish(store, "finished")

        refuse(store, "third")

        assert store.find(make_asked("third").id) is None

    def test_without_a_quota_nothing_is_counted(self, store: CountingStore) -> None:
        """Each claim is given."""
        for number in range(5):
            claim(store, f"order-{number}")

    def test_another_scope_has_a_quota_of_its_own(self, store: CountingStore, set_quota: SetQuota) -> None:
        """A caller who floods the store harms nobody else, not even one whose name is almost the same."""
        set_quota(TWO)
        claim(store, "order-1")
        claim(store, "order-2")

        others = [store.claim(make_asked("order-3", scope=scope), LEASE) for scope in ("bob", "Ada", "ada ", "adam")]

        assert [type(found) for found in others] == [Claim] * 4

    def test_an_existing_record_is_answered_as_ever(self, store: CountingStore, set_quota: SetQuota) -> None:
        """Replays and duplicates of what is running need no room, even if there is more than the quota allows."""
        claim(store, "running")
        finish(store, "finished")
        finish(store, "another")
        set_quota(TWO)

        running, finished = (store.claim(make_asked(key), LEASE) for key in ("running", "finished"))
        reused = store.claim(make_asked("running", body="two books"), LEASE)

        assert isinstance(running, Busy)
        assert isinstance(finished, Settled)
        assert isinstance(reused, Busy)

    def test_an_attempt_that_failed_is_resumed(self, store: CountingStore, set_quota: SetQuota) -> None:
        """A lease that was ended leaves its record, so the retry adds none."""
        finish(store, "another")
        store.release(claim(store, "order-1"))
        set_quota(Quota(records=1))

        assert claim(store, "order-1").attempt == 1
        refuse(store, "order-2")

    def test_a_dead_owner_is_taken_over(self, store: CountingStore, set_quota: SetQuota, let_pass: LetPass) -> None:
        """A lease that has expired leaves its record, too."""
        finish(store, "another")
        claim(store, "order-1")
        let_pass(LEASE)
        set_quota(Quota(records=1))

        assert claim(store, "order-1").taken_over

    def test_a_record_that_expires_makes_room(
        self, store: CountingStore, set_quota: SetQuota, let_pass: LetPass
    ) -> None:
        """The clock decides, whether or not the row was deleted."""
        set_quota(Quota(records=1))
        finish(store, "order-1")
        let_pass(RETENTION - MOMENT)
        refuse(store, "order-2")
        let_pass(MOMENT)

        claim(store, "order-2")

    def test_an_expired_record_is_a_new_one(self, store: CountingStore, set_quota: SetQuota, let_pass: LetPass) -> None:
        """Its key needs room like any other."""
        set_quota(Quota(records=1))
        finish(store, "order-1")
        let_pass(RETENTION)
        claim(store, "order-2")

        refuse(store, "order-1")

    def test_a_quarantined_record_counts(self, store: CountingStore, set_quota: SetQuota) -> None:
        """It stays until a person has settled it."""
        set_quota(Quota(records=1))
        store.quarantine(claim(store, "order-1"), "in doubt")

        refuse(store, "order-2")

    def test_a_deleted_record_makes_room(self, store: CountingStore, set_quota: SetQuota, let_pass: LetPass) -> None:
        """A flood of requests that die at once blocks its caller until they are reaped, and no longer."""
        set_quota(Quota(records=1))
        claim(store, "order-1")
        let_pass(LEASE + RETENTION + MOMENT)
        assert store.reap_abandoned(RETENTION)[0] == 1

        claim(store, "order-2")

    @pytest.mark.parametrize(("size", "fits"), [(9_000, True), (10_000, False)])
    def test_the_bytes_of_stored_answers_count(
        self, store: CountingStore, set_quota: SetQuota, size: int, fits: bool
    ) -> None:
        """The answer to the request itself is not known yet, so it may exceed the quota once."""
        set_quota(LARGE)
        finish(store, "order-1", size)

        assert is_admitted(store, "order-2") is fits

    def test_headers_count_as_bytes_too(self, store: CountingStore, set_quota: SetQuota) -> None:
        """They can be as long as a body."""
        set_quota(LARGE)
        store.complete(claim(store, "order-1"), Snapshot(201, (("X-Long", "x" * 10_000),), b""), RETENTION)

        refuse(store, "order-2")

    def test_bytes_are_added_up(self, store: CountingStore, set_quota: SetQuota) -> None:
        """Each of many small answers counts."""
        set_quota(LARGE)
        for number in range(4):
            finish(store, f"order-{number}", 2_500)

        refuse(store, "order-4")

    def test_an_answer_that_was_not_kept_has_no_bytes(self, store: CountingStore, set_quota: SetQuota) -> None:
        """Only what is stored counts."""
        set_quota(Quota(records=2, bytes=300))
        store.complete(claim(store, "order-1"), NotKept(200), RETENTION)

        claim(store, "order-2")
        refuse(store, "order-3")

    def test_a_stored_request_counts_until_it_is_finished(self, store: CountingStore, set_quota: SetQuota) -> None:
        """Requests that can be resumed are stored while they run."""
        set_quota(LARGE)
        first = claimed(store.claim(make_asked("order-1"), LEASE, STORED_REQUEST))
        refuse(store, "order-2")
        store.complete(first, CREATED, RETENTION)

        claim(store, "order-2")

    def test_a_new_request_is_refused_before_it_is_stored(self, store: CountingStore, set_quota: SetQuota) -> None:
        """A refusal leaves no checkpoint either."""
        set_quota(Quota(records=1))
        claim(store, "order-1")

        with pytest.raises(QuotaExceeded):
            store.claim(make_asked("order-2"), LEASE, STORED_REQUEST)

        assert store.checkpoints(make_asked("order-2").id) == []

    def test_a_refusal_says_when_to_try_again(self, store: CountingStore, set_quota: SetQuota) -> None:
        """In a second or later."""
        set_quota(Quota(records=1))
        claim(store, "order-1")

        with pytest.raises(QuotaExceeded) as refused:
            store.claim(make_asked("order-2"), LEASE)

        assert (refused.value.retry_after or 0) >= 1

    def test_a_refused_request_runs_as_soon_as_there_is_room(
        self, store: CountingStore, set_quota: SetQuota, let_pass: LetPass
    ) -> None:
        """A refusal is not remembered."""
        set_quota(Quota(records=1))
        finish(store, "order-1", retention=LEASE)
        refuse(store, "order-2")
        let_pass(LEASE)

        assert claim(store, "order-2").attempt == 1

    @pytest.mark.parametrize("callers", [8])
    def test_callers_at_one_instant_may_exceed_it_but_none_is_refused_while_there_is_room(
        self, store: CountingStore, set_quota: SetQuota, callers: int
    ) -> None:
        """Each claim is judged by what was there when it was made."""
        set_quota(Quota(records=4))
        keys = iter(range(callers))

        admitted = race(callers, lambda: is_admitted(store, f"order-{next(keys)}"))

        assert 4 <= sum(admitted) <= callers
        refuse(store, "one more")


def claim(store: CountingStore, key: str) -> Claim:
    """Claim, which must be possible."""
    return claimed(store.claim(make_asked(key), LEASE))


def finish(store: CountingStore, key: str, size: int = 10, retention: timedelta = RETENTION) -> Asked:
    """Store an answer of so many bytes."""
    store.complete(claim(store, key), Snapshot(201, (), b"x" * size), retention)
    return make_asked(key)


def refuse(store: CountingStore, key: str) -> None:
    """Expect that a claim is refused, the second time too."""
    for _ in range(2):
        with pytest.raises(QuotaExceeded):
            store.claim(make_asked(key), LEASE)


def is_admitted(store: CountingStore, key: str) -> bool:
    """Say whether a claim is given."""
    try:
        claim(store, key)
    except QuotaExceeded:
        return False
    return True
