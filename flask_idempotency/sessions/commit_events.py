"""SQLAlchemy's ``after_commit`` events of a request's sessions, withheld until the one real COMMIT."""

import logging
from typing import Any

from sqlalchemy.orm import Session

_CHANGES = "_model_changes"  # Flask-SQLAlchemy collects here what ``models_committed`` will name; a rollback empties it

log = logging.getLogger("flask_idempotency")


class CommitEvents:
    """Notes which sessions believe that they have committed, and tells their listeners once that is true."""

    def __init__(self) -> None:
        self._committed: dict[Session, dict[Any, Any]] = {}

    def withhold(self, session: Session) -> None:
        """Keep a session's ``after_commit`` listeners waiting from now on. Harmless if they wait already."""
        events: Any = session.dispatch
        if not isinstance(events.after_commit, _Withheld):
            events.after_commit = _Withheld(events.after_commit, self)

    def give_back(self, session: Session) -> None:
        """Let a session call its listeners itself again."""
        events: Any = session.dispatch
        if isinstance(events.after_commit, _Withheld):
            events.after_commit = events.after_commit.listeners

    def note(self, session: Session) -> None:
        """Remember that a session has committed; a released savepoint is not a commit."""
        if not session.in_nested_transaction():
            changes = vars(session).get(_CHANGES, {})
            self._committed.setdefault(session, {}).update(changes)
            changes.clear()

    def fire(self) -> None:
        """Call the listeners of every session that has committed, once. What they raise is logged: it is too late."""
        while self._committed:
            session, changes = self._committed.popitem()
            if changes:
                vars(session)[_CHANGES].update(changes)
            try:
                session.dispatch.after_commit(session)
            except Exception:
                log.exception("an after_commit listener failed; the request took effect all the same")


class _Withheld:
    """The ``after_commit`` event of one session while it is withheld; listeners may still be added and removed."""

    def __init__(self, listeners: Any, commits: CommitEvents) -> None:
        self.listeners, self._commits = listeners, commits

    def __call__(self, session: Session) -> None:
        self._commits.note(session)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.listeners, name)

    def for_modify(self, events: Any) -> Any:
        """Give the collection that ``event.listen`` adds to, which takes the place of an empty one."""
        events.after_commit = self.listeners
        self.listeners = self.listeners.for_modify(events)
        events.after_commit = self
        return self.listeners
