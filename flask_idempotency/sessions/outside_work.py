"""What a view under the lease guard does to the app's database outside of any phase."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet, ref

from flask_idempotency.http.exchange import Attempt
from flask_idempotency.sessions.current import nothing
from flask_idempotency.stores import Store, TransactionalStore

if TYPE_CHECKING:
    from flask_idempotency.sessions.database import Database
    from flask_idempotency.sessions.outside_commits import Unsettled

# The runs that have not ended; weakly, for one may be stopped. Where there is none, as in most apps most of the
# time, the pool gives out its connections as they are.
RUNS: "WeakSet[OutsideWork]" = WeakSet()
CURRENT_RUN: ContextVar[Callable[[], Attempt | None]] = ContextVar("flask_idempotency.run", default=nothing)


class OutsideWork:
    """Knows where the view of one run has committed something that is part of no phase."""

    def __init__(self, database: "Database", store: Store) -> None:
        self._database, self._store = database, cast(TransactionalStore, store)
        self.committed_at: str | None = None  # the place in the app's code
        self._left: list[Unsettled] = []
        self.has_ended = False  # the view has returned: what is committed from here on is not its own

    def is_on(self, dialect: object) -> bool:
        """Say whether this is the database whose engine has this dialect; else it is another app's."""
        return self._database.engine.dialect is dialect

    def has_begun(self, driver: Any) -> bool:
        """Say whether a transaction is open."""
        return self._store.has_begun(driver)

    def has_written(self, driver: Any) -> bool:
        """Ask the database whether the open transaction has written something."""
        return self._store.has_written(driver)

    def note_commit(self, where: Callable[[], str]) -> None:
        """Remember where the view has committed something, the first time."""
        if self.committed_at is None and not self.has_ended:
            self.committed_at = where()

    def watch(self, run: Attempt) -> None:
        """Hear of what is committed from now on, in contexts that the view pushes too."""
        from flask_idempotency.sessions.outside_commits import watch  # brings SQLAlchemy, which only db= needs

        RUNS.add(self)
        CURRENT_RUN.set(ref(run))
        watch(self._database)

    def end(self) -> None:
        """Know that what is committed from here on is not the view's."""
        if not self.has_ended:
            self.find_commit()
            self.has_ended = True

    def note_answer(self) -> None:
        """Remember what is left to be committed, by a hook perhaps; later it may have been dropped."""
        from flask_idempotency.sessions.outside_commits import find_unsettled  # as above

        self._left = find_unsettled(self._database, self)

    @property
    def has_lost(self) -> bool:
        """Whether something that was left to be committed when the answer was made has not been committed since."""
        return not all(each.is_committed for each in self._left)

    @property
    def has_failed(self) -> bool:
        """Whether an error has rolled something back that was left to be committed, even if a hook has caught it."""
        return any(each.is_lost and not each.is_committed for each in self._left)

    def find_commit(self) -> str | None:
        """Say where the view has committed something, if it has; the driver tells nobody, so that is looked for now."""
        if self.committed_at is None:
            from flask_idempotency.sessions.outside_commits import look  # as above

            look(self._database, self)
        return self.committed_at

    def undo(self) -> bool:
        """Roll back what the view has left uncommitted; say whether something was written.

        On SQLite nobody else can write before that, not even we. Objects that were only changed in memory stay.
        """
        from flask_idempotency.sessions.outside_commits import undo  # as above

        RUNS.discard(self)  # it is how every run ends
        return undo(self._database, self)
