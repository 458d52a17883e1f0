"""The contract as a machine that plays at random against a small model, and the model. Knows no store.

Time goes in units; how long one is, the world says. What was claimed once stays in play: old claims are the zombies.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from flask_idempotency.core.lifecycle import TAKEOVERS, TRANSITIONS, Event, State
from flask_idempotency.core.record import Busy, Claim, Finished, Record, Running, Settled
from flask_idempotency.core.snapshot import Answer, Snapshot
from flask_idempotency.errors import ClaimLost
from flask_idempotency.testing import make_asked
from tests.stores.worlds import World, callers_clock

LEASE, RETENTION = 10, 100  # units
KEYS = ("order-1", "order-2", "order-3")
BODIES = ("one book", "two books", "three books")
ASKED = {(key, body): make_asked(key, body=body) for key in KEYS for body in BODIES}
KEY_OF = {asked.id: key for (key, _), asked in ASKED.items()}
BODY_OF = {asked.fingerprint: body for (_, body), asked in ASKED.items()}
HOUR = timedelta(hours=1)

keys = st.sampled_from(KEYS)
bodies = st.sampled_from(BODIES[:1] * 3 + BODIES)  # mostly the same, or nothing would ever be taken over
leases = st.sampled_from([LEASE, LEASE * 2])
answers = st.integers(0, 9).map(lambda n: Snapshot(200 + n, (("X-Number", str(n)),), b"\x00answer %d" % n))
durations = st.sampled_from(
    [1, LEASE - 1, LEASE, LEASE + 1, LEASE * 2 - 1, LEASE * 2, RETENTION - 1, RETENTION, RETENTION + 1]
)
clocks = st.sampled_from([timedelta(0), timedelta(0), HOUR, -HOUR])  # how wrong the caller's own clock is
losses = st.sampled_from([False] * 9 + [True])  # whether the store's answer is lost on its way


# -- the model: what a record may do, in as few words as possible ----------------------------------------------------


@dataclass
class Row:
    body: str
    epoch: int
    created_at: int
    lease_until: int
    attempt: int = 1
    state: State = State.RUNNING
    owner: bytes | None = None
    answer: Answer | None = None
    expires_at: int | None = None

    def undergo(self, event: Event) -> None:
        self.state = TRANSITIONS[self.state, event]


class Model:
    def __init__(self) -> None:
        self.now = 0
        self.rows: dict[str, Row] = {}
        self._epochs: dict[str, int] = defaultdict(int)

    def live(self, key: str) -> Row | None:
        row = self.rows.get(key)
        return None if row and row.expires_at is not None and row.expires_at <= self.now else row

    def owned(self, claim: Claim) -> Row | None:
        """The row on which this claim may act."""
        row = self.rows.get(KEY_OF[claim.id])
        return row if row and row.state is State.RUNNING and row.owner == claim.guard.token else None

    def claim(self, key: str, body: str, lease: int) -> tuple[object, ...]:
        """Foretell the store's answer, as `said` puts it. Whoever gets the claim is written down by the machine."""
        row = self.live(key)
        if row is None:
            self._epochs[key] += 1
            self.rows[key] = Row(body, self._epochs[key], self.now, self.now + lease)
            return "claim", 1, False
        if row.state is not State.RUNNING:
            return "settled", row.state, row.body, row.answer
        held = row.owner is not None
        if row.body != body or (held and self.now < row.lease_until):
            return "busy", row.body, row.lease_until - self.now
        if held and row.attempt > TAKEOVERS:
            row.undergo(Event.QUARANTINE)
            return "settled", row.state, row.body, None
        row.undergo(Event.TAKE_OVER)
        row.attempt += held
        row.lease_until = self.now + lease
        return "claim", row.attempt, held


# -- the machine -----------------------------------------------------------------------------------------------------


class StoreMachine(RuleBasedStateMachine):
    claims = Bundle("claims")

    def __init__(self, world: World) -> None:
        super().__init__()
        world.clear()
        self.world, self.store, self.model = world, world.store, Model()
        self.tokens: set[bytes] = set()
        self.completed: dict[tuple[str, int], set[bytes]] = defaultdict(set)

    @rule(target=claims, key=keys, body=bodies, lease=leases, clock=clocks, lost=losses)
    def claim(self, key: str, body: str, lease: int, clock: timedelta, lost: bool) -> object:
        expected, before = self.model.claim(key, body, lease), self.world.dump()

        with self.caller(clock, lost):
            found = self.store.claim(ASKED[key, body], lease * self.world.unit)

        if lost and isinstance(found, Claim):
            expected = *expected[:2], found.taken_over  # whoever does not hear the first answer cannot tell
        assert self.said(found) == expected
        if not isinstance(found, Claim):
            assert self.world.dump() == before or expected[1] is State.QUARANTINED, "a refused caller changed a byte"
            return multiple()
        assert found.guard.token not in self.tokens, "a token was given twice"
        self.tokens.add(found.guard.token)
        self.model.rows[key].owner = found.guard.token
        return found

    @rule(target=claims, key=keys, times=st.sampled_from([1] * 6 + [2, TAKEOVERS + 2]))  # nothing leaves quarantine
    def owners_die(self, key: str, times: int) -> object:
        """One owner after another claims and is never heard of again, until its lease has passed."""
        row = self.model.live(key)
        dead = []
        for _ in range(times):
            found = self.claim(key, row.body if row else BODIES[0], LEASE, timedelta(0), False)
            self.let_pass(LEASE)
            if isinstance(found, Claim):
                dead.append(found)
        return multiple(*dead)

    @rule(target=claims, key=keys, answer=answers)
    def owner_finishes(self, key: str, answer: Snapshot) -> object:
        """The ordinary day: whoever gets the claim completes it."""
        row = self.model.live(key)
        found = self.claim(key, row.body if row else BODIES[0], LEASE, timedelta(0), False)
        if isinstance(found, Claim):
            self.complete(found, answer, RETENTION, timedelta(0), False)
        return found

    @rule(claim=claims, lease=leases, clock=clocks, lost=losses)
    def renew(self, claim: Claim, lease: int, clock: timedelta, lost: bool) -> None:
        with self.only_if_owned(claim) as row, self.caller(clock, lost):
            self.store.renew(claim, lease * self.world.unit)
        if row:
            row.undergo(Event.RENEW)
            row.lease_until = self.model.now + lease

    @rule(claim=claims, answer=answers, retention=st.just(RETENTION), clock=clocks, lost=losses)
    def complete(self, claim: Claim, answer: Snapshot, retention: int, clock: timedelta, lost: bool) -> None:
        done = self.model.live(KEY_OF[claim.id])
        if done and done.state is State.FINISHED and done.owner == claim.guard.token:
            before = self.world.dump()
            self.store.complete(claim, answer, retention * self.world.unit)
            assert self.world.dump() == before, "completing again changed a byte"
            return
        with self.only_if_owned(claim) as row, self.caller(clock, lost):
            self.store.complete(claim, answer, retention * self.world.unit)
        if row:
            row.undergo(Event.COMPLETE)
            row.answer, row.expires_at = answer, self.model.now + retention
            completions = self.completed[KEY_OF[claim.id], row.epoch]
            completions.add(claim.guard.token)
            assert len(completions) == 1, "a record was completed twice in one epoch"

    @rule(claim=claims, clock=clocks, lost=losses)
    def release(self, claim: Claim, clock: timedelta, lost: bool) -> None:
        row, before = self.model.owned(claim), self.world.dump()
        with self.caller(clock, lost):
            self.store.release(claim)
        if row:
            row.undergo(Event.RELEASE)
            row.owner, row.lease_until = None, self.model.now
        else:
            assert self.world.dump() == before, "a stale release changed a byte"

    @rule(duration=durations)
    def let_pass(self, duration: int) -> None:
        self.world.let_pass(duration * self.world.unit)
        self.model.now += duration

    @rule(key=keys, by=st.sampled_from([-1, 0, 1]))
    def let_a_lease_or_retention_end(self, key: str, by: int) -> None:
        """Go to the very instant that matters to a record, or to just before or after it."""
        row = self.model.rows.get(key)
        end = None if row is None else row.expires_at if row.expires_at is not None else row.lease_until
        if end is not None and end + by > self.model.now:
            self.let_pass(end + by - self.model.now)

    @rule(
        pause=st.sampled_from([0, RETENTION + 1, RETENTION + LEASE]),
        grace=st.sampled_from([0, LEASE, RETENTION]),
        limit=st.integers(1, 2),
        clock=clocks,
        lost=losses,
    )
    def reap(self, pause: int, grace: int, limit: int, clock: timedelta, lost: bool) -> None:
        if pause:
            self.let_pass(pause)
        # Half a unit keeps the line away from every time that occurs: nothing is promised for the very instant.
        line = self.model.now - grace - 0.5
        due = {key for key, row in self.model.rows.items() if row.expires_at is not None and row.expires_at < line}

        with self.caller(clock, lost):
            count = self.store.reap((grace + 0.5) * self.world.unit, limit)

        left = {KEY_OF[record.asked.id] for record in self.store.browse()}
        gone = self.model.rows.keys() - left
        assert gone <= due, "a record was reaped before its time"
        if not lost:  # then the batch was asked for again, and only the second count arrived
            assert len(gone) == min(limit, len(due))
            assert count == len(gone)
        for key in gone:
            del self.model.rows[key]

    @invariant()
    def every_record_is_as_foretold(self) -> None:
        for key in KEYS:
            assert self.seen(self.store.find(ASKED[key, BODIES[0]].id)) == self.foreseen(self.model.live(key))

    # -- a caller, and what it sees ----------------------------------------------------------------------------------

    @contextmanager
    def caller(self, clock: timedelta, lost: bool) -> Iterator[None]:
        """Somebody whose own clock is wrong, or whose connection breaks before the answer arrives."""
        with callers_clock(clock):
            if lost:
                self.world.lose_next_answer()
            yield

    @contextmanager
    def only_if_owned(self, claim: Claim) -> Iterator[Row | None]:
        """Expect what is done inside to work for the owner, and to be refused without a trace for everybody else."""
        row, before = self.model.owned(claim), self.world.dump()
        try:
            yield row
        except ClaimLost:
            assert row is None, "the owner was refused"
            assert self.world.dump() == before, "a stale claim changed a byte"
        else:
            assert row is not None, "a stale claim was accepted"

    def said(self, found: Claim | Busy | Settled) -> tuple[object, ...]:
        match found:
            case Claim():
                return "claim", found.attempt, found.taken_over
            case Busy():
                return "busy", BODY_OF[found.fingerprint], self.units(found.lease_left)
            case Settled(Record(condition=Finished(answer=answer)) as record):
                return "settled", record.state, BODY_OF[found.fingerprint], answer
            case Settled(record):
                return "settled", record.state, BODY_OF[found.fingerprint], None

    def seen(self, record: Record | None) -> tuple[object, ...] | None:
        if record is None:
            return None
        about = record.state, BODY_OF[record.asked.fingerprint], record.attempt
        match record.condition:
            case Running(token=token, lease_left=left):
                return *about, token, self.units(left)
            case Finished(token=token, answer=answer, expires_at=expires_at):
                return *about, token, answer, self.units(expires_at - record.created_at)
            case _:
                return about

    def foreseen(self, row: Row | None) -> tuple[object, ...] | None:
        if row is None:
            return None
        about = row.state, row.body, row.attempt
        match row.state:
            case State.RUNNING:
                return *about, row.owner, row.lease_until - self.model.now
            case State.FINISHED:
                assert row.expires_at is not None
                return *about, row.owner, row.answer, row.expires_at - row.created_at
            case _:
                return about

    def units(self, duration: timedelta) -> int:
        return round(duration / self.world.unit)
