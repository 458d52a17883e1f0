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
        if not isinstance(session.dispatch, _Withholding):
            vars(session)["dispatch"] = _Withholding(session.dispatch, self)

    def give_back(self, session: Session) -> None:
        """Let a session call its listeners itself again."""
        if isinstance(session.dispatch, _Withholding):
            vars(session)["dispatch"] = session.dispatch.events

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


class _Withholding:
    """A session's events; all but ``after_commit`` pass through."""

    def __init__(self, events: Any, commits: CommitEvents) -> None:
        self.events = events
        self.after_commit = _Withheld(events, commits)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.events, name)


class _Withheld:
    """The ``after_commit`` event while it is withheld; listeners may still be added and removed."""

    def __init__(self, events: Any, commits: CommitEvents) -> None:
        self._events, self._commits = events, commits

    def __call__(self, session: Session) -> None:
        self._commits.note(session)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._events.after_commit, name)

    def for_modify(self, _: object) -> Any:
        """Give the collection that ``event.listen`` adds to."""
        return self._events.after_commit.for_modify(self._events)
