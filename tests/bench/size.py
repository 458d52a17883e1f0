"""Whether a claim or a replay costs more when the table is large, and how large a record is."""

import os
import random
from collections.abc import Sequence
from contextlib import ExitStack
from uuid import uuid4

import psycopg

from tests.bench.apps import Case, closing, make_app, post
from tests.bench.progress import progress
from tests.bench.timing import measure
from tests.fixtures.postgres import PostgresServer

FEW = 10_000  # records: what the large table is compared to
SCOPE = "account:12345"
ROUNDS = 250
TARGET = 1.2
MOST_BYTES = 300
BATCH = 100_000  # records in one statement
HEADERS = "'j[]'"  # the app's own, a JSON answer's; a Location is some 32 bytes more


def show_size(records: int) -> None:
    """Print what a large table costs against a small one, and the bytes of a record."""
    settings = {"max_wal_size": "8GB", "checkpoint_timeout": "1h"}  # no checkpoint of the filling during the measuring
    with PostgresServer(settings=settings) as server:
        small, large = server.create_database(), server.create_database()
        for database, count in ((small, FEW), (large, records)):
            fill(server, database, count)
        with ExitStack() as stack:
            cases = [
                *cases_on(server.url(small), FEW, stack),
                *cases_on(server.url(large), records, stack),
            ]
            times = measure("size", cases, ROUNDS)
        sizes = sizes_of(server, large)
    half = len(cases) // 2
    print(f"{records:,} records against {FEW:,}, PostgreSQL; records are looked up all over the table")
    for case, few, many in zip(cases[half:], times[:half], times[half:], strict=True):
        ratio = many.wall / few.wall
        over = "  over" if round(ratio, 2) > TARGET else ""
        print(f"  {case.name.partition(': ')[2]:30}{ratio:6.2f}  (target: ≤ {TARGET}){over}")
    total = sum(sizes.values()) / records
    over = "  over" if total > MOST_BYTES else ""
    print(f"  bytes per record, no body     {total:6.0f}  (target: ≤ {MOST_BYTES}){over}")
    print("    " + ", ".join(f"{name} {size / records:.0f}" for name, size in sizes.items()))
    print(f"  (load {os.getloadavg()[0]:.1f})\n", flush=True)


def cases_on(url: str, records: int, stack: ExitStack) -> Sequence[Case]:
    """First runs, and replays of records that the table was filled with."""
    joined, leased = make_app(url, "transaction", lambda: SCOPE), make_app(url, "lease", lambda: SCOPE)
    stack.enter_context(closing(joined, leased))

    def any_key() -> str:
        return f"key-{random.randint(1, records)}"

    return [
        Case(f"{records}: transaction guard, first run", lambda: post(joined, str(uuid4()))),
        Case(f"{records}: transaction guard, replay", lambda: post(joined, any_key())),
        Case(f"{records}: lease guard, first run", lambda: post(leased, str(uuid4()))),
        Case(f"{records}: lease guard, replay", lambda: post(leased, any_key())),
    ]


def fill(server: PostgresServer, database: str, records: int) -> None:
    """Add finished records as the transaction guard writes them, one after the other, all of them to be replayed."""
    app = make_app(server.url(database), "transaction", lambda: SCOPE)
    with closing(app):
        post(app, "pattern")
    with psycopg.connect(server.url(database, driver="postgresql"), autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        for first in range(1, records + 1, BATCH):
            progress("filling", first, records)
            connection.execute(INSERT, {"scope": SCOPE, "first": first, "last": min(first + BATCH - 1, records)})
        progress("filling", records, records)
        connection.execute("VACUUM ANALYZE idempotency_record")
        connection.execute("CHECKPOINT")
    check_replay(server, database, f"key-{records}")


def check_replay(server: PostgresServer, database: str, key: str) -> None:
    """Make sure that a record made by SQL is taken for the package's own: an order more would mean a first run."""
    app = make_app(server.url(database), "transaction", lambda: SCOPE)
    with closing(app):
        post(app, key)
    with psycopg.connect(server.url(database, driver="postgresql")) as connection:
        orders = connection.execute('SELECT count(*) FROM "order"').fetchone()
    assert orders == (1,), "the records in the table are not found by their keys"


def framed(*parts: str) -> str:
    """Write in SQL what core.framing does: each part with its length in front."""
    return " || ".join(f"int8send(octet_length({part})) || {part}" for part in parts)


# Request and scope are those of a record that the app has written; id and seal are made as the package makes them.
INSERT = f"""
INSERT INTO idempotency_record (id, scope, method, path, fingerprint, state, token, attempt, created_at, expires_at,
                                status, headers, body)
SELECT made.id, pattern.scope, pattern.method, pattern.path, pattern.fingerprint, pattern.state,
       substr(sha256(made.id), 1, 16), 1, clock_timestamp(), clock_timestamp() + interval '1 day', 201,
       encode(substr(sha256({framed("made.id", "'201'::bytea", "made.headers::bytea", "'kept'::bytea", "''::bytea")}),
                     1, 6), 'base64') || made.headers,
       ''::bytea
  FROM (SELECT sha256({framed("%(scope)s::text::bytea", "('key-' || n)::bytea")}) AS id, {HEADERS} AS headers
          FROM generate_series(%(first)s::int, %(last)s::int) AS n) AS made,
       (SELECT * FROM idempotency_record
         WHERE id = sha256({framed("%(scope)s::text::bytea", "'pattern'::bytea")})) AS pattern
"""


def sizes_of(server: PostgresServer, database: str) -> dict[str, int]:
    """Give the bytes of the table and of each of its indexes."""
    with psycopg.connect(server.url(database, driver="postgresql")) as connection:
        rows = connection.execute(
            "SELECT 'table', pg_table_size('idempotency_record') UNION ALL"
            " SELECT indexrelid::regclass::text, pg_relation_size(indexrelid)"
            "   FROM pg_index WHERE indrelid = 'idempotency_record'::regclass"
        )
        return {name.removeprefix("idempotency_record_"): size for name, size in rows}
