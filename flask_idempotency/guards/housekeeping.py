"""The housekeeping thread: it renews leases, stores answers that could not be stored at once, and reaps in batches.

Each process has one, which starts with its first claim, so every forked worker has its own; under gevent it is a
greenlet.
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
from flask_idempotency.stores.partitioned import partitioned

RENEWALS = 3  # per lease: two may fail before another attempt takes over from a live owner
TRY_AGAIN = 0.5  # seconds: less than the Retry-After of clients, so that owners reach a recovered store first
REAP_EVERY = 60.0  # seconds; expired records do no harm
REAP_AGAIN = 1.0  # seconds between full batches, so that claims can run in between
BATCH = 500  # records in one transaction, so that no claim waits long for it

log = logging.getLogger("flask_idempotency")


class Housekeeper:
    """Looks after the claims of one app. Safe to use from any thread, and in forked processes."""

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
        self._partitioned = partitioned(store)
        self._grace = grace
        self._retention = retention  # the longest of any view
        self._tell = tell  # sends a signal with its facts
        self._enabled = enabled
        self._rounds: dict[int, _Rounds] = {}  # by process: a child does not inherit its parent's duties

    def watch(self, claim: Claim, lease: timedelta) -> None:
        """Renew this claim's lease until ``forget``. Raises StoreUnavailable if there is no thread to do it."""
        if not self._add(claim, lambda keeper: keeper._store.renew(claim, lease), lease.total_seconds() / RENEWALS):
            self.forget(claim)  # else the next thread would renew it for a run that has ended
            raise StoreUnavailable(retry_after=1)

    def start(self) -> None:
        """Start the thread, so that it reaps, even if no lease is to be renewed."""
        if self._enabled:
            self._rounds_here().start()

    def forget(self, claim: Claim) -> None:
        """Stop renewing a lease."""
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
        """Store the answer of a run whose completion failed, as soon as the store is available, unless another attempt
        took over.

        *answered* is a checkpoint to write before it, if that failed too or its outcome is unknown. A process that ends
        normally tries once more at its exit. *then* is called when the answer is stored.
        """

        def finish(keeper: Housekeeper) -> None:
            keeper._finish(claim, answer, retention, answered)
            then()

        self._add(claim, finish, TRY_AGAIN, urgent=True)

    def quarantine_later(self, claim: Claim, reason: str, answered: Checkpoint | None = None) -> None:
        """Quarantine a record as soon as the store is available, unless another attempt took over."""

        def quarantine(keeper: Housekeeper) -> None:
            stood = claim if answered is None else keeper._store.checkpoint(claim, answered)
            keeper._store.quarantine(stood, reason)
            keeper.forget(claim)
            log.critical("quarantined: %s: %s", reference_of(claim.id), reason)
            keeper._tell(signals.quarantined, reference=reference_of(claim.id))

        self._add(claim, quarantine, TRY_AGAIN, urgent=True)

    def stop(self) -> None:
        """Stop the thread of this process and wait for it. The next claim starts another; until then leases expire."""
        rounds = self._rounds.pop(os.getpid(), None)
        if rounds is not None:
            rounds.end()

    def _add(self, claim: Claim, act: "Act", every: float, *, urgent: bool = False) -> bool:
        """Add a duty; say whether there is a thread for it, or housekeeping is disabled."""
        if not self._enabled:
            return True
        return self._rounds_here().add(claim.guard.token, _Duty(act, every, time.monotonic() + every, urgent))

    def _rounds_here(self) -> "_Rounds":
        # Made when first needed: a lock from before a fork may be held for ever, and one from before gevent patched the
        # process does not work with greenlets.
        process = os.getpid()
        return self._rounds.get(process) or self._rounds.setdefault(process, _Rounds(self))

    def _finish(self, claim: Claim, answer: Answer, retention: timedelta, answered: Checkpoint | None) -> None:
        known = reference_of(claim.id)
        try:
            stood = claim if answered is None else self._store.checkpoint(claim, answered)
            self._store.complete(stood, answer, retention)
        except ClaimLost:
            log.error(
                "claim_lost: another attempt at %s ran before this one's answer could be stored; check whether it took"
                " effect twice",
                known,
            )
            self._tell(signals.claim_lost, reference=known)
            raise
        log.warning("finished_late: the answer of %s, which could not be stored at once, is stored now", known)
        self.forget(claim)
        kept = not isinstance(answer, NotKept)
        self._tell(signals.completed, reference=known, status=answer.status, body_kept=kept, late=True)

    def _reap(self) -> float:
        """Delete one batch; give the seconds until the next."""
        self.keep_up()
        expired = self._store.reap(self._grace, BATCH)
        reaped, quarantined = self.reap_abandoned(BATCH)
        if expired + reaped:
            self._tell(signals.reaped, count=expired + reaped)
        return REAP_AGAIN if max(expired, reaped, quarantined) >= BATCH else REAP_EVERY

    def keep_up(self) -> None:
        """Have a store that keeps its records by day make room for the next ones, and delete those that have passed."""
        if self._partitioned is not None:
            self._partitioned.upkeep(self._retention(), self._grace)

    def reap_abandoned(self, limit: int) -> tuple[int, int]:
        """End abandoned records; give how many were deleted, and how many quarantined."""
        reaped, quarantined = self._store.reap_abandoned(self._retention() + self._grace, limit)
        for each in quarantined:
            log.critical("quarantined: %s: %s", reference_of(each), ABANDONED)
            self._tell(signals.quarantined, reference=reference_of(each))
        return reaped, len(quarantined)


Act = Callable[[Housekeeper], float | None]  # may return the seconds until it is due again


@dataclass(slots=True)
class _Duty:
    """A task that is run at *due*, and then again after *every* seconds, until it is dropped."""

    act: Act
    every: float
    due: float
    urgent: bool = False  # to be tried once more when the process ends


class _Rounds:
    """The duties of one process, and the thread that does them in the order in which they are due."""

    def __init__(self, keeper: Housekeeper) -> None:
        self._keeper = ref(keeper)  # weak, so that the thread ends when its app is gone
        self._process = os.getpid()
        self._duties: dict[object, _Duty] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._tried = threading.Event()  # set once the thread has started or failed to
        self._asleep_until = 0.0
        self._ended = False

    def add(self, name: object, duty: _Duty) -> bool:
        """Add a duty; say whether there is a thread to do it."""
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
            if not tried.is_set():  # checked first, because waiting takes a lock
                tried.wait()  # another thread may be starting it
            return self._thread is not None
        try:
            thread.start()  # outside the lock: under gevent this lets others run
        except RuntimeError as error:
            self._thread = None
            log.error(
                "The housekeeping thread could not start, so requests under the lease guard get 503 until it can: %s;"
                " raise the limit on threads of this process",
                error,
            )
            return False
        finally:
            tried.set()
        return True

    def _make_thread(self) -> threading.Thread:
        share = uniform(0, REAP_EVERY)  # noqa: S311  # spreads the workers over time; it need not be secret
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
            # The store is not available, and has logged it. Other duties would fail too and only fill the log, so one
            # is tried at a time until one succeeds.
            duty.due = time.monotonic() + min(duty.every, TRY_AGAIN)
            self._wake.wait(TRY_AGAIN)
            self._wake.clear()
        except Exception:
            log.exception("a task of the housekeeping thread failed; it will be tried again")
            duty.due = time.monotonic() + duty.every

    def _next(self) -> tuple[object, _Duty, float]:
        """Find the duty that is due first, and the seconds until then."""
        with self._lock:
            name, duty = min(self._duties.items(), key=lambda item: item[1].due)
            rest = duty.due - time.monotonic()
            self._asleep_until = duty.due if rest > 0 else 0.0
            return name, duty, rest

    def _leave(self) -> None:
        """Try urgent duties once more before the process ends."""
        keeper = self._keeper()
        if keeper is None or self._process != os.getpid():
            return
        for duty in list(self._duties.values()):
            if duty.urgent:
                try:
                    duty.act(keeper)
                except Exception as error:  # noqa: BLE001  # the process ends, and nothing can handle it
                    log.error(
                        "the outcome of a request could not be stored before the process ended: %s; its retry will run"
                        " the view again, or resume it",
                        type(error).__name__,
                    )
