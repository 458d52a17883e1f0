"""The transaction guard: claim, the view's own work and its answer are one transaction of the app's database.

The view's session works as ever, on the connection that holds the claim. Only the ends of its transactions are
withheld: what it commits is kept by a savepoint, what it rolls back goes back to one, and the one COMMIT comes last.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, cast
from weakref import WeakKeyDictionary

from flask import has_request_context, request
from flask.globals import app_ctx
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session
from sqlalchemy.pool import PoolProxiedConnection

from flask_idempotency import signals
from flask_idempotency.core.decision import Refuse, Replay, Run, decide
from flask_idempotency.core.record import Asked, Busy, Claim, Finished, Record, Settled, Transaction
from flask_idempotency.core.reference import reference_of
from flask_idempotency.core.snapshot import Answer, NotKept
from flask_idempotency.errors import ClaimLost, IdempotencyError, OutcomeUnknown, StoreUnavailable
from flask_idempotency.http import exchange
from flask_idempotency.http.reading import Reading
from flask_idempotency.joint import Joint
from flask_idempotency.policy import Policy
from flask_idempotency.state import Database, State, session_factory
from flask_idempotency.stores import TransactionalStore
from flask_idempotency.stores.sql import ConnectionLost, first_line

log = logging.getLogger("flask_idempotency")


def choose_course(state: State, policy: Policy, reading: Reading) -> "Work | Replay | Refuse":
    """Ask for the claim on the connection that the view will use. Raises StoreUnavailable if nobody can be asked."""
    store = cast(TransactionalStore, state.ready_store())
    known = store.recall(reading.asked.id)
    if known is not None:
        return _course(Settled(known), reading)
    session = _open_session(state.database)
    try:
        found = _enter(state, policy, reading.asked, session)
    except ConnectionLost:
        if session is not None:  # what was done on it before us is lost too
            raise
        state.database.engine.dispose()  # the others of its age are gone too
        found = _enter(state, policy, reading.asked, session)
    return found if isinstance(found, Work) else _course(found, reading)


def _course(found: Busy | Settled, reading: Reading) -> Replay | Refuse:
    """Decide by the rules of the record that was found, so that an upgrade refuses nobody."""
    asked = reading.asked if found.fingerprint is None else reading.by_rules_of(found.fingerprint)
    course = decide(found, asked.fingerprint)
    assert not isinstance(course, Run), "only a claim is run"
    return course


def _enter(state: State, policy: Policy, asked: Asked, session: Session | None) -> "Work | Busy | Settled":
    """Take the claim on the connection that the app's session has, or on one that it will be given."""
    store, engine = cast(TransactionalStore, state.store), state.database.engine
    patience = state.settings.wait if policy.in_flight == "wait" else timedelta(0)
    try:
        connection = engine.connect() if session is None else session.connection()
        pooled = connection.connection
    except SQLAlchemyError as error:
        log.error("store_unavailable: %s: %s", type(error).__name__, first_line(error))
        raise StoreUnavailable(retry_after=1) from error
    try:
        found = store.enter(pooled.driver_connection, asked, patience=patience, idle=policy.lease)
        if isinstance(found, Claim):
            return Work(state, policy, asked, found, connection, session)
        if session is not None:
            store.leave(pooled.driver_connection)
    except ConnectionLost as error:
        log.warning("store_unavailable: the app's connection was dead: %s", first_line(error.__cause__ or error))
        pooled.invalidate()
        raise
    except Exception:
        give_back(pooled) if session is None else session.rollback()
        raise
    except BaseException:
        pooled.invalidate()  # stopped in the middle of something: nobody can go on from there
        raise
    if session is None:
        give_back(pooled)
    return found


def give_back(pooled: PoolProxiedConnection) -> bool:
    """Return a connection to its pool with nothing left on it. False: it was lost, and everything with it."""
    if not pooled.is_valid:
        return False
    try:
        pooled.rollback()
        pooled.close()
    except Exception:  # noqa: BLE001  # a connection that cannot be rolled back is rolled back by being closed
        pooled.invalidate()
        return False
    return True


class Work:
    """One request's transaction: opened with its claim, joined by the view's sessions, committed with its answer."""

    def __init__(
        self,
        state: State,
        policy: Policy,
        asked: Asked,
        claim: Claim,
        connection: Connection,
        session: Session | None,
    ) -> None:
        """*session* is the one that *connection* belongs to already, if there is one."""
        self.claim = claim
        self._state, self._policy, self._asked = state, policy, asked
        self._store = cast(TransactionalStore, state.store)
        self._engine = state.database.engine
        self._context = app_ctx._get_current_object()  # type: ignore[attr-defined]  # the documented way
        self._connection, self._pooled = connection, connection.connection
        self._joint = Joint(self._pooled, self._keep, self._undo)
        assert isinstance(claim.guard, Transaction), "this guard gives no other"
        self._joint.is_used = claim.guard.has_past
        self._joint.ignores_begin = bool(self._engine.dispatch.begin)
        self._sessions: WeakKeyDictionary[Session, Connection] = WeakKeyDictionary()
        self._is_open = True
        _OPEN.add(id(self))
        self._put_joint_under_connection()
        if session is not None:
            self._join(session, connection)

    def begin(self) -> None:
        """Tell of it."""
        self._state.housekeeper.start()
        signals.tell(signals.claimed, reference=reference_of(self.claim.id), attempt=self.claim.attempt)

    # -- what the view's sessions see --------------------------------------------------------------------------------

    def bind_for(self, session: Session, bind: Engine | Connection) -> Engine | Connection:
        """Give a session a connection on this transaction, if it asks for the app's default database."""
        if not self._is_open or bind is not self._engine:
            return bind
        if not self._pooled.is_valid:
            raise StoreUnavailable(retry_after=1)  # on another connection it would be done outside the claim
        known = self._sessions.get(session)
        if known is not None and not known.closed:
            return known
        if self._context is not app_ctx._get_current_object():  # type: ignore[attr-defined]  # as above
            return bind  # a request inside this one, or a thread that was given a copy of its context
        return self._join(session, self._idle_connection())

    def _join(self, session: Session, connection: Connection) -> Connection:
        session.idempotency_work = self  # type: ignore[attr-defined]  # only sessions that can be joined come here
        self._sessions[session] = connection
        return connection

    def _idle_connection(self) -> Connection:
        """Give the one connection, opened again if its session has closed it; or if a session is at it, another."""
        if self._connection.closed:
            self._put_joint_under_connection()
        if self._connection.in_transaction():
            return Connection(self._engine, connection=cast(Any, self._joint))
        return self._connection

    def _put_joint_under_connection(self) -> None:
        self._connection._dbapi_connection = self._joint  # type: ignore[assignment]  # there is no other way in

    @contextmanager
    def refreshing(self, is_so: bool) -> Iterator[None]:
        """Know whether a statement only reads an object again."""
        self._joint.is_refreshing = is_so
        try:
            yield
        finally:
            self._joint.is_refreshing = False

    def _keep(self) -> None:
        self._store.keep(self._pooled.driver_connection)

    def _undo(self) -> None:
        if self._has_only_past():
            self._start_anew()
        else:
            self._store.undo(self._pooled.driver_connection)

    def _has_only_past(self) -> bool:
        """Say whether something was written before the claim, by a hook perhaps, and nothing was committed since."""
        assert isinstance(self.claim.guard, Transaction), "this guard gives no other"
        return self.claim.guard.has_past and not self._joint.has_kept

    def _start_anew(self) -> None:
        """Undo what was done before the claim too. Raises ClaimLost if somebody comes between."""
        self._pooled.rollback()
        found = self._store.enter(
            self._pooled.driver_connection, self._asked, patience=timedelta(0), idle=self._policy.lease
        )
        if not isinstance(found, Claim):
            raise ClaimLost
        self.claim = found

    def _part(self) -> None:
        """Let the sessions go, as the end of a request does: what they have not committed is undone."""
        self._is_open = False
        _OPEN.discard(id(self))
        for session in list(self._sessions):
            session.idempotency_work = None  # type: ignore[attr-defined]  # as above
            transaction = session.get_transaction()
            if transaction is None:
                continue
            if self._joint.is_used:
                session.rollback()
            else:
                transaction.close()  # it has only read objects again; they stay as they are

    # -- how it ends -------------------------------------------------------------------------------------------------

    def complete(self, answer: Answer) -> None:
        """Commit work and answer together.

        Raises ClaimLost if somebody else's answer stands, WorkRefused if the database will not have it, and
        StoreUnavailable or OutcomeUnknown if the client must ask again.
        """
        known = reference_of(self.claim.id)
        try:
            self._commit(answer)
        except ClaimLost:
            log.warning("claim_lost: %s was run beside us, and its answer stands", known)
            signals.tell(signals.claim_lost, reference=known)
            raise
        signals.tell(
            signals.completed, reference=known, status=answer.status, body_kept=not isinstance(answer, NotKept)
        )

    def release(self) -> None:
        """Roll everything back, even what the view has committed: a failed attempt leaves nothing behind."""
        try:
            self._part()
        except Exception as error:  # noqa: BLE001  # whatever a session has to say, the transaction ends here
            log.warning("a session could not be let go: %s", type(error).__name__)
        was_there = give_back(self._pooled)
        signals.tell(signals.released, reference=reference_of(self.claim.id))
        if not was_there:
            raise StoreUnavailable(retry_after=1)

    def _commit(self, answer: Answer) -> None:
        if not self._pooled.is_valid:
            raise StoreUnavailable(retry_after=1)
        try:
            self._part()
            if self._has_only_past():
                self._start_anew()
                self._joint.to_undo = False
            retention, undo = self._policy.retention, self._joint.to_undo
            self._store.finish(self._pooled.driver_connection, self.claim, self._asked, answer, retention, undo=undo)
        except OutcomeUnknown:
            self._pooled.invalidate()
            self._settle_doubt()
        except IdempotencyError:
            give_back(self._pooled)
            raise
        except Exception as error:
            # The connection was lost, or put to a use that nobody foresaw, and COMMIT was not sent.
            self._pooled.invalidate()
            log.error("store_unavailable: %s before COMMIT", type(error).__name__)
            raise StoreUnavailable(retry_after=1) from error
        else:
            self._pooled.close()

    def _settle_doubt(self) -> None:
        """Find out whether a COMMIT happened whose answer did not come. Nobody is answered on a guess."""
        match self._store.look_again(self._asked):
            case Record(condition=Finished(token=token)) if token == self.claim.guard.token:
                return
            case None:
                raise StoreUnavailable(retry_after=1)
        raise ClaimLost


class Joining:
    """Mixed into an app's session class: during protected work, the default database is the work's connection."""

    idempotency_work: Work | None = None  # what it is joined to, for as long as it is

    def get_bind(self, *args: Any, **options: Any) -> Engine | Connection:
        """Find the bind as ever, and then look whether there is work on it."""
        bind: Engine | Connection = super().get_bind(*args, **options)  # type: ignore[misc]  # a session is beside us
        work = self.idempotency_work or current_work()
        return bind if work is None else work.bind_for(cast(Session, self), bind)

    def execute(self, *args: Any, **options: Any) -> Any:
        """Execute as ever, and let the work know when an object is only read again, as after every commit."""
        if self.idempotency_work is None:
            return super().execute(*args, **options)  # type: ignore[misc]  # as above
        given = options.get("execution_options") or {}
        load = given.get("_sa_orm_load_options")  # if it is renamed one day, we will only be slower
        session = cast(Session, self)
        takes_lock = getattr(args[0] if args else None, "_for_update_arg", None) is not None  # which it may not get
        is_refresh = getattr(load, "_refresh_state", None) is not None and not takes_lock
        with self.idempotency_work.refreshing(is_refresh and not (session.new or session.dirty or session.deleted)):
            return super().execute(*args, **options)  # type: ignore[misc]  # as above


def join(database: Database) -> None:
    """Let the sessions that an app makes from now on be joined to the work of a request."""
    factory = session_factory(database)
    if not issubclass(factory.class_, Joining):
        factory.class_ = type(factory.class_.__name__, (Joining, factory.class_), {})


_OPEN: set[int] = set()  # the ids of open works: where there is none, as in most apps most of the time, nobody looks


def current_work() -> Work | None:
    """Give the work of the current request, if it has any and is still at it."""
    if not _OPEN or not has_request_context():
        return None
    found = exchange.peek(request.environ)
    return found.attempt if found is not None and isinstance(found.attempt, Work) else None


def _open_session(database: Database) -> Session | None:
    """Give the app's session if it has begun something before us, such as reading who is asking."""
    registry = getattr(database.session, "registry", None)
    if registry is None or not registry.has():
        return None
    session: Session = registry()
    if not isinstance(session, Joining):
        raise IdempotencyError(
            "This session was made before init_app(app, db=db) and cannot be joined; call init_app before db.session"
            " is used."
        )
    return session if session.in_transaction() else None
