"""The protocol with one rule broken, as a hurried author might break it; the docstrings say what that author believed.

The checker must convict every one.
"""

from collections.abc import Hashable

from tests.model.explore import Step
from tests.model.protocol import WRITES, AtMostOnce, Failover, Lease, Query, Steps
from tests.model.world import (
    NOBODY,
    OVER,
    Attempt,
    Condition,
    Database,
    Doing,
    Outcome,
    Point,
    Row,
    State,
    is_at,
)

# -- the fence -------------------------------------------------------------------------------------------------------


class NoFence(Lease):
    """The lease is long enough."""

    def fence(self, row: Row | None, attempt: Attempt) -> bool:
        return True


class FirstPhaseUnfenced(Lease):
    """Whoever has just claimed is surely still the owner."""

    def fence(self, row: Row | None, attempt: Attempt) -> bool:
        return attempt.point is Point.START or super().fence(row, attempt)


class FenceByReading(Lease):
    """Read the token, see that it is ours, then write."""

    def write(self, state: State, who: int, attempt: Attempt) -> Steps:
        if self.fence(state.database.row, attempt):
            trusting = attempt._replace(doing=Doing.TRUSTING)
            yield Step(who, "reads its own token in the record", state.having(who, trusting))
        else:
            yield Step(who, "finds its claim lost", state.having(who, OVER))

    def trust(self, state: State, who: int, attempt: Attempt) -> Steps:
        if not state.hanging:
            after = self.written(state.database, attempt)
            yield from self.commit(state, who, WRITES[attempt.point], after, self.moved_on(after.row, attempt))


class FenceInItsOwnTransaction(Lease):
    """Move the point under the fence, commit, then do the work."""

    def write(self, state: State, who: int, attempt: Attempt) -> Steps:
        row = state.database.row
        after = state.database._replace(row=row and self.advanced(row, attempt))
        yield from self.transaction(state, who, attempt, "moves the record's point", after)

    def moved_on(self, row: Row | None, attempt: Attempt) -> Attempt:
        has_work = attempt.point in (Point.START, Point.DONE) and attempt.doing is Doing.GOING_ON
        return attempt._replace(doing=Doing.TRUSTING) if has_work else super().moved_on(row, attempt)

    def trust(self, state: State, who: int, attempt: Attempt) -> Steps:
        worked = self.written(state.database, attempt)._replace(row=state.database.row)
        yield from self.commit(state, who, WRITES[attempt.point], worked, self.moved_on(state.database.row, attempt))


class FenceWithoutToken(AtMostOnce):
    """The point tells who came first, and that is enough."""

    def fence(self, row: Row | None, attempt: Attempt) -> bool:
        return row is not None and row.condition is Condition.RUNNING and is_at(attempt, row)


class FenceWithoutPoint(Failover):
    """The token tells who the owner is, and that is enough."""

    def fence(self, row: Row | None, attempt: Attempt) -> bool:
        return row is not None and self.owns(row, attempt)


# -- the token -------------------------------------------------------------------------------------------------------


class TokenKept(Lease):
    """A takeover changes the lease; why the token?"""

    def taken_over(self, row: Row, token: int) -> Row:
        return row._replace(token=token if row.token is None else row.token, leased=True)


class TokenPerRecord(Lease):
    """The token is derived from the record's id."""

    def draw_token(self, state: State) -> tuple[int, State]:
        return 0, state


class TokenFromSequence(Failover):
    """A sequence never gives the same number twice."""

    tokens_are_names = False

    def draw_token(self, state: State) -> tuple[int, State]:
        drawn = state.database.sequence + 1
        return drawn, state._replace(database=state.database._replace(sequence=drawn))


# -- claiming --------------------------------------------------------------------------------------------------------


class RacyClaim(Lease):
    """Look whether there is a record; if not, insert one. No unique key."""

    def claim(self, state: State, who: int) -> Steps:
        if state.database.row is None:
            yield Step(who, "sees no record", state.having(who, Attempt(NOBODY, Doing.TRUSTING)))
        else:
            yield from super().claim(state, who)

    def trust(self, state: State, who: int, attempt: Attempt) -> Steps:
        token, state = self.draw_token(state)
        yield from self.claimed(state, who, "inserts a record", self.new_row(None, token))


class RestartsAfterTakeover(Lease):
    """The new owner begins at the beginning."""

    def taken_over(self, row: Row, token: int) -> Row:
        return super().taken_over(row, token)._replace(point=Point.START)


class IgnoresCheckpoints(Lease):
    """The new owner begins at the beginning; the fence will see to the rest."""

    def resumed(self, row: Row) -> Attempt:
        return super().resumed(row)._replace(doing=Doing.GOING_ON, point=Point.START)


class NeverTakesOver(Lease):
    """Whoever has claimed will finish."""

    def claim(self, state: State, who: int) -> Steps:
        row = state.database.row
        if row is None or row.token is None or row.condition is Condition.EXPIRED:
            yield from super().claim(state, who)


class KeepsOldCheckpoints(Lease):
    """An expired record is taken over like any other."""

    def new_row(self, expired: Row | None, token: int) -> Row:
        row = super().new_row(expired, token)
        return row._replace(point=expired.point, outcome=expired.outcome) if expired else row


# -- ending and reaping ----------------------------------------------------------------------------------------------


class DeletesByKey(Lease):
    """After an error the key is free again."""

    def give_up(self, state: State, who: int, attempt: Attempt) -> Steps:
        if not state.hanging:
            yield from self.commit(state, who, "deletes the record", state.database._replace(row=None), OVER)


class DeletesIfMine(Lease):
    """After an error the key is free again; nobody else's, of course."""

    def released(self, row: Row) -> Row | None:
        return None


class ReapsRunning(Lease):
    """A record whose lease has passed is rubbish."""

    def may_reap(self, row: Row) -> bool:
        return super().may_reap(row) or (row.condition is Condition.RUNNING and not row.leased)


class ReapsFinished(Lease):
    """A record that is finished has done its duty."""

    def may_reap(self, row: Row) -> bool:
        return row.condition in (Condition.FINISHED, Condition.EXPIRED)


class TellsLosersThatItFailed(Lease):
    """Whoever has lost its claim has failed, and says so."""

    def transaction(self, state: State, who: int, attempt: Attempt, does: str, after: Database) -> Steps:
        if state.hanging or self.fence(state.database.row, attempt):
            yield from super().transaction(state, who, attempt, does, after)
        else:
            yield Step(who, "says that it has failed", self.told(state.having(who, OVER), Outcome.FAILED))


class KeepsTimeouts(Lease):
    """The gateway did not answer, so the payment has failed."""

    def give_up(self, state: State, who: int, attempt: Attempt) -> Steps:
        row = state.database.row
        if row and self.owns(row, attempt) and row.point is Point.SENT:
            failed = attempt._replace(point=row.point, generation=row.generation, outcome=Outcome.FAILED)
            after = row._replace(condition=Condition.FINISHED, outcome=Outcome.FAILED)
            yield from self.transaction(state, who, failed, "keeps a failure", state.database._replace(row=after))
        else:
            yield from super().give_up(state, who, attempt)


# -- the effect ------------------------------------------------------------------------------------------------------


class EffectKeyFromToken(Lease):
    """The token is random, so it makes a good key."""

    tokens_are_names = False

    def effect_key(self, who: int, attempt: Attempt) -> Hashable:
        return attempt.token


class EffectKeyPerAttempt(Lease):
    """Every worker makes its own key."""

    tokens_are_names = False

    def effect_key(self, who: int, attempt: Attempt) -> Hashable:
        return who


class GatewayWithoutKeys(Lease):
    """The gateway ignores a header it does not know."""

    gateway_knows_keys = False


class RaisesGenerationWithoutProof(Lease):
    """It was sent and nobody answered: begin a new generation."""

    resume = Lease.repeat


class PaysBeforeItNotes(Lease):
    """The payment is what counts; the answer that it came of can be noted after it."""

    def write(self, state: State, who: int, attempt: Attempt) -> Steps:
        if attempt.doing is Doing.NOTING and attempt.outcome is Outcome.CHARGED:
            paid = state.database._replace(payments=state.database.payments + 1)
            yield from self.transaction(state, who, attempt, WRITES[Point.DONE], paid)
        else:
            yield from super().write(state, who, attempt)

    def moved_on(self, row: Row | None, attempt: Attempt) -> Attempt:
        has_paid = attempt.doing is Doing.NOTING and row is not None and row.point is Point.SENT
        return attempt._replace(doing=Doing.TRUSTING) if has_paid else super().moved_on(row, attempt)

    def trust(self, state: State, who: int, attempt: Attempt) -> Steps:
        row = state.database.row
        noted = row and row._replace(point=Point.PAID, outcome=attempt.outcome)
        yield from self.transaction(state, who, attempt, WRITES[Point.SENT], state.database._replace(row=noted))


# -- a COMMIT in doubt -----------------------------------------------------------------------------------------------


class BelievesDoubtfulCommit(Lease):
    """The last COMMIT raised, but all the work is done: answer."""

    def look_again(self, state: State, who: int, attempt: Attempt) -> Steps:
        if attempt.point is Point.PAID:
            yield from self.answer(state, who, attempt)
        else:
            yield from super().look_again(state, who, attempt)


class ReadsAfterDoubtfulCommit(Lease):
    """Read the record on a new connection; what is not there did not happen."""

    def has_the_lock(self, state: State) -> bool:
        return True


# -- other policies --------------------------------------------------------------------------------------------------


class AsksTooEarly(Query):
    """The gateway has no charge, so there is none."""

    def is_absence_proof(self, state: State) -> bool:
        return True


class ForgetsPausedSenders(Query):
    """Nothing is on the wire for longer than the bound. But whoever noted "sent" may sleep before it sends."""

    def is_absence_proof(self, state: State) -> bool:
        return not state.late and not any(attempt.doing is Doing.WAITING for attempt in state.attempts)


class SendsAgain(AtMostOnce):
    """It most likely did not arrive."""

    resume = Lease.send


# -- what no protocol can do -----------------------------------------------------------------------------------------


class AtMostOnceFailover(AtMostOnce, Failover):
    """What was sent is never sent again. But the standby has not heard of "sent"."""


class QueryFailover(Query, Failover):
    """What was sent is asked for. But the standby has not heard of "sent", so nobody asks."""
