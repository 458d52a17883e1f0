"""An app's own database, as its ``db`` object shows it. Loads nothing of SQLAlchemy that the app has not loaded."""

from typing import TYPE_CHECKING, Any

from flask_idempotency.errors import ConfigError
from flask_idempotency.stores.forks import end_at_fork, leave_at_fork

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.orm import Session


class Database:
    """An app's own database, read from its ``db`` object at each use, since tests swap engines and sessions.

    Needs an app context.
    """

    def __init__(self, db: Any) -> None:
        self._db = db
        self._is_lite = _is_session(db.session)  # Flask-SQLAlchemy-Lite: a session for each app context

    @property
    def engine(self) -> "Engine":
        """The default engine."""
        return self.bind.engine

    @property
    def bind(self) -> "Engine | Connection":
        """The app's default engine, or the connection that a test has put in its place."""
        found: Engine | Connection = self._db.engine
        return found

    @property
    def factory(self) -> Any:
        """The sessionmaker that makes the app's sessions."""
        source = self._db.sessionmaker if self._is_lite else self._db.session
        return getattr(source, "session_factory", source)

    @property
    def session(self) -> "Session | None":
        """The app's session in this context, if it has been created."""
        if self._is_lite:
            session: Session = self._db.session
            return session
        registry = getattr(self._db.session, "registry", None)
        return registry() if registry is not None and registry.has() else None

    @property
    def holds_connection(self) -> bool:
        """Whether the app's session is in a transaction, and so holds a connection."""
        session = self.session
        return session is not None and session.in_transaction()


def open_database(db: Any) -> Database:
    """Check and wrap what the app passed as ``db=``. Raises ConfigError, in one sentence, if it cannot be used."""
    try:
        found = Database(db)
        engines = getattr(db, "engines", {None: found.engine})  # with those of other binds, if it has any
    except (RuntimeError, KeyError, AttributeError):
        raise ConfigError("db= must be a Flask-SQLAlchemy object of this app: call db.init_app(app) first.") from None
    if not hasattr(found.factory, "class_"):
        raise ConfigError("db= must have an engine, and a session that is a scoped_session or a sessionmaker.")
    if found.factory.kw.get("twophase"):
        raise ConfigError("Sessions with twophase=True cannot share the transaction of a request: remove that option.")
    for engine in engines.values():
        leave_at_fork(engine)
    end_at_fork(db.session)
    return found


def _is_session(session: object) -> bool:
    """Say whether this is a session itself, rather than a factory or registry of sessions."""
    return hasattr(session, "in_transaction") and not hasattr(session, "session_factory")
