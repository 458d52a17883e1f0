"""One transaction shared by the sessions of a request, none of which can end it.

Each session commits, rolls back and sets savepoints as if the transaction were its own. Its work is put in layers, one
after the other, each behind a savepoint. Only the last layers can be undone, never one from in between.
"""

from threading import RLock
from typing import TYPE_CHECKING, NoReturn

from flask_idempotency.errors import IdempotencyError, StoreUnavailable, WorkRefused
from flask_idempotency.sessions.layers import Layer
from flask_idempotency.sessions.open_transaction import OpenTransaction
from flask_idempotency.sessions.turns import in_turn
from flask_idempotency.stores.words import Intent, Kind

if TYPE_CHECKING:
    from flask_idempotency.sessions.session_connection import SessionConnection

TORN = (
    "A session of this request did not commit its changes, and another one wrote after them; they share one transaction"
    " here, which cannot undo the earlier changes and keep the later ones: use one session, or guard='lease'."
)
TORN_BY_TEXT = (
    "A session of this request rolled back to a savepoint by a statement of its own, and another session may have"
    " written since then; use begin_nested(), or one session."
)
ENDED = "This connection took part in the transaction of a request that has ended; open another one."


class SharedTransaction:
    """The one transaction under all the sessions of a request; each uses it through a SessionConnection.

    What the view commits is kept by a savepoint, but only once something follows that might be rolled back.
    """

    def __init__(self, transaction: OpenTransaction, *, ignores_begin: bool = False) -> None:
        self._transaction, self.pooled = transaction, transaction.pooled
        self.intent_of, self.is_begin = transaction.store.intent_of, transaction.store.is_begin
        self._kind_of = transaction.store.kind_of
        self.ignores_begin = ignores_begin  # the app begins by a statement, where its driver does not begin
        self.turn = RLock()  # its holder acts; it lasts as long as the statement that follows
        self.last: SessionConnection | None = None  # the one that has acted last
        self.commits = 0  # how often something was committed
        self._to_keep = False  # something was committed, and has no savepoint yet
        self.to_undo = False  # something was rolled back, and is not undone yet
        self._layers: list[Layer] = []  # what is not kept yet, in order; the savepoint before the first is the store's
        self._is_over = False  # its sessions have ended; the rest is the store's
        self.is_ending = False  # all that nobody has committed is undone at once
        self._refusal: str | None = None  # why nothing of this may be committed
        self._had_begun = True  # when the last statement was sent
        self.is_undone = False  # the database has rolled everything back by itself
        self.is_ended = False  # the app has ended the transaction by the driver's own means

    @property
    def is_settled(self) -> bool:
        """Whether nothing was written, or undone, that was not committed."""
        return not (self.to_undo or self.has_uncommitted())

    def has_uncommitted(self, connection: "SessionConnection | None" = None) -> bool:
        """Say whether something may have been written that was neither committed nor rolled back; by one or by any."""
        owners = (layer.owner for layer in self._layers if layer.is_open and layer.has_written)
        return any(connection is None or owner is connection for owner in owners)

    def may_leave_changes(self, connection: "SessionConnection | None" = None) -> bool:
        """Say whether the database should be asked for changes that were neither committed nor rolled back.

        What very likely is a query counts only as long as nothing was committed: after that the database does not tell
        what is new from what was kept.
        """
        return any(
            connection is None or layer.owner is connection
            for layer in self._layers
            if layer.is_open and (layer.may_have_changed or (layer.has_written and not self.commits))
        )

    def begin(self, connection: "SessionConnection") -> None:
        """Note that a connection had written something before the claim."""
        self._layers.append(Layer(connection, 0, has_written=True))
        connection.depth_at_work = 0

    @in_turn
    def act(self, connection: "SessionConnection") -> None:
        """Get ready for the next statement of a connection, which counts as a write unless it is known to read.

        Raises IdempotencyError if the transaction is over, as for a thread that nobody has waited for.
        """
        if self._is_over:
            raise IdempotencyError(ENDED)  # the connection may be in another request's transaction by now
        self.last = connection
        self._had_begun = self._transaction.has_begun()
        self.is_ended |= not (self._had_begun or self.is_undone)
        if self.to_undo:
            self.undo()
        intent, depth = connection.intent, connection.depth
        if intent is Intent.REFRESH:
            return
        if intent is not Intent.READ:
            self.begin_writing()
        elif not self._transaction.is_begun:
            connection.depth_at_work = depth  # nothing is written that could be undone
            return
        if self._to_keep:
            self._transaction.keep()  # which fails where what was committed had failed; then nothing heals it
            self._to_keep = False
        if intent is Intent.READ and connection.depth_at_work >= depth:
            return
        if not self._layers:
            self._layers.append(Layer(connection, 0))
        top = self._layers[-1]
        if top.owner is not connection or top.depth != depth:
            self._transaction.set_savepoint(_name(len(self._layers)))
            top = Layer(connection, depth)
            self._layers.append(top)
        top.has_written |= intent is not Intent.READ
        top.may_have_changed |= intent is Intent.CHANGE
        connection.depth_at_work = depth

    def begin_writing(self) -> None:
        """Begin the transaction, if it has not begun. Raises StoreUnavailable, and commits nothing even if caught."""
        try:
            self._transaction.begin()
        except StoreUnavailable:
            self.is_undone = True
            raise

    def undo(self) -> None:
        """Undo now what was rolled back, instead of with the next statement."""
        self.to_undo = False
        self._transaction.undo()

    @in_turn
    def commit(self, connection: "SessionConnection") -> None:
        """Keep what a connection has done, as soon as nothing can undo it any more."""
        if connection.is_at_work:
            self.commits += 1
            self._give_up(connection)
            self._keep_committed()

    @in_turn
    def rollback(self, connection: "SessionConnection", depth: int = 0) -> None:
        """Undo what a connection has done since its last commit, or in its savepoints from *depth* on."""
        if self.is_ending:
            return
        first, is_covered = None, False
        for place in reversed(range(len(self._layers))):
            layer = self._layers[place]
            is_ours = layer.owner is connection and layer.depth >= depth
            if is_covered and is_ours and layer.has_written:
                self._refusal = self._refusal or TORN
            elif is_ours and not is_covered:
                first = place
            elif not is_ours:
                is_covered |= layer.has_written
        if first is not None:
            self._undo_from(first)
        self._give_up(connection, depth)
        self._keep_committed()

    @in_turn
    def release(self, connection: "SessionConnection", depth: int) -> None:
        """Make what a connection has done in its savepoints, from *depth* on, part of what it did before them."""
        for layer in self._layers:
            if layer.owner is connection:
                layer.depth = min(layer.depth, depth - 1)
        connection.depth_at_work = min(connection.depth_at_work, depth - 1)
        while len(self._layers) > 1 and self._layers[-1].is_like(self._layers[-2]):
            self._transaction.release_savepoint(_name(len(self._layers) - 1))
            merged = self._layers.pop()
            self._layers[-1].has_written |= merged.has_written
            self._layers[-1].may_have_changed |= merged.may_have_changed

    def check_undo(self, connection: "SessionConnection", statement: str) -> None:
        """Raise WorkRefused for a rollback to a savepoint of the app's own if it may undo what others have done."""
        others = any(layer.owner is not connection and layer.has_written for layer in self._layers)
        if others and self._kind_of(statement) is Kind.UNDO:
            self.refuse(TORN_BY_TEXT)

    def note_failure(self) -> None:
        """Check whether a statement that failed has ended the transaction, as a full disk does in some databases."""
        if self._had_begun and not self.is_ending and not self._transaction.has_begun():
            self.is_undone = True

    def refuse(self, reason: str) -> NoReturn:
        """Raise WorkRefused, and commit nothing of this even if the view catches that."""
        self._refusal = self._refusal or reason
        raise WorkRefused(reason)

    @in_turn
    def end(self) -> None:
        """Undo what was not committed. Raises WorkRefused if that would undo something committed."""
        self._is_over = True
        self.last = None  # or the two would hold each other until the garbage collector comes
        kept = max((place for place, layer in enumerate(self._layers, 1) if layer.is_committed), default=0)
        if any(layer.is_open and layer.has_written for layer in self._layers[:kept]):
            self._refusal = self._refusal or TORN
        if self._refusal is not None:
            raise WorkRefused(self._refusal)
        if kept < len(self._layers):
            self._undo_from(kept)

    def _give_up(self, connection: "SessionConnection", depth: int = 0) -> None:
        """Take from a connection what it has done, from *depth* on: it can no longer undo that."""
        for layer in self._layers:
            if layer.owner is connection and layer.depth >= depth:
                layer.owner = None
        connection.depth_at_work = min(connection.depth_at_work, depth - 1)

    def _keep_committed(self) -> None:
        """Keep everything if nothing is written that may still be undone."""
        if self.has_uncommitted():
            return
        for layer in self._layers:
            if not layer.is_open:
                self._to_keep = True
                self._forget_from(0)
                return

    def _undo_from(self, place: int) -> None:
        if place == 0:
            self.to_undo = True
        else:
            self._transaction.undo_savepoint(_name(place))
        self._forget_from(place)

    def _forget_from(self, place: int) -> None:
        """Forget layers. A connection that has only read in one of them begins again."""
        for layer in self._layers[place:]:
            if layer.owner is not None:
                layer.owner.depth_at_work = min(layer.owner.depth_at_work, layer.depth - 1)
        del self._layers[place:]


def _name(place: int) -> str:
    return f"idempotency_{place}"
