"""A SQLite file whose one writer's place is taken for too long: 503 and nothing run, and no success run again."""

import sqlite3
import time
from contextlib import closing

import pytest

from flask_idempotency.stores.sqlite import BUSY_TIMEOUT
from tests.apps.guarded_outside import is_conflict, is_definitive, is_first, is_replay

PATIENCE = BUSY_TIMEOUT.total_seconds()


@pytest.fixture
def store_url(tmp_path):
    return f"sqlite:///{tmp_path / 'records.db'}"


@pytest.fixture
def writer(tmp_path, records):
    """Somebody who can take the writer's place: BEGIN IMMEDIATE, and later ROLLBACK."""
    with closing(sqlite3.connect(tmp_path / "records.db", isolation_level=None)) as connection:
        yield connection


@pytest.mark.parametrize("preload", [True, False], ids=["preloaded", "loaded by each"])
def test_cold_workers_make_the_file_together(serve, ledger, tmp_path, preload):
    url = f"sqlite:///{tmp_path / 'a' / 'new' / 'folder' / 'records.db'}"
    counter = serve(via=url, server={"workers": 4, "threads": 4}, preload=preload)

    answers = counter.order_at_once("order-1", 40)

    assert sum(map(is_first, answers)) == 1
    assert sum(map(is_conflict, answers)) + sum(map(is_replay, answers)) == 39
    assert ledger.count("run") == 1


def test_a_file_that_is_locked_before_the_claim_is_503_and_nothing_runs_while_replays_go_on(serve, ledger, writer):
    counter = serve(server={"workers": 2})
    done = counter.order("done")
    writer.execute("BEGIN IMMEDIATE")

    begun = time.monotonic()
    refused = counter.order("order-1")
    took = time.monotonic() - begun
    replay = counter.order("done")
    writer.execute("ROLLBACK")

    assert (refused.status, refused.json["code"]) == (503, "store-unavailable")
    assert took < PATIENCE + 3
    assert is_replay(replay)
    assert replay.body == done.body
    assert ledger.count("run") == 1
    assert is_first(counter.order("order-1"))


def test_a_success_is_never_run_again_though_the_file_was_locked_when_it_ended(serve, ledger, gate, writer):
    counter = serve(server={"workers": 2, "threads": 2})
    first = counter.order_in_background("order-1", X_Gate="1")
    runner = gate.next()

    writer.execute("BEGIN IMMEDIATE")
    runner.say("201")
    told = first.result(PATIENCE + 10)
    writer.execute("ROLLBACK")
    answer = counter.order_until(is_definitive, "order-1", within=15)

    assert (told.status, told.json["code"]) == (503, "outcome-unknown")
    assert is_replay(answer)
    assert (ledger.count("run"), ledger.count("effect")) == (1, 1)
