"""Where records live: one module per technology. Stores know no HTTP and decide nothing; here is their contract.

Every store, ours or yours, passes ``flask_idempotency.testing.StoreContract``.
"""

from collections.abc import Callable, Collection
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from flask_idempotency.core.checkpoint import Checkpoint
from flask_idempotency.core.lifecycle import State
from flask_idempotency.core.record import Asked, Busy, Claim, Record, Settled
from flask_idempotency.core.reference import Reference
from flask_idempotency.core.scope import RecordId
from flask_idempotency.core.snapshot import Answer
from flask_idempotency.errors import ConfigError

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine

__all__ = ["Store", "TransactionalStore", "include_object", "open_store"]

TABLES = ("idempotency_record", "idempotency_checkpoint")


class TablesMissing(ConfigError):
    """Nobody has made the tables yet."""


class Store(Protocol):
    """claim · renew, checkpoint, complete, release, note, quarantine · find, browse, reap · resolve, reopen.

    The second group acts only on a claim that is still ours, the last is for people.
    Every method raises StoreUnavailable when the store cannot be asked. Time is by the store's clock, not the caller's.
    """

    def check(self) -> None:
        """Raise ConfigError, in one sentence that says what to do, unless the store can be used. Changes nothing."""

    def create(self) -> None:
        """Make whatever the store needs to exist, or upgrade it from an older version, without losing a record."""

    def prepare(self) -> None:
        """Get ready for the first claim of a process: an embedded store makes itself, any other is checked.

        Raises ConfigError, in one sentence, if it cannot be used.
        """

    def close(self) -> None:
        """Let go of connections. The store may be used again afterwards."""

    def claim(self, asked: Asked, lease: timedelta, first: Checkpoint | None = None) -> Claim | Busy | Settled:
        """Give one caller the right to run, or say what stands in the way. One atomic step.

        A record that is new has come as far as *first*, if that is given; one that was there stands where it stood.

        A lease that has passed, or was ended, goes to the next claimant of the same fingerprint with a new token. Only
        one that has passed was taken over; after ``lifecycle.TAKEOVERS`` of those the record is quarantined instead.
        An expired record counts as absent. The claim has the fingerprint that the record has.
        """

    def renew(self, claim: Claim, lease: timedelta) -> None:
        """Let the lease run from now on. Raises ClaimLost if somebody took over.

        A record that an open phase holds is not waited for, where that can be told: its lease does not pass.
        """

    def complete(self, claim: Claim, answer: Answer, retention: timedelta) -> None:
        """Finish the record, once; a lease that has passed is no obstacle. Retention counts from here.

        Raises ClaimLost if somebody took over, OutcomeUnknown if it cannot be told whether the answer was stored.
        Completing the same claim again changes nothing.
        """

    def release(self, claim: Claim) -> None:
        """End the lease and let the next request run at once. Deletes nothing.

        Raises ClaimLost if the claim is no longer ours; then nothing is changed. If an earlier sending may have ended
        the lease, because its answer was lost, nothing is raised.
        """

    def checkpoint(self, claim: Claim, made: Checkpoint) -> Claim:
        """Write down how far a run has come, if the record stands where *claim* says; give the claim as it is then.

        A checkpoint of the same name is replaced; an effect keeps the time of its first sending in a generation.
        Raises ClaimLost, or OutcomeUnknown if it cannot be told whether it was written.
        """

    def checkpoints(self, record: RecordId) -> list[Checkpoint]:
        """Read how far a run has come, in the order in which it went. A new epoch begins with none."""

    def note(self, claim: Claim, reason: str) -> None:
        """Say on the record why its owner cannot go on; a claim no longer ours is left alone."""

    def quarantine(self, claim: Claim, reason: str) -> None:
        """Give the record to a person. Raises ClaimLost if somebody took over."""

    def resolve(self, record: RecordId, answer: Answer, retention: timedelta, remark: str) -> bool:
        """Settle a quarantined record with a person's answer; False if it is not quarantined.

        *remark* says who did it, and is added to the reason with the time.
        """

    def reopen(self, record: RecordId, remark: str, refuted: Collection[tuple[str, str]] = ()) -> bool:
        """Let the next attempt go on with a quarantined record; False if it is not quarantined.

        *refuted* names the effects that were sent and certainly did not happen, each with its proof.
        """

    def abandoned(self, age: timedelta, limit: int = 50) -> list[Record]:
        """Read running records that nobody holds and whose request was stored more than *age* ago.

        The one that was left first comes first, so that none keeps the others waiting.
        """

    def find(self, record: RecordId) -> Record | None:
        """Read one record. Expired is absent."""

    def browse(
        self, *, reference: Reference | None = None, state: State | None = None, limit: int = 50
    ) -> list[Record]:
        """Read records for a person, newest first, expired ones included until they are reaped."""

    def reap(self, grace: timedelta, limit: int = 500) -> int:
        """Delete at most *limit* finished records that expired more than *grace* ago; say how many."""

    def reap_abandoned(self, age: timedelta, limit: int = 500) -> tuple[int, list[RecordId]]:
        """End running records that nobody has held for *age*: at most *limit* that began nothing, and as many others.

        One that has come to no phase or effect is deleted; a stored request is no progress, and goes with it. Any other
        is quarantined as ``lifecycle.ABANDONED``. Says how many were deleted, and which were quarantined.
        """


class TransactionalStore(Store, Protocol):
    """enter · keep, undo · finish, commit, or leave. A store whose records can be part of an app's own transaction.

    *connection* is the driver's own, from the app's pool; whatever the app does on it between these calls is the work.
    """

    drivers: Collection[str]  # SQLAlchemy's names of those whose connections can be joined

    def recall(self, record: RecordId) -> Record | None:
        """Read a settled record, if this process has met it before: a key comes back in bursts. None: ``enter``."""

    def enter(
        self, connection: Any, asked: Asked, *, patience: timedelta, idle: timedelta, within: bool = False
    ) -> Claim | Busy | Settled:
        """Begin a transaction that has the right to run, or join the one that is open; or say what stands in the way.

        Whoever has the right in another transaction is waited for, at most for *patience*. A transaction that does
        nothing for *idle* may be ended by the server. After Busy and Settled the caller must ``leave``, or roll back.

        With *within*, the transaction belongs to somebody else, such as a test, and is begun if it has not: ``finish``
        and ``commit`` then end a savepoint in it, ``leave`` undoes that savepoint, and none of them ends more.
        """

    def keep(self, connection: Any) -> None:
        """Take what was done so far for committed: ``undo`` no longer touches it."""

    def undo(self, connection: Any) -> None:
        """Undo what was done since the last ``keep``, or since ``enter``."""

    def finish(
        self, connection: Any, claim: Claim, asked: Asked, answer: Answer, retention: timedelta, *, undo: bool = False
    ) -> None:
        """Add the finished record and commit, after an ``undo`` if one is due. Retention counts from here.

        Raises, after which nothing of the work is left: ClaimLost if there is a record by somebody else,
        StoreUnavailable if it could be tried again, WorkRefused if the database will not commit it. Raises ClaimLost
        too where the app has ended the transaction by itself, and the record was left to a person; and OutcomeUnknown
        if it cannot be told, and ``look_again`` can.
        """

    def commit(self, connection: Any, *, undo: bool = False, within: bool = False) -> None:
        """Commit the work without a record, after an ``undo`` if one is due; *within* as at ``enter``.

        Raises, after which nothing of the work is left: StoreUnavailable if it could be tried again, WorkRefused if the
        database will not commit it. Raises OutcomeUnknown if it cannot be told.
        """

    def has_begun(self, connection: Any) -> bool:
        """Say whether a transaction is open, as far as the driver knows; asked before every statement of the app."""

    def confirm(self, connection: Any, asked: Asked) -> None:
        """Make sure that the transaction is still the one that was entered, and ``undo``.

        Raises ClaimLost where the app has ended it by itself, and the record was left to a person; or the driver's own
        error if the connection was lost.
        """

    def fence(
        self,
        connection: Any,
        claim: Claim,
        made: Checkpoint,
        *,
        idle: timedelta,
        answered: Checkpoint | None = None,
        ends_reading: bool = False,
    ) -> None:
        """Begin the transaction of a phase: the record is moved on to *made* before anything else is done.

        The checkpoint *answered*, of an effect before it, is written in the same transaction; no undo takes it back.
        With *ends_reading*, a transaction in which the app has read is rolled back first; raises WrittenBefore if it
        had done more than read. Raises ClaimLost, StoreUnavailable, or ThrownBack if it can be tried again at once.
        """

    def commit_phase(self, connection: Any, claim: Claim, made: Checkpoint, *, undo: bool = False) -> None:
        """Add the checkpoint of a phase and commit, after an ``undo`` if one is due.

        However long it took, a lease that ran at the ``fence`` runs at the end: nobody could renew it meanwhile.
        Raises, after which nothing of the phase is left, ThrownBack, StoreUnavailable, or WorkRefused if the database
        will not commit it. Raises OutcomeUnknown if it cannot be told; then ``position`` can.
        """

    def position(self, claim: Claim) -> str | None:
        """Wait for a COMMIT in doubt, and say where the record stands.

        Raises ClaimLost, or OutcomeUnknown if it takes too long.
        """

    def watch(self, engine: "Engine") -> None:
        """Get ready to tell, in ``has_written`` and ``roll_back``, what was done on an engine's connections."""

    def has_written(self, connection: Any) -> bool:
        """Say whether the app has written something in the transaction that is open on this connection.

        Raises StoreUnavailable if the connection is dead.
        """

    def has_unkept(self, connection: Any) -> bool:
        """Say whether something was written since the last ``keep`` or ``undo``, or since ``enter``.

        Raises StoreUnavailable if the connection is dead.
        """

    def roll_back(self, connection: Any) -> bool:
        """Roll back what the app has begun on this connection; say whether it had written something.

        Raises StoreUnavailable if the connection is dead.
        """

    def gives_way(self, error: BaseException) -> bool:
        """Say whether an error of the driver, before any COMMIT, lets the whole phase be run again at once."""

    def leave(self, connection: Any) -> None:
        """Give up the right to run; a transaction that was open before ``enter`` stays open with all that was done.

        All that was done before ``enter``, if that was *within* it.
        """

    def look_again(self, asked: Asked) -> Record | None:
        """Wait for a transaction whose end is in doubt, and read what it left, once that is as durable as any commit.

        Raises OutcomeUnknown if it takes too long.
        """


def include_object(item: Any, name: str | None, type_: str, reflected: bool, compare_to: Any) -> bool:
    """Keep Alembic's autogenerate away from our tables, for an app whose metadata does not have them.

    It goes into ``context.configure(include_object=...)`` in ``env.py``; ``flask idempotency init`` makes the tables.
    """
    table = item if type_ == "table" else getattr(item, "table", None)
    return getattr(table, "name", None) not in TABLES


_TECHNOLOGIES = {
    "memory": "memory",
    "sqlite": "sqlite",
    "postgresql": "postgres",
    "postgres": "postgres",
}
_NOT_YET = {"redis", "rediss", "mysql", "mariadb"}


def open_store(url: "str | URL", *, is_apps_own: bool = False) -> Store:
    """Make the store that *url* names, without connecting. Raises ConfigError for a URL that names none.

    With *is_apps_own* the database belongs to the app: nothing is made in it but by ``create``.
    """
    from sqlalchemy.engine import make_url  # slow to import, and not needed by an app that brings its own store
    from sqlalchemy.exc import ArgumentError

    try:
        scheme = make_url(url).get_backend_name()
    except (ArgumentError, ValueError, AttributeError):
        # The URL may hold a password, so it is not repeated.
        raise ConfigError(
            "IDEMPOTENCY_STORE is not a URL; write it like postgresql://user:password@host/database."
        ) from None
    if is_apps_own and scheme not in _TECHNOLOGIES:
        raise ConfigError(
            f"db= uses {scheme}, which cannot hold the records yet: leave db= out to keep them in IDEMPOTENCY_STORE, or"
            " in a SQLite file, with the lease guard and without phase()."
        )
    if scheme in _NOT_YET:
        raise ConfigError(f"IDEMPOTENCY_STORE: {scheme} is not available yet; use postgresql or sqlite.")
    if scheme not in _TECHNOLOGIES:
        raise ConfigError(f"IDEMPOTENCY_STORE: {scheme} is not a known store; use postgresql, sqlite or memory.")
    technology = _TECHNOLOGIES[scheme]
    try:
        opener: Callable[[str | URL, bool], Store] = import_module(f"{__name__}.{technology}").open_url
    except ModuleNotFoundError as error:
        place = "db=" if is_apps_own else "IDEMPOTENCY_STORE"
        raise ConfigError(
            f"{place}: {error.name} is not installed; run: pip install flask-idempotency[{technology}]"
        ) from None
    return opener(url, is_apps_own)
