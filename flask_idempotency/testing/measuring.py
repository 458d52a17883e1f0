"""What a store holds, in numbers."""

from datetime import timedelta

from flask_idempotency.core.figures import Figures
from flask_idempotency.stores import Store
from flask_idempotency.testing.acting import begin, everything_in
from flask_idempotency.testing.given import CREATED, LEASE, MOMENT, RETENTION, LetPass


class Measuring:
    """The figures are those of the records, and exact while there are few."""

    def test_an_empty_store_holds_nothing(self, store: Store) -> None:
        """And nothing in it is old."""
        figures = store.figures()

        assert _counts(figures) == (0, 0, 0, 0)
        assert (figures.oldest_running, figures.reap_lag, figures.is_estimate) == (None, None, False)

    def test_every_record_is_counted_once_by_its_state(self, store: Store, let_pass: LetPass) -> None:
        """Whoever holds a running one, and expired ones until they are reaped; counting changes nothing."""
        for key in ("expired-1", "expired-2", "expired-3"):
            store.complete(begin(store, key), CREATED, RETENTION)
        let_pass(RETENTION + MOMENT)
        for key in ("finished-1", "finished-2"):
            store.complete(begin(store, key), CREATED, RETENTION)
        for key in ("held", "run out", "released", "freed"):
            claim = begin(store, key)
            if key == "released":
                store.release(claim)
        store.free(claim.id, "freed by ada")
        store.quarantine(begin(store, "quarantined"), "in doubt")
        before = everything_in(store)

        figures = store.figures()

        assert _counts(figures) == (4, 1, 2, 3)
        assert figures.live == 7
        assert not figures.is_estimate
        assert everything_in(store) == before

    def test_the_oldest_running_record_is_as_old_as_its_creation(self, store: Store, let_pass: LetPass) -> None:
        """However often it was renewed or taken over."""
        begin(store, "oldest")
        let_pass(LEASE * 2)
        begin(store, "oldest")
        begin(store, "younger")
        let_pass(MOMENT)

        age = store.figures().oldest_running

        assert age is not None
        assert LEASE * 2 + MOMENT <= age < LEASE * 2 + MOMENT * 2

    def test_a_record_that_is_not_running_is_not_the_oldest(self, store: Store, let_pass: LetPass) -> None:
        """A gauge of it must come down when the run has ended."""
        finished, quarantined = begin(store, "finished"), begin(store, "quarantined")
        store.complete(finished, CREATED, RETENTION)
        store.quarantine(quarantined, "in doubt")
        let_pass(MOMENT)

        assert store.figures().oldest_running is None

    def test_the_reaper_is_behind_by_the_oldest_record_that_has_expired(self, store: Store, let_pass: LetPass) -> None:
        """Not by one that is still valid."""
        store.complete(begin(store, "older"), CREATED, RETENTION)
        let_pass(MOMENT)
        store.complete(begin(store, "newer"), CREATED, RETENTION)
        let_pass(RETENTION - MOMENT - timedelta(seconds=30))
        before = store.figures()
        let_pass(MOMENT * 3)

        figures = store.figures()

        assert (before.expired, before.reap_lag) == (0, None)
        assert figures.expired == 2
        assert figures.reap_lag is not None
        assert MOMENT * 2 <= figures.reap_lag < MOMENT * 4

    def test_a_store_that_knows_its_size_says_so(self, store: Store) -> None:
        """Any other says nothing, and not zero."""
        store.complete(begin(store), CREATED, RETENTION)

        size = store.figures().bytes

        assert size is None or size > len(CREATED.body)


def _counts(figures: Figures) -> tuple[int | None, ...]:
    return figures.running, figures.quarantined, figures.finished, figures.expired
