"""SQLite stores that each break one rule of the protocol, as a hurried author might. The tests must see every one.

Most differ from the real store in a line of one statement; that line must exist, so that no mutant fades away unseen.
"""

import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

from sqlalchemy import create_engine, event
from sqlalchemy.pool import PoolProxiedConnection

from flask_idempotency.core.checkpoint import Checkpoint
from flask_idempotency.core.fingerprint import Fingerprint
from flask_idempotency.core.record import Asked, Busy, Claim, Lease, Running, Settled
from flask_idempotency.core.snapshot import Answer, NotKept, Snapshot
from flask_idempotency.errors import ClaimLost
from flask_idempotency.stores.database import Message, Rows, WrittenBefore
from flask_idempotency.stores.sql_transaction import KEPT
from flask_idempotency.stores.sqlite import SqliteStore
from flask_idempotency.stores.words import Intent, Kind

NOW = "(julianday('now') - 2440587.5) * 86400.0"


class Mutant(SqliteStore):
    """The real store, but for `changes`: a verb, what its statement says, and what the mutant says instead."""

    changes: ClassVar[Sequence[tuple[str, str, str]]] = ()

    def __init__(self, path: Path) -> None:
        engine = create_engine(f"sqlite:///{path}", connect_args={"isolation_level": None})
        event.listen(engine, "connect", _hurry)
        super().__init__(engine)
        for verb, said, _ in self.changes:
            if said not in super()._statement(verb):
                raise LookupError(f"{type(self).__name__} changes nothing: {verb}.sql does not say {said!r}")

    def _statement(self, verb: str) -> str:
        text = super()._statement(verb)
        for changed, said, says in self.changes:
            text = text.replace(said, says) if changed == verb else text
        return text


def _hurry(connection: Any, _: object) -> None:
    connection.execute("PRAGMA synchronous = OFF")


# -- the fence -------------------------------------------------------------------------------------------------------


class CompletesWithoutToken(Mutant):
    """Completion is keyed by the record, not by its owner."""

    changes = (("complete", "AND token = :token", ""),)


class RenewsWithoutToken(Mutant):
    """A paused owner prolongs the new owner's lease."""

    changes = (("renew", "AND token = :token", ""),)


class ReleasesWithoutToken(Mutant):
    """A paused owner ends the new owner's lease."""

    changes = (("release", "AND token = :token", ""),)


class ReleasesQuietly(Mutant):
    """An owner that lost its claim and fails is not told that it lost."""

    def release(self, claim: Claim) -> None:
        with suppress(ClaimLost):
            super().release(claim)


class KeepsTokenOnTakeover(Mutant):
    """The new owner gets the old one's token, so both pass every check."""

    changes = (("take_over", "token = :token", "token = coalesce(token, :token)"),)

    def claim(self, asked: Asked, lease: timedelta, first: Checkpoint | None = None) -> Claim | Busy | Settled:
        found = super().claim(asked, lease, first)
        if not isinstance(found, Claim):
            return found
        record = self.find(asked.id)
        assert record is not None
        assert isinstance(record.condition, Running)
        return replace(found, guard=Lease(record.condition.token or b""))


class HasOneTokenPerRecord(Mutant):
    """The token is derived from the record, so it comes back with every attempt."""

    def _execute(self, connection: PoolProxiedConnection, messages: Sequence[Message]) -> list[Rows]:
        return super()._execute(connection, [(text, _with_token_of_record(values)) for text, values in messages])

    def claim(self, asked: Asked, lease: timedelta, first: Checkpoint | None = None) -> Claim | Busy | Settled:
        found = super().claim(asked, lease, first)
        return replace(found, guard=Lease(_token_of(asked.id))) if isinstance(found, Claim) else found


def _with_token_of_record(values: Mapping[str, object]) -> Mapping[str, object]:
    return {**values, "token": _token_of(values["id"])} if "token" in values else values


def _token_of(id_: object) -> bytes:
    return sha256(b"token" + bytes(id_)).digest()[:16]  # type: ignore[call-overload]  # ids are bytes


class FinishedIsNotFinal(Mutant):
    """The owner may complete as often as it likes; the last answer wins."""

    changes = (("complete", "AND state = 'running'", ""),)


class RefusesLateFinish(Mutant):
    """Work that took longer than its lease is thrown away, though nobody took over."""

    changes = (("complete", "AND state = 'running'", f"AND state = 'running' AND lease_until > {NOW}"),)


# -- claiming --------------------------------------------------------------------------------------------------------


class LooksThenWrites(Mutant):
    """Looks whether the record is free and then takes it, in two steps: those who looked at once all get it."""

    changes = (
        ("claim", "INSERT INTO", "INSERT OR REPLACE INTO"),
        ("claim", "WHERE true", ""),
        ("claim", "ON CONFLICT (id) DO NOTHING", ""),
    )


class IgnoresFingerprint(Mutant):
    """Another body takes over a lease that passed or was ended."""

    changes = (("take_over", "AND fingerprint = :fingerprint", ""),)


class ForgetsKnownFingerprint(Mutant):
    """A record in the way is said to be for whatever the caller asks: 409 or a replay instead of 422."""

    def claim(self, asked: Asked, lease: timedelta, first: Checkpoint | None = None) -> Claim | Busy | Settled:
        match super().claim(asked, lease, first):
            case Busy() as busy:
                return replace(busy, fingerprint=asked.fingerprint)
            case Settled(record):
                return Settled(replace(record, asked=replace(record.asked, fingerprint=_same_as(asked))))
            case found:
                return found


def _same_as(asked: Asked) -> Fingerprint:
    return asked.fingerprint


class ForgetsFingerprintOfClaims(Mutant):
    """Every request under a key has the same effect keys, whatever it asks for."""

    def claim(self, asked: Asked, lease: timedelta, first: Checkpoint | None = None) -> Claim | Busy | Settled:
        found = super().claim(asked, lease, first)
        return replace(found, fingerprint=Fingerprint(1, bytes(15))) if isinstance(found, Claim) else found


class TakesOverEarly(Mutant):
    """A lease is written shorter than it was promised to its owner."""

    changes = (("claim", "clock.now + :lease", "clock.now + :lease - 90"),)


class NeverTakesOver(Mutant):
    """A dead owner blocks its key for ever."""

    changes = (("take_over", "lease_until <= clock.now", "false"),)


class NeverQuarantines(Mutant):
    """A request that kills its owners goes on killing."""

    changes = (("take_over", "AND attempt <= :takeovers", ""),)


class CountsEndedLeases(Mutant):
    """An outage with eager clients quarantines everybody."""

    changes = (("take_over", "attempt + (token IS NOT NULL)", "attempt + 1"),)


class ForgetsTakeoversOnRelease(Mutant):
    """One polite owner, and the count of those who died begins anew."""

    changes = (("release", "SET", "SET attempt = 1,"),)


class DeletesOnRelease(Mutant):
    """An attempt that failed leaves nothing, not even what the record was made for."""

    changes = (
        ("release", "UPDATE idempotency_record", "DELETE FROM idempotency_record"),
        ("release", f"SET lease_until = {NOW}, token = NULL", ""),
    )


# -- time ------------------------------------------------------------------------------------------------------------


class UsesApplicationClock(Mutant):
    """Every worker goes by its own clock."""

    def _statement(self, verb: str) -> str:
        return super()._statement(verb).replace(NOW, ":clock")

    def _execute(self, connection: PoolProxiedConnection, messages: Sequence[Message]) -> list[Rows]:
        return super()._execute(connection, [(text, {**values, "clock": time.time()}) for text, values in messages])


class ReplaysExpired(Mutant):
    """A record is live until it is deleted."""

    changes = (("find", f"AND (state <> 'finished' OR expires_at > {NOW})", ""),)


class ExpiredStaysInTheWay(Mutant):
    """Reading hides the expired row, but its primary key still blocks the next claim."""

    changes = (("take_over", "state = 'finished' AND expires_at <= clock.now", "false"),)


class ReplacesLiveRecords(Mutant):
    """Expiry is looked at a little early when it matters."""

    changes = (
        ("find", "expires_at >", "expires_at - 90 >"),
        ("take_over", "expires_at <=", "expires_at - 90 <="),
    )


class CarriesAttemptsOver(Mutant):
    """A new epoch begins with the old one's takeovers."""

    changes = (("take_over", "CASE state WHEN 'finished' THEN 1 ELSE", "CASE WHEN false THEN 1 ELSE"),)


class KeepsForFromTheClaimOn(Mutant):
    """Retention counts from the beginning of the work, so slow work is forgotten early."""

    changes = (("complete", f"expires_at = {NOW} + :retention", "expires_at = created_at + :retention"),)


# -- reaping ---------------------------------------------------------------------------------------------------------


class ReapsRunning(Mutant):
    """Whatever is old goes."""

    changes = (
        ("reap", "state = 'finished' AND expires_at", "state <> 'quarantined' AND ifnull(expires_at, lease_until)"),
    )


class ReapsQuarantined(Mutant):
    """What a person should have looked at is gone."""

    changes = (("reap", "state = 'finished' AND expires_at", "state <> 'running' AND ifnull(expires_at, lease_until)"),)


class ReapsAtOnce(Mutant):
    """No grace is given."""

    changes = (("reap", "- :grace", ""),)


class ReapsEverythingDue(Mutant):
    """No limit is kept."""

    changes = (("reap", "LIMIT :limit", ""),)


class ReapsHeld(Mutant):
    """What began long ago goes, though somebody holds it."""

    changes = (("reap_abandoned", f"AND lease_until < {NOW} - :age", ""),)


class ReapsHalfWay(Mutant):
    """What was done is forgotten, and done again."""

    changes = (("reap_abandoned", "(point IS NULL OR point = :request)", "true"),)


class ReapsAbandonedAtOnce(Mutant):
    """Nobody has time to come back."""

    changes = (("reap_abandoned", "- :age", ""),)


class ReapsEverythingAbandoned(Mutant):
    """No limit is kept."""

    changes = (("reap_abandoned", "LIMIT :limit", ""),)


class ReapLeavesRequests(Mutant):
    """Stored requests pile up, and the completer finds them without a record."""

    changes = (("reap_abandoned_requests", "WHERE record_id IN", "WHERE false AND record_id IN"),)


class ReapsRequestsHalfWay(Mutant):
    """The checkpoints of a run go that is quarantined later, or never."""

    changes = (("reap_abandoned_requests", "(point IS NULL OR point = :request)", "true"),)


class QuarantinesHeld(Mutant):
    """Work is taken from an owner who is at it."""

    changes = (("quarantine_abandoned", f"AND lease_until < {NOW} - :age", ""),)


class QuarantinesWhatBeganNothing(Mutant):
    """Strangers can call for a person as often as they like."""

    changes = (("quarantine_abandoned", "point <> :request", "true"),)


class QuarantinesAbandonedAtOnce(Mutant):
    """Nobody has time to come back."""

    changes = (("quarantine_abandoned", "- :age", ""),)


# -- answers ---------------------------------------------------------------------------------------------------------


class MergesHeaders(Mutant):
    """Headers are kept as a dictionary."""

    def complete(self, claim: Claim, answer: Answer, retention: timedelta) -> None:
        if isinstance(answer, Snapshot):
            answer = replace(answer, headers=tuple(dict(answer.headers).items()))
        super().complete(claim, answer, retention)


class KeepsBodiesAsText(Mutant):
    """Bytes that are no text come back as others."""

    def complete(self, claim: Claim, answer: Answer, retention: timedelta) -> None:
        if isinstance(answer, Snapshot):
            answer = replace(answer, body=answer.body.decode("utf-8", "replace").encode())
        super().complete(claim, answer, retention)


class TakesEmptyForNotKept(Mutant):
    """An empty body is no body."""

    def complete(self, claim: Claim, answer: Answer, retention: timedelta) -> None:
        if isinstance(answer, Snapshot) and not answer.body:
            answer = NotKept(answer.status)
        super().complete(claim, answer, retention)


# -- checkpoints -----------------------------------------------------------------------------------------------------


class ChecksPointAlone(Mutant):
    """A paused owner that stands where the record stands may write."""

    changes = (("fence", "AND token = :token", ""), ("mark", "AND token = :token", ""))


class ChecksTokenAlone(Mutant):
    """Two threads with one claim both go on from the same point."""

    changes = (("fence", "AND point IS :previous", ""),)


class MarksWithoutFence(Mutant):
    """Whoever is not let through writes its checkpoint all the same."""

    changes = (("mark", "AND point = :point", ""),)


class WritesOnFinished(Mutant):
    """The owner of a settled record goes on."""

    changes = (("fence", "AND state = 'running'", ""), ("mark", "AND state = 'running'", ""))


class RefusesRepeatedCheckpoints(Mutant):
    """An owner that did not hear of its success is told that it lost the claim."""

    def checkpoint(self, claim: Claim, made: Checkpoint) -> Claim:
        record = self.find(claim.id)
        if record and record.point == made.point != claim.point:
            raise ClaimLost
        return super().checkpoint(claim, made)


class KeepsTheOldClaim(Mutant):
    """The owner is not told where its record stands now."""

    def checkpoint(self, claim: Claim, made: Checkpoint) -> Claim:
        super().checkpoint(claim, made)
        return claim


class LosesPointOnTakeover(Mutant):
    """Whoever takes over begins from the start."""

    changes = (("take_over", "ELSE point END", "ELSE NULL END"),)


class ForgetsCheckpointsOnTakeover(Mutant):
    """Whoever takes over knows where the record stands, and not what was done."""

    changes = (("drop_checkpoints", "AND point IS NULL", ""),)


class KeepsPointInNewEpoch(Mutant):
    """A key that is new again begins in the middle."""

    changes = (("take_over", "CASE state WHEN 'finished' THEN NULL ELSE point END", "point"),)


class KeepsCheckpointsInNewEpoch(Mutant):
    """A key that is new again finds the work of the old one done."""

    changes = (("drop_checkpoints", "WHERE record_id = :id", "WHERE false"),)


class KeepsReasonInNewEpoch(Mutant):
    """A key that is new again is told the story of the old one."""

    changes = (("take_over", "CASE state WHEN 'finished' THEN NULL ELSE reason END", "reason"),)


class CompletesFromAnyPoint(Mutant):
    """Whoever does not know how far the run has come may end it."""

    changes = (("complete", "AND point IS :point", ""),)


class TakesEachSendingForTheFirst(Mutant):
    """The foreign system has forgotten the key, and it is sent again."""

    changes = (("mark", "THEN c.at ELSE", "THEN excluded.at ELSE"),)


class CountsGenerationsFromTheFirst(Mutant):
    """A new key is thought to be as old as the one before it."""

    changes = (("mark", "excluded.generation = c.generation AND", ""),)


class CountsFromTheProof(Mutant):
    """What was void since yesterday and is sent now is thought to be of yesterday."""

    changes = (("mark", "AND c.state <> 'void'", ""),)


class ReadsCheckpointsByName(Mutant):
    """The order of the alphabet is not that of the run."""

    changes = (("checkpoints", "ORDER BY position", "ORDER BY name"),)


class MeasuresNoAge(Mutant):
    """Every checkpoint is thought to be new."""

    changes = (("checkpoints", f"{NOW} - at", "0.0"),)


class KeepsRequests(Mutant):
    """A request is kept though nobody has to go on with it."""

    changes = (("drop_request", "WHERE record_id = :id", "WHERE false"),)


class DropsEveryCheckpointAtTheEnd(Mutant):
    """Nobody can say afterwards what was done."""

    changes = (("drop_request", "AND kind = 'request'", ""),)


class DropsRequestsInVain(Mutant):
    """A paused owner takes the request from whoever has to go on with it."""

    changes = (("drop_request", "AND state = 'finished'", ""),)


class ReapLeavesCheckpoints(Mutant):
    """They pile up, and the next record of that key finds them."""

    changes = (("reap_checkpoints", "WHERE record_id IN", "WHERE false AND record_id IN"),)


class ReapsCheckpointsAtOnce(Mutant):
    """They go before their record."""

    changes = (("reap_checkpoints", "- :grace", ""),)


class ReapsEveryCheckpointDue(Mutant):
    """They go in one batch, their records in several."""

    changes = (("reap_checkpoints", "LIMIT :limit", ""),)


# -- people ----------------------------------------------------------------------------------------------------------


class QuarantinesWithoutToken(Mutant):
    """A paused owner takes the record from the new one."""

    changes = (("give_up", "AND token = :token", ""),)


class QuarantinesFinished(Mutant):
    """An owner takes its answer back."""

    changes = (("give_up", "AND state = 'running'", ""),)


class NotesWithoutToken(Mutant):
    """A paused owner speaks for the new one."""

    changes = (("note", "AND token = :token", ""),)


class NotesOverRemarks(Mutant):
    """What a person said is lost."""

    changes = (("note", "ELSE coalesce(reason || '; ', '') || :reason END", "ELSE :reason END"),)


class NotesAgainAndAgain(Mutant):
    """Every attempt that meets the same trouble says so."""

    changes = (("note", "THEN reason", "THEN coalesce(reason || '; ', '') || :reason"),)


class ForgetsReasons(Mutant):
    """The last word is the only one."""

    changes = (("give_up", "coalesce(reason || '; ', '') || :reason", ":reason"),)


class GivesNoReasonForTakeovers(Mutant):
    """A record is quarantined, and nobody knows why."""

    changes = (("quarantine", ", reason = coalesce(reason || '; ', '') || :reason", ""),)


class ResolvesRunning(Mutant):
    """A person answers while the owner is at it."""

    changes = (("resolve", "AND state = 'quarantined'", "AND state <> 'finished'"),)


class ResolvesFinished(Mutant):
    """A person gives a second answer."""

    changes = (("resolve", "AND state = 'quarantined'", "AND state <> 'running'"),)


class ResolvesInTheOwnersName(Mutant):
    """The last owner takes a person's answer for its own."""

    changes = (("resolve", "token = NULL,", ""),)


class SaysNotWhoResolved(Mutant):
    """A remark is lost."""

    changes = (("resolve", ":remark", "''"),)


class ReopensWhateverItIs(Mutant):
    """A running record loses its owner, a finished one runs again."""

    changes = (("reopen", "AND state = 'quarantined'", ""),)


class ReopensForTheLastOwner(Mutant):
    """The one that gave up goes on, beside the next."""

    changes = (("reopen", "token = NULL,", ""),)


class ReopensWithoutAttempts(Mutant):
    """The first death quarantines it again."""

    changes = (("reopen", "attempt = 1,", ""),)


class RefutesUnderTheSameKey(Mutant):
    """The foreign system gives its old answer to what is sent anew."""

    changes = (("refute", "generation = generation + 1,", ""),)


class RefutesWhatIsDone(Mutant):
    """What happened is sent again under another key."""

    changes = (("refute", "AND state = 'sent'", ""),)


class RefutesWhileItRuns(Mutant):
    """A person who comes too late makes the owner's effect void."""

    changes = (("refute", "AND state = 'quarantined'", ""),)


class LosesTheProof(Mutant):
    """Nobody can say why it was sent anew."""

    changes = (("refute", "result = :proof,", ""),)


class FindsHeldRequests(Mutant):
    """What somebody is at is said to be abandoned."""

    changes = (("abandoned", f"AND (token IS NULL OR lease_until <= {NOW})", ""),)


class FindsOnlyEndedLeases(Mutant):
    """What a dead owner left is never found."""

    changes = (("abandoned", f"(token IS NULL OR lease_until <= {NOW})", "token IS NULL"),)


class FindsFreshRequests(Mutant):
    """Clients have no time to come back themselves."""

    changes = (("abandoned", "- :age", ""),)


class FindsEveryAbandonedRecord(Mutant):
    """One is found whose request nobody has."""

    changes = (("abandoned", "kind = 'request' AND", ""),)


class FindsSettledRequests(Mutant):
    """What a person has in hand is gone on with."""

    changes = (("abandoned", "state = 'running' AND", "state <> 'finished' AND"),)


class FindsTheLastFirst(Mutant):
    """Whoever waits longest waits longer."""

    changes = (("abandoned", "ORDER BY lease_until", "ORDER BY lease_until DESC"),)


# -- what a person does ----------------------------------------------------------------------------------------------


class FreesWhatHasFinished(Mutant):
    """A finished record is given to the next attempt, which runs it again."""

    changes = (("free", "AND state = 'running'", ""), ("free", "SET token", "SET state = 'running', token"))


class FreesWithoutFencing(Mutant):
    """The former owner keeps its token, and finishes what somebody else has begun."""

    changes = (("free", "token = NULL, ", ""),)


class FreesAsATakeover(Mutant):
    """A record that was freed often enough is quarantined."""

    changes = (("free", "SET token = NULL", "SET attempt = attempt + 1, token = NULL"),)


class FreesAnonymously(Mutant):
    """Nobody can tell later who has ended the lease."""

    changes = (("free", "|| :remark", "|| substr(:remark, 1, 0)"),)


class KeepsForgottenBody(Mutant):
    """The answer is marked as not kept, and is still there."""

    changes = (("forget", "body = NULL", "body = body"),)


class ForgetsTheRecord(Mutant):
    """With the answer goes the knowledge that the request was done."""

    changes = (("forget", "SET headers", "SET expires_at = 0, headers"),)


class KeepsForgottenResults(Mutant):
    """The answer is gone; what it was made of is still there."""

    changes = (("forget_results", "SET result = NULL", "SET result = result"),)


class ForgetsOnlyWhatIsLive(Mutant):
    """What has expired is still stored until it is reaped."""

    changes = (("finished", "AND state", f"AND expires_at > {NOW} AND state"),)


class ForgetsEverybody(Mutant):
    """One caller's wish is taken for that of all."""

    changes = (("finished_of_scope", "scope = :scope AND", "length(:scope) > 0 AND"),)


class ForgetsOneOfACaller(Mutant):
    """The rest of them are left."""

    changes = (("finished_of_scope", "WHERE scope =", "WHERE id = (SELECT min(id) FROM part) AND scope ="),)


class CountsTheExpiredAsLive(Mutant):
    """A reaper that stands still is not noticed."""

    changes = (("figures_sample", "expires_at <= clock.now", "expires_at <= 0"),)


class CountsTheAgeOfEverything(Mutant):
    """The oldest running record is as old as the oldest record."""

    changes = (("figures_sample", "CASE WHEN state = 'running' THEN created_at END", "created_at"),)


# -- phases: seen by the contract of transactional stores ------------------------------------------------------------


class PhaseMutant(Mutant):
    """A store that breaks a rule of phases only."""


class SealsWhateverHappened(PhaseMutant):
    """A checkpoint is added though the fence is gone, and the work with it."""

    changes = (("commit_phase", "AND token = :token AND state = 'running' AND point = :point", ""),)

    def commit_phase(
        self, connection: sqlite3.Connection, claim: Claim, made: Checkpoint, *, undo: bool = False
    ) -> None:
        connection.execute(self._statement("commit_phase"), self._marked(claim, made))
        connection.execute("COMMIT")


class SealsInAnotherTransaction(PhaseMutant):
    """The work is committed, and the checkpoint after it: whoever dies between them does it twice."""

    def commit_phase(
        self, connection: sqlite3.Connection, claim: Claim, made: Checkpoint, *, undo: bool = False
    ) -> None:
        if undo:
            self.undo(connection)
        connection.commit()
        self.checkpoint(claim, made)


class FencesInAnotherTransaction(PhaseMutant):
    """The record is moved on before the work is done, whatever becomes of it."""

    def fence(self, connection: sqlite3.Connection, claim: Claim, made: Checkpoint, **_: Any) -> None:
        if not self._run("fence_step", **self._marked(claim, made)):
            raise ClaimLost
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"SAVEPOINT {KEPT}")


class FencesByReading(PhaseMutant):
    """Whoever was the owner when it looked may go on, from anywhere."""

    def fence(self, connection: sqlite3.Connection, claim: Claim, made: Checkpoint, **_: Any) -> None:
        self.position(claim)
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(self._statement("fence_step"), self._marked(claim, made))
        connection.execute(f"SAVEPOINT {KEPT}")


class FencesEverybody(PhaseMutant):
    """A paused owner begins a phase and learns only at its end that it was in vain."""

    def fence(self, connection: sqlite3.Connection, claim: Claim, made: Checkpoint, **_: Any) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(self._statement("fence_step"), self._marked(claim, made))
        connection.execute(f"SAVEPOINT {KEPT}")


class LetsTheLeasePassInAPhase(PhaseMutant):
    """An owner that was at its work all the time is overtaken at the end of it."""

    changes = (
        ("fence_step", f", lease_until = lease_until - {NOW}", ""),
        ("prolong", f"lease_until = lease_until + {NOW}", "lease_until = lease_until"),
    )


class LengthensTheLeaseByAPhase(PhaseMutant):
    """An owner that dies after a phase blocks its key for longer than a lease."""

    changes = (("prolong", f"+ {NOW}", f"+ {NOW} + 90"),)


class ForgetsTheAnswer(PhaseMutant):
    """The phase is committed, and what was answered before it is asked for again."""

    def _answered(self, claim: Claim, made: Checkpoint, answered: Checkpoint | None) -> list[Message]:
        return []


class UndoesTheAnswer(PhaseMutant):
    """A step that takes its work back takes an effect's answer along."""

    def fence(
        self,
        connection: sqlite3.Connection,
        claim: Claim,
        made: Checkpoint,
        *,
        idle: timedelta,
        answered: Checkpoint | None = None,
        ends_reading: bool = False,
    ) -> None:
        super().fence(connection, claim, made, idle=idle, ends_reading=ends_reading)
        for statement, values in self._answered(claim, made, answered):
            connection.execute(statement, values)


class WritesTheAnswerAtOnce(PhaseMutant):
    """An answer is there before the phase, and the record has left the point at which the phase begins."""

    def fence(
        self,
        connection: sqlite3.Connection,
        claim: Claim,
        made: Checkpoint,
        *,
        idle: timedelta,
        answered: Checkpoint | None = None,
        ends_reading: bool = False,
    ) -> None:
        if answered is not None:
            claim = self.checkpoint(claim, answered)
        super().fence(connection, claim, made, idle=idle, ends_reading=ends_reading)


class AnswersForEverybody(PhaseMutant):
    """A paused owner writes its answer before it learns that it is none."""

    changes = (("mark", "AND token = :token AND state = 'running' AND point = :point", ""),)

    def fence(
        self,
        connection: sqlite3.Connection,
        claim: Claim,
        made: Checkpoint,
        *,
        idle: timedelta,
        answered: Checkpoint | None = None,
        ends_reading: bool = False,
    ) -> None:
        if ends_reading and self.roll_back(connection):
            raise WrittenBefore
        connection.execute("BEGIN IMMEDIATE")
        for statement, values in self._answered(claim, made, answered):
            connection.execute(statement, values)
        if not connection.execute(self._statement("fence_step"), self._marked(claim, made)).fetchall():
            raise ClaimLost
        connection.execute(f"SAVEPOINT {KEPT}")


class AnswersAnew(PhaseMutant):
    """The time of an answer is taken for that of its sending."""

    def _answered(self, claim: Claim, made: Checkpoint, answered: Checkpoint | None) -> list[Message]:
        drop = "DELETE FROM idempotency_checkpoint WHERE record_id = :id AND name = :name"
        found = super()._answered(claim, made, answered)
        return [(drop, values) for _, values in found] + found


class SealsWhatIsToBeUndone(PhaseMutant):
    """What the step took back is committed."""

    def commit_phase(
        self, connection: sqlite3.Connection, claim: Claim, made: Checkpoint, *, undo: bool = False
    ) -> None:
        super().commit_phase(connection, claim, made)


class UndoesTheFence(PhaseMutant):
    """A step that takes its work back gives the fence up as well."""

    def undo(self, connection: sqlite3.Connection) -> None:
        connection.execute("ROLLBACK")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"SAVEPOINT {KEPT}")


class StandsForEverybody(PhaseMutant):
    """A paused owner takes the new one's phase for its own."""

    def position(self, claim: Claim) -> str | None:
        record = self.find(claim.id)
        return record and record.point


class HasNeverWritten(PhaseMutant):
    """What the app did before a phase is thrown away."""

    def roll_back(self, connection: sqlite3.Connection) -> bool:
        super().roll_back(connection)
        return False


class LetsTheAppCommitUnseen(PhaseMutant):
    """What a view commits outside of a phase is made again by every retry."""

    def has_written(self, connection: sqlite3.Connection) -> bool:
        return False

    def roll_back(self, connection: sqlite3.Connection) -> bool:
        has_written = super().has_written(connection)
        connection.rollback()
        return has_written


class LeavesOpenWhatItLetsGo(PhaseMutant):
    """What the app did before a phase is committed with it."""

    def roll_back(self, connection: sqlite3.Connection) -> bool:
        return connection.total_changes > 0


class AlwaysGivesWay(PhaseMutant):
    """Every mistake of the app is made three times."""

    def gives_way(self, error: Exception) -> bool:
        return True


class UndoesTooMuch(PhaseMutant):
    """Who rolls back to a savepoint loses what was done before it."""

    def undo_savepoint(self, connection: sqlite3.Connection, name: str) -> None:
        self.undo(connection)


class UndoesTooLittle(PhaseMutant):
    """What was rolled back to a savepoint is committed."""

    def undo_savepoint(self, connection: sqlite3.Connection, name: str) -> None:
        self.release_savepoint(connection, name)


class UndoesWhatWasReleased(PhaseMutant):
    """Who releases a savepoint loses what was done since."""

    def release_savepoint(self, connection: sqlite3.Connection, name: str) -> None:
        super().undo_savepoint(connection, name)


class TakesEverythingForReading(PhaseMutant):
    """A function that writes gets no savepoint, and is undone with another session's work."""

    intent_of = staticmethod(lambda _: Intent.READ)


class MissesCommitsInText(PhaseMutant):
    """What a view commits by a statement of its own is made again by every retry."""

    kind_of = staticmethod(lambda _: Kind.OTHER)


class ReplacesWithOldCheckpoints(PhaseMutant):
    """A record of the transaction guard has the checkpoints of the one before it."""

    changes = (("drop_checkpoints", "WHERE record_id = :id", "WHERE false"),)


class BeginsPhasesAgain(PhaseMutant):
    """The transaction guard takes over what was left after a phase, and does its work a second time."""

    def _judged(self, asked: Asked, rows: Rows, has_past: bool) -> Claim | Busy | Settled:
        # As the columns of record.sql have it, the point is the last but one, before whether it has expired.
        return super()._judged(asked, [(*row[:-3], None, *row[-2:]) for row in rows], has_past)


# -- quotas ----------------------------------------------------------------------------------------------------------


class CountingMutant(Mutant):
    """A mutant that counts the records of a scope."""


class CountsEverybody(CountingMutant):
    """Whoever floods the store locks everybody out."""

    changes = (("usage", "scope = :scope AND", ""),)


class CountsOneLess(CountingMutant):
    """A scope has one record more than it may."""

    changes = (("usage", "SELECT count(*),", "SELECT count(*) - 1,"),)


class CountsExpired(CountingMutant):
    """What has expired takes up room until it is deleted."""

    changes = (("usage", f"AND (state <> 'finished' OR expires_at > {NOW})", ""),)


class CountsFinishedAlone(CountingMutant):
    """Who never finishes may begin as much as they like."""

    changes = (("usage", "state <> 'finished' OR", "state = 'finished' AND"),)


class ForgetsBodies(CountingMutant):
    """Only headers count."""

    changes = (("usage", "coalesce(length(body), 0)", "0"),)


class ForgetsHeaders(CountingMutant):
    """Only bodies count."""

    changes = (("usage", "coalesce(length(CAST(headers AS BLOB)), 0)", "0"),)


class ForgetsRequests(CountingMutant):
    """A flood of large requests costs nothing."""

    changes = (("usage", "WHERE record_id = r.id", "WHERE false"),)


class LooksAtTooFew(CountingMutant):
    """Of many small answers only the first counts."""

    changes = (("usage", "LIMIT :most", "LIMIT 1"),)


class RefusesWhatExists(CountingMutant):
    """A scope without room gets no replay, and cannot resume what it has begun."""

    def claim(
        self, asked: Asked, lease: timedelta, first: Checkpoint | None = None, *, counts: bool = True
    ) -> Claim | Busy | Settled:
        if self.quota is not None:
            self.quota.check(*self._run("usage", **self._counted(asked))[0])
        return super().claim(asked, lease, first, counts=counts)


class ClaimsAndThenCounts(CountingMutant):
    """A refusal leaves its record."""

    def claim(
        self, asked: Asked, lease: timedelta, first: Checkpoint | None = None, *, counts: bool = True
    ) -> Claim | Busy | Settled:
        found = super().claim(asked, lease, first, counts=False)
        if self.quota is not None and isinstance(found, Claim) and found.attempt == 1:
            self.quota.check(*self._run("usage", **self._counted(asked))[0])
        return found


class EntersWithoutCounting(CountingMutant):
    """There is a quota under one guard only."""

    def _admitted(self, connection: Any, asked: Asked, found: Claim | Busy | Settled) -> Claim | Busy | Settled:
        return found


class RefusesWhatWasLeft(CountingMutant):
    """A record that was left by a lease is in the way of its own retry."""

    def _admitted(self, connection: Any, asked: Asked, found: Claim | Busy | Settled) -> Claim | Busy | Settled:
        if self.quota is not None and isinstance(found, Claim):
            self.quota.check(*self._ask(connection, (self._statement("usage"), {**self._counted(asked), "id": b""}))[0])
        return super()._admitted(connection, asked, found)


class HoldsWhatItRefuses(CountingMutant):
    """The refused request runs for ever, as others see it."""

    def _admitted(self, connection: Any, asked: Asked, found: Claim | Busy | Settled) -> Claim | Busy | Settled:
        if self.quota is not None and isinstance(found, Claim):
            self.quota.check(*self._ask(connection, (self._statement("usage"), self._counted(asked)))[0])
        return found


class CountsBeforeAPerson(CountingMutant):
    """A request of which nobody knows what was done runs again, because its scope has no room for the record."""

    def claim(
        self, asked: Asked, lease: timedelta, first: Checkpoint | None = None, *, counts: bool = True
    ) -> Claim | Busy | Settled:
        return super().claim(asked, lease, first)


MUTANTS: tuple[type[Mutant], ...] = tuple(
    sorted(set(Mutant.__subclasses__()) - {PhaseMutant, CountingMutant}, key=lambda mutant: mutant.__name__)
)
COUNTING_MUTANTS: tuple[type[CountingMutant], ...] = tuple(CountingMutant.__subclasses__())
PHASE_MUTANTS: tuple[type[PhaseMutant], ...] = tuple(PhaseMutant.__subclasses__())
