"""Reads the books with plain SQL after the run.

Nothing in these tables is unique per intent: what happened twice is there twice.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Event
from typing import TypeVar

from sqlalchemy import Connection, NullPool, create_engine, make_url, text

from loadtests.auditing.books import Books, Charge, Order, Payment, Record, Review

STILL = 1.5  # seconds without a new note; a shop that could not write one has tried again by then
NOTED_WITHIN = 20.0  # seconds; the auditor reports what is missing then
ANSI = "SET sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES')"
BEGINS = {
    "postgresql": "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
    "mariadb": "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
    "sqlite": "BEGIN",
}
T = TypeVar("T")
_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base32, in which references are written


def read_books(shop_url: str, gateway_url: str | None) -> Books:
    """Read the shop's tables and the gateway's ledger. Without a gateway's URL, its charges stay unknown."""
    charges = _read(gateway_url, _charges) if gateway_url is not None else None
    return _read(shop_url, lambda connection: _shop(connection, charges))


def wait_for_notes(shop_url: str, still: float = STILL, within: float = NOTED_WITHIN) -> None:
    """Wait until no more notes arrive: a running shop writes them beside its requests, a moment later."""
    began = since = time.monotonic()
    newest = None
    while (at := time.monotonic()) - since < still and at - began < within:
        found = _read(shop_url, lambda connection: connection.scalar(text("SELECT max(id) FROM attempt")))
        if found != newest:
            newest, since = found, at
        Event().wait(0.05)


def reference_of(id: bytes) -> str:
    """Give the reference of a record: the first 60 bits of its id, in groups of four digits."""
    number = int.from_bytes(id[:8], "big") >> 4
    digits = "".join(_DIGITS[number >> shift & 31] for shift in range(55, -1, -5))
    return f"{digits[:4]}-{digits[4:8]}-{digits[8:]}"


def _read(url: str, read: Callable[[Connection], T]) -> T:
    """Read within one transaction, so that the rows of different tables fit together."""
    known = make_url(url)
    kind = known.get_backend_name()
    if kind in ("postgres", "postgresql"):
        known = known.set(drivername="postgresql+psycopg")
    own = {"init_command": ANSI} if kind == "mariadb" else {}  # it would take "order" for a text
    with create_engine(known, poolclass=NullPool, connect_args=own).connect() as connection:
        connection.exec_driver_sql(BEGINS.get(kind, BEGINS["postgresql"]))
        return read(connection)


def _shop(connection: Connection, charges: tuple[Charge, ...] | None) -> Books:
    orders = connection.execute(
        text('SELECT id, number, note, state, total_cents, reference, created_at FROM "order" ORDER BY id')
    )
    payments = connection.execute(text("SELECT order_id, charge, amount_cents FROM payment ORDER BY id"))
    reviews = connection.execute(text("SELECT id, text, reference, at FROM review ORDER BY id"))
    notes = connection.execute(text("SELECT event, reference, count(*) FROM attempt GROUP BY event, reference"))
    records = connection.execute(
        text("SELECT id, state, reason FROM idempotency_record WHERE state <> 'finished' ORDER BY created_at, id")
    )
    return Books(
        orders=tuple(
            Order(id, number, note or "", state, total, reference or "", _seconds(at))
            for id, number, note, state, total, reference, at in orders
        ),
        payments=tuple(Payment(order, charge, amount) for order, charge, amount in payments),
        reviews=tuple(Review(id, words, reference or "", _seconds(at)) for id, words, reference, at in reviews),
        charges=charges,
        notes={(event, reference): count for event, reference, count in notes},
        records=tuple(Record(reference_of(bytes(id)), state, reason or "") for id, state, reason in records),
    )


def _charges(connection: Connection) -> tuple[Charge, ...]:
    rows = connection.execute(text('SELECT id, "order", amount, key, at FROM charges ORDER BY number'))
    return tuple(Charge(id, order, amount, key, _seconds(at)) for id, order, amount, key, at in rows)


def _seconds(at: object) -> float:
    """Read a time as either database gives it: SQLite as text, and neither with a zone unless one was stored."""
    known = at if isinstance(at, datetime) else datetime.fromisoformat(str(at))
    return (known if known.tzinfo else known.replace(tzinfo=UTC)).timestamp()
