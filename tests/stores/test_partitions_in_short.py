"""What partitions promise, in a few moments; test_partitions.py has all of it."""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import pytest
from flask import Flask

from flask_idempotency import Idempotency, scopes
from flask_idempotency.core.record import Claim, Settled
from flask_idempotency.core.snapshot import Snapshot
from flask_idempotency.testing import LEASE, RETENTION, make_asked
from tests.fixtures.postgres import Postgres
from tests.stores.clocks import MovedClock, moved_clock
from tests.stores.worlds import claimed

DONE = Snapshot(201, (), b"done")


@pytest.fixture(scope="module")
def clock(postgres: Postgres) -> Iterator[MovedClock]:
    with moved_clock(postgres) as clock:
        clock.set_to(hour=12)
        yield clock


def make_app(url: str) -> Flask:
    app = Flask(__name__)
    app.config.update(IDEMPOTENCY_STORE=url, IDEMPOTENCY_HOUSEKEEPING=False, IDEMPOTENCY_GRACE=timedelta(hours=1))
    Idempotency(app, scope=scopes.everyone)
    return app


def test_tables_are_moved_over_made_ahead_and_dropped_by_the_commands(clock: MovedClock):
    app = make_app(clock.url)
    command = app.test_cli_runner().invoke
    with closing(app.extensions["idempotency"].store) as store:
        store.create()
        running = claimed(store.claim(make_asked("from before"), LEASE))

        made = command(args=["idempotency", "init", "--partitioned"])
        store.complete(running, DONE, RETENTION)
        store.complete(claimed(store.claim(make_asked(), LEASE)), DONE, RETENTION)
        found = store.claim(make_asked(), LEASE), store.claim(make_asked("from before"), LEASE)
        clock.let_pass(timedelta(days=3))
        warned = command(args=["idempotency", "check"])
        reaped = command(args=["idempotency", "reap"])
        checked = command(args=["idempotency", "check"])

        assert (made.output, made.exit_code) == ("The store is ready.\n", 0)
        assert all(isinstance(each, Settled) for each in found)
        assert "There is no partition" in warned.output
        assert (reaped.exit_code, checked.exit_code) == (0, 0)
        assert clock.run("SELECT count(*) FROM idempotency_record") == [(0,)]
        assert isinstance(store.claim(make_asked(), LEASE), Claim)


@pytest.mark.parametrize("url", ["memory://", "sqlite:///records.db"])
def test_a_store_that_cannot_be_partitioned_says_so_in_one_sentence(url: str):
    app = make_app(url)

    refused = app.test_cli_runner().invoke(args=["idempotency", "init", "--partitioned"])

    assert refused.exit_code == 1
    assert refused.output == (
        'Error: This store cannot be partitioned; see which can under "Choosing a store" in the docs.\n'
    )
