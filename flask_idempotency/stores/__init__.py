"""Where records live: each technology has modules of its own. Stores know no HTTP and decide nothing.

Every store, ours or yours, passes ``flask_idempotency.testing.StoreContract``.
"""

import re
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from flask_idempotency.errors import ConfigError
from flask_idempotency.stores.contract import ExpiringStore, Store, TransactionalStore
from flask_idempotency.stores.counting import CountingStore
from flask_idempotency.stores.partitioned import PartitionedStore

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import URL

__all__ = [
    "CountingStore",
    "ExpiringStore",
    "PartitionedStore",
    "Store",
    "TransactionalStore",
    "include_object",
    "open_store",
]

TABLES = ("idempotency_record", "idempotency_checkpoint")
_OURS = re.compile(rf"({'|'.join(TABLES)})(_open|_[0-9]{{8}})?")  # a table, or a partition of it


class TablesMissing(ConfigError):
    """The tables have not been created yet."""


def include_object(item: Any, name: str | None, type_: str, reflected: bool, compare_to: Any) -> bool:
    """Keep Alembic's autogenerate away from our tables and their partitions.

    For an app whose metadata does not have them, or that keeps them partitioned, of which metadata knows nothing. It
    goes into ``context.configure(include_object=...)`` in ``env.py``; ``flask idempotency init`` makes the tables.
    """
    table = item if type_ == "table" else getattr(item, "table", None)
    found = _OURS.fullmatch(getattr(table, "name", None) or "")
    return found is None


_TECHNOLOGIES = {
    "memory": "memory",
    "sqlite": "sqlite",
    "postgresql": "postgres",
    "postgres": "postgres",
    "mariadb": "mariadb",
    "mysql": "mariadb",
    "redis": "redis",
    "rediss": "redis",
    "dynamodb": "dynamodb",
}
_APART = {"dynamodb"}  # never an app's own database
_SEVERAL_HOSTS = re.compile(r"(rediss?)\+(?:sentinel|cluster)://")  # SQLAlchemy cannot read these URLs


def locate_store(url: str | None, folder: "Path") -> "str | URL":
    """Complete what ``IDEMPOTENCY_STORE`` says: a file is in *folder* unless its path is absolute, and without a URL
    the records are in a file there.
    """
    from sqlalchemy.engine import make_url  # as in open_store
    from sqlalchemy.exc import ArgumentError

    try:
        given = None if url is None else make_url(url)
    except (ArgumentError, ValueError):
        return url or ""  # open_store says what is wrong with it
    if given is not None and given.get_backend_name() != "sqlite":
        return given
    from flask_idempotency.stores.sqlite_file import default_url, in_folder

    return default_url(folder) if given is None else in_folder(given, folder)


def open_store(url: "str | URL", *, is_apps_own: bool = False) -> Store:
    """Make the store that *url* names, without connecting. Raises ConfigError for a URL that names none.

    With *is_apps_own* the database belongs to the app: nothing is made in it but by ``create``.
    """
    from sqlalchemy.engine import make_url  # slow to import, and not needed by an app that brings its own store
    from sqlalchemy.exc import ArgumentError

    several = _SEVERAL_HOSTS.match(url) if isinstance(url, str) else None
    try:
        scheme = several[1] if several else make_url(url).get_backend_name()
    except (ArgumentError, ValueError, AttributeError):
        # The URL may hold a password, so it is not repeated.
        raise ConfigError(
            "IDEMPOTENCY_STORE is not a URL; write it like postgresql://user:password@host/database, sqlite:///records.db"
            " or, in tests, memory://."
        ) from None
    if is_apps_own and (scheme not in _TECHNOLOGIES or scheme in _APART):
        raise ConfigError(
            f"db= uses {scheme}, which cannot hold the records yet: leave db= out to keep them in IDEMPOTENCY_STORE, or"
            " in a SQLite file, with the lease guard and without phase()."
        )
    if scheme not in _TECHNOLOGIES:
        raise ConfigError(
            f"IDEMPOTENCY_STORE: {scheme} is not a known store; use postgresql, sqlite, mariadb, redis, dynamodb or"
            " memory."
        )
    technology = _TECHNOLOGIES[scheme]
    try:
        opener: Callable[[str | URL, bool], Store] = import_module(f"{__name__}.{technology}").open_url
    except ModuleNotFoundError as error:
        place = "db=" if is_apps_own else "IDEMPOTENCY_STORE"
        raise ConfigError(
            f"{place}: {error.name} is not installed; run: pip install flask-idempotency[{technology}]"
        ) from None
    return opener(url, is_apps_own)
