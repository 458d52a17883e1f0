"""Records what a view under the lease guard writes to the app's database outside of any phase."""

from collections.abc import Callable
from typing import Any
from weakref import WeakSet, ref

from flask_idempotency.http.exchange import Attempt
from flask_idempotency.sessions.app_sessions import has_changes, open_sessions
from flask_idempotency.sessions.current import CURRENT_RUN, RUNS
from flask_idempotency.sessions.database import Database
from flask_idempotency.sessions.late_commits import LateCommits
from flask_idempotency.sessions.outside_commits import Unsettled, find_unsettled, look_at, undo, watch, watched
from flask_idempotency.sessions.pool import taken_connections
from flask_idempotency.stores import TransactionalStore


class OutsideWork:
    """Records where the view of one run has committed outside of its phases, and what it has left uncommitted."""

    def __init__(self, database: Database, store: TransactionalStore) -> None:
        self._database, self._store = database, store
        self._dialect = database.engine.dialect
        self.committed_at: str | None = None  # the place in the app's code
        self.touched: WeakSet[Any] = WeakSet()  # the connections on which something other than reading was done
        self._left: list[Unsettled] = []
        self._late: LateCommits | None = None
        self.has_ended = False  # the view has returned: later commits are not its own

    def is_on(self, dialect: object) -> bool:
        """Say whether this dialect belongs to the engine of this run's database, and not to another app's."""
        return self._dialect is dialect

    def has_begun(self, driver: Any) -> bool:
        """Say whether a transaction is open."""
        return self._store.has_begun(driver)

    def has_written(self, driver: Any) -> bool:
        """Ask the database whether the open transaction has written something."""
        return self._store.has_written(driver)

    def note_commit(self, where: Callable[[], str]) -> None:
        """Remember where the view committed first."""
        if self.committed_at is None and not self.has_ended:
            self.committed_at = where()

    def watch(self, run: Attempt) -> None:
        """Watch for commits from now on, also in contexts that the view pushes."""
        RUNS.add(self)
        CURRENT_RUN.set(ref(run))
        watch(self._dialect, open_sessions(self._database), self._store)
        for pooled in taken_connections():  # by a hook, perhaps
            watched(pooled)

    def end(self) -> None:
        """Stop attributing commits to the view: it has returned."""
        if not self.has_ended:
            self.find_commit()
            self.has_ended = True

    def note_answer(self) -> None:
        """Remember what the view has left uncommitted: a hook may still commit it, or drop it."""
        self._late, left = LateCommits(), []
        for session in open_sessions(self._database):
            found = find_unsettled(session, self)
            self._left.extend(found)
            if found or has_changes(session):
                left.append(session)
        self._late.expect(left)

    @property
    def has_lost(self) -> bool:
        """Whether something that the view left uncommitted has not been committed since."""
        return not all(each.is_committed for each in self._left)

    @property
    def has_failed(self) -> bool:
        """Whether an error kept something that was left from being committed, even if a hook caught the error."""
        is_lost = any(each.is_lost and not each.is_committed for each in self._left)
        return is_lost or (self._late is not None and self._late.has_failed)

    def find_commit(self) -> str | None:
        """Give the place where the view has committed, if any. Drivers do not report commits, so this checks now."""
        if self.committed_at is None:
            for pooled in [each for each in list(self.touched) if each.is_valid]:
                look_at(pooled, self)
        return self.committed_at

    def undo(self) -> bool:
        """Roll back what the view has left uncommitted; say whether something was written.

        SQLite has one writer: until then nothing else can write, not even the store. Objects that were only changed
        in memory are kept.
        """
        RUNS.discard(self)  # every run ends with this
        return undo(open_sessions(self._database), self)
