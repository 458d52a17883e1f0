"""An owner finishes its record once."""

from datetime import timedelta

import pytest

from flask_idempotency.core.lifecycle import State
from flask_idempotency.core.record import Finished, Settled
from flask_idempotency.core.snapshot import Answer, NotKept, Snapshot
from flask_idempotency.errors import ClaimLost
from flask_idempotency.stores import Store
from flask_idempotency.testing.acting import (
    OTHER,
    begin,
    claimed,
    lease_of,
    misplaced_claim,
    outcome_of,
    race,
    record_of,
)
from flask_idempotency.testing.given import CREATED, LEASE, MOMENT, RETENTION, LetPass, make_asked

_ANSWERS = {
    "json": CREATED,
    "nothing but a status": Snapshot(204, (), b""),
    "empty body": Snapshot(200, (("Content-Type", "text/plain"),), b""),
    "every byte": Snapshot(200, (("Content-Type", "application/octet-stream"),), bytes(range(256)) * 3),
    "bytes that are no text": Snapshot(200, (("Content-Encoding", "gzip"),), b"\x1f\x8b\x00\xff\xfe\xc3\x28"),
    "repeated headers in their order": Snapshot(
        200, (("Link", "</b>"), ("X-Other", "1"), ("Link", "</a>"), ("link", "</b>")), b"x"
    ),
    "odd but legal headers": Snapshot(
        302, (("X-Empty", ""), ("X-Latin", "caf\xe9 \t\xff"), ("X-Quote", "\"'\\")), b"x"
    ),
    "a refusal that is final": Snapshot(422, (), b"no"),
    "not kept": NotKept(200),
    "not kept, with a location": NotKept(201, "/orders/1?a=b&c=d"),
    "not kept, with an empty location": NotKept(201, ""),
    "a stream": NotKept(200, is_streamed=True),
    "a stream, with a location": NotKept(201, "/orders/1", is_streamed=True),
}


class Completing:
    """Running to finished."""

    largest_body = 1024 * 1024  # bytes that the store keeps; a store that keeps less says so

    def test_a_completed_record_is_settled_for_everybody(self, store: Store) -> None:
        """Whoever asks next gets the record with its answer."""
        claim = begin(store)

        store.complete(claim, CREATED, RETENTION)

        found = store.claim(make_asked(), LEASE)
        assert isinstance(found, Settled)
        assert found.record == record_of(store)
        assert found.record.state is State.FINISHED
        assert outcome_of(store).answer == CREATED
        assert outcome_of(store).token == claim.guard.token

    @pytest.mark.parametrize("answer", list(_ANSWERS.values()), ids=list(_ANSWERS))
    def test_an_answer_comes_back_as_it_was_given(self, store: Store, answer: Answer) -> None:
        """Status, headers in their order, and every byte of the body."""
        store.complete(begin(store), answer, RETENTION)

        found = store.claim(make_asked(), LEASE)

        assert isinstance(found, Settled)
        assert isinstance(found.record.condition, Finished)
        assert found.record.condition.answer == answer
        assert outcome_of(store).answer == answer

    @pytest.mark.parametrize("times", [1, 4])
    def test_a_large_answer_comes_back_whole_or_counts_as_not_kept(self, store: Store, times: int) -> None:
        """Up to ``largest_body`` it comes back; half of one never does, and the request is not run again."""
        body = (b"0123456789abcdef" * 65536 * times)[: self.largest_body * times]
        answer = Snapshot(201, (("Location", "/orders/1"),), body)

        store.complete(begin(store), answer, RETENTION)

        found = outcome_of(store).answer
        assert found == answer or (times > 1 and found == NotKept(201, "/orders/1"))

    def test_an_owner_may_complete_after_its_lease_while_nobody_took_over(
        self, store: Store, let_pass: LetPass
    ) -> None:
        """The token is unchanged, so nobody else has run."""
        claim = begin(store)
        let_pass(LEASE + MOMENT)

        store.complete(claim, CREATED, RETENTION)

        assert outcome_of(store).answer == CREATED

    def test_completing_again_changes_nothing(self, store: Store, let_pass: LetPass) -> None:
        """An owner that did not hear of its success may complete again; its first answer stays."""
        claim = begin(store)
        store.complete(claim, CREATED, RETENTION)
        let_pass(MOMENT)
        before = record_of(store)

        store.complete(claim, CREATED, RETENTION)
        store.complete(claim, OTHER, RETENTION * 2)

        assert record_of(store) == before

    def test_finished_is_final(self, store: Store, let_pass: LetPass) -> None:
        """A finished record changes only by expiry, even for its own owner."""
        claim = begin(store)
        store.complete(claim, CREATED, RETENTION)
        before = record_of(store)

        with pytest.raises(ClaimLost):
            store.renew(claim, LEASE)
        with pytest.raises(ClaimLost):
            store.release(claim)
        store.reap(timedelta(0))

        assert record_of(store) == before
        let_pass(LEASE + MOMENT)
        assert isinstance(store.claim(make_asked(), LEASE), Settled)

    @pytest.mark.parametrize("at_once", [3, 10])
    def test_one_owner_that_completes_from_many_threads_finishes_once(self, store: Store, at_once: int) -> None:
        """A repeated completion never becomes a second one."""
        claim = begin(store)

        race(at_once, lambda: store.complete(claim, CREATED, RETENTION))

        assert outcome_of(store).answer == CREATED

    def test_completing_after_a_release_is_a_lost_claim(self, store: Store) -> None:
        """Whoever ended the lease gave the record up."""
        claim = begin(store)
        store.release(claim)

        with pytest.raises(ClaimLost):
            store.complete(claim, CREATED, RETENTION)

        assert lease_of(store).token is None

    def test_completing_what_was_never_claimed_is_a_lost_claim(self, store: Store) -> None:
        """It creates no record."""
        stranger = claimed(store.claim(make_asked("order-2"), LEASE))

        with pytest.raises(ClaimLost):
            store.complete(misplaced_claim(make_asked(), stranger), CREATED, RETENTION)

        assert store.find(make_asked().id) is None
