"""The lease guard's protocol as small rules, the world around it, and the promises that hold whatever that world does.

One key, one record, one card to charge. As many requests as there are `attempts` are under way at a time, any number
one after the other. Each goes the way of a checkout: claim → place the order → note "sent" → charge → note "done" →
mark as paid → finish → answer; a retry goes on at the record's point. "Done" and the payment may be one transaction.

**What is one step.** A transaction that starts with the fence: it holds the row's lock from there to COMMIT, so nobody
comes in between. Only if its COMMIT is in doubt, it is more than one: it *hangs*, the row locked for writers and
unchanged for readers, and then lands or vanishes. One step each: claiming, sending a request, serving it, timing out,
answering. Between two steps of an attempt the others may do any number of theirs: that is a pause. A lease may end
before any step (renewing it only means that it ends later), and a worker may die before any step, any number of times.
An attempt that answers "503, outcome unknown" leaves the record as one that died does, so it needs no step of its own.

**What is left out.** Fingerprints and scopes (S10, S11), a gateway that forgets its keys (S13), reads from a standby
(S14), and the counting of takeovers (L5).
"""

from collections.abc import Callable, Hashable, Iterator

from tests.model.explore import Step
from tests.model.world import (
    NOBODY,
    OVER,
    Attempt,
    Condition,
    Database,
    Doing,
    Ledger,
    Outcome,
    Point,
    Row,
    State,
    giving_up,
    is_at,
    is_last,
)

Steps = Iterator[Step[State]]

NEXT = {Point.START: Point.PLACED, Point.PLACED: Point.SENT, Point.SENT: Point.DONE, Point.DONE: Point.PAID}
WRITES = {
    Point.START: "places the order",
    Point.PLACED: "notes that the charge is being sent",
    Point.SENT: "notes the gateway's answer",
    Point.DONE: "marks the order as paid",
    Point.PAID: "finishes the record",
}
TOGETHER = "notes the gateway's answer and marks the order as paid"
SUCCESS = (Outcome.CHARGED, 1, 1, 1)  # the stored answer, one order, one charge, one payment
FAILOVER = "the standby takes over, and what it has not heard of never was"

PROMISES = {
    "S1": "a claim that is held is given to nobody else",
    "S2": "no two attempts have the record's token",
    "S3": "every phase is committed at most once: one order, one payment",
    "S4": "a finished record stays as it is until it expires",
    "S5": "all definitive answers are equal",
    "S6": "success means that order, charge and payment are committed, and the answer too",
    "S7": "a kept failure means that nothing was charged, and that nothing on its way can be",
    "S12": "the card is charged at most once",
    "§4": "nobody makes up its mind about a COMMIT while one hangs",
}


class Lease:
    """The protocol, for a gateway that knows idempotency keys. A weakened one overrides one rule."""

    expiry = True
    transient_errors = True
    failovers = 0
    gateway_knows_keys = True
    answers_go_with_phases = True
    verdicts: tuple[Outcome, ...] = (Outcome.CHARGED, Outcome.DECLINED)  # that the gateway may come to
    generations = 2  # a bound of the model
    senders: tuple[Doing, ...] = (Doing.GOING_ON, Doing.RESUMING, Doing.WAITING)
    tokens_are_names = True  # only their being equal matters, never which they are

    def __init__(self, attempts: int = 2) -> None:
        self.start = State(attempts=(OVER,) * attempts, failovers=self.failovers)
        self.moves: dict[Doing, Callable[[State, int, Attempt], Steps]] = {
            Doing.GOING_ON: self.go_on,
            Doing.RESUMING: self.resume,
            Doing.WAITING: self.wait,
            Doing.NOTING: self.write,
            Doing.REPEATING: self.repeat,
            Doing.GIVING_UP: self.give_up,
            Doing.ANSWERING: self.answer,
            Doing.TRUSTING: self.trust,
        }

    def steps(self, state: State) -> Steps:
        """Everything that may happen next."""
        yield from self.request(state)
        for who, attempt in enumerate(state.attempts):
            if attempt is not OVER:
                move = self.look_again if attempt.doubts else self.moves[attempt.doing]
                yield from move(state, who, attempt)
                yield from self.misfortune(state, who, attempt)
        yield from self.clock(state)
        yield from self.wire(state)
        yield from self.server(state)

    # -- claiming ----------------------------------------------------------------------------------------------------

    def request(self, state: State) -> Steps:
        """The client sends its request, for the first time or again. Being refused changes nothing: no step."""
        row = state.database.row
        if row and row.condition is Condition.FINISHED:
            yield Step(None, "a retry is answered from the record", self.told(state, row.outcome))
        if OVER in state.attempts:
            yield from self.claim(state, state.attempts.index(OVER))

    def claim(self, state: State, who: int) -> Steps:
        """One statement inserts the record, or takes it over if its lease has passed or was ended."""
        row = state.database.row
        if state.hanging:
            return
        if row is None or row.condition is Condition.EXPIRED:
            token, state = self.draw_token(state)
            yield from self.claimed(state, who, "claims the key", self.new_row(row, token))
        elif row.condition is Condition.RUNNING and not row.leased:
            token, state = self.draw_token(state)
            yield from self.claimed(state, who, "takes over", self.taken_over(row, token))

    def claimed(self, state: State, who: int, does: str, row: Row) -> Steps:
        """The claim is committed before anything else is done."""
        assert row.token is not None
        after = state.database._replace(row=row)
        state = state.having(who, Attempt(row.token, Doing.CLAIMING))
        yield from self.commit(state, who, does, after, self.resumed(row))

    def draw_token(self, state: State) -> tuple[int, State]:
        """A random token: nobody has, had or will have the same."""
        return state.tokens, state._replace(tokens=state.tokens + 1)

    def new_row(self, expired: Row | None, token: int) -> Row:
        """A new epoch starts without the checkpoints of the old one."""
        return Row(token, Condition.RUNNING, True, Point.START, 0, Outcome.UNKNOWN)

    def taken_over(self, row: Row, token: int) -> Row:
        """The token changes, the point stays."""
        return row._replace(token=token, leased=True)

    def resumed(self, row: Row) -> Attempt:
        """The new owner goes on where the record says."""
        assert row.token is not None
        doing = Doing.RESUMING if row.point is Point.SENT else Doing.GOING_ON
        return Attempt(row.token, doing, row.point, row.generation, row.outcome)

    # -- writing -----------------------------------------------------------------------------------------------------

    def write(self, state: State, who: int, attempt: Attempt) -> Steps:
        """The next phase or checkpoint, or the end. An answer goes with the next phase, or alone if none comes."""
        does = WRITES[Point.PAID if is_last(attempt) else attempt.point]
        after = self.written(state.database, attempt)
        yield from self.transaction(state, who, attempt, does, after)
        is_answer = attempt.doing is Doing.NOTING and attempt.outcome is Outcome.CHARGED
        if is_answer and self.answers_go_with_phases and self.fence(state.database.row, attempt):
            paid = self.written(after, attempt._replace(point=Point.DONE))
            yield from self.transaction(state, who, attempt, TOGETHER, paid)

    def transaction(self, state: State, who: int, attempt: Attempt, does: str, after: Database) -> Steps:
        """The fence, then the work, then COMMIT. Another's hanging COMMIT holds the row, and so is waited for."""
        if state.hanging:
            return
        if self.fence(state.database.row, attempt):
            yield from self.commit(state, who, does, after, self.moved_on(after.row, attempt))
        else:
            yield Step(who, "finds its claim lost", state.having(who, OVER))

    def fence(self, row: Row | None, attempt: Attempt) -> bool:
        """Token, state and position are compared in the transaction that writes."""
        return row is not None and self.owns(row, attempt) and is_at(attempt, row)

    def owns(self, row: Row, attempt: Attempt) -> bool:
        return row.condition is Condition.RUNNING and row.token == attempt.token

    def written(self, database: Database, attempt: Attempt) -> Database:
        """The work and the record change together."""
        orders = database.orders + (attempt.point is Point.START)
        payments = database.payments + (attempt.point is Point.DONE and attempt.outcome is Outcome.CHARGED)
        row = database.row and self.advanced(database.row, attempt)
        return database._replace(row=row, orders=orders, payments=payments)

    def advanced(self, row: Row, attempt: Attempt) -> Row:
        """The point moves on by one, until the last write."""
        if is_last(attempt):
            return row._replace(condition=Condition.FINISHED, outcome=attempt.outcome)
        return row._replace(point=NEXT[attempt.point], outcome=attempt.outcome)

    def moved_on(self, row: Row | None, attempt: Attempt) -> Attempt:
        """The owner when its write has certainly happened."""
        if row is None or row.condition is Condition.QUARANTINED:
            return OVER
        doing = Doing.ANSWERING if row.condition is Condition.FINISHED else Doing.GOING_ON
        return Attempt(attempt.token, doing, row.point, row.generation, row.outcome)

    def commit(self, state: State, who: int, does: str, after: Database, then: Attempt) -> Steps:
        """COMMIT: acknowledged, or in doubt."""
        yield Step(who, does, state.having(who, then)._replace(database=after))
        doubting = OVER if then is OVER else state.attempts[who]._replace(doubts=True)
        hanging = state.having(who, doubting)._replace(hanging=after)
        yield Step(who, f"{does}, but its COMMIT hangs", hanging, is_fault=True)

    # -- a COMMIT in doubt -------------------------------------------------------------------------------------------

    def look_again(self, state: State, who: int, attempt: Attempt) -> Steps:
        """Wait for the row's lock, and only then believe the row."""
        if self.has_the_lock(state):
            certain = self.certain(state.database.row, attempt)
            yield Step(who, "looks what became of its COMMIT", state.having(who, certain))

    def has_the_lock(self, state: State) -> bool:
        return state.hanging is None

    def certain(self, row: Row | None, attempt: Attempt) -> Attempt:
        """My token and the old position: it did not happen. A later one: it did. Anything else: the claim is lost."""
        if row is None or row.token != attempt.token:
            return OVER
        if attempt.doing is Doing.CLAIMING:
            return self.resumed(row)
        if row.condition is Condition.RUNNING and is_at(attempt, row):
            return attempt._replace(doubts=False)
        is_next = row.point in self.ahead_of(attempt) or row.generation > attempt.generation
        return self.moved_on(row, attempt) if is_next or row.condition is Condition.FINISHED else OVER

    def ahead_of(self, attempt: Attempt) -> set[Point | None]:
        """Where one write may have moved the record."""
        is_answer = attempt.doing is Doing.NOTING and self.answers_go_with_phases
        return {NEXT.get(attempt.point), Point.PAID if is_answer else None}

    # -- the effect --------------------------------------------------------------------------------------------------

    def go_on(self, state: State, who: int, attempt: Attempt) -> Steps:
        """After "sent" comes the request itself; everything else is a write."""
        yield from (self.send if attempt.point is Point.SENT else self.write)(state, who, attempt)

    def resume(self, state: State, who: int, attempt: Attempt) -> Steps:
        """Sent, and not known to be done: send again, with the same key."""
        yield from self.send(state, who, attempt)

    def send(self, state: State, who: int, attempt: Attempt) -> Steps:
        yield Step(who, "asks the gateway to charge", state.having(who, attempt._replace(doing=Doing.WAITING)))

    def effect_key(self, who: int, attempt: Attempt) -> Hashable:
        """Of all that an attempt knows, the key depends on the generation only."""
        return attempt.generation

    def wait(self, state: State, who: int, attempt: Attempt) -> Steps:
        """The gateway serves the request and its answer arrives, or does not; or the request itself comes late."""
        key = self.effect_key(who, attempt)
        gives_up = state.having(who, giving_up(attempt))
        for outcome, ledger in self.served(state.ledger, key):
            noting = attempt._replace(doing=Doing.NOTING, outcome=outcome)
            yield Step(who, f"is answered: {outcome}", state.having(who, noting)._replace(ledger=ledger))
            yield Step(who, f"times out, though {outcome}", gives_up._replace(ledger=ledger), is_fault=True)
        late = gives_up._replace(late=state.late | {key})
        yield Step(who, "times out, its request still on its way", late, is_fault=True)

    def served(self, ledger: Ledger, key: Hashable) -> list[tuple[Outcome, Ledger]]:
        """What the gateway may make of a request: a key it has seen gets the answer that it had then."""
        if self.gateway_knows_keys:
            for known, outcome in ledger:
                if known == key:
                    return [(outcome, ledger)]
        return [(outcome, (*ledger, (key, outcome))) for outcome in self.verdicts]

    def repeat(self, state: State, who: int, attempt: Attempt) -> Steps:
        """A new generation is stored under the fence, with its proof, before it is sent."""
        if attempt.generation == self.generations:
            yield from self.quarantine(state, who, attempt)
        else:
            row = state.database.row
            raised = state.database._replace(row=row and row._replace(generation=attempt.generation + 1))
            yield from self.transaction(state, who, attempt, "begins a new generation of the charge", raised)

    def quarantine(self, state: State, who: int, attempt: Attempt) -> Steps:
        """A person decides."""
        row = state.database.row
        after = state.database._replace(row=row and row._replace(condition=Condition.QUARANTINED))
        yield from self.transaction(state, who, attempt, "puts the record into quarantine", after)

    def may_send(self, attempt: Attempt) -> bool:
        """Whether nothing but this attempt's own pace stands between it and a request to the gateway."""
        return attempt.point is Point.SENT and attempt.doing in self.senders

    # -- the end of an attempt ---------------------------------------------------------------------------------------

    def answer(self, state: State, who: int, attempt: Attempt) -> Steps:
        """The first answer is the one that was stored."""
        yield Step(who, f"answers: {attempt.outcome}", self.told(state.having(who, OVER), attempt.outcome))

    def told(self, state: State, outcome: Outcome) -> State:
        return state._replace(told=outcome if state.told in (Outcome.UNKNOWN, outcome) else Outcome.BOTH)

    def give_up(self, state: State, who: int, attempt: Attempt) -> Steps:
        """End the lease if it is still ours; delete nothing."""
        if state.hanging:
            return
        row = state.database.row
        if row and self.owns(row, attempt):
            after = state.database._replace(row=self.released(row))
            yield from self.commit(state, who, "ends its lease", after, OVER)
        else:
            yield Step(who, "has no lease to end", state.having(who, OVER))

    def released(self, row: Row) -> Row | None:
        return row._replace(token=None, leased=False)

    def trust(self, state: State, who: int, attempt: Attempt) -> Steps:
        """Act on what was true a step ago."""
        raise NotImplementedError

    def misfortune(self, state: State, who: int, attempt: Attempt) -> Steps:
        """A transient error, or death. What a dead worker has sent is still on its way."""
        if self.transient_errors and attempt.doing in (Doing.GOING_ON, Doing.NOTING) and not attempt.doubts:
            yield Step(who, "meets a transient error", state.having(who, giving_up(attempt)), is_fault=True)
        late = state.late | {self.effect_key(who, attempt)} if attempt.doing is Doing.WAITING else state.late
        yield Step(who, "dies", state.having(who, OVER)._replace(late=late), is_fault=True)

    # -- the rest of the world ---------------------------------------------------------------------------------------

    def clock(self, state: State) -> Steps:
        """Leases end, records expire, the reaper comes by. While a COMMIT hangs nobody could tell the difference."""
        database = state.database
        row = database.row
        if row is None or state.hanging:
            return
        if row.condition is Condition.RUNNING and row.leased:
            lapsed = database._replace(row=row._replace(leased=False))
            yield Step(None, "the lease ends", state._replace(database=lapsed))
        if row.condition is Condition.FINISHED and self.expiry:
            # Orders, payments and answers are counted per epoch. Its last owner has nothing left to do but to answer.
            expired = Database(row._replace(condition=Condition.EXPIRED), sequence=database.sequence)
            attempts = tuple(OVER if attempt.token == row.token else attempt for attempt in state.attempts)
            yield Step(
                None, "the record expires", state._replace(database=expired, attempts=attempts, told=Outcome.UNKNOWN)
            )
        if self.may_reap(row):
            yield Step(None, "the reaper deletes the record", state._replace(database=database._replace(row=None)))

    def may_reap(self, row: Row) -> bool:
        return row.condition is Condition.EXPIRED

    def wire(self, state: State) -> Steps:
        """A request whose caller is gone is served late, or never."""
        for key in state.late:
            gone = state._replace(late=state.late - {key})
            yield Step(None, "a late request is lost", gone)
            for outcome, ledger in self.served(state.ledger, key):
                yield Step(None, f"a late request is served: {outcome}", gone._replace(ledger=ledger))

    def server(self, state: State) -> Steps:
        """A hanging COMMIT lands or vanishes. A standby falls behind, and takes over like that."""
        if state.hanging:
            yield Step(None, "the hanging COMMIT lands", state._replace(database=state.hanging, hanging=None))
            yield Step(None, "the hanging COMMIT vanishes", state._replace(hanging=None))
        if state.standby:
            yield Step(None, FAILOVER, self.failed_over(state, state.standby), is_fault=True)
        elif state.failovers:
            yield Step(None, "the standby falls behind", state._replace(standby=state.database), is_fault=True)

    def failed_over(self, state: State, standby: Database) -> State:
        """An asynchronous standby may forget what was answered: that is documented, so it is no breach."""
        finished = standby.row is not None and standby.row.condition is Condition.FINISHED
        attempts = tuple(
            OVER if attempt.doing is Doing.ANSWERING and not finished else attempt for attempt in state.attempts
        )
        told = state.told if finished else Outcome.UNKNOWN
        state = state._replace(attempts=attempts, database=standby, hanging=None, told=told)
        return state._replace(standby=None, failovers=state.failovers - 1)

    # -- what must be true -------------------------------------------------------------------------------------------

    def broken_in(self, state: State) -> str | None:
        """Name the promise that this state breaks."""
        row, orders, payments, _ = state.database
        finished = row.outcome if row and row.condition is Condition.FINISHED else Outcome.UNKNOWN
        charges = sum(outcome is Outcome.CHARGED for _, outcome in state.ledger)
        if orders > 1 or payments > 1:
            return "S3"
        if state.told is Outcome.BOTH:
            return "S5"
        if Outcome.CHARGED in (state.told, finished) and (finished, orders, charges, payments) != SUCCESS:
            return "S6"
        if finished in (Outcome.DECLINED, Outcome.FAILED) and (charges or self.may_charge(state)):
            return "S7"
        if charges > 1:
            return "S12"
        if row and sum(attempt.token == row.token for attempt in state.attempts) > 1:
            return "S2"
        return None

    def broken_by(self, before: State, step: Step[State]) -> str | None:
        """Name the promise that this step breaks."""
        was, row = before.database.row, step.state.database.row
        if was and was != row and step.does != FAILOVER:
            if was.condition is Condition.RUNNING and was.leased and row and row.token not in (was.token, None):
                return "S1"
            if was.condition is Condition.FINISHED and not (row and row.condition is Condition.EXPIRED):
                return "S4"
        if before.hanging and step.state.hanging and step.who is not None and before.attempts[step.who].doubts:
            return "§4" if step.state.attempts[step.who] is not OVER else None
        return None

    def may_charge(self, state: State) -> bool:
        """Whether a request that is on its way, or soon will be, can still charge the card."""
        coming = {self.effect_key(who, each) for who, each in enumerate(state.attempts) if self.may_send(each)}
        return any(self.served(state.ledger, key)[0][0] is Outcome.CHARGED for key in coming | state.late)

    def is_settled(self, state: State) -> bool:
        """L1: the client has its answer, or a person has the case."""
        row = state.database.row
        return state.told is not Outcome.UNKNOWN or (row is not None and row.condition is Condition.QUARANTINED)

    # -- states that have the same future ----------------------------------------------------------------------------

    def key(self, state: State) -> Hashable:
        """Attempts have no order and tokens no value: it matters which are equal, and one that no row has is dead."""
        if not self.tokens_are_names:
            return state
        names: dict[int | None, int | None] = {None: None}
        databases: list[Hashable] = []
        for database in (state.database, state.hanging, state.standby):
            row = database and database.row
            name = names.setdefault(row.token, len(names)) if row else None
            databases.append(database and (name, row and row[1:], database[1:]))
        attempts = sorted((names.get(attempt.token, NOBODY), attempt[1:]) for attempt in state.attempts)
        return (*attempts, *databases, state.failovers, state.ledger, state.late, state.told)


# -- other ways to ask a gateway, and other worlds -------------------------------------------------------------------


class Query(Lease):
    """`query`: the gateway knows no keys, but can be asked what it did. It is believed when it must know."""

    expiry = False  # in a new epoch it is charged anew, by contract
    gateway_knows_keys = answers_go_with_phases = False
    senders = (Doing.GOING_ON, Doing.WAITING)

    def resume(self, state: State, who: int, attempt: Attempt) -> Steps:
        """Ask. What is found is adopted; what is not found may still be on its way."""
        if state.ledger:
            found = attempt._replace(doing=Doing.NOTING, outcome=state.ledger[-1][1])
            yield Step(who, "asks the gateway and adopts what it finds", state.having(who, found))
        elif self.is_absence_proof(state):
            absent = attempt._replace(doing=Doing.REPEATING)
            yield Step(who, "asks the gateway, which has no charge and will get none", state.having(who, absent))
        else:
            yield Step(who, "asks the gateway too early to be sure", state.having(who, giving_up(attempt)))

    def is_absence_proof(self, state: State) -> bool:
        """After the in-flight bound nothing is on the wire, and nobody is left who could still put something there."""
        return not state.late and not any(self.may_send(attempt) for attempt in state.attempts)


class AtMostOnce(Lease):
    """`at_most_once`: the gateway knows no keys and cannot be asked. What may have been sent is never sent again."""

    expiry = False
    gateway_knows_keys = answers_go_with_phases = False
    senders = (Doing.GOING_ON, Doing.WAITING)

    def resume(self, state: State, who: int, attempt: Attempt) -> Steps:
        """Sent, and not known to be done: nobody can tell."""
        yield from self.quarantine(state, who, attempt)


class Failover(Lease):
    """An asynchronous standby takes over, however far behind it is. A smaller world otherwise, as this one is large."""

    expiry = transient_errors = False
    failovers = 1
    verdicts: tuple[Outcome, ...] = (Outcome.CHARGED,)


class Reaping(Lease):
    """Nobody comes back for a long time: a record of which nothing was done is deleted, any other goes to a person.

    A world of its own, for a person settles everything, and what can be settled otherwise is to be seen too.
    """

    def clock(self, state: State) -> Steps:
        """The reaper comes by for what nobody holds."""
        yield from super().clock(state)
        row = state.database.row
        if row and not state.hanging and row.condition is Condition.RUNNING and not row.leased:
            is_untouched = row.point is Point.START
            does = "deletes the abandoned record" if is_untouched else "gives the abandoned record to a person"
            left = None if is_untouched else row._replace(condition=Condition.QUARANTINED)
            yield Step(None, f"the reaper {does}", state._replace(database=state.database._replace(row=left)))
