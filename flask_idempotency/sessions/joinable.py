"""Makes an app's sessions joinable: each asks for its bind, and says what a statement will do, as it is executed."""

from collections.abc import Callable
from typing import Any, cast

from sqlalchemy import Connection, Engine, TextClause
from sqlalchemy.orm import Session

from flask_idempotency.sessions.app_sessions import has_changes
from flask_idempotency.sessions.database import Database
from flask_idempotency.sessions.diverting import divert
from flask_idempotency.sessions.joined import JoinedTransaction
from flask_idempotency.sessions.late_commits import watch_commits
from flask_idempotency.sessions.pool import current_transaction, is_any_open, watch_pool
from flask_idempotency.stores import TransactionalStore
from flask_idempotency.stores.words import Intent


def make_joinable(database: Database, store: TransactionalStore) -> None:
    """Let the sessions that an app makes from now on join the transaction of a request."""
    engine, factory = database.engine, database.factory
    store.watch(engine)
    divert(engine.dialect)
    if not issubclass(factory.class_, JoinableSession):
        factory.class_ = type(factory.class_.__name__, (JoinableSession, factory.class_), {})
    watch_pool(engine)
    watch_commits()


class JoinableSession:
    """Mixed into an app's session class: while a request has a transaction, the default database is on it."""

    idempotency_transaction: JoinedTransaction | None = None  # what it has joined, for as long as it takes part
    idempotency_intent = Intent.CHANGE

    def get_bind(self, *args: Any, **options: Any) -> Engine | Connection:
        """Find the bind as usual, and then put it on the request's transaction if there is one."""
        bind: Engine | Connection = super().get_bind(*args, **options)  # type: ignore[misc]  # a session is beside us
        joined = self.idempotency_transaction or cast(JoinedTransaction | None, current_transaction())
        return bind if joined is None else joined.bind_for(cast(Session, self), bind)

    def execute(self, *args: Any, **options: Any) -> Any:
        """Execute as usual, and note what kind of statement it is."""
        return self._noting_intent(super().execute, args, options)  # type: ignore[misc]  # as above

    def scalar(self, *args: Any, **options: Any) -> Any:
        """Execute as usual, and note what kind of statement it is."""
        return self._noting_intent(super().scalar, args, options)  # type: ignore[misc]  # as above

    def scalars(self, *args: Any, **options: Any) -> Any:
        """Execute as usual, and note what kind of statement it is."""
        return self._noting_intent(super().scalars, args, options)  # type: ignore[misc]  # as above

    def _noting_intent(self, run: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Run a statement; where there is a transaction to join, note before what the statement will do."""
        joined = self.idempotency_transaction or cast(JoinedTransaction | None, current_transaction())
        if joined is None:
            return run(*args, **options)
        session = cast(Session, self)
        if args and getattr(args[0], "_for_update_arg", None) is not None:
            joined.begin_writing()  # this database may lock no rows
        before, intent = self.idempotency_intent, _intent(joined, session, args[0] if args else None, options)
        if intent is before:
            return run(*args, **options)
        self.idempotency_intent = intent
        try:
            return run(*args, **options)
        finally:
            self.idempotency_intent = before
            joined.set_intent(session, before)


def _intent(joined: JoinedTransaction, session: Session, statement: object, options: dict[str, Any]) -> Intent:
    if has_changes(session):  # which are flushed before
        return Intent.CHANGE
    if isinstance(statement, TextClause):
        return joined.shared.intent_of(statement.text)
    if not getattr(statement, "is_select", False):
        return Intent.CHANGE
    load = (options.get("execution_options") or {}).get("_sa_orm_load_options")
    # If either is renamed one day, we will only be slower. A query that asks for a lock may not get it.
    is_refresh = getattr(load, "_refresh_state", None) and getattr(statement, "_for_update_arg", None) is None
    return Intent.REFRESH if is_refresh else Intent.READ


def is_joined_elsewhere(database: Database) -> bool:
    """Say whether we are part of another request's transaction on this database; asked before this one has any."""
    if not is_any_open():
        return False
    of_session: JoinedTransaction | None = getattr(database.session, "idempotency_transaction", None)
    of_context = cast(JoinedTransaction | None, current_transaction())
    return any(joined is not None and joined.is_live_on(database.engine.pool) for joined in (of_session, of_context))
