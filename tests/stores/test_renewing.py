"""A lease is renewed beside a phase that holds its record: nobody waits for it, and lost is told from held."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from flask_idempotency.core.checkpoint import Checkpoint, Kind
from flask_idempotency.core.record import Claim, Running
from flask_idempotency.errors import ClaimLost
from flask_idempotency.stores.postgres import PostgresStore
from flask_idempotency.testing import LEASE, make_asked
from tests.stores.worlds import SqlWorld, claimed, plain

PLACED = Checkpoint("placed", Kind.PHASE, 1, result="1")


@contextmanager
def open_phase(store: PostgresStore, claim: Claim) -> Iterator[None]:
    """A phase that is under way inside, and is sealed at the end."""
    with psycopg.connect(plain(store)) as connection:
        store.fence(connection, claim, PLACED, idle=LEASE)
        yield
        store.commit_phase(connection, claim, PLACED)


def seconds_of(call: Callable[[], object]) -> float:
    begun = time.monotonic()
    call()
    return time.monotonic() - begun


def lease_in(store: PostgresStore) -> Running:
    record = store.find(make_asked().id)
    assert record is not None
    assert isinstance(record.condition, Running)
    return record.condition


def test_a_renewal_does_not_wait_for_an_open_phase_and_says_nothing(
    postgres_store: PostgresStore, caplog: pytest.LogCaptureFixture
):
    claim = claimed(postgres_store.claim(make_asked(), LEASE))
    before = lease_in(postgres_store)

    with open_phase(postgres_store, claim), caplog.at_level(logging.INFO):
        took = [seconds_of(lambda: postgres_store.renew(claim, LEASE * 2)) for _ in range(3)]

    assert min(took) < 1.9  # a bounded wait would be two seconds, each time
    assert caplog.messages == []
    assert lease_in(postgres_store).lease_until == before.lease_until


def test_the_first_renewal_after_a_phase_counts(postgres_store: PostgresStore):
    claim = claimed(postgres_store.claim(make_asked(), LEASE))
    with open_phase(postgres_store, claim):
        postgres_store.renew(claim, LEASE * 2)

    postgres_store.renew(claim, LEASE * 2)

    assert lease_in(postgres_store).lease_left > LEASE


def test_a_claim_that_was_lost_is_known_as_lost_though_the_next_owner_holds_the_record(postgres_store: PostgresStore):
    lost = claimed(postgres_store.claim(make_asked(), LEASE))
    SqlWorld(postgres_store).let_pass(LEASE)
    owner = claimed(postgres_store.claim(make_asked(), LEASE))

    with open_phase(postgres_store, owner), pytest.raises(ClaimLost):
        postgres_store.renew(lost, LEASE)

    assert lease_in(postgres_store).token == owner.guard.token
