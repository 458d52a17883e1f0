"""The books: the shop's tables and the gateway's ledger, read alike from SQLite and PostgreSQL."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

import pytest
from sqlalchemy import Connection, NullPool, create_engine, insert, text

from demo_shop import models as shop_models
from demo_shop.gateway import models as gateway_models
from flask_idempotency.core.reference import reference_of as reference_by_the_extension
from flask_idempotency.stores import open_store
from loadtests.auditing.books import Charge, Order, Payment, Record, Review
from loadtests.auditing.reading import read_books, reference_of, wait_for_notes
from tests.fixtures.processes import race

AT = datetime(2026, 5, 17, 12, 30, 15, 250_000, UTC)
NAIVE = AT.replace(tzinfo=None)  # as the shop writes times
SECONDS = AT.timestamp()
KEY = "AAAA-BBBB-CCCC"


@pytest.fixture
def shop(store_url: str) -> Iterator[Connection]:
    """An empty shop; what a test writes is committed by itself."""
    store = open_store(store_url)
    store.create()
    engine = create_engine(store_url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    shop_models.Base.metadata.create_all(engine)
    with engine.connect() as connection:
        given = {"id": 1, "handle": "ada", "name": "Ada", "email": "ada@example.org"}
        connection.execute(insert(shop_models.Account), [given])
        words = dict.fromkeys(("slug", "name", "description", "shape", "colour", "accent"), "pot")
        connection.execute(insert(shop_models.Product), [{"id": 1, "price_cents": 1290, "stock": 5, **words}])
        yield connection
    store.close()


@pytest.fixture
def gateway_url(tmp_path: Path) -> str:
    """The ledger of an empty gateway."""
    url = f"sqlite:///{tmp_path / 'gateway.db'}"
    gateway_models.Base.metadata.create_all(create_engine(url, poolclass=NullPool))
    return url


def place(shop, id, **order):
    """Write an order."""
    given = {"account_id": 1, "card": "card_ok", "total_cents": 1290, "reference": KEY, "created_at": NAIVE}
    shop.execute(insert(shop_models.Order), [{"id": id, "number": f"T-{id}", "state": "paid", **given, **order}])


def write_record(shop, id, state, reason):
    """Write a record of the extension."""
    columns = (
        "id, scope, method, path, fingerprint, state, reason, attempt, created_at, lease_until, expires_at, status"
    )
    at = AT if shop.dialect.name == "postgresql" else SECONDS
    shop.execute(
        text(
            f"INSERT INTO idempotency_record ({columns})"
            " VALUES (:id, '', '', '', :print, :state, :reason, 1, :at, :at, :at, 200)"
        ),
        {"id": id, "print": bytes(16), "state": state, "reason": reason, "at": at},
    )


def test_orders_and_their_payments_are_read(shop, store_url):
    place(shop, 7, note="intent-1")
    place(shop, 8, note=None, reference=None, state="declined")
    shop.execute(insert(shop_models.Payment), [{"order_id": 7, "charge": "ch_1", "amount_cents": 1290, "at": NAIVE}])

    books = read_books(store_url, None)

    assert books.orders == (
        Order(7, "T-7", "intent-1", "paid", 1290, KEY, SECONDS),
        Order(8, "T-8", "", "declined", 1290, "", SECONDS),
    )
    assert books.payments == (Payment(7, "ch_1", 1290),)


def test_reviews_are_read(shop, store_url):
    given = {"product_id": 1, "account_id": 1, "stars": 5, "text": "intent-1", "at": NAIVE}
    shop.execute(insert(shop_models.Review), [{**given, "reference": KEY}, {**given, "reference": None}])

    books = read_books(store_url, None)

    assert books.reviews == (Review(1, "intent-1", KEY, SECONDS), Review(2, "intent-1", "", SECONDS))


def note(shop, *events):
    """Write notes."""
    given = {"reference": KEY, "facts": {}, "worker": 1, "at": NAIVE}
    shop.execute(insert(shop_models.Attempt), [{**given, "event": event} for event in events])


def test_notes_are_counted_by_event_and_reference(shop, store_url):
    note(shop, "claimed", "completed", "replayed", "replayed")

    books = read_books(store_url, None)

    assert books.notes == {("claimed", KEY): 1, ("completed", KEY): 1, ("replayed", KEY): 2}


def test_notes_that_are_still_being_written_are_waited_for(shop, store_url):
    pause = Event()

    def write_or_wait(number):
        if number:
            wait_for_notes(store_url, still=1)
            return read_books(store_url, None).notes["replayed", KEY]
        for _ in range(5):
            note(shop, "replayed")
            pause.wait(0.3)
        return 5

    assert race(2, write_or_wait) == [5, 5]


def test_a_shop_that_goes_on_writing_is_not_waited_for_for_ever(shop, store_url):
    over = Event()

    def write_or_wait(number):
        if number:
            wait_for_notes(store_url, still=30, within=0.5)
            over.set()
        while not over.wait(0.05):
            note(shop, "replayed")
        return True

    assert race(2, write_or_wait, within=20) == [True, True]


def test_records_that_are_not_finished_are_read_by_their_reference(shop, store_url):
    running, waiting = bytes(range(32)), bytes(range(32, 64))
    write_record(shop, running, "running", None)
    write_record(shop, waiting, "quarantined", "too many takeovers")
    write_record(shop, bytes(32), "finished", None)

    books = read_books(store_url, None)

    assert books.records == (
        Record(reference_of(running), "running", ""),
        Record(reference_of(waiting), "quarantined", "too many takeovers"),
    )


def test_a_reference_is_the_one_that_the_extension_gives():
    for id in (bytes(32), bytes(range(32)), b"\xff" * 32, bytes(range(200, 232))):
        assert reference_of(id) == reference_by_the_extension(id)


def test_charges_are_read_from_the_ledger_of_the_gateway(shop, store_url, gateway_url):
    charge = {"order": "T-7", "amount": 1290, "card": "card_ok", "key": "key-1", "at": NAIVE}
    with create_engine(gateway_url, poolclass=NullPool).begin() as gateway:
        gateway.execute(insert(gateway_models.Charge), [{**charge, "id": "ch_1"}, {**charge, "id": "ch_2"}])

    books = read_books(store_url, gateway_url)

    assert books.charges == (
        Charge("ch_1", "T-7", 1290, "key-1", SECONDS),
        Charge("ch_2", "T-7", 1290, "key-1", SECONDS),
    )


def test_a_ledger_on_postgresql_is_read_and_its_times_are_understood(postgres_url, tmp_path):
    shop_url = f"sqlite:///{tmp_path / 'shop.db'}"
    shop_models.Base.metadata.create_all(create_engine(shop_url, poolclass=NullPool))
    store = open_store(shop_url)
    store.create()
    store.close()
    engine = create_engine(postgres_url, poolclass=NullPool)
    gateway_models.Base.metadata.create_all(engine)
    charge = {"id": "ch_1", "order": "T-7", "amount": 1290, "card": "card_ok", "key": "key-1", "at": AT}
    with engine.begin() as gateway:
        gateway.execute(text("SET LOCAL TimeZone = 'Asia/Tokyo'"))
        gateway.execute(insert(gateway_models.Charge), [charge])

    books = read_books(shop_url, postgres_url.replace("postgresql+psycopg:", "postgresql:"))

    assert books.charges == (Charge("ch_1", "T-7", 1290, "key-1", SECONDS),)


def test_an_empty_ledger_is_not_an_unread_one(shop, store_url, gateway_url):
    assert read_books(store_url, gateway_url).charges == ()
    assert read_books(store_url, None).charges is None


def test_reading_changes_nothing_and_leaves_nobody_connected(shop, store_url, gateway_url):
    place(shop, 7, note="intent-1")
    read_books(store_url, gateway_url)

    place(shop, 8, note="intent-2")

    assert [order.id for order in read_books(store_url, gateway_url).orders] == [7, 8]
