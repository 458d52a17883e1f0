"""Follows what a view leaves for a hook to commit, and whether that fails, even if the hook catches the error."""

import sys
from collections.abc import Iterable
from enum import Enum, auto

from sqlalchemy import event
from sqlalchemy.orm import Session, SessionTransaction

_FATE = "idempotency_fate"  # on a session's transaction


class _Fate(Enum):
    """How a session's transaction has ended."""

    TRIED = auto()  # its commit has begun, and has failed unless another of these follows
    COMMITTED = auto()
    LOST = auto()  # it was rolled back while an exception was being handled


class LateCommits:
    """The session transactions that were open, with changes in them, when the view answered."""

    def __init__(self) -> None:
        self._left: list[SessionTransaction] = []

    def expect(self, sessions: Iterable[Session]) -> None:
        """Remember that these sessions have something to commit."""
        found = (session.get_transaction() for session in sessions)
        self._left = [transaction for transaction in found if transaction is not None]

    @property
    def has_failed(self) -> bool:
        """Whether an error has kept one of them from being committed, even if the error was caught."""
        return any(getattr(each, _FATE, None) in (_Fate.TRIED, _Fate.LOST) for each in self._left)


def watch_commits() -> None:
    """Listen to how sessions end their transactions, from now on. Later calls do nothing."""
    if not event.contains(Session, "before_commit", _note_try):
        event.listen(Session, "before_commit", _note_try)
        event.listen(Session, "after_commit", note_success)
        event.listen(Session, "after_rollback", _note_rollback)


def _note_try(session: Session) -> None:
    _note(session, _Fate.TRIED)


def note_success(session: Session) -> None:
    """Record that a session has committed while its ``after_commit`` event is withheld."""
    _note(session, _Fate.COMMITTED)


def _note_rollback(session: Session) -> None:
    if sys.exc_info()[0] is not None:
        _note(session, _Fate.LOST)


def _note(session: Session, fate: _Fate) -> None:
    """Record the fate of a transaction of any session, which is cheaper than to ask whose it is; not of a savepoint."""
    transaction = None if session.in_nested_transaction() else session.get_transaction()
    if transaction is not None:
        setattr(transaction, _FATE, fate)
