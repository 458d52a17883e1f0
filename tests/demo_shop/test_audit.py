"""The shop's notes: no request waits for them, none is lost while the database is away, and their order is kept."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import event, select
from sqlalchemy.engine import make_url

from demo_shop import audit, cart, scribe
from demo_shop.models import Attempt, db, now
from flask_idempotency import signals
from tests.demo_shop.shopping import Shop, open_shop
from tests.fixtures.processes import eventually

KEY = "AAAA-BBBB-CCCC"
NOBODY = "http://127.0.0.1:9"  # no gateway is needed here
STEADY = {"SQLALCHEMY_ENGINE_OPTIONS": {"pool_pre_ping": True}}  # as the shop runs


@pytest.fixture
def shop(store_url: str) -> Iterator[Shop]:
    """A shop, once on SQLite and once on PostgreSQL."""
    with open_shop(store_url, NOBODY) as shop:
        yield shop


@contextmanager
def locked(url: str) -> Iterator[Callable[[], None]]:
    """Let nobody write notes, until what this gives is called."""
    if url.startswith("sqlite"):
        writer = sqlite3.connect(make_url(url).database or "", isolation_level=None, check_same_thread=False)
        with closing(writer):
            writer.execute("BEGIN IMMEDIATE")
            yield lambda: writer.rollback()
    else:
        with psycopg.connect(url.replace("+psycopg", "")) as holder:
            holder.execute("LOCK TABLE attempt IN SHARE ROW EXCLUSIVE MODE")
            yield holder.rollback


def tell(shop: Shop, *events: str, **facts: Any) -> None:
    """Send signals as the extension does."""
    for each in events:
        signals.tell(getattr(signals, each), shop.app, reference=KEY, **facts)


def is_settled(shop: Shop, seconds: float = 10) -> bool:
    """Wait for the notes of this process."""
    with shop.app.app_context():
        return audit.settle(seconds)


def is_writing() -> bool:
    """Say whether a thread for notes lives."""
    return any(each.name == "notes" for each in threading.enumerate())


def inserts(shop: Shop) -> list[int]:
    """Listen to the inserts of notes from now on: how many rows each has."""
    heard: list[int] = []
    with shop.app.app_context():
        engine = db.engines["notes"]

    @event.listens_for(engine, "before_cursor_execute")
    def hear(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "INSERT" in statement:
            heard.append(statement.count("), (") + 1)

    return heard


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says of notes."""
    return [each.getMessage() for each in caplog.records if each.name == "demo_shop.scribe"]


# Out of the way of requests


def test_a_request_is_answered_while_the_table_is_locked_and_its_notes_arrive_afterwards(postgres_url):
    with open_shop(postgres_url, NOBODY) as shop, locked(postgres_url) as let_go:
        answer = shop.customer().send("/cart", "k", product="whisk", quantity=1)
        waiting = not is_settled(shop, 0.1)
        let_go()

        assert (answer.status_code, waiting) == (303, True)
        assert shop.events(answer.headers["Idempotency-Reference"]) == ["claimed", "completed"]


def test_notes_wait_for_whoever_writes_and_have_the_time_of_their_signal(shop, store_url):
    with locked(store_url) as let_go:
        before = now()
        tell(shop, "claimed")
        after = now()
        waiting = not is_settled(shop, 0.1)
        let_go()

    assert waiting
    assert is_settled(shop)
    with shop.app.app_context():
        [at] = db.session.scalars(select(Attempt.at))
    assert before <= at <= after


def test_what_gathers_meanwhile_is_one_insert_in_the_order_of_the_signals(shop, store_url):
    heard, story = inserts(shop), ["claimed", "released", "refused", "claimed", "completed", "replayed"] * 20

    with locked(store_url) as let_go:
        tell(shop, "quarantined")
        eventually(lambda: heard, what="the first insert")
        tell(shop, *story)
        let_go()
        told = shop.events(KEY)

    assert told == ["quarantined", *story]
    assert heard == [1, len(story)]


def test_the_notes_of_a_view_that_failed_are_kept(shop, monkeypatch):
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("this view fails")

    monkeypatch.setattr(cart, "put", fail)

    answer = shop.customer().send("/cart", "k", product="whisk", quantity=1)

    assert answer.status_code == 500
    with shop.app.app_context():
        assert audit.settle(10)
        told = list(db.session.scalars(select(Attempt.event).order_by(Attempt.id)))
    assert told == ["claimed", "released"]


@pytest.mark.parametrize("path", ["/ledger.json", f"/support?reference={KEY}"])
def test_the_shop_reads_what_it_has_just_told(tmp_path, monkeypatch, path):
    url, settle = f"sqlite:///{tmp_path / 'shop.db'}", audit.settle
    with open_shop(url, NOBODY) as shop, locked(url) as let_go:
        tell(shop, "replayed")

        def settle_at_last(seconds: float) -> bool:
            let_go()
            return settle(seconds)

        monkeypatch.setattr(audit, "settle", settle_at_last)

        page = shop.customer(None).client.get(path)

    assert '"replays":1' in page.text or "a retry got the same answer again" in page.text


def test_reading_does_not_wait_for_ever(tmp_path):
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    with open_shop(url, NOBODY) as shop, locked(url):
        tell(shop, "replayed")
        began = time.monotonic()

        page = shop.customer(None).client.get("/ledger.json")

        assert page.json["totals"]["replays"] == 0
        assert time.monotonic() - began < 4  # SQLite itself waits for five seconds


# A database that is away


def test_a_database_that_goes_away_and_comes_back_loses_none(own_postgres):
    url = own_postgres.url(own_postgres.create_database())
    with open_shop(url, NOBODY, **STEADY) as shop:
        tell(shop, "claimed")
        before = is_settled(shop)
        own_postgres.stop()

        tell(shop, "released", "claimed")
        away = not is_settled(shop, 2 * scribe.AGAIN)
        own_postgres.start()
        tell(shop, "completed")

        assert (before, away) == (True, True)
        assert shop.events(KEY) == ["claimed", "released", "claimed", "completed"]


@pytest.mark.parametrize("cut", ["cut_before", "cut_after"])
def test_a_note_whose_insert_had_no_answer_is_there_once(postgres_url, proxy, cut):
    with open_shop(proxy.through(postgres_url), NOBODY, **STEADY) as shop:
        done = getattr(proxy, cut)(b"INSERT INTO attempt")

        tell(shop, "claimed", "completed")

        assert done.wait(10)
        assert shop.events(KEY) == ["claimed", "completed"]


def test_patience_ends_and_the_log_says_so(postgres_url, proxy, monkeypatch, caplog):
    monkeypatch.setattr(scribe, "PATIENCE", 0.0)
    with open_shop(proxy.through(postgres_url), NOBODY, **STEADY) as shop:
        proxy.refuse()

        tell(shop, "claimed")
        given_up = is_settled(shop)
        proxy.pass_through()
        tell(shop, "released")

        assert given_up
        assert shop.events(KEY) == ["released"]
    [said] = complaints(caplog)
    assert said.startswith("notes: 1 are dropped, for the database cannot be reached: ")


def test_when_too_many_wait_the_oldest_are_dropped_and_the_log_says_so_once(shop, store_url, monkeypatch, caplog):
    monkeypatch.setattr(scribe, "MOST", 3)
    heard = inserts(shop)

    with locked(store_url) as let_go:
        tell(shop, "quarantined")
        eventually(lambda: heard, what="an insert under way, which is not taken back")
        tell(shop, "claimed", "released", "claimed", "released", "claimed", "completed", "replayed")
        let_go()
        told = shop.events(KEY)

    assert told == ["quarantined", "claimed", "completed", "replayed"]
    assert complaints(caplog) == ["notes: 3 wait for the database; from here on the oldest are dropped"]


def test_a_note_that_cannot_be_written_stops_no_other(shop, caplog):
    tell(shop, "claimed", odd=object())
    assert is_settled(shop)

    tell(shop, "completed")

    assert shop.events(KEY) == ["completed"]
    assert complaints(caplog) == ["notes: 1 are dropped, for they cannot be written"]


# The end


def test_the_end_of_the_thread_leaves_nothing_unwritten_and_the_next_note_starts_another(shop):
    tell(shop, *["replayed"] * 50)
    audit.end(shop.app)

    assert not is_writing()
    tell(shop, "refused")
    assert shop.events(KEY) == [*["replayed"] * 50, "refused"]


def test_the_end_is_not_put_off_for_long(shop, store_url):
    with locked(store_url):
        tell(shop, "replayed")
        began = time.monotonic()

        audit.end(shop.app, seconds=0.2)

        assert time.monotonic() - began < 2
        assert is_writing()
    eventually(lambda: not is_writing(), within=10)
