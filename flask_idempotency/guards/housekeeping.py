"""One thread per process: it renews the leases of live runs, finishes what could not be stored, and reaps by the batch.

It starts with the first claim of a process, so after a fork every worker has its own; under gevent it is a greenlet.
"""

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from random import uniform
from weakref import ref

from flask_idempotency import signals
from flask_idempotency.core.checkpoint import Checkpoint
from flask_idempotency.core.lifecycle import ABANDONED
from flask_idempotency.core.record import Claim
from flask_idempotency.core.reference import reference_of
from flask_idempotency.core.snapshot import Answer, NotKept
from flask_idempotency.errors import ClaimLost, RequestRefused, StoreUnavailable
from flask_idempotency.stores import Store

RENEWALS = 3  # per lease: two may fail before a live owner is overtaken
TRY_AGAIN = 0.5  # seconds: when the store is back, owners are to be there before the clients that were told to retry
REAP_EVERY = 60.0  # seconds; a worker's share is small, and there is no hurry
REAP_AGAIN = 1.0  # seconds between full batches, so that claims come between
BATCH = 500  # records in one transaction: no claim waits long behind it

log = logging.getLogger("flask_idempotency")


class Housekeeper:
    """Looks after the claims of one app. Safe to call from any thread, and in every process that a fork makes."""

    def __init__(
        self,
        store: Store,
        grace: timedelta,
        retention: Callable[[], timedelta],
        tell: Callable[..., None],
        *,
        enabled: bool = True,
    ) -> None:
        self._store = store
        self._grace = grace
        self._retention = retention  # the longest of any view
        self._tell = tell  # sends a signal with its facts
        self._enabled = enabled
        self._rounds: dict[int, _Rounds] = {}  # by process: what a parent has begun stays with the parent

    def watch(self, claim: Claim, lease: timedelta) -> None:
        """Renew this claim's lease until it is let go. Raises StoreUnavailable if there is no thread to do it."""
        if not self._add(claim, lambda keeper: keeper._store.renew(claim, lease), lease.total_seconds() / RENEWALS):
            self.forget(claim)  # or the next thread would renew it for nobody
            raise StoreUnavailable(retry_after=1)

    def start(self) -> None:
        """Begin to reap, where no lease has made us begin."""
        if self._enabled:
            self._rounds_here().start()

    def forget(self, claim: Claim) -> None:
        """Stop renewing."""
        rounds = self._rounds.get(os.getpid())
        if rounds is not None:
            rounds.drop(claim.guard.token)

    def finish_later(
        self,
        claim: Claim,
        answer: Answer,
        retention: timedelta,
        answered: Checkpoint | None = None,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Store the answer of a run whose completion failed, as soon as the store can take it, if nobody took over.

        Before it the checkpoint *answered*, if that could not be written either, or nobody knows whether it was.
        A process that ends in order tries once more before it goes. *then* is called when it is stored.
        """

        def finish(keeper: Housekeeper) -> None:
            keeper._finish(claim, answer, retention, answered)
            then()

        self._add(claim, finish, TRY_AGAIN, urgent=True)

    def quarantine_later(self, claim: Claim, reason: str, answered: Checkpoint | None = None) -> None:
        """Leave a record to a person as soon as the store can take it, if nobody took over; *answered* as above."""

        def quarantine(keeper: Housekeeper) -> None:
            stood = claim if answered is None else keeper._store.checkpoint(claim, answered)
            keeper._store.quarantine(stood, reason)
            keeper.forget(claim)
            log.critical("quarantined: %s: %s", reference_of(claim.id), reason)
            keeper._tell(signals.quarantined, reference=reference_of(claim.id))

        self._add(claim, quarantine, TRY_AGAIN, urgent=True)

    def stop(self) -> None:
        """End this process's thread and wait for it; leases run out from here on. The next claim starts another."""
        rounds = self._rounds.pop(os.getpid(), None)
        if rounds is not None:
            rounds.end()

    def _add(self, claim: Claim, act: "Act", every: float, *, urgent: bool = False) -> bool:
        """Say whether it will be done, or nobody wants it to be done."""
        if not self._enabled:
            return True
        return self._rounds_here().add(claim.guard.token, _Duty(act, every, time.monotonic() + every, urgent))

    def _rounds_here(self) -> "_Rounds":
        # Made where they are first needed: a lock from before a fork may be held for ever, and one from before gevent
        # patched the process knows nothing of greenlets.
        process = os.getpid()
        return self._rounds.get(process) or self._rounds.setdefault(process, _Rounds(self))

    def _finish(self, claim: Claim, answer: Answer, retention: timedelta, answered: Checkpoint | None) -> None:
        known = reference_of(claim.id)
        try:
            stood = claim if answered is None else self._store.checkpoint(claim, answered)
            self._store.complete(stood, answer, retention)
        except ClaimLost:
            log.error("claim_lost: %s was run again before its answer could be stored", known)
            self._tell(signals.claim_lost, reference=known)
            raise
        log.warning("finished_late: the answer of %s is stored now", known)
        self.forget(claim)
        kept = not isinstance(answer, NotKept)
        self._tell(signals.completed, reference=known, status=answer.status, body_kept=kept)

    def _reap(self) -> float:
        """Delete one batch; say after how many seconds to look again."""
        expired = self._store.reap(self._grace, BATCH)
        reaped, quarantined = self.reap_abandoned(BATCH)
        if expired + reaped:
            self._tell(signals.reaped, count=expired + reaped)
        return REAP_AGAIN if max(expired, reaped, quarantined) >= BATCH else REAP_EVERY

    def reap_abandoned(self, limit: int) -> tuple[int, int]:
        """End running records that nobody came back for; say how many were deleted, and how many quarantined."""
        reaped, quarantined = self._store.reap_abandoned(self._retention() + self._grace, limit)
        for each in quarantined:
            log.critical("quarantined: %s: %s", reference_of(each), ABANDONED)
            self._tell(signals.quarantined, reference=reference_of(each))
        return reaped, len(quarantined)


Act = Callable[[Housekeeper], float | None]  # a number says after how many seconds it is due again


@dataclass(slots=True)
class _Duty:
    """Something to do at *due*, and again *every* so many seconds until it is dropped."""

    act: Act
    every: float
    due: float
    urgent: bool = False  # not to be left undone when the process ends


class _Rounds:
    """What is to be done in one process, in the order in which it is due, and the thread that does it."""

    def __init__(self, keeper: Housekeeper) -> None:
        self._keeper = ref(keeper)  # the thread alone keeps no app alive: it ends after the app
        self._process = os.getpid()
        self._duties: dict[object, _Duty] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._tried = threading.Event()  # set once its start has succeeded or failed
        self._asleep_until = 0.0
        self._ended = False

    def add(self, name: object, duty: _Duty) -> bool:
        """Have something done; say whether there is a thread to do it."""
        with self._lock:
            self._duties[name] = duty
            early = duty.due < self._asleep_until
        is_running = self.start()
        if early:
            self._wake.set()
        return is_running

    def start(self) -> bool:
        """Start the thread unless it runs; say whether it does.

        If the process can have no more threads, the next claim tries again.
        """
        with self._lock:
            is_new = self._thread is None
            thread = self._thread = self._thread or self._make_thread()
            tried = self._tried = threading.Event() if is_new else self._tried
        if not is_new:
            tried.wait()  # somebody else may be about to start it
            return self._thread is not None
        try:
            thread.start()  # outside the lock: under gevent this lets others run
        except RuntimeError as error:
            self._thread = None
            log.error(
                "The housekeeping thread could not start, so requests under the lease guard get 503 for now: %s", error
            )
            return False
        finally:
            tried.set()
        return True

    def _make_thread(self) -> threading.Thread:
        share = uniform(0, REAP_EVERY)  # noqa: S311  # spreads the workers over time; nobody gains by guessing it
        self._duties[Housekeeper._reap] = _Duty(Housekeeper._reap, REAP_EVERY, time.monotonic() + share)
        atexit.unregister(self._leave)  # an earlier start may have failed
        atexit.register(self._leave)
        return threading.Thread(target=self._work, name="flask-idempotency", daemon=True)

    def drop(self, name: object, duty: _Duty | None = None) -> None:
        with self._lock:
            if duty is None or self._duties.get(name) is duty:
                self._duties.pop(name, None)

    def end(self) -> None:
        self._ended = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while not self._ended:
            name, duty, rest = self._next()
            if rest > 0:
                self._wake.wait(rest)
                self._wake.clear()
            elif (keeper := self._keeper()) is not None:
                self._do(name, duty, keeper)
                del keeper
            else:
                break
        atexit.unregister(self._leave)

    def _do(self, name: object, duty: _Duty, keeper: Housekeeper) -> None:
        try:
            again = duty.act(keeper)
            duty.due = time.monotonic() + (again or duty.every)
        except ClaimLost:
            self.drop(name, duty)
        except RequestRefused:
            # The store cannot be asked now, and has said so in the log. Whatever else is due cannot be done either, and
            # trying each would only fill the log: one attempt at a time, until one succeeds.
            duty.due = time.monotonic() + min(duty.every, TRY_AGAIN)
            self._wake.wait(TRY_AGAIN)
            self._wake.clear()
        except Exception:
            log.exception("housekeeping failed and goes on")
            duty.due = time.monotonic() + duty.every

    def _next(self) -> tuple[object, _Duty, float]:
        """Find the most urgent duty, and how long there is until it is due."""
        with self._lock:
            name, duty = min(self._duties.items(), key=lambda item: item[1].due)
            rest = duty.due - time.monotonic()
            self._asleep_until = duty.due if rest > 0 else 0.0
            return name, duty, rest

    def _leave(self) -> None:
        """Do once, before the process ends, what must not be left undone; if the store is not back, it is too late."""
        keeper = self._keeper()
        if keeper is None or self._process != os.getpid():
            return
        for duty in list(self._duties.values()):
            if duty.urgent:
                try:
                    duty.act(keeper)
                except Exception as error:  # noqa: BLE001  # the process ends; there is nobody left to raise it to
                    log.error("an answer is left unstored at the end of the process: %s", type(error).__name__)
