"""A transaction on which the view may end its own as often as it likes, and none of them ends."""

from collections.abc import Callable
from typing import Any

from sqlalchemy.pool import PoolProxiedConnection

from flask_idempotency.errors import WorkRefused

_BEGIN_NEXT = "SAVEPOINT idempotency_next"  # names may repeat: the newest counts
_UNDO_LAST = ("ROLLBACK TO SAVEPOINT idempotency_next", "RELEASE SAVEPOINT idempotency_next")


class Joint:
    """The one transaction under all the sessions of a request; each has its own face of it.

    What the view commits is kept by a savepoint, but only when something comes after it that might be rolled back.
    What one session commits is committed for all of them. What one rolls back is undone without the others' work, as
    far as savepoints can tell them apart: the second to begin has one of its own.
    """

    def __init__(self, pooled: PoolProxiedConnection, keep: Callable[[], None], undo: Callable[[], None]) -> None:
        self.pooled, self._keep, self._undo = pooled, keep, undo
        self.commits = 0  # how often something was committed
        self.ignores_begin = False  # the app begins by hand, where its driver does not
        self._to_keep = False  # something was committed, and has no savepoint yet
        self.to_undo = False  # something was rolled back, and is not undone yet
        self.is_reading = False  # the statements from here on only read
        self.is_refreshing = False  # an object is read again: if that fails the request does, and needs no savepoint
        self._at_work: list[Face] = []  # who did something that a commit keeps and a rollback undoes, in that order
        self.is_ending = False  # all that nobody has committed is undone at once
        self._is_torn = False  # something was rolled back that cannot be told from the work of another

    @property
    def is_settled(self) -> bool:
        """Whether nothing was written, or undone, that was not committed."""
        return not (self.to_undo or (self._at_work and any(face.has_written for face in self._at_work)))

    def is_at_work(self, face: "Face") -> bool:
        """Say whether something was done through this face since the last commit or rollback."""
        return face in self._at_work

    def begin(self, face: "Face") -> None:
        """Note that something was done through this face."""
        face.has_written = face.is_mixed = False
        self._at_work.append(face)
        self._note_write(face)

    def act(self, face: "Face") -> None:
        """Be ready for whatever is done next through this face; it counts as written unless it is known to read."""
        if self.to_undo:
            self.to_undo = False
            self._undo()
        if self.is_refreshing:
            return
        if self._to_keep:
            self._keep()  # which fails where what was committed had failed; then nothing heals it
            self._to_keep = False
        if face in self._at_work:
            self._note_write(face)
        else:
            if self._at_work:
                self._run(_BEGIN_NEXT)
            self.begin(face)

    def _note_write(self, face: "Face") -> None:
        """Note that something is written through this face: those who began later cannot be undone without it."""
        if not self.is_reading:
            face.has_written = True
            for later in self._at_work[self._at_work.index(face) + 1 :]:
                later.is_mixed = True

    def commit(self, face: "Face") -> None:
        """Keep what was done, by whomever."""
        if face in self._at_work:
            self._at_work.clear()
            self._to_keep = True
            self.commits += 1

    def rollback(self, face: "Face") -> None:
        """Undo what was done through this face since the last commit."""
        if self.is_ending or face not in self._at_work:
            return
        place = self._at_work.index(face)
        if face.is_mixed or any(later.has_written for later in self._at_work[place + 1 :]):
            self._is_torn |= face.has_written
            self._at_work.remove(face)
        elif place == 0:
            self.to_undo = True
            self._at_work.clear()
        else:
            for _ in self._at_work[place:]:
                self._run(*_UNDO_LAST)
            del self._at_work[place:]

    def end(self) -> None:
        """Undo what nobody has committed. Raises WorkRefused if the work is not what the sessions believe it is."""
        self.to_undo |= bool(self._at_work)
        self._at_work.clear()
        if self._is_torn:
            raise WorkRefused(
                "A session was rolled back after another had written between its writes; a request has one transaction"
                " here, and it cannot undo the one without the other."
            )

    def _run(self, *statements: str) -> None:
        cursor = self.pooled.cursor()
        for statement in statements:
            cursor.execute(statement)
        cursor.close()


class Face:
    """What SQLAlchemy takes for its pooled connection while a request runs: the ends of transactions are withheld."""

    def __init__(self, joint: Joint) -> None:
        self.joint = joint
        self.has_written = False  # since it is at work
        self.is_mixed = False  # somebody who began before has written since

    def __getattr__(self, name: str) -> Any:
        return getattr(self.joint.pooled, name)

    @property
    def driver_connection(self) -> Any:
        """The driver's own connection; what is done on it is part of the work."""
        self.joint.act(self)
        return self.joint.pooled.driver_connection

    @property
    def dbapi_connection(self) -> Any:
        """The same, by SQLAlchemy's other name for it."""
        self.joint.act(self)
        return self.joint.pooled.dbapi_connection

    def cursor(self, *args: Any, **options: Any) -> Any:
        """Give a cursor, whose statements are part of the work."""
        self.joint.act(self)
        cursor = self.joint.pooled.cursor(*args, **options)
        return _WithoutBegin(cursor) if self.joint.ignores_begin else cursor

    def commit(self) -> None:
        """Keep what was done."""
        self.joint.commit(self)

    def rollback(self) -> None:
        """Undo what was done since the last commit."""
        self.joint.rollback(self)

    def close(self) -> None:
        """Stay open: the claim is on it."""

    def _close_special(self, transaction_reset: bool = False) -> None:
        """Stay open, here too: SQLAlchemy's other way to close."""


class _WithoutBegin:
    """A cursor that takes no BEGIN: the transaction has begun."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def __iter__(self) -> Any:
        return iter(self._cursor)

    def execute(self, statement: str, *args: Any) -> Any:
        """Execute everything else."""
        return self if statement.lstrip()[:5].upper() == "BEGIN" else self._cursor.execute(statement, *args)
