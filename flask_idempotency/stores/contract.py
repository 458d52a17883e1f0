"""What a store promises: the verbs of records and leases, and those that take part in an app's own transaction."""

from collections.abc import Collection
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from flask_idempotency.core.checkpoint import Checkpoint
from flask_idempotency.core.figures import Figures
from flask_idempotency.core.lifecycle import State
from flask_idempotency.core.record import Asked, Busy, Claim, Record, Settled
from flask_idempotency.core.reference import Reference
from flask_idempotency.core.scope import RecordId, Scope
from flask_idempotency.core.snapshot import Answer
from flask_idempotency.errors import StoreUnavailable

if TYPE_CHECKING:
    from sqlalchemy import Engine, MetaData

    from flask_idempotency.stores.words import Intent, Kind


class StoreUndecided(StoreUnavailable):
    """The store was reached, and yet it is not known whether the request may run: then no view runs unprotected."""


class Store(Protocol):
    """claim · renew, checkpoint, complete, release, note, quarantine · find, browse, figures, reap · resolve, reopen,
    free, forget, forget_scope.

    The second group acts only on a claim that is still ours; the last is for people.
    Every method raises StoreUnavailable if the store cannot be reached. Time is the store's clock, not the caller's.
    """

    def check(self) -> None:
        """Raise ConfigError, in one sentence that says what to do, unless the store can be used. Changes nothing."""

    def create(self) -> None:
        """Create whatever the store needs, or upgrade it from an older version, without losing a record."""

    def prepare(self) -> None:
        """Get ready for the first claim of a process: an embedded store creates itself, any other is checked.

        Raises ConfigError, in one sentence, if it cannot be used.
        """

    def close(self) -> None:
        """Close the connections. The store can be used again afterwards."""

    def claim(self, asked: Asked, lease: timedelta, first: Checkpoint | None = None) -> Claim | Busy | Settled:
        """Give one caller the right to run, or say what stands in the way. One atomic step.

        A new record starts at the checkpoint *first*, if that is given; an existing one keeps its position.

        A lease that has expired, or was ended, goes to the next claimant of the same fingerprint with a new token. Only
        an expired one counts as taken over; after ``lifecycle.TAKEOVERS`` of those the record is quarantined instead.
        An expired record counts as absent. The claim carries the fingerprint of the record.
        """

    def renew(self, claim: Claim, lease: timedelta) -> None:
        """Start the lease again from now. Raises ClaimLost if another attempt took over.

        Do not wait for a record that an open phase has locked, if possible: its lease does not expire.
        """

    def complete(self, claim: Claim, answer: Answer, retention: timedelta) -> None:
        """Finish the record, once, even if the lease has expired. The retention starts now.

        Raises ClaimLost if another attempt took over, OutcomeUnknown if it is unclear whether the answer was stored.
        Completing the same claim again changes nothing.
        """

    def release(self, claim: Claim) -> None:
        """End the lease and let the next request run at once. Deletes nothing.

        Raises ClaimLost if the claim is no longer ours, and changes nothing then; but not if an earlier call, whose
        answer was lost, may have ended the lease itself.
        """

    def checkpoint(self, claim: Claim, made: Checkpoint) -> Claim:
        """Record how far a run has come, if the record's position is that of *claim*; give the updated claim.

        A checkpoint of the same name is replaced; an effect keeps the time of its first sending in a generation.
        Raises ClaimLost, or OutcomeUnknown if it is unclear whether it was written.
        """

    def checkpoints(self, record: RecordId) -> list[Checkpoint]:
        """Read the checkpoints of a run, in order. A record that was replaced starts with none."""

    def note(self, claim: Claim, reason: str) -> None:
        """Store on the record why its owner cannot continue. Does nothing if the claim is no longer ours."""

    def quarantine(self, claim: Claim, reason: str) -> None:
        """Quarantine the record for manual review. Raises ClaimLost if another attempt took over."""

    def resolve(self, record: RecordId, answer: Answer, retention: timedelta, remark: str) -> bool:
        """Finish a quarantined record with an answer that a person chose; False if it is not quarantined.

        *remark* says who did it, and is added to the reason with the time.
        """

    def reopen(self, record: RecordId, remark: str, refuted: Collection[tuple[str, str]] = ()) -> bool:
        """Let the next attempt resume a quarantined record; False if it is not quarantined.

        *refuted* names the effects that were sent and did not happen, each with its proof.
        """

    def free(self, record: RecordId, remark: str) -> bool:
        """End the lease of a running record, whoever holds it; False if it is not running.

        The next attempt resumes at once, and does not count as a takeover. Every later write of the former owner raises
        ClaimLost. *remark* is added to the reason with the time.
        """

    def forget(self, record: RecordId, remark: str) -> bool:
        """Blank the answer and the results of a finished record, expired or not; False if there is none.

        The record stays until it expires, as one whose body was not kept: a retry never runs again. *remark* is added
        to the reason with the time. Forgetting again changes nothing.
        """

    def forget_scope(self, scope: Scope, remark: str) -> int:
        """Do the same for every finished record of a caller, one after the other; say how many there are.

        What is running or quarantined, also with a stored request, is left as it is.
        """

    def abandoned(self, age: timedelta, limit: int = 50) -> list[Record]:
        """Read running records that no attempt holds and whose request was stored more than *age* ago.

        The one interrupted first comes first, so that no record keeps the others waiting.
        """

    def find(self, record: RecordId) -> Record | None:
        """Read one record. An expired one counts as absent."""

    def browse(
        self,
        *,
        reference: Reference | None = None,
        scope: Scope | None = None,
        state: State | None = None,
        limit: int = 50,
    ) -> list[Record]:
        """Read records for a person, newest first, expired ones included until they are reaped."""

    def figures(self) -> Figures:
        """Count the records, at a cost that does not grow with their number; where it would, estimate."""

    def reap(self, grace: timedelta, limit: int = 500) -> int:
        """Delete at most *limit* finished records that expired more than *grace* ago; say how many."""

    def reap_abandoned(self, age: timedelta, limit: int = 500) -> tuple[int, list[RecordId]]:
        """End running records that no attempt has held for *age*: at most *limit* without progress, and as many others.

        One that reached no phase or effect is deleted, with its stored request if it has one. Any other is quarantined
        as ``lifecycle.ABANDONED``. Gives how many were deleted, and which were quarantined.
        """


@runtime_checkable
class ExpiringStore(Store, Protocol):
    """A store that deletes records which expired more than ``grace`` ago by itself, so that ``reap`` has nothing to do.

    The grace is the app's setting, which is set before the first claim.
    """

    grace: timedelta


@runtime_checkable
class TransactionalStore(Store, Protocol):
    """enter · keep, undo · finish, commit, or leave. A store whose records can be part of an app's own transaction.

    *connection* is the driver's own, from the app's pool; what the app does on it between these calls is the work.
    A store that has all these methods and ``drivers`` is one; nothing needs to be inherited.
    """

    drivers: Collection[str]  # SQLAlchemy's names of the drivers whose connections can be shared

    def add_tables(self, metadata: "MetaData") -> None:
        """Add the store's tables to an app's metadata, so that its create_all() and migrations include them."""

    def recall(self, record: RecordId) -> Record | None:
        """Read a settled record that this process has seen before: retries come in bursts. None: call ``enter``."""

    def enter(
        self, connection: Any, asked: Asked, *, patience: timedelta, idle: timedelta, within: bool = False
    ) -> Claim | Busy | Settled:
        """Begin a transaction with the right to run, or use the one that is open; or say what stands in the way.

        Wait for another transaction that has the right, for *patience* at most. The server may end a transaction that
        is idle for *idle*. After Busy and Settled the caller must ``leave``, or roll back. A claim ends with
        ``finish``, ``commit`` or ``leave``, and when its connection comes back to a pool that ``watch`` knows.

        With *within*, the transaction belongs to someone else, such as a test, and is begun if it is not open:
        ``finish`` and ``commit`` then release a savepoint in it, and ``leave`` undoes that savepoint.
        """

    def begin(self, connection: Any) -> None:
        """Begin the transaction of a claim that ``is_late``: it was entered without one, for its work may only read.

        Called before the first statement that may write, and not for other claims. Raises StoreUnavailable.
        """

    def is_running(self, reference: Reference, scope: Scope) -> bool:
        """Say whether an open transaction has the right to run the request of this caller with this reference.

        False where the database cannot tell one open transaction from another.
        """

    def keep(self, connection: Any) -> None:
        """Treat what was done so far as committed: ``undo`` no longer affects it."""

    def undo(self, connection: Any) -> None:
        """Undo what was done since the last ``keep``, or since ``enter``."""

    def set_savepoint(self, connection: Any, name: str) -> None:
        """Set a savepoint of ours inside the work; ``keep`` and ``undo`` end it too.

        This method and the next two raise the driver's own errors.
        """

    def undo_savepoint(self, connection: Any, name: str) -> None:
        """Undo what was done since a savepoint, and end it."""

    def release_savepoint(self, connection: Any, name: str) -> None:
        """End a savepoint, and keep what was done since as part of what was done before."""

    def finish(
        self, connection: Any, claim: Claim, asked: Asked, answer: Answer, retention: timedelta, *, undo: bool = False
    ) -> None:
        """Add the finished record and commit, after an ``undo`` if one is due. The retention starts now.

        If nothing was committed, raises ClaimLost if another request has stored its record, StoreUnavailable if a retry
        may succeed, or WorkRefused if the database rejects the commit. Also raises ClaimLost if the app has ended the
        transaction by itself: the record is quarantined then. Raises OutcomeUnknown if the outcome is unclear:
        ``look_again`` finds it out.
        """

    def commit(self, connection: Any, *, undo: bool = False, within: bool = False) -> None:
        """Commit the work without a record, after an ``undo`` if one is due; *within* as at ``enter``.

        If nothing was committed, raises StoreUnavailable if a retry may succeed, or WorkRefused if the database rejects
        the commit. Raises OutcomeUnknown if the outcome is unclear.
        """

    def has_begun(self, connection: Any) -> bool:
        """Say whether a transaction is open, as far as the driver knows; asked before every statement of the app."""

    def app_begins(self, engine: "Engine") -> bool:
        """Say whether the app begins the transactions of this engine by a statement, in place of its driver.

        Such a statement is left out while the store's own transaction is open.
        """

    def is_begin(self, statement: str) -> bool:
        """Recognise the statement that begins a transaction, for an app of which ``app_begins`` is true."""

    def intent_of(self, statement: str) -> "Intent":
        """Say by a statement's words whether it reads, changes rows, or may do either; when in doubt, that it may.

        Asked before every query of the app: the database is not asked.
        """

    def kind_of(self, statement: str) -> "Kind":
        """Say by its words what a statement that the app has written itself does to its transaction."""

    def confirm(self, connection: Any, asked: Asked) -> None:
        """Make sure that the transaction is still the one that was entered, and ``undo``.

        Raises ClaimLost if the app has ended it by itself, and quarantines the record; or the driver's own error if the
        connection was lost.
        """

    def may_fence_on(self, connection: Any) -> bool:
        """Say whether ``fence`` may take over a connection on which the app has only read, with *ends_reading*."""

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
        """Begin the transaction of a phase, and first of all move the record on to *made*.

        The checkpoint *answered*, of the effect before it, is written in the same transaction, and ``undo`` keeps it.
        With *ends_reading*, roll back a transaction in which the app has read; raises WrittenBefore if it has done more
        than read. Raises ClaimLost, StoreUnavailable, or ThrownBack if it can be tried again at once.
        """

    def commit_phase(self, connection: Any, claim: Claim, made: Checkpoint, *, undo: bool = False) -> None:
        """Add the checkpoint of a phase and commit, after an ``undo`` if one is due.

        However long it took, a lease that had not expired at the ``fence`` has not expired at the end: it could not be
        renewed meanwhile. If nothing was committed, raises ThrownBack, StoreUnavailable, or WorkRefused if the database
        rejects the commit. Raises OutcomeUnknown if the outcome is unclear: ``position`` finds it out.
        """

    def position(self, claim: Claim) -> str | None:
        """Wait for a COMMIT in doubt, and give the position of the record.

        Raises ClaimLost, or OutcomeUnknown if it takes too long.
        """

    def watch(self, engine: "Engine") -> None:
        """Set up an engine so that ``has_written`` and ``roll_back`` know what was done on its connections."""

    def has_written(self, connection: Any) -> bool:
        """Say whether the app has written something in the transaction that is open on this connection.

        Raises StoreUnavailable if the connection is dead.
        """

    def has_unkept(self, connection: Any) -> bool:
        """Say whether something was written since the last ``keep`` or ``undo``, or since ``enter``.

        Raises StoreUnavailable if the connection is dead.
        """

    def roll_back(self, connection: Any) -> bool:
        """Roll back the app's transaction on this connection; say whether something was written in it.

        Raises StoreUnavailable if the connection is dead.
        """

    def gives_way(self, error: BaseException) -> bool:
        """Say whether the whole phase can run again at once after this driver error, which came before any COMMIT."""

    def leave(self, connection: Any) -> None:
        """Give up the right to run. A transaction that was open before ``enter`` stays open, with what was done in it.

        If it was entered with *within*, what was done since is undone.
        """

    def look_again(self, asked: Asked) -> Record | None:
        """Wait for a transaction whose outcome is in doubt, and read the record it left, once that is durable.

        Raises OutcomeUnknown if it takes too long.
        """
