"""The bugs. Each breaks one rule at the smallest place, and leaves a shop that works as long as nothing goes wrong.

A docstring says who writes such a bug in real life.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from hashlib import sha256
from typing import Any, NoReturn
from uuid import uuid4

from flask import Request, Response, request

from flask_idempotency import opening
from flask_idempotency import request as requests_way
from flask_idempotency.core.checkpoint import Checkpoint, Kind, dump_result, load_result
from flask_idempotency.core.fingerprint import Fingerprint
from flask_idempotency.core.outcome import Pending
from flask_idempotency.core.record import Claim
from flask_idempotency.core.scope import RecordId
from flask_idempotency.core.snapshot import Answer
from flask_idempotency.guards import lease, phase_transaction, phases
from flask_idempotency.guards.lease import LeaseAttempt
from flask_idempotency.http import exchange
from flask_idempotency.policy import Options, Policy
from flask_idempotency.state import State, current_state
from flask_idempotency.stores import sql, sqlite, tables
from flask_idempotency.stores.postgres import PostgresStore
from flask_idempotency.stores.sql import SqlStore
from tests.mutants.planting import Bed, NothingThere, marked

# -- protection off --------------------------------------------------------------------------------------------------


class Nobody:
    """What stands in for a run that holds a claim: every phase and effect is its first."""

    def __init__(self) -> None:
        self.state, self.journal = current_state(), self

    def arrive_at(self, name: str, kind: Kind) -> None:
        """Know of nothing that was done before."""

    def next_checkpoint(self, name: str, kind: Kind) -> Checkpoint:
        """Make a checkpoint that nobody will write."""
        return Checkpoint(name, kind, position=1)

    def busy_with(self, kind: Kind, name: str, recorded: object = ()) -> AbstractContextManager[None]:
        """Be in a phase or effect."""
        return nullcontext()


def protection_off(bed: Bed) -> None:
    """Whoever turned it off for one bad night, and left it off."""

    def let_everything_in(state: State, asked: Request, options: Options, **_: object) -> None:
        """Read no key and ask no store."""

    @contextmanager
    def hold_nothing(verb: str) -> Iterator[Nobody]:
        yield Nobody()

    def run_and_commit(held: Nobody, made: Checkpoint, step: Callable[[], Any]) -> Any:
        text = dump_result(step(), made.name)
        held.state.database.session.commit()
        return load_result(text)

    def send_as_new(held: Nobody, made: Checkpoint, call: Callable[[str], Any], terms: object) -> Any:
        return call(uuid4().hex)

    bed.replace(opening, "_open", let_everything_in)
    bed.replace(phases, "current_run", hold_nothing)
    bed.replace(phase_transaction, "run_phase", run_and_commit)
    bed.replace(phases, "_send", send_as_new)


# -- no fence --------------------------------------------------------------------------------------------------------

OURS = " AND token = :token AND state = 'running'"
FENCES = {
    "postgres": {
        "fence_and_mark": f"{OURS} AND (point IS NOT DISTINCT FROM :previous OR point = :point)",
        "fence_step": f"{OURS} AND point IS NOT DISTINCT FROM :previous",
        "fence_step_and_mark": f"{OURS} AND point IS NOT DISTINCT FROM :previous",
        "complete": f"{OURS} AND point IS NOT DISTINCT FROM :point",
        "complete_and_drop_request": f"{OURS} AND point IS NOT DISTINCT FROM :point",
        "commit_phase": OURS,
    },
    "sqlite": {
        "fence": f"{OURS} AND point IS :previous",
        "fence_step": f"{OURS} AND point IS :previous",
        "complete": f"{OURS} AND point IS :point",
        "mark": OURS,
        "commit_phase": OURS,
        "prolong": OURS,
    },
}
SEALED_BY = {"postgres": "RETURNING set_config", "sqlite": "RETURNING name"}
WHOSEVER_IT_IS = "ON CONFLICT (record_id, name) DO UPDATE SET result = excluded.result\n"


def no_fence(bed: Bed) -> None:
    """Whoever thinks that a lease is long enough, and has not met a worker that slept through its own."""
    for technology, fences in FENCES.items():
        for verb, ours in fences.items():
            bed.reword(technology, verb, ours, "")
        _write_over_checkpoints(bed, technology)


def _write_over_checkpoints(bed: Bed, technology: str) -> None:
    """Take away the second lock of the same door: two checkpoints of one name are an error, as it should be."""
    returning = SEALED_BY[technology]
    bed.reword(technology, "commit_phase", returning, WHOSEVER_IT_IS + returning)


# -- delete on error -------------------------------------------------------------------------------------------------

DELETE_PROGRESS = """
DELETE FROM idempotency_checkpoint
 WHERE record_id = :id AND EXISTS (SELECT 1 FROM idempotency_record WHERE id = :id AND token = :token)
RETURNING name
"""
DELETE_RECORD = "DELETE FROM idempotency_record WHERE id = :id AND token = :token RETURNING id"


def delete_on_error(bed: Bed) -> None:
    """Whoever cleans up after an exception by deleting the key, so that the client "can simply try again"."""

    def delete(store: SqlStore, claim: Claim) -> None:
        ours = {"id": claim.id, "token": claim.guard.token}
        messages = [(marked(text, store.mark), ours) for text in (DELETE_PROGRESS, DELETE_RECORD)]
        store._with_connection(lambda connection: store._execute(connection, messages))

    bed.replace(sql.SqlStore, "release", delete)


# -- effect key per attempt ------------------------------------------------------------------------------------------


def effect_key_per_attempt(bed: Bed) -> None:
    """Whoever lets the gateway's client library make up the key, as most do when they are given none."""

    def key_of_this_attempt(record: RecordId, asked: Fingerprint, name: str, generation: int) -> str:
        found = exchange.peek(request.environ)
        assert found is not None, "an effect is part of a request"
        assert isinstance(found.attempt, LeaseAttempt), "an effect has a lease"
        key = real(record, asked, name, generation)
        return sha256(key.encode() + found.attempt.claim.guard.token).hexdigest()[:32]

    real = bed.replace(phases, "effect_key", key_of_this_attempt)


# -- no unique id ----------------------------------------------------------------------------------------------------

NOT_UNIQUE = """
SELECT pg_advisory_xact_lock(7216081425136404003);
ALTER TABLE idempotency_record DROP CONSTRAINT IF EXISTS idempotency_record_pkey;
CREATE INDEX IF NOT EXISTS idempotency_record_id ON idempotency_record (id)
"""


def no_unique_id(bed: Bed) -> None:
    """Whoever partitions the records by month: PostgreSQL then takes no unique key on the id alone."""

    def prepare_without_key(store: PostgresStore) -> None:
        messages = [(statement, {}) for statement in NOT_UNIQUE.split(";")]
        store._with_connection(lambda connection: store._execute(connection, messages))
        prepare(store)

    def refuse(url: object, _: bool = False) -> NoReturn:
        raise NothingThere("SQLite has one writer at a time, and a look and a write are one step: use PostgreSQL.")

    prepare = bed.replace(tables.SqlTables, "prepare", prepare_without_key)
    bed.replace(sqlite, "open_url", refuse)
    bed.replace(PostgresStore, "reads_first", True)
    for verb in ("claim", "claim_and_mark"):
        bed.reword("postgres", verb, "WHERE NOT EXISTS (SELECT FROM idempotency_record WHERE id = :id)", "")
        bed.reword("postgres", verb, "ON CONFLICT (id) DO NOTHING", "")
    for lock in ("request", "record"):
        bed.reword("postgres", "lock", f"pg_try_advisory_xact_lock(:{lock}::bigint)", f":{lock}::bigint IS NOT NULL")
    _write_over_checkpoints(bed, "postgres")


# -- 5xx stored ------------------------------------------------------------------------------------------------------


def five_hundreds_stored(bed: Bed) -> None:
    """Whoever takes a well-known payment API at its word: every answer is saved and repeated, a 500 too."""

    def keep_failures_too(policy: Policy, response: Response, **whose: bool) -> bool:
        return response.status_code >= 500 or is_kept(policy, response, **whose)

    def complete_in_doubt(held: LeaseAttempt, answer: Answer, late: Callable[[], None]) -> None:
        held.journal.note_void()
        complete(held, answer, late)

    def note_refusals_too(found: exchange.Exchange, attempt: exchange.Attempt, response: Response) -> None:
        found.outcome = Pending()
        note(found, attempt, response)

    is_kept = bed.replace(requests_way, "is_kept", keep_failures_too)
    note = bed.replace(requests_way, "_note", note_refusals_too)
    complete = bed.replace(lease.LeaseAttempt, "complete", complete_in_doubt)


MUTANTS: dict[str, Callable[[Bed], None]] = {
    "protection off": protection_off,
    "no fence": no_fence,
    "delete on error": delete_on_error,
    "effect key per attempt": effect_key_per_attempt,
    "no unique id": no_unique_id,
    "5xx stored": five_hundreds_stored,
}
