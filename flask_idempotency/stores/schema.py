"""The two tables, the versions they have had, and how to tell which one a database has.

``flask idempotency init``, ``db.create_all()`` and Alembic all work from the tables described here.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import (
    BLANK_SCHEMA,
    REAL,
    CheckConstraint,
    Column,
    DateTime,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql.elements import conv

from flask_idempotency.stores import TABLES

RECORD, CHECKPOINT = TABLES

SCOPES = f"{RECORD}_scope"  # an index that exists only where a quota is set
DAY = "day"  # the column that partitioned tables have besides
VERSION = 5  # of the tables as they are described here
OLDEST_USABLE = 4  # the last that had every column; it lacks an index
HISTORY = {
    1: "the first",
    2: "without a fill factor, on PostgreSQL; the same on SQLite",
    3: "fingerprints of 16 bytes instead of 33, and answers in fewer",
    4: "with checkpoints",
    5: "with an index of the running records, and no index on an expression, which Alembic could not compare",
}

# SQLite has no type for a time: there it is seconds since 1970, by the clock that all workers of one file share.
# MariaDB, by either of SQLAlchemy's names for it, wants lengths, has times without a zone, which are in UTC, and
# compares texts without regard to case and to spaces at their ends unless it is told not to.
_MARIADB = ("mysql", "mariadb")
_TIME = DateTime(timezone=True).with_variant(REAL(), "sqlite").with_variant(mysql.DATETIME(fsp=6), *_MARIADB)
_SMALL = SmallInteger().with_variant(Integer(), "sqlite")
_ID = LargeBinary().with_variant(mysql.BINARY(32), *_MARIADB)
_DIGEST = LargeBinary().with_variant(mysql.BINARY(16), *_MARIADB)
_BODY = LargeBinary().with_variant(mysql.LONGBLOB(), *_MARIADB)
_WORD = Text().with_variant(mysql.VARCHAR(16), *_MARIADB)
_NAME = Text().with_variant(mysql.VARCHAR(128), *_MARIADB)  # a checkpoint's name has at most 100
_TEXT = Text().with_variant(mysql.LONGTEXT(), *_MARIADB)
_OPTIONS: dict[str, Any] = {
    f"{dialect}_{option}": value
    for dialect in _MARIADB
    for option, value in {"engine": "InnoDB", "charset": "utf8mb4", "collate": "utf8mb4_nopad_bin"}.items()
}


def add_tables(metadata: MetaData) -> tuple[Table, Table]:
    """Put both tables into *metadata*, unless they are there already.

    They have no schema but the connection's own, because statements name them without one; and their constraints have
    the names that they always had, whatever naming convention the metadata has.
    """
    if RECORD not in metadata.tables:
        _add_record(metadata)
    if CHECKPOINT not in metadata.tables:
        _add_checkpoint(metadata)
    return metadata.tables[RECORD], metadata.tables[CHECKPOINT]


def _add_record(metadata: MetaData, *more: Column[int]) -> None:
    """One row for each (scope, key), found by the digest of both; the key itself is not stored."""
    Table(
        RECORD,
        metadata,
        # The key comes first: otherwise RETURNING gives wrong types in SQLite 3.40, as the table has no rowids.
        # Behind its 33 bytes the small numbers fill what PostgreSQL would leave empty before the first time.
        Column("id", _ID, nullable=False),
        Column("attempt", _SMALL, nullable=False),
        Column("status", _SMALL),
        *more,
        Column("created_at", _TIME, nullable=False),
        Column("lease_until", _TIME),
        Column("expires_at", _TIME),
        Column("scope", _TEXT, nullable=False),
        Column("method", _WORD, nullable=False),
        Column("path", _TEXT, nullable=False),
        Column("fingerprint", _DIGEST, nullable=False),
        Column("state", _WORD, nullable=False),
        Column("token", _DIGEST),
        Column("point", _NAME),
        Column("reason", _TEXT),
        Column("headers", _TEXT),
        Column("body", _BODY),
        PrimaryKeyConstraint("id", name=conv(f"{RECORD}_pkey")),
        _check("length(id) = 32", f"{RECORD}_id_check"),
        _check("length(fingerprint) = 16", f"{RECORD}_fingerprint_check"),
        _check("state IN ('running', 'finished', 'quarantined')", f"{RECORD}_state_check"),
        _check("state <> 'finished' OR (expires_at IS NOT NULL AND status IS NOT NULL)", f"{RECORD}_check"),
        _check("state <> 'running' OR lease_until IS NOT NULL", f"{RECORD}_check1"),
        # The reaper's way to what has expired, and to what was abandoned. Neither has a column that changes while a
        # record runs: on PostgreSQL a renewal or a phase then writes no index at all.
        _partial_index(f"{RECORD}_expires_at", "expires_at", "state = 'finished'"),
        # No running record has a time of expiry; that it is asked for keeps everybody but the reaper from this index,
        # which looks small to a planner and would be read instead of the key.
        _partial_index(f"{RECORD}_running", "created_at", "state = 'running' AND expires_at IS NULL"),
        schema=BLANK_SCHEMA,
        sqlite_with_rowid=False,
        **_OPTIONS,
    )


def _add_checkpoint(metadata: MetaData, *more: Column[int]) -> None:
    """How far the run of a record has come: one row for each phase and effect, and one for a stored request."""
    Table(
        CHECKPOINT,
        metadata,
        Column("record_id", _ID, nullable=False),
        Column("name", _NAME, nullable=False),
        Column("at", _TIME, nullable=False),
        Column("position", _SMALL, nullable=False),
        Column("generation", _SMALL, nullable=False),
        *more,
        Column("kind", _WORD, nullable=False),
        Column("state", _WORD, nullable=False),
        Column("result", _TEXT),
        PrimaryKeyConstraint("record_id", "name", name=conv(f"{CHECKPOINT}_pkey")),
        _check("length(record_id) = 32", f"{CHECKPOINT}_record_id_check"),
        _check("kind IN ('phase', 'effect', 'request')", f"{CHECKPOINT}_kind_check"),
        _check("state IN ('sent', 'done', 'void')", f"{CHECKPOINT}_state_check"),
        # The completer's way to requests that were left in the middle; a finished one is not in it.
        _partial_index(f"{CHECKPOINT}_request", "at", "kind = 'request'"),
        schema=BLANK_SCHEMA,
        sqlite_with_rowid=False,
        **_OPTIONS,
    )


def _check(rule: str, name: str) -> CheckConstraint:
    return CheckConstraint(rule, name=conv(name))


def _partial_index(name: str, column: str, rule: str) -> Index:
    return Index(name, column, postgresql_where=text(rule), sqlite_where=text(rule))


def index_scopes(table: Table) -> Index:
    """Give the way to a scope's records, which only a quota needs; it is not part of a version.

    It has no time beside the scope: on PostgreSQL, where equal entries are stored once, it then takes a fifth.
    """
    found = next((index for index in table.indexes if index.name == SCOPES), None)
    # A LONGTEXT has no length of its own.
    lengths: dict[str, Any] = {f"{dialect}_length": {"scope": 255} for dialect in _MARIADB}
    return found or Index(SCOPES, table.columns["scope"], **lengths)


def scope_index_statement(dialect: Dialect) -> str:
    """Give what makes the index that a quota needs, unless it exists."""
    record, _ = add_tables(MetaData())
    return str(CreateIndex(index_scopes(record), if_not_exists=True).compile(dialect=dialect)).strip()


def statements(dialect: Dialect) -> list[str]:
    """Give what makes tables and indexes, unless they exist."""
    made: list[CreateTable | CreateIndex] = []
    for table in _TABLES:
        made.append(CreateTable(table, if_not_exists=True))
        made += [CreateIndex(index, if_not_exists=True) for index in sorted(table.indexes, key=_name)]
    return [str(each.compile(dialect=dialect)).strip() for each in made]


def partitioned_statements(dialect: Dialect) -> list[str]:
    """Give what makes the tables that have a partition for each day; keys and indexes are those of the partitions."""
    metadata = MetaData()
    _add_record(metadata, _day())
    _add_checkpoint(metadata, _day())
    made = []
    for table in metadata.tables.values():
        columns = [Column(each.name, each.type, nullable=each.nullable) for each in table.columns if each.name != DAY]
        columns.insert(list(table.columns.keys()).index(DAY), _day())
        partitioned = Table(table.name, MetaData(), *columns, postgresql_partition_by=f"LIST ({DAY})")
        made.append(str(CreateTable(partitioned).compile(dialect=dialect)).strip())
    return made


def _day() -> Column[int]:
    """The partition of a row: 0 as long as it is running or quarantined, then the day of its expiry."""
    return Column(DAY, _SMALL, nullable=False, server_default=text("0"))


def _name(index: Index) -> str:
    return str(index.name)


@dataclass(frozen=True, slots=True)
class Structure:
    """What a database has of ours: the columns of each table, its indexes, and the length of its fingerprints."""

    columns: dict[str, set[str]]
    indexes: set[str]
    has_long_fingerprints: bool
    has_fill_factor: bool
    is_partitioned: bool = False

    @classmethod
    def from_rows(cls, rows: Iterable[Collection[str]]) -> "Structure":
        """Read what structure.sql gives: a table, a kind of thing, and its name."""
        found = cls({}, set(), False, False)
        for table, kind, name in rows:
            match kind:
                case "column":
                    found.columns.setdefault(table, set()).add(name)
                case "index":
                    found.indexes.add(name)
                case "long fingerprints":
                    found = replace(found, has_long_fingerprints=True)
                case "fill factor":
                    found = replace(found, has_fill_factor=True)
                case "partitioned":
                    found = replace(found, is_partitioned=True)
        return found

    @property
    def missing(self) -> list[str]:
        """The tables that do not exist."""
        return [table for table in TABLES if table not in self.columns]

    @property
    def version(self) -> int | None:
        """The version of the tables; None if there is no table of records. One with more columns than ours is newer."""
        if RECORD not in self.columns:
            return None
        if self.has_long_fingerprints:
            return 1 if self.has_fill_factor else 2
        if "point" not in self.columns[RECORD]:
            return 3
        if CHECKPOINT not in self.columns or _INDEXES - self.indexes:
            return 4
        return VERSION + 1 if any(self.columns[table] - _COLUMNS[table] - {DAY} for table in TABLES) else VERSION

    @property
    def lacks(self) -> dict[str, list[str]]:
        """The columns that a table of its version should have, and does not."""
        to_come = {"point", "reason"} if self.version == 3 or self.has_long_fingerprints else set()
        found = {table: sorted(_COLUMNS[table] - columns - to_come) for table, columns in self.columns.items()}
        return {table: columns for table, columns in found.items() if columns}


_TABLES = add_tables(MetaData())
_COLUMNS = {table.name: {column.name for column in table.columns} for table in _TABLES}
_INDEXES = {_name(index) for table in _TABLES for index in table.indexes}
