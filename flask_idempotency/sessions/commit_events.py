"""SQLAlchemy's ``after_commit`` events of a request's sessions, withheld until the one real COMMIT."""

import logging
from typing import Any

from sqlalchemy.orm import Session

from flask_idempotency.sessions.late_commits import note_success

_CHANGES = "_model_changes"  # Flask-SQLAlchemy collects here what ``models_committed`` will name; a rollback empties it

log = logging.getLogger("flask_idempotency")


class CommitEvents:
    """Records which sessions have called commit(), and calls their listeners after the real COMMIT."""

    def __init__(self) -> None:
        self._committed: dict[Session, dict[Any, Any]] = {}

    def withhold(self, session: Session) -> None:
        """Withhold a session's ``after_commit`` events from now on. Calling this twice does no harm."""
        events: Any = session.dispatch
        if not isinstance(events.after_commit, _Withheld):
            events.after_commit = _Withheld(events.after_commit, self)

    def give_back(self, session: Session) -> None:
        """Let the session call its listeners directly again."""
        events: Any = session.dispatch
        if isinstance(events.after_commit, _Withheld):
            events.after_commit = events.after_commit.listeners

    def note(self, session: Session) -> None:
        """Record that a session has committed; releasing a savepoint does not count."""
        if not session.in_nested_transaction():
            changes = vars(session).get(_CHANGES, {})
            self._committed.setdefault(session, {}).update(changes)
            changes.clear()

    def fire(self) -> None:
        """Call the listeners of every session that has committed, once. Log what they raise: the commit stands."""
        while self._committed:
            session, changes = self._committed.popitem()
            if changes:
                vars(session)[_CHANGES].update(changes)
            try:
                session.dispatch.after_commit(session)
            except Exception:
                log.exception("an after_commit listener failed; the request took effect all the same")


class _Withheld:
    """Replaces a session's ``after_commit`` event while it is withheld; listeners can still be added and removed."""

    def __init__(self, listeners: Any, commits: CommitEvents) -> None:
        self.listeners, self._commits = listeners, commits

    def __call__(self, session: Session) -> None:
        note_success(session)
        self._commits.note(session)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.listeners, name)

    def for_modify(self, events: Any) -> Any:
        """Give the collection that ``event.listen`` adds to, which replaces SQLAlchemy's shared empty one."""
        events.after_commit = self.listeners
        self.listeners = self.listeners.for_modify(events)
        events.after_commit = self
        return self.listeners
