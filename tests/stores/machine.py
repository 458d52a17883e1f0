"""The contract as a machine that plays at random against a small model, and the model. Knows no store.

Time goes in units; how long one is, the world says. What was claimed once stays in play: old claims are the zombies.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, MultipleResults, RuleBasedStateMachine, invariant, multiple, rule

from flask_idempotency.core.checkpoint import REQUEST, Checkpoint, Kind, Progress
from flask_idempotency.core.lifecycle import ABANDONED, TAKEOVERS, TOO_MANY_TAKEOVERS, TRANSITIONS, Event, State
from flask_idempotency.core.record import Busy, Claim, Finished, Record, Running, Settled
from flask_idempotency.core.snapshot import Answer, Snapshot, blanked
from flask_idempotency.errors import ClaimLost
from flask_idempotency.testing import make_asked
from tests.stores.worlds import World, callers_clock

LEASE, RETENTION = 10, 100  # units
KEYS = ("order-1", "order-2", "order-3")
BODIES = ("one book", "two books", "three books")
ASKED = {(key, body): make_asked(key, body=body) for key in KEYS for body in BODIES}
KEY_OF = {asked.id: key for (key, _), asked in ASKED.items()}
BODY_OF = {asked.fingerprint: body for (_, body), asked in ASKED.items()}
ID_OF = {key: id_ for id_, key in KEY_OF.items()}
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
reasons = st.sampled_from(["no answer", "nobody knows"])

STORED, PLACED, PAID = (
    Checkpoint(REQUEST, Kind.REQUEST, 0),
    Checkpoint("placed", Kind.PHASE, 1),
    Checkpoint("paid", Kind.PHASE, 3),
)
CHARGES = [
    Checkpoint("charge", Kind.EFFECT, 2, state, generation)
    for state, generation in (
        (Progress.SENT, 1),
        (Progress.SENT, 1),
        (Progress.DONE, 1),
        (Progress.VOID, 2),
        (Progress.SENT, 2),
    )
]
results = st.sampled_from([None, '"first"', '"second"'])
checkpoints = st.builds(
    lambda made, result: replace(made, result=result), st.sampled_from([STORED, PLACED, PAID, *CHARGES]), results
)


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
    point: str | None = None
    reason: str | None = None
    made: dict[str, tuple[Checkpoint, int]] = field(default_factory=dict)  # with the time of each

    def say(self, reason: str) -> None:
        self.reason = "; ".join(filter(None, [self.reason, reason]))

    def is_held(self, now: int) -> bool:
        return self.owner is not None and now < self.lease_until

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
            return "claim", 1, False, None
        if row.state is not State.RUNNING:
            return "settled", row.state, row.body, row.answer
        held = row.owner is not None
        if row.body != body or row.is_held(self.now):
            return "busy", row.body, row.lease_until - self.now
        if held and row.attempt > TAKEOVERS:
            row.undergo(Event.QUARANTINE)
            row.say(TOO_MANY_TAKEOVERS)
            return "settled", row.state, row.body, None
        row.undergo(Event.TAKE_OVER)
        row.attempt += held
        row.lease_until = self.now + lease
        return "claim", row.attempt, held, row.point

    def checkpoint(self, row: Row, made: Checkpoint) -> None:
        """Write it down; an effect keeps the time of its first sending in a generation."""
        before, at = row.made.get(made.name, (None, self.now))
        if before and (before.generation != made.generation or before.state is Progress.VOID):
            at = self.now
        row.point, row.made[made.name] = made.point, (made, at)

    def settle(self, row: Row, event: Event, answer: Answer, retention: int) -> None:
        row.undergo(event)
        row.answer, row.expires_at = answer, self.now + retention
        row.made.pop(REQUEST, None)


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
            expected = (
                *expected[:2],
                found.taken_over,
                expected[3],
            )  # whoever does not hear the first answer cannot tell
        assert self.said(found) == expected
        if not isinstance(found, Claim):
            assert self.world.dump() == before or expected[1] is State.QUARANTINED, "a refused caller changed a byte"
            return multiple()
        assert found.guard.token not in self.tokens, "a token was given twice"
        self.tokens.add(found.guard.token)
        self.model.rows[key].owner = found.guard.token
        return found

    @rule(target=claims, key=keys, times=st.sampled_from([1] * 6 + [2, TAKEOVERS + 2]))  # few leave quarantine
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

    @rule(
        target=claims,
        key=keys,
        steps=st.lists(checkpoints, max_size=1),
        answer=answers,
        which=st.sampled_from([-1, -1, 0]),
        regrets=st.booleans(),
    )
    def owner_finishes(
        self, key: str, steps: list[Checkpoint], answer: Snapshot, which: int, regrets: bool
    ) -> MultipleResults[Claim]:
        """The ordinary day: whoever gets the claim completes it, if it knows how far it has come; and that is all."""
        found = self.owner_goes_on(key, steps)
        if found.values:
            self.complete(found.values[which], answer, RETENTION, timedelta(0), False)
        if found.values and regrets:
            self.quarantine(found.values[-1], "regret", timedelta(0), False)
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
        with self.only_if_owned(claim, at=(claim.point,)) as row, self.caller(clock, lost):
            self.store.complete(claim, answer, retention * self.world.unit)
        if row:
            self.model.settle(row, Event.COMPLETE, answer, retention)
            completions = self.completed[KEY_OF[claim.id], row.epoch]
            completions.add(claim.guard.token)
            assert len(completions) == 1, "a record was completed twice in one epoch"

    @rule(claim=claims, clock=clocks, lost=losses)
    def release(self, claim: Claim, clock: timedelta, lost: bool) -> None:
        row, before, is_told_lost = self.model.owned(claim), self.world.dump(), False
        with self.caller(clock, lost):
            try:
                self.store.release(claim)
            except ClaimLost:
                is_told_lost = True
        # Whoever did not hear the first answer may have ended the lease by it.
        assert is_told_lost is (row is None) or lost, "a release did not say whether the claim was lost"
        assert not (row and is_told_lost), "a release that ended the lease said that the claim was lost"
        if row:
            row.undergo(Event.RELEASE)
            row.owner, row.lease_until = None, self.model.now
        else:
            assert self.world.dump() == before, "a stale release changed a byte"

    @rule(target=claims, claim=claims, made=checkpoints, clock=clocks, lost=losses)
    def checkpoint(self, claim: Claim, made: Checkpoint, clock: timedelta, lost: bool) -> object:
        moved = None
        with self.only_if_owned(claim, at=(claim.point, made.point)) as row, self.caller(clock, lost):
            moved = self.store.checkpoint(claim, made)
        if not row:
            return multiple()
        self.model.checkpoint(row, made)
        assert moved == replace(claim, point=made.point)
        return moved

    @rule(target=claims, key=keys, steps=st.lists(checkpoints, max_size=3), unheard=st.booleans())
    def owner_goes_on(self, key: str, steps: list[Checkpoint], unheard: bool = False) -> MultipleResults[Claim]:
        """Whoever gets the claim comes a little further, and dies or is slow; or does not hear that it did."""
        row = self.model.live(key)
        found = self.claim(key, row.body if row else BODIES[0], LEASE, timedelta(0), False)
        claims = []
        for made in steps if isinstance(found, Claim) else ():
            claims.append(found)
            found = self.checkpoint(found, made, timedelta(0), False)
            self.let_pass(1)
        if claims and unheard:
            self.checkpoint(claims[-1], steps[-1], timedelta(0), False)
        return multiple(*claims, *([found] if isinstance(found, Claim) else []))

    @rule(claim=claims, reason=reasons, clock=clocks, lost=losses)
    def note(self, claim: Claim, reason: str, clock: timedelta, lost: bool) -> None:
        row, before = self.model.owned(claim), self.world.dump()
        with self.caller(clock, lost):
            self.store.note(claim, reason)
        if row and not (row.reason or "").endswith(reason):
            row.say(reason)
        else:
            assert self.world.dump() == before, "a note in vain changed a byte"

    @rule(claim=claims, reason=reasons, clock=clocks, lost=losses)
    def quarantine(self, claim: Claim, reason: str, clock: timedelta, lost: bool) -> None:
        given = self.model.rows.get(KEY_OF[claim.id])
        if given and given.state is State.QUARANTINED and given.owner == claim.guard.token:
            before = self.world.dump()
            self.store.quarantine(claim, reason)
            assert self.world.dump() == before, "giving a record away again changed a byte"
            return
        with self.only_if_owned(claim) as row, self.caller(clock, lost):
            self.store.quarantine(claim, reason)
        if row:
            row.undergo(Event.QUARANTINE)
            row.say(reason)

    @rule(
        target=claims,
        key=keys,
        reason=reasons,
        steps=st.lists(checkpoints, max_size=2),
        refuted=st.sampled_from([None, (), ("charge",)]),
    )
    def owner_gives_up(self, key: str, reason: str, steps: list[Checkpoint], refuted: tuple[str, ...] | None) -> object:
        """Whoever gets the claim comes to what only a person can settle; and perhaps a person says how to go on."""
        found = self.owner_goes_on(key, steps)
        for claim in found.values[-1:]:
            self.quarantine(claim, reason, timedelta(0), False)
        if refuted is not None:
            self.reopen(key, refuted, timedelta(0), False)
        return found

    @rule(key=keys, answer=answers, retention=st.just(RETENTION), clock=clocks, lost=losses)
    def resolve(self, key: str, answer: Snapshot, retention: int, clock: timedelta, lost: bool) -> None:
        with self.only_if(State.QUARANTINED, key) as (row, told), self.caller(clock, lost):
            told.append(self.store.resolve(ID_OF[key], answer, retention * self.world.unit, "ada"))
        if row:
            self.model.settle(row, Event.RESOLVE, answer, retention)
            row.owner = None  # the answer is nobody's but the person's
            row.say("ada")

    @rule(key=keys, refuted=st.sampled_from([(), (), ("charge",), ("placed", "charge")]), clock=clocks, lost=losses)
    def reopen(self, key: str, refuted: tuple[str, ...], clock: timedelta, lost: bool) -> None:
        with self.only_if(State.QUARANTINED, key) as (row, told), self.caller(clock, lost):
            told.append(self.store.reopen(ID_OF[key], "ada", [(name, '"no"') for name in refuted]))
        if row:
            row.undergo(Event.REOPEN)
            row.owner, row.attempt, row.lease_until = None, 1, self.model.now
            row.say("ada")
            sent, _ = row.made.get("charge", (None, 0))
            if "charge" in refuted and sent and sent.state is Progress.SENT:
                void = replace(sent, state=Progress.VOID, generation=sent.generation + 1, result='"no"')
                row.made["charge"] = void, self.model.now

    @rule(key=keys, clock=clocks, lost=losses)
    def free(self, key: str, clock: timedelta, lost: bool) -> None:
        with self.only_if(State.RUNNING, key) as (row, told), self.caller(clock, lost):
            told.append(self.store.free(ID_OF[key], "ada"))
        if row:
            row.undergo(Event.FREE)
            row.owner, row.lease_until = None, self.model.now
            row.say("ada")

    @rule(key=keys, clock=clocks, lost=losses)
    def forget(self, key: str, clock: timedelta, lost: bool) -> None:
        with self.only_if(State.FINISHED, key) as (row, told), self.caller(clock, lost):
            told.append(self.store.forget(ID_OF[key], "ada"))
        if row and row.answer is not None:
            row.undergo(Event.FORGET)
            blank = {name: (replace(made, result=None), at) for name, (made, at) in row.made.items()}
            if (row.answer, row.made) != (blanked(row.answer), blank):
                row.say("ada")
            row.answer, row.made = blanked(row.answer), blank

    @rule(
        target=claims,
        left=st.lists(keys, max_size=2, unique=True),
        how=st.sampled_from(["ended", "ended", "held", "given away"]),
        pause=st.sampled_from([0, 1, LEASE]),
        age=st.sampled_from([0, LEASE]),
    )
    def look_for_abandoned(self, left: list[str], how: str, pause: int, age: int) -> object:
        """Store a few requests and leave them, one after the other, and look a while later."""
        claims = []
        for key in left:
            found = self.owner_goes_on(key, [STORED])
            for claim in found.values[-1:]:
                if how == "ended":
                    self.release(claim, timedelta(0), False)
                elif how == "given away":
                    self.quarantine(claim, "nobody knows", timedelta(0), False)
            claims += found.values
        if pause:
            self.let_pass(pause)
        self.every_abandoned_request_is_found(age)
        return multiple(*claims)

    def every_abandoned_request_is_found(self, age: int) -> None:
        line = self.model.now - age - 0.5
        left = {
            key: row.lease_until
            for key, row in self.model.rows.items()
            if row.state is State.RUNNING
            and not row.is_held(self.model.now)
            and REQUEST in row.made
            and row.made[REQUEST][1] < line
        }
        before = self.world.dump()

        found = [KEY_OF[record.asked.id] for record in self.store.abandoned((age + 0.5) * self.world.unit)]

        assert sorted(found) == sorted(left)
        assert [left[key] for key in found] == sorted(left.values()), "the one that was left first comes first"
        assert self.world.dump() == before, "looking changed a byte"

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
        target=claims,
        finished=st.lists(keys, max_size=3, unique=True),
        pause=st.sampled_from([0, RETENTION + 1, RETENTION + LEASE]),
        grace=st.sampled_from([0, LEASE, RETENTION]),
        limit=st.integers(1, 2),
        clock=clocks,
        lost=losses,
    )
    def reap(self, finished: list[str], pause: int, grace: int, limit: int, clock: timedelta, lost: bool) -> object:
        """Finish a few records, and reap some a while later."""
        claims = []
        for key in finished:
            claims += self.owner_finishes(key, [PLACED], Snapshot(200, (), b""), -1, False).values
        if pause:
            self.let_pass(pause)
        self.only_what_is_due_is_reaped(grace, limit, clock, lost)
        return multiple(*claims)

    def only_what_is_due_is_reaped(self, grace: int, limit: int, clock: timedelta, lost: bool) -> None:
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

    @rule(age=st.sampled_from([LEASE, RETENTION]), limit=st.integers(1, 2), clock=clocks, lost=losses)
    def reap_abandoned(self, age: int, limit: int, clock: timedelta, lost: bool) -> None:
        line = self.model.now - age - 0.5
        due = {k: r for k, r in self.model.rows.items() if r.state is State.RUNNING and r.lease_until < line}
        fresh = {key for key, row in due.items() if row.point in (None, REQUEST)}

        with self.caller(clock, lost):
            count, _ = self.store.reap_abandoned((age + 0.5) * self.world.unit, limit)

        states = {KEY_OF[record.asked.id]: record.state for record in self.store.browse()}
        gone = self.model.rows.keys() - states.keys()
        quarantined = {key for key in due if states.get(key) is State.QUARANTINED}
        assert gone <= fresh, "a record was reaped that is held, or has begun, or was left a moment ago"
        assert quarantined <= due.keys() - fresh, "a record was given to a person for nothing"
        if not lost:
            assert count == len(gone) == min(limit, len(fresh))
            assert len(quarantined) == min(limit, len(due) - len(fresh))
        for key in gone:
            self.model.rows[key].undergo(Event.REAP)
            del self.model.rows[key]
        for key in quarantined:
            self.model.rows[key].undergo(Event.QUARANTINE)
            self.model.rows[key].say(ABANDONED)

    @invariant()
    def every_record_is_as_foretold(self) -> None:
        for key in KEYS:
            assert self.seen(self.store.find(ID_OF[key])) == self.foreseen(self.model.live(key))

    @invariant()
    def every_record_has_come_as_far_as_foretold(self) -> None:
        for key in KEYS:
            found = [
                (replace(each, age=timedelta(0)), self.units(each.age)) for each in self.store.checkpoints(ID_OF[key])
            ]
            row = self.model.rows.get(key)
            made = sorted(row.made.values(), key=lambda each: each[0].position) if row else []
            assert found == [(each, self.model.now - at) for each, at in made]

    # -- a caller, and what it sees ----------------------------------------------------------------------------------

    @contextmanager
    def caller(self, clock: timedelta, lost: bool) -> Iterator[None]:
        """Somebody whose own clock is wrong, or whose connection breaks before the answer arrives."""
        with callers_clock(clock):
            if lost:
                self.world.lose_next_answer()
            yield

    @contextmanager
    def only_if_owned(self, claim: Claim, at: tuple[str | None, ...] | None = None) -> Iterator[Row | None]:
        """Expect what is done inside to work for the owner, and to be refused without a trace for everybody else.

        With *at* the record must stand at one of these points as well.
        """
        row, before = self.model.owned(claim), self.world.dump()
        if row and at is not None and row.point not in at:
            row = None
        try:
            yield row
        except ClaimLost:
            assert row is None, "the owner was refused"
            assert self.world.dump() == before, "a stale claim changed a byte"
        else:
            assert row is not None, "a stale claim was accepted"

    @contextmanager
    def only_if(self, state: State, key: str) -> Iterator[tuple[Row | None, list[bool]]]:
        """Expect what a person does inside to work, and to leave no trace on a record that is in another state."""
        row, before, told = self.model.rows.get(key), self.world.dump(), list[bool]()
        if row and row.state is not state:
            row = None
        yield row, told
        if row is None:
            assert told == [False], "a person was told of success"
            assert self.world.dump() == before, "a person changed what was not theirs"
        else:
            assert told == [True], "a person was refused"

    def said(self, found: Claim | Busy | Settled) -> tuple[object, ...]:
        match found:
            case Claim():
                return "claim", found.attempt, found.taken_over, found.point
            case Busy():
                return "busy", BODY_OF[found.fingerprint], self.units(found.lease_left)
            case Settled(Record(condition=Finished(answer=answer)) as record):
                return "settled", record.state, BODY_OF[found.fingerprint], answer
            case Settled(record):
                return "settled", record.state, BODY_OF[found.fingerprint], None

    def seen(self, record: Record | None) -> tuple[object, ...] | None:
        if record is None:
            return None
        reason = record.reason and re.sub(r"(ada) on [\d-]{10} [\d:]{8} UTC", r"\1", record.reason)
        about = record.state, BODY_OF[record.asked.fingerprint], record.attempt, record.point, reason
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
        about = row.state, row.body, row.attempt, row.point, row.reason
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
