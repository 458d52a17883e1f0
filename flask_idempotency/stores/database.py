"""How a SQL store uses its database: named statements, one transaction for each call, and retries after conflicts.

SQLAlchemy's engine gives the connections; statements go to the driver as they are in their files, because
every request passes through here.
"""

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum, auto
from functools import cache
from importlib.resources import files
from typing import Any, ClassVar, TypeVar
from weakref import finalize

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import PoolProxiedConnection

from flask_idempotency.errors import ClaimLost, StoreUnavailable
from flask_idempotency.stores import TABLES
from flask_idempotency.stores.forks import leave_at_fork, notice_fork

TRIES = 3  # after three rivals of a claim, or three conflicts of a statement, the client must retry

log = logging.getLogger("flask_idempotency")

T = TypeVar("T")
Row = Sequence[Any]
Rows = list[Row]
Message = tuple[str, Mapping[str, object]]  # a statement, with parameters as the driver writes them, and their values


class ConnectionLost(StoreUnavailable):
    """The connection was dead before anything was done on it; a new one may work."""


class ThrownBack(StoreUnavailable):
    """A deadlock or serialisation failure: nothing was done, and it can be tried again at once."""


class LeftToPerson(ClaimLost):
    """The record of this run was quarantined."""


class WrittenBefore(Exception):
    """Something was written on the connection before, and would be lost."""


class Fault(Enum):
    """What a driver's error means for the statement that met it."""

    CONFLICT = auto()  # rejected by the database and certainly not done: run it again
    LOST = auto()  # the connection is gone, done or not: run it again on a new one; each statement can be repeated
    FATAL = auto()  # running it again would not help


class SqlDatabase(ABC):
    """A database that statements are sent to. A technology says how they are run, and what its errors mean."""

    technology: ClassVar[str]
    mark: ClassVar[str]  # how the driver writes the parameter NAME

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._driver_error: type[Exception] = engine.dialect.loaded_dbapi.Error
        leave_at_fork(engine)
        finalize(self, engine.dispose).atexit = False  # an app that is dropped, as in tests, leaves nothing open

    @abstractmethod
    def _execute(self, connection: PoolProxiedConnection, messages: Sequence[Message]) -> list[Rows]:
        """Run the statements in one transaction and give the rows of each once it is committed."""

    @abstractmethod
    def _say(self, connection: PoolProxiedConnection, message: Message) -> Rows:
        """Send one statement inside of an open transaction, and wait for it without a time limit."""

    @abstractmethod
    def _fault(self, error: Exception) -> Fault:
        """Say what a driver's error means."""

    @abstractmethod
    def _advice(self, error: Exception) -> str | None:
        """Say what a person can do about a driver's error, if anything."""

    def close(self) -> None:
        """Close the pooled connections."""
        self._engine.dispose()

    def _run(self, verb: str, **values: object) -> Rows:
        """Run one statement, in a transaction of its own."""
        return self._run_all((verb,), values)[0]

    def _run_all(self, verbs: Sequence[str], values: Mapping[str, object]) -> list[Rows]:
        """Run several statements, with the same values, in one transaction."""
        return self._with_connection(
            lambda connection: self._execute(connection, [(self._statement(verb), values) for verb in verbs])
        )

    def _with_connection(self, act: Callable[[PoolProxiedConnection], T]) -> T:
        """Run *act*, and run it again after a conflict or a lost connection: each statement here can be repeated."""
        notice_fork()
        for tries_left in reversed(range(TRIES)):
            connection = self._connect()
            try:
                return act(connection)
            except self._driver_error as error:
                fault = self._fault(error)
                if fault is not Fault.CONFLICT:
                    connection.invalidate()  # with whatever the statement has left on it
                if fault is Fault.LOST:
                    self._engine.dispose()  # the other pooled connections are likely dead too
                if fault is Fault.FATAL or not tries_left:
                    raise self._unavailable(error) from error
            except BaseException:
                connection.invalidate()  # interrupted in the middle of a statement, so it cannot be used again
                raise
            finally:
                with suppress(self._driver_error):
                    connection.close()
        raise AssertionError("the last try returns or raises")

    def _connect(self) -> PoolProxiedConnection:
        try:
            return self._engine.raw_connection()
        except (self._driver_error, SQLAlchemyError) as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> StoreUnavailable:
        advice = self._advice(error)
        log.error(
            "store_unavailable: %s: %s%s", type(error).__name__, first_line(error), f"; {advice}" if advice else ""
        )
        return StoreUnavailable(retry_after=1)

    def _statement(self, verb: str) -> str:
        return load_statement(self.technology, verb, self.mark)


@cache
def load_statement(technology: str, verb: str, mark: str, variant: str | None = None, tables: str = "") -> str:
    """Read a statement from its file, with parameters as its driver writes them.

    A line of comment is left out, ``@record`` stands for what is in record.sql, and ``:name`` for a parameter.
    A file of the same name in the folder *variant* comes first; in any other the names of our tables end in *tables*.
    """
    room = files(f"{__package__}.statements")

    def read(name: str) -> str:
        special = room.joinpath(variant or technology).joinpath(f"{name}.sql")
        is_special = variant is not None and special.is_file()
        path = special if is_special else room.joinpath(technology).joinpath(f"{name}.sql")
        lines = path.read_text("utf-8").splitlines()
        text = "\n".join(line for line in lines if not line.lstrip().startswith("--"))
        if tables and not is_special:
            text = re.sub(rf"\b({'|'.join(TABLES)})\b", rf"\1{tables}", text)
        return re.sub(r"(?<!@)@([a-z_]+)", lambda found: read(found[1]), text)

    return re.sub(r"(?<!:):([a-z]+)\b", lambda found: mark.replace("NAME", found[1]), read(verb))


def first_line(error: BaseException) -> str:
    """Give what names the fault; further lines of a driver's message may quote a row."""
    return next(iter(str(error).splitlines()), "")
