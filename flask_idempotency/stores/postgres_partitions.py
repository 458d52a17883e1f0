"""Tables with a partition for each day, on PostgreSQL: how they are made, kept ahead, and dropped whole.

The *open* partition holds what is running or quarantined. A record that is finished is in the partition of the day, in
UTC, on which it expires, with its checkpoints; or in the open one, if there is no partition for that day.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date, timedelta
from functools import partial
from itertools import chain
from threading import Event
from typing import cast

from psycopg import Error
from psycopg.errors import LockNotAvailable
from sqlalchemy import Engine
from sqlalchemy.pool import PoolProxiedConnection

from flask_idempotency.core.checkpoint import Checkpoint
from flask_idempotency.core.record import Asked, Busy, Claim, Settled
from flask_idempotency.core.reference import reference_of
from flask_idempotency.core.scope import RecordId, Scope
from flask_idempotency.errors import ConfigError, StoreUnavailable
from flask_idempotency.stores import TABLES
from flask_idempotency.stores.database import Fault, Message, Rows, first_line, load_statement, log
from flask_idempotency.stores.days import Partition, Partitions, number_of, start_of
from flask_idempotency.stores.pipeline import converse
from flask_idempotency.stores.postgres_locks import record_lock
from flask_idempotency.stores.postgres_server import (
    BEGIN,
    IS_DIRECT,
    STATEMENT_TIMEOUT,
    UPGRADE_TIMEOUT,
    PostgresServer,
    combine,
    driver_of,
    milliseconds,
)
from flask_idempotency.stores.schema import Structure, partitioned_statements

BOTH_FORMS = ("structure", "bound", "advise", "index_scopes")  # asked before the form is known, or of the server
VARIANT, OPEN = "postgres_partitioned", "_open"
LOCKING = ("claim", "restart")  # they insert a record, so they hold the lock on its id
CLAIMED_NEXT = timedelta(milliseconds=50)  # longer than most claims hold the lock; each is tried a few times
DROP_TIMEOUT = timedelta(seconds=1)  # to wait for transactions that use a partition; leases must be renewed meanwhile
PAUSE = 0.6  # seconds until the next try: claims go on in between
PATIENCE = 500  # tries of ours: a transaction that uses the table may take minutes
# No such index, column or table: the tables have another form than this process knew.
OTHER_FORM = ("42P10", "42703", "42P01")
NO_PARTITION = "23514"  # a check's code, which names the table
# Somebody uses it, has it locked, or does the same: a lock, a time limit, a state, a name, a deadlock.
NOT_NOW = ("55P03", "57014", "55000", "55006", "42P07", "42P01", "42704", "40P01")

COMMIT: Message = ("COMMIT", {})
ROLLBACK: Message = ("ROLLBACK", {})
Say = Callable[[str], Rows]


class NotNowError(Exception):
    """A table is in use, or somebody else is doing the same: it may be possible later."""


class PostgresPartitions(PostgresServer):
    """Finds out which form the tables have, sends the statements of that form, and looks after the partitions."""

    def __init__(self, engine: Engine, *, is_apps_own: bool = False) -> None:
        super().__init__(engine, is_apps_own=is_apps_own)
        self._form: bool | None = None  # whether there are partitions; unknown at first, and when the tables changed
        self._told: set[str] = set()

    @property
    def is_partitioned(self) -> bool:
        """Say whether the tables have partitions, as far as this process knows."""
        if self._form is None:
            self._structure()
        return bool(self._form)

    def _structure(self) -> Structure:
        found = super()._structure()
        self._form = found.is_partitioned
        return found

    def _statement(self, verb: str) -> str:
        if verb in BOTH_FORMS or not self.is_partitioned:
            return super()._statement(verb)
        return load_statement(self.technology, verb, self.mark, VARIANT, OPEN)

    def _run_all(self, verbs: Sequence[str], values: Mapping[str, object]) -> list[Rows]:
        if verbs[0] not in LOCKING:
            return super()._run_all(verbs, values)

        def send(connection: PoolProxiedConnection) -> list[Rows]:
            messages: list[Message] = [(self._statement(verb), values) for verb in combine(verbs)]
            if not self.is_partitioned:
                rows = self._execute(connection, messages)
            else:
                lock = record_lock(reference_of(cast(RecordId, values["id"])), cast(Scope, values["scope"]))
                rows = self._execute_under(lock, connection, messages)
            return rows * (len(verbs) // len(rows))

        return self._with_connection(send)

    def _execute_under(self, lock: int, connection: PoolProxiedConnection, messages: list[Message]) -> list[Rows]:
        """Run statements under a lock, each with a snapshot that shows what the last holder of the lock has written."""
        wait = self._wait(lock, CLAIMED_NEXT)
        is_direct = bool(connection.info.get(IS_DIRECT))  # behind a pooler, the role may have another isolation level
        before, after = ([], []) if is_direct else ([BEGIN], [COMMIT])
        try:
            rows = self._execute(connection, [*before, *wait, *messages, *after])
        except Error as error:
            if not is_direct:
                with suppress(Error):
                    converse(driver_of(connection), [ROLLBACK])
            if isinstance(error, LockNotAvailable):
                return [[] for _ in messages]  # another request is about to write the record, or to read it: look again
            raise
        first = len(before) + len(wait)
        return rows[first : first + len(messages)]

    @property
    def restarting(self) -> Sequence[str]:  # type: ignore[override]  # it depends on the form of the tables
        """The verbs for a record that has expired."""
        return ("restart",) if self.is_partitioned else self.taking_over

    def claim(
        self, asked: Asked, lease: timedelta, first: Checkpoint | None = None, *, counts: bool = True
    ) -> Claim | Busy | Settled:
        """Claim as in plain tables; but while a transaction holds the lock on the id, none is given beside it."""
        try:
            return super().claim(asked, lease, first, counts=counts)
        except StoreUnavailable as error:
            lock = record_lock(reference_of(asked.id), asked.scope)
            if error.__cause__ is None and self.is_partitioned and self._run("is_running", lock=lock)[0][0]:
                return Busy(asked.fingerprint, timedelta(0))
            raise

    def _wait(self, lock: int, patience: timedelta) -> list[Message]:
        """Give the statements that wait for a lock, for so long at most."""
        if not patience:
            return []
        return [
            (self._statement("bound_wait"), {"patience": milliseconds(patience)}),
            (self._statement("wait"), {"lock": lock}),
            (self._statement("free_wait"), {}),
        ]

    def _is_other_form(self, error: Exception) -> bool:
        """Say whether the statement was made for another form of our tables; then look at them again the next time."""
        code, table = getattr(error, "sqlstate", None), getattr(getattr(error, "diag", None), "table_name", None)
        is_ours = table.startswith(TABLES) if table else code != NO_PARTITION
        if is_ours and code in (*OTHER_FORM, NO_PARTITION):
            self._form = None
            return True
        return False

    def _fault(self, error: Exception) -> Fault:
        fault = super()._fault(error)
        return Fault.CONFLICT if fault is Fault.FATAL and self._is_other_form(error) else fault

    def _unavailable(self, error: Exception) -> StoreUnavailable:
        self._is_other_form(error)
        return super()._unavailable(error)

    # -- making, checking, keeping up --------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise ConfigError also if what expires tomorrow has no partition."""
        super().check()
        if not self.is_partitioned:
            return
        found = self._partitions()
        tomorrow = found.last_day(timedelta(days=1))
        if tomorrow not in found.days:
            raise ConfigError(
                f"There is no partition for records that expire on {tomorrow}, so they stay in the open one and are"
                " deleted row by row; make it as the owner of the tables: flask idempotency init --partitioned"
            )

    def create(self) -> None:
        """Make plain tables, or upgrade them. Partitioned ones stay as they are, but for the index of a quota."""
        if not self._structure().is_partitioned:
            super().create()
        elif self.quota is not None:
            self._index_scopes()

    def _index_scopes(self) -> None:
        """Make the index that a quota needs on each table of records, while others use them."""
        for (statement,) in self._run("index_scopes"):
            self._with_connection(partial(self._say_at_length, statement))

    def _say_at_length(self, statement: str, connection: PoolProxiedConnection) -> None:
        with self._limited(connection, timedelta(seconds=UPGRADE_TIMEOUT)):
            self._say(connection, (statement, {}))

    @contextmanager
    def _limited(self, connection: PoolProxiedConnection, longest: timedelta) -> Iterator[None]:
        """Let each statement take so long. If one fails, the connection is not used again."""
        say = self._say_on(connection)
        if is_direct := bool(connection.info.get(IS_DIRECT)):  # behind a pooler it would reach other clients
            self._define("limit", say, longest=milliseconds(longest))
        yield
        if is_direct:
            self._define("limit", say, longest=milliseconds(STATEMENT_TIMEOUT))

    def partition(self, retention: timedelta) -> None:
        """Make partitioned tables, or move plain ones over while others use them: they become the open partition."""
        is_partitioned = self._structure().is_partitioned
        self.create()
        if not is_partitioned:
            for table in TABLES:
                self._briefly(partial(self._follow, "add_day", table=table))
                check = partial(self._follow, "check_day", table=table)
                self._if_possible(partial(self._at_once, "unhurried", check))
            self._briefly(self._move_over)
            self._form = None
        self.upkeep(retention, None)

    def upkeep(self, retention: timedelta, grace: timedelta | None) -> None:
        """Make the partitions that will be needed, and drop those in which everything expired more than *grace* ago.

        What is not possible now, because somebody uses a table or does the same, is done the next time.
        """
        if not self._structure().is_partitioned:
            return
        found = self._partitions()
        missing, dead = found.missing(retention), [] if grace is None else found.dead(grace)
        if found.days and (last := found.last_day(retention)) in missing:
            self._tell_once(f"there was none for records that expire on {last}; they are in the open one")
        if found.are_ours:
            made = (partial(self._add_day, day) for day in missing)
            dropped = (partial(self._drop, each) for each in dead)
            # The first one that is not possible ends this round: the caller has leases to renew.
            _ = all(self._if_possible(act) for act in chain(made, dropped))
        elif missing or dead:
            self._tell_once(
                f"{len(missing)} are to be made and {len(dead)} to be dropped, but the role does not own the tables; as"
                " their owner, run every day: flask idempotency reap"
            )

    def _partitions(self) -> Partitions:
        rows = self._run("partitions")
        now, are_ours, *_ = rows[0]
        found = [Partition(name, *how) for _, _, name, *how in rows if name is not None]
        return Partitions(self._to_instant(now), are_ours, found)

    def _move_over(self, say: Say) -> None:
        """Put partitioned tables in the place of the plain ones, in one transaction."""
        if Structure.from_rows(say(self._statement("structure"))).is_partitioned:
            return  # somebody else was faster
        for table, made in zip(TABLES, partitioned_statements(self._engine.dialect), strict=True):
            self._define("rename", say, table=table)
            say(made)
            self._define("attach_open", say, table=table)
            self._follow("owner_and_grants", say, source=table + OPEN, target=table)

    def _add_day(self, day: date, connection: PoolProxiedConnection) -> None:
        self._at_once("briefly", partial(self._make, day), connection)
        log.info("partition_made: for records that expire on %s", day)

    def _make(self, day: date, say: Say) -> None:
        """Make the partitions of a day, in both tables."""
        name, first, last = day.strftime("%Y%m%d"), start_of(day).isoformat(), start_of(day + timedelta(1)).isoformat()
        self._define("make_day", say, name=name, number=str(number_of(day)), first=first, last=last)
        if self.quota is not None:
            self._define("index_day", say, name=name)
        for table in TABLES:
            self._follow("owner_and_grants", say, source=table, target=f"{table}_{name}")

    def _drop(self, partition: Partition, connection: PoolProxiedConnection) -> None:
        """Detach a partition while others go on, and drop it when nobody can use it any more."""
        say, names = self._say_on(connection), {"table": partition.parent, "partition": partition.name}
        with self._limited(connection, DROP_TIMEOUT):
            if partition.is_attached:
                self._define("finish_detaching" if partition.is_half_detached else "detach", say, **names)
            self._define("drop", say, **names)
        log.info("partition_dropped: %s, in which everything had expired", partition.name)

    def _definition(self, verb: str, **names: str) -> str:
        """Read a definition, and write names and bounds into it, which can be no parameters."""
        return load_statement(self.technology, verb, self.mark, VARIANT).format(**names)

    def _define(self, verb: str, say: Say, **names: str) -> None:
        for statement in self._definition(verb, **names).split(";"):
            say(statement)

    def _follow(self, verb: str, say: Say, **names: str) -> None:
        """Send the statements that this one gives."""
        for (statement,) in say(self._definition(verb, **names)):
            say(statement)

    def _say_on(self, connection: PoolProxiedConnection) -> Say:
        def say(statement: str) -> Rows:
            try:
                return self._say(connection, (statement, {}))
            except Error as error:
                if error.sqlstate in NOT_NOW:
                    raise NotNowError(first_line(error)) from error
                raise

        return say

    def _at_once(self, limits: str, act: Callable[[Say], object], connection: PoolProxiedConnection) -> None:
        """Run *act* in one transaction, with the time limits of that statement."""
        say = self._say_on(connection)
        self._define(limits, say)
        try:
            act(say)
            say("COMMIT")
        except BaseException:
            with suppress(Error, NotNowError):
                say("ROLLBACK")
            raise

    def _briefly(self, act: Callable[[Say], object]) -> None:
        """Run *act* in a transaction that waits for no table longer than claims can; again, if it had to wait."""
        for _ in range(PATIENCE):
            with suppress(NotNowError):
                return self._with_connection(partial(self._at_once, "briefly", act))
            Event().wait(PAUSE)
        raise ConfigError(
            "The tables were in use for minutes, by one long transaction or by many; end those, and run this again."
        )

    def _if_possible(self, act: Callable[[PoolProxiedConnection], object]) -> bool:
        try:
            self._with_connection(act)
        except NotNowError as error:
            log.info("partition_busy: it is tried again later: %s", error)
            return False
        return True

    def _tell_once(self, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            log.error("partition_missing: %s", what)
