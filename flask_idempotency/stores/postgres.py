"""Records in PostgreSQL, through psycopg. A verb is one statement and one commit; no session state stays behind."""

from sqlalchemy import create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from flask_idempotency.errors import ConfigError
from flask_idempotency.stores.postgres_phase import PostgresPhases
from flask_idempotency.stores.postgres_server import connect, get_to_know

CONNECT_TIMEOUT = 5  # seconds: a dead server must become a 503 before the client gives up
POOL_SIZE = 15  # connections at most for each process; they are made when they are needed
POOL_TIMEOUT = 5  # seconds, for the same reason


class PostgresStore(PostgresPhases):
    """Claims a first request in one round trip, and looks again after a COMMIT in doubt."""

    drivers = ("psycopg",)
    reads_first = False  # most requests are first ones, and a conflict writes and locks nothing


def open_url(url: str | URL, is_apps_own: bool = False) -> PostgresStore:
    """Make a store on an engine of its own, so that waiting for a record never waits for the app's connections."""
    given = make_url(url).set(drivername="postgresql+psycopg")
    # psycopg prepares nothing, and nothing is set for the session: a pooler in transaction mode may stand between.
    settings: dict[str, object] = {"autocommit": True, "prepare_threshold": None}
    if "connect_timeout" not in given.query:
        settings["connect_timeout"] = CONNECT_TIMEOUT
    try:
        engine = create_engine(
            given,
            connect_args=settings,
            pool_size=POOL_SIZE,
            max_overflow=0,  # a connection made for one statement would cost more than the statement
            pool_timeout=POOL_TIMEOUT,
            pool_use_lifo=True,  # the last one used, whose server process still has warm caches
            pool_reset_on_return=None,  # in autocommit mode nothing is left to reset
            use_native_hstore=False,
        )
    except (ArgumentError, TypeError) as error:
        raise ConfigError(f"IDEMPOTENCY_STORE: {error}.") from None
    event.listen(engine, "do_connect", connect)
    event.listen(engine, "connect", get_to_know)
    return PostgresStore(engine, is_apps_own=is_apps_own)
