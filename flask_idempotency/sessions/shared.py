"""One transaction shared by the sessions of a request, none of which can end it.

Each session commits, rolls back and sets savepoints as if the transaction were its own. What it does is put in layers,
one behind the other, with a savepoint before each; so the last ones can be undone, and none from in between.
"""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from sqlalchemy import Connection
from sqlalchemy.pool import PoolProxiedConnection

from flask_idempotency.errors import WorkRefused
from flask_idempotency.sessions.layers import Layer
from flask_idempotency.sessions.queries import Intent, intent_of

TORN = (
    "A session of this request did not commit its changes, and another one wrote after them; they share one transaction"
    " here, which cannot undo the earlier changes and keep the later ones: use one session, or guard='lease'."
)
OWN_COMMITS = (
    "A session of this request asks for isolation_level='AUTOCOMMIT', and would commit what it writes before the answer"
    " is stored; leave the isolation level alone in a protected view, or use guard='lease'."
)


_READING = frozenset({Intent.READ, Intent.REFRESH})


class SharedTransaction:
    """The one transaction under all the sessions of a request; each has its own face of it.

    What the view commits is kept by a savepoint, but only when something comes after it that might be rolled back.
    """

    def __init__(
        self,
        pooled: PoolProxiedConnection,
        keep: Callable[[], None],
        undo: Callable[[], None],
        has_begun: Callable[[], bool],
    ) -> None:
        self.pooled, self._keep, self._undo, self._has_begun = pooled, keep, undo, has_begun
        self.commits = 0  # how often something was committed
        self.ignores_begin = False  # the app begins by hand, where its driver does not
        self._to_keep = False  # something was committed, and has no savepoint yet
        self.to_undo = False  # something was rolled back, and is not undone yet
        self._layers: list[Layer] = []  # what is not kept yet, in order; the savepoint before the first is the store's
        self.is_ending = False  # all that nobody has committed is undone at once
        self._refusal: str | None = None  # why nothing of this may be committed
        self._had_begun = True  # when the last statement was sent
        self.is_undone = False  # the database has rolled everything back by itself
        self.is_ended = False  # the app has ended the transaction by the driver's own means

    @property
    def is_settled(self) -> bool:
        """Whether nothing was written, or undone, that was not committed."""
        return not (self.to_undo or self._has_open_writes())

    def may_leave_changes(self, face: "SessionConnection | None" = None) -> bool:
        """Say whether something may have been written that nobody has committed or rolled back; by this face alone."""
        changed = (layer.owner for layer in self._layers if layer.is_open and layer.may_have_changed)
        return any(face is None or owner is face for owner in changed)

    def has_uncommitted(self, face: "SessionConnection") -> bool:
        """Say whether something was written through this face that it has neither committed nor rolled back."""
        return any(layer.owner is face and layer.has_written for layer in self._layers)

    def begin(self, face: "SessionConnection") -> None:
        """Note that something was written through this face before the claim."""
        self._layers.append(Layer(face, 0, has_written=True))
        face.depth_at_work = 0

    def act(self, face: "SessionConnection") -> None:
        """Be ready for whatever is done next through this face; it counts as written unless it is known to read."""
        self._had_begun = self._has_begun()
        self.is_ended |= not (self._had_begun or self.is_undone)
        if self.to_undo:
            self.to_undo = False
            self._undo()
        intent, depth = face.intent, face.depth
        if intent is Intent.REFRESH:
            return
        if self._to_keep:
            self._keep()  # which fails where what was committed had failed; then nothing heals it
            self._to_keep = False
        if intent is Intent.READ and face.depth_at_work >= depth:
            return
        if not self._layers:
            self._layers.append(Layer(face, 0))
        top = self._layers[-1]
        if top.owner is not face or top.depth != depth:
            self._run(f"SAVEPOINT {self._name(len(self._layers))}")
            top = Layer(face, depth)
            self._layers.append(top)
        top.has_written |= intent is not Intent.READ
        top.may_have_changed |= intent is Intent.CHANGE
        face.depth_at_work = depth

    def commit(self, face: "SessionConnection") -> None:
        """Keep what was done through this face, as soon as nobody can undo it any more."""
        if face.is_at_work:
            self.commits += 1
            self._give_up(face)
            self._keep_committed()

    def rollback(self, face: "SessionConnection", depth: int = 0) -> None:
        """Undo what was done through this face since its last commit, or in its savepoints from *depth* on."""
        if self.is_ending:
            return
        first, is_covered = None, False
        for place in reversed(range(len(self._layers))):
            layer = self._layers[place]
            is_ours = layer.owner is face and layer.depth >= depth
            if is_covered and is_ours and layer.has_written:
                self._refusal = self._refusal or TORN
            elif is_ours and not is_covered:
                first = place
            elif not is_ours:
                is_covered |= layer.has_written
        if first is not None:
            self._undo_from(first)
        self._give_up(face, depth)
        self._keep_committed()

    def release(self, face: "SessionConnection", depth: int) -> None:
        """Make what was done in the savepoints of this face, from *depth* on, part of what was done before."""
        for layer in self._layers:
            if layer.owner is face:
                layer.depth = min(layer.depth, depth - 1)
        face.depth_at_work = min(face.depth_at_work, depth - 1)
        while len(self._layers) > 1 and self._layers[-1].is_like(self._layers[-2]):
            self._run(f"RELEASE SAVEPOINT {self._name(len(self._layers) - 1)}")
            merged = self._layers.pop()
            self._layers[-1].has_written |= merged.has_written
            self._layers[-1].may_have_changed |= merged.may_have_changed

    def note_failure(self) -> None:
        """Look whether a statement that failed has ended the transaction, as a full disk does in SQLite."""
        if self._had_begun and not self.is_ending and not self._has_begun():
            self.is_undone = True

    def refuse(self, reason: str) -> NoReturn:
        """Raise WorkRefused, and commit nothing of this even if the view makes light of it."""
        self._refusal = self._refusal or reason
        raise WorkRefused(reason)

    def end(self) -> None:
        """Undo what nobody has committed. Raises WorkRefused if that would undo something committed."""
        kept = max((place for place, layer in enumerate(self._layers, 1) if layer.is_committed), default=0)
        if any(layer.is_open and layer.has_written for layer in self._layers[:kept]):
            self._refusal = self._refusal or TORN
        if self._refusal is not None:
            raise WorkRefused(self._refusal)
        if kept < len(self._layers):
            self._undo_from(kept)

    def _give_up(self, face: "SessionConnection", depth: int = 0) -> None:
        """Let a face have no part any more in what was done through it, from *depth* on."""
        for layer in self._layers:
            if layer.owner is face and layer.depth >= depth:
                layer.owner = None
        face.depth_at_work = min(face.depth_at_work, depth - 1)

    def _keep_committed(self) -> None:
        """Keep all that was done if nothing is written that may be undone."""
        if self._has_open_writes():
            return
        for layer in self._layers:
            if not layer.is_open:
                self._to_keep = True
                self._forget_from(0)
                return

    def _has_open_writes(self) -> bool:
        return any(layer.owner is not None and layer.has_written for layer in self._layers)

    def _undo_from(self, place: int) -> None:
        if place == 0:
            self.to_undo = True
        else:
            name = self._name(place)
            self._run(f"ROLLBACK TO SAVEPOINT {name}", f"RELEASE SAVEPOINT {name}")
        self._forget_from(place)

    def _forget_from(self, place: int) -> None:
        """Forget layers. Whoever has only read in one of them begins again."""
        for layer in self._layers[place:]:
            if layer.owner is not None:
                layer.owner.depth_at_work = min(layer.owner.depth_at_work, layer.depth - 1)
        del self._layers[place:]

    def _name(self, place: int) -> str:
        return f"idempotency_{place}"

    def _run(self, *statements: str) -> None:
        cursor = self.pooled.cursor()
        for statement in statements:
            cursor.execute(statement)
        cursor.close()


class SessionConnection:
    """What SQLAlchemy takes for its pooled connection while a request runs: the ends of transactions are withheld."""

    def __init__(self, shared: SharedTransaction) -> None:
        self.shared = shared
        self.intent = Intent.CHANGE
        self._savepoints: list[str] = []  # by SQLAlchemy's names for them
        self.depth_at_work = -1  # in how many of them it has begun something; -1: not even outside of them

    def __getattr__(self, name: str) -> Any:
        return getattr(self.shared.pooled, name)

    @property
    def depth(self) -> int:
        """How many savepoints it is in."""
        return len(self._savepoints)

    @property
    def is_at_work(self) -> bool:
        """Whether something was done through it since its last commit or rollback."""
        return self.depth_at_work >= 0

    @property
    def driver_connection(self) -> Any:
        """The driver's own connection; what is done on it is part of the work."""
        self.shared.act(self)
        return self.shared.pooled.driver_connection

    @property
    def dbapi_connection(self) -> Any:
        """The same, by SQLAlchemy's other name for it."""
        self.shared.act(self)
        return self.shared.pooled.dbapi_connection

    def cursor(self, *args: Any, **options: Any) -> Any:
        """Give a cursor, whose statements are part of the work."""
        self.shared.act(self)
        cursor = self.shared.pooled.cursor(*args, **options)
        return _CursorWithoutBegin(cursor) if self.shared.ignores_begin else cursor

    def note_statement(self, statement: str) -> None:
        """Look at a statement before it is sent: a query that may write is not taken for reading."""
        usual = self.intent
        if usual in _READING and (found := intent_of(statement)) is not Intent.READ:
            self.intent = found
            try:
                self.shared.act(self)
            finally:
                self.intent = usual

    def commit(self) -> None:
        """Keep what was done, for an app that uses the connection itself, and goes on with its cursors."""
        self.keep_work()
        self._go_on()

    def rollback(self) -> None:
        """Undo what was done since the last commit, likewise."""
        self.undo_work()
        self._go_on()

    def keep_work(self) -> None:
        """Keep what was done."""
        self._savepoints.clear()
        self.shared.commit(self)

    def undo_work(self) -> None:
        """Undo what was done since the last commit."""
        self._savepoints.clear()
        self.shared.rollback(self)

    def _go_on(self) -> None:
        """Be ready at once: what is done next may be done by a cursor that was given out long ago."""
        if not self.shared.is_ending:
            self.shared.act(self)

    def set_savepoint(self, name: str) -> None:
        """Begin a savepoint. The database learns of it when something is done in it."""
        self._savepoints.append(name)

    def rollback_to_savepoint(self, name: str) -> None:
        """Undo what was done since a savepoint, and end it."""
        if name in self._savepoints:
            depth = self._end_savepoint(name)
            self.shared.rollback(self, depth)

    def release_savepoint(self, name: str) -> None:
        """End a savepoint, and leave what was done since to whatever it is in."""
        if name in self._savepoints:
            depth = self._end_savepoint(name)
            self.shared.release(self, depth)

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raise WorkRefused if these options of a connection would end the transaction."""
        if is_autocommit(options.get("isolation_level")):
            self.shared.refuse(OWN_COMMITS)

    def _end_savepoint(self, name: str) -> int:
        place = self._savepoints.index(name)
        del self._savepoints[place:]
        return place + 1

    def close(self) -> None:
        """Stay open: the claim is on it."""

    def _close_special(self, transaction_reset: bool = False) -> None:
        """Stay open, here too: SQLAlchemy's other way to close."""


class _CursorWithoutBegin:
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


def session_connection_of(connection: Connection) -> SessionConnection | None:
    """Give the face that a connection has, if it is part of a request's transaction."""
    found: Any = connection._dbapi_connection
    return found if isinstance(found, SessionConnection) else None


def is_autocommit(level: object) -> bool:
    """Say whether this is a level of isolation at which every statement is committed at once."""
    return isinstance(level, str) and level.upper() == "AUTOCOMMIT"


def is_in_autocommit(connection: Connection) -> bool:
    """Say whether the app has chosen, for a connection or its engine, that every statement is committed at once."""
    # create_engine(isolation_level=...) is kept nowhere else. If it is renamed, PostgreSQL's driver still knows.
    usual = getattr(connection.dialect, "_on_connect_isolation_level", None)
    return is_autocommit(connection.get_execution_options().get("isolation_level", usual))
