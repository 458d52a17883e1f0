"""Checks, creates and upgrades the tables of a SQL store, which ``schema`` describes."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from sqlalchemy import Engine, MetaData
from sqlalchemy.pool import PoolProxiedConnection

from flask_idempotency.core.quota import Quota
from flask_idempotency.core.scope import RecordId
from flask_idempotency.core.snapshot import reseal
from flask_idempotency.errors import ConfigError
from flask_idempotency.stores import TablesMissing
from flask_idempotency.stores.database import Message, Rows, SqlDatabase
from flask_idempotency.stores.rows import to_bytes
from flask_idempotency.stores.schema import (
    OLDEST_USABLE,
    SCOPES,
    VERSION,
    Structure,
    add_tables,
    index_scopes,
    scope_index_statement,
    statements,
)

_INIT = "flask idempotency init"
MAKE_TABLES = f"make the tables with: {_INIT}"


class SqlTables(SqlDatabase):
    """A database with our tables, or one that they are created in."""

    quota: Quota | None = None  # of each scope; set before the first claim

    def __init__(self, engine: Engine, *, is_apps_own: bool = False) -> None:
        super().__init__(engine)
        self._is_apps_own = is_apps_own

    def check(self) -> None:
        """Raise ConfigError unless the tables are there, and of this version."""
        found = self._structure()
        self._check_usable(found)
        if found.version is not None and found.version < VERSION:
            raise ConfigError(self._too_old(found.version))
        if found.version != VERSION:
            raise ConfigError(
                "The tables are of a newer version than this release of Flask-Idempotency knows; use the release that"
                " upgraded them."
            )
        if not self._may_count(found):
            raise ConfigError(
                "IDEMPOTENCY_QUOTA counts the records of each caller, which takes very long without an index; make it"
                f" with{self._by_migration}: {_INIT}"
            )

    def _may_count(self, found: Structure) -> bool:
        """Say whether there is the index that a quota needs, if there is a quota."""
        return self.quota is None or SCOPES in found.indexes

    def create(self) -> None:
        """Make tables and indexes unless they exist, and upgrade those of an older version."""
        found = self._structure()
        check_columns(found)  # creating an index on a table that is not ours would fail with a less helpful message
        self._with_connection(self._make_tables)
        if not self._may_count(found):
            self._index_scopes()

    def _index_scopes(self) -> None:
        """Make the index that a quota needs."""
        statement = scope_index_statement(self._engine.dialect)
        self._with_connection(lambda connection: self._say(connection, (statement, {})))

    def prepare(self) -> None:
        """Check the tables before the first claim. A newer version, or a missing index, is accepted."""
        self._check_usable(self._structure())

    def _check_usable(self, found: Structure) -> None:
        check_columns(found)
        if found.version is not None and found.version < OLDEST_USABLE:
            raise ConfigError(self._too_old(found.version))
        for table in found.missing:
            or_else = " a migration, with db.create_all(), or with" if self._is_apps_own else ""
            raise TablesMissing(f"The table {table} does not exist; make it with{or_else}: {_INIT}")

    def _too_old(self, version: int) -> str:
        by_migration = (
            "" if version < OLDEST_USABLE else self._by_migration
        )  # which would miss constraints and stored answers
        return (
            f"The tables are of version {version}, and this release of Flask-Idempotency wants {VERSION}; upgrade them"
            f" with{by_migration}: {_INIT}"
        )

    @property
    def _by_migration(self) -> str:
        return " a migration, or with" if self._is_apps_own else ""

    def _structure(self) -> Structure:
        """Read which of our tables, columns and indexes exist."""
        return Structure.from_rows(self._run("structure"))

    def _make_tables(self, connection: PoolProxiedConnection) -> None:
        """Create or upgrade the tables in one transaction: a failure leaves them as they were."""
        say = partial(self._say, connection)
        for statement in self._statement("alone").split(";"):
            say((statement, {}))
        try:
            self._upgrade(say)
            say(("COMMIT", {}))
        except BaseException:
            with suppress(self._driver_error):
                say(("ROLLBACK", {}))
            raise

    def add_tables(self, metadata: MetaData) -> None:
        """Add the tables to an app's metadata, so that its create_all() and migrations include them."""
        record, _ = add_tables(metadata)
        if self.quota is not None:
            index_scopes(record)

    def _upgrade(self, say: Callable[[Message], Rows]) -> None:
        version = Structure.from_rows(say((self._statement("structure"), {}))).version or VERSION
        for step in range(max(version, 2), VERSION):  # the step from 1 to 2 alone needs nothing
            for statement in self._statement(f"upgrade_{step}").split(";"):
                say((statement, {}))
            if step == 2:
                for record, status, headers, body in say((self._statement("answers"), {})):
                    sealed = reseal(RecordId(bytes(record)), status, headers, to_bytes(body))
                    say((self._statement("reseal"), {"id": bytes(record), "headers": sealed or headers}))
        for statement in statements(self._engine.dialect):
            say((statement, {}))


def check_columns(found: Structure) -> None:
    """Raise ConfigError for a table that is not ours, or was changed so that an upgrade cannot repair it."""
    for table, columns in found.lacks.items():
        raise ConfigError(
            f"The table {table} is of another version, without {', '.join(columns)}; rename or drop it, then run:"
            f" {_INIT}"
        )
