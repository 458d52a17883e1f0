"""Records in a DynamoDB table: each verb is one conditional write, which the service carries out atomically.

The SDK repeats a request whose answer was lost, though it may have been carried out. So each write leaves what tells it
from any other, and if its repetition finds that, it was done.
"""

import secrets
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from flask_idempotency.core.checkpoint import REQUEST, Checkpoint, Kind, Progress
from flask_idempotency.core.fingerprint import Fingerprint, same
from flask_idempotency.core.lifecycle import TOO_MANY_TAKEOVERS, State, is_poison
from flask_idempotency.core.record import Asked, Busy, Claim, Lease, Record, Settled
from flask_idempotency.core.reference import reference_of
from flask_idempotency.core.scope import RecordId, Scope
from flask_idempotency.core.snapshot import Answer, blanked, pack
from flask_idempotency.errors import BodyTooLarge, ClaimLost, ConfigError, OutcomeUnknown, StoreUnavailable
from flask_idempotency.stores.contract import StoreUndecided
from flask_idempotency.stores.dynamodb_clock import ServiceClock
from flask_idempotency.stores.dynamodb_conditions import ABSENT, Condition, as_seen, at_one_of, not_begun_anew, owned_by
from flask_idempotency.stores.dynamodb_items import (
    CHECKPOINT,
    LARGEST,
    SINCE,
    Item,
    answer_attributes,
    answer_in,
    in_state,
    milliseconds,
    new_item,
    step_attributes,
    step_value,
    steps_in,
    to_milliseconds,
    within_limit,
    without_body,
    without_results,
)
from flask_idempotency.stores.dynamodb_listing import Change, DynamoListing, given_up, is_free, said
from flask_idempotency.stores.dynamodb_schema import check_expiry, check_table, create_table
from flask_idempotency.stores.dynamodb_table import Address, ConditionFailed, ItemTooLarge, Table, log

if TYPE_CHECKING:
    from sqlalchemy import URL

TRIES = 3  # rivals of one claim; then the client must retry
TOKEN_BYTES = 16
REPEATED = 1024  # keys known to be retried: more than a process sees in a burst
STORED_REQUEST = [f"{CHECKPOINT}{REQUEST}", f"{SINCE}{REQUEST}"]


class DynamoStore(DynamoListing):
    """Claims a first request in one round trip. Without *expires*, housekeeping deletes what has expired."""

    def __init__(self, address: Address, *, expires: bool = True, clock: ServiceClock | None = None) -> None:
        super().__init__(Table(address, clock or ServiceClock()), expires=expires)
        self.grace = timedelta(hours=1)  # for which an expired item stays
        self._repeated: set[RecordId] = set()  # only a hint: reading costs a fifth of a write that is refused

    def check(self) -> None:
        """Raise ConfigError unless the table is there, and its expired items are deleted."""
        check_table(self._table)
        if self._expires:
            check_expiry(self._table)

    def create(self) -> None:
        """Make the table and its index, and turn TTL on, unless that was done."""
        create_table(self._table, expires=self._expires)

    def prepare(self) -> None:
        """Check the table before the first claim."""
        check_table(self._table)

    def close(self) -> None:
        """Close the connections."""
        self._table.close()

    # -- claiming ----------------------------------------------------------------------------------------------------

    def claim(self, asked: Asked, lease: timedelta, first: Checkpoint | None = None) -> Claim | Busy | Settled:
        """Give one caller the right to run, or say what stands in the way."""
        token = secrets.token_bytes(TOKEN_BYTES)
        item = self._table.read(asked.id) if asked.id in self._repeated else None
        for _ in range(TRIES):
            try:
                if item is None or self._is_expired(item):
                    return self._begin(asked, token, lease, first, item)
                return self._go_on(asked, token, lease, item)
            except ConditionFailed as failure:
                item = failure.item
                self._remember(asked.id)
            except StoreUnavailable as error:
                if item is None:
                    raise
                # The item was read and cannot be written, as when its table is throttled: another attempt has run.
                raise StoreUndecided(retry_after=error.retry_after) from error
        raise StoreUndecided(retry_after=1)

    def _begin(
        self, asked: Asked, token: bytes, lease: timedelta, first: Checkpoint | None, expired: Item | None
    ) -> Claim:
        """Make the record. Raises ConditionFailed if there is another than the expired one."""
        now = self._table.earliest()
        item = new_item(asked, token, now, self._table.latest() + to_milliseconds(lease))
        if first is not None:
            item |= {"point": first.point, **step_attributes(first, now)}
        try:
            self._table.put(item, ABSENT if expired is None else as_seen(expired))
        except ItemTooLarge:
            raise BodyTooLarge from None  # the stored request, which is all that can be large
        return Claim(asked.id, asked.fingerprint, Lease(token), 1, taken_over=False, point=item.get("point"))

    def _go_on(self, asked: Asked, token: bytes, lease: timedelta, item: Item) -> Claim | Busy | Settled:
        """Judge a record that is there. Raises ConditionFailed if somebody has written it since."""
        if item["state"] != State.RUNNING:
            return Settled(self._record(item))
        known, was_held = Fingerprint.from_bytes(item["fingerprint"]), "token" in item
        if not is_free(item, self._table.earliest()) or not same(known, asked.fingerprint):
            return Busy(known, milliseconds(item["lease_until"] - self._table.latest()))
        if was_held and is_poison(item["attempt"]):
            changes = given_up(item, TOO_MANY_TAKEOVERS)
            self._table.update(asked.id, changes, as_seen(item))
            return Settled(self._record({**item, **changes}), is_new=True)
        attempt = item["attempt"] + was_held
        until = self._table.latest() + to_milliseconds(lease)
        self._table.update(asked.id, {"token": token, "attempt": attempt, "lease_until": until}, as_seen(item))
        return Claim(asked.id, known, Lease(token), attempt, was_held, item.get("point"))

    def _is_expired(self, item: Item) -> bool:
        return "expires_at" in item and item["expires_at"] <= self._table.earliest()

    def _remember(self, record: RecordId) -> None:
        """Read this record before writing the next time: retries come in bursts."""
        if len(self._repeated) >= REPEATED:
            self._repeated.clear()
        self._repeated.add(record)

    # -- what an owner does ------------------------------------------------------------------------------------------

    def renew(self, claim: Claim, lease: timedelta) -> None:
        """Start the lease again from now."""
        until = self._table.latest() + to_milliseconds(lease)
        try:
            self._table.update(claim.id, {"lease_until": until}, owned_by(claim))
        except ConditionFailed:
            raise ClaimLost from None

    def complete(self, claim: Claim, answer: Answer, retention: timedelta) -> None:
        """Finish the record, once. An answer that is too large for an item is not kept."""
        try:
            try:
                self._finish(claim, within_limit(answer), retention)
            except ItemTooLarge:  # together with the checkpoints
                self._finish(claim, without_body(answer), retention)
        except StoreUnavailable as error:
            raise OutcomeUnknown(retry_after=error.retry_after) from error

    def _finish(self, claim: Claim, answer: Answer, retention: timedelta) -> None:
        try:
            changes = self._finished(claim.id, answer, retention)
            condition = owned_by(claim) & at_one_of([claim.point])
            self._table.update(claim.id, changes, condition, without=["listed", *STORED_REQUEST])
        except ConditionFailed as failure:
            if not self._is_finished_by(claim, failure.item):
                raise ClaimLost from None

    def _is_finished_by(self, claim: Claim, item: Item | None) -> bool:
        return (
            item is not None
            and item["state"] == State.FINISHED
            and item.get("token") == claim.guard.token
            and not self._is_expired(item)
        )

    def release(self, claim: Claim) -> None:
        """End the lease."""
        try:
            self._table.update(claim.id, {"lease_until": self._table.earliest()}, owned_by(claim), without=["token"])
        except ConditionFailed as failure:
            if not failure.is_repeated:
                raise ClaimLost from None

    def checkpoint(self, claim: Claim, made: Checkpoint) -> Claim:
        """Record how far a run has come."""
        try:
            self._mark(claim, made)
        except StoreUnavailable as error:
            raise OutcomeUnknown(retry_after=error.retry_after) from error
        except ItemTooLarge:
            if made.kind is Kind.REQUEST:
                raise BodyTooLarge from None
            # Its retries would come here again, and what was done would be done without a record of it.
            reason = f"the results of its steps are larger than the {LARGEST // 1000} KB that a record can hold"
            log.critical("quarantined: %s: %s", reference_of(claim.id), reason)
            self.quarantine(claim, reason)
            raise ClaimLost from None
        return replace(claim, point=made.point)

    def _mark(self, claim: Claim, made: Checkpoint) -> None:
        """Write a checkpoint. A step keeps the time of its first writing, unless it is begun anew."""
        step, since, now = f"{CHECKPOINT}{made.name}", f"{SINCE}{made.name}", self._table.earliest()
        changes: Item = {"point": made.point, step: step_value(made)}
        ours = owned_by(claim) & at_one_of([claim.point, made.point])
        try:
            goes_on = ours & not_begun_anew(step, made.generation)
            self._table.update(claim.id, changes, goes_on, unless_there={since: now})
        except ConditionFailed:
            try:
                self._table.update(claim.id, {**changes, since: now}, ours)
            except ConditionFailed:
                raise ClaimLost from None

    def checkpoints(self, record: RecordId) -> list[Checkpoint]:
        """Read the checkpoints of a run, in order."""
        item = self._table.read(record)
        return [] if item is None else steps_in(item, self._table.latest())

    def note(self, claim: Claim, reason: str) -> None:
        """Store on the record why its owner cannot go on."""

        def change(item: Item) -> Change:
            if not _is_owned_by(claim, item) or item.get("reason", "").endswith(reason):
                return None
            return {"reason": said(item, reason)}, ()

        self._rewrite(claim.id, change)

    def quarantine(self, claim: Claim, reason: str) -> None:
        """Quarantine the record for manual review."""
        is_done = False

        def change(item: Item) -> Change:
            nonlocal is_done
            is_done = item["state"] == State.QUARANTINED and item.get("token") == claim.guard.token
            return (given_up(item, reason), ()) if _is_owned_by(claim, item) else None

        if not self._rewrite(claim.id, change) and not is_done:
            raise ClaimLost

    # -- what a person does ------------------------------------------------------------------------------------------

    def resolve(self, record: RecordId, answer: Answer, retention: timedelta, remark: str) -> bool:
        """Finish a quarantined record with an answer that a person chose."""

        def change_to(answer: Answer) -> Callable[[Item], Change]:
            def change(item: Item) -> Change:
                if item["state"] != State.QUARANTINED:
                    return None
                finished = self._finished(record, answer, retention)
                return {**finished, "reason": self._remarked(item, remark)}, ["token", "listed", *STORED_REQUEST]

            return change

        try:
            return self._rewrite(record, change_to(within_limit(answer)))
        except ItemTooLarge:
            return self._rewrite(record, change_to(without_body(answer)))

    def reopen(self, record: RecordId, remark: str, refuted: Collection[tuple[str, str]] = ()) -> bool:
        """Let the next attempt resume a quarantined record."""

        def change(item: Item) -> Change:
            if item["state"] != State.QUARANTINED:
                return None
            now = self._table.earliest()
            voids: Item = {}
            for name, proof in refuted:
                sent = item.get(f"{CHECKPOINT}{name}")
                if sent and sent["kind"] == Kind.EFFECT and sent["state"] == Progress.SENT:
                    void = {**sent, "state": str(Progress.VOID), "generation": sent["generation"] + 1, "result": proof}
                    voids |= {f"{CHECKPOINT}{name}": void, f"{SINCE}{name}": now}
            free: Item = {"attempt": 1, "lease_until": now, "reason": self._remarked(item, remark)}
            return {**voids, **free, **in_state(record, State.RUNNING)}, ["token"]

        return self._rewrite(record, change)

    def free(self, record: RecordId, remark: str) -> bool:
        """End the lease of a running record, whoever holds it."""

        def change(item: Item) -> Change:
            if item["state"] != State.RUNNING:
                return None
            return {"lease_until": self._table.earliest(), "reason": self._remarked(item, remark)}, ["token"]

        return self._rewrite(record, change)

    def forget(self, record: RecordId, remark: str) -> bool:
        """Blank the answer and the results of a finished record."""
        is_there = False

        def change(item: Item) -> Change:
            nonlocal is_there
            is_there = item["state"] == State.FINISHED
            if not is_there:
                return None
            _, headers, _ = pack(record, blanked(answer_in(item)))
            blank = without_results(item)
            if "body" not in item and item["headers"] == headers and blank.items() <= item.items():
                return None
            return {**blank, "headers": headers, "reason": self._remarked(item, remark)}, ["body"]

        return self._rewrite(record, change) or is_there

    def forget_scope(self, scope: Scope, remark: str) -> int:
        """Blank the answers and results of every finished record of a caller; the whole table is read for them."""
        theirs = Condition("@scope = :scope AND @state = :finished", {"scope": scope, "finished": State.FINISHED.value})
        pages = self._table.pages("scan", **theirs.as_filter("FilterExpression"))
        return sum(self.forget(RecordId(item["id"]), remark) for page in pages for item in page)

    def find(self, record: RecordId) -> Record | None:
        """Read one record. An expired one counts as absent."""
        item = self._table.read(record)
        return None if item is None or self._is_expired(item) else self._record(item)

    def _finished(self, record: RecordId, answer: Answer, retention: timedelta) -> Item:
        expires_at = self._table.latest() + to_milliseconds(retention)
        return {**in_state(record, State.FINISHED), **answer_attributes(record, answer, expires_at, self.grace)}

    def _remarked(self, item: Item, remark: str) -> str:
        now = datetime.fromtimestamp(self._table.latest() / 1000, UTC)
        return said(item, f"{remark} on {now:%Y-%m-%d %H:%M:%S} UTC")


def _is_owned_by(claim: Claim, item: Item) -> bool:
    return bool(item["state"] == State.RUNNING and item.get("token") == claim.guard.token)


def open_url(url: "str | URL", is_apps_own: bool = False) -> DynamoStore:
    """Make a store of a URL like ``dynamodb://table?region=eu-central-1``."""
    from sqlalchemy.engine import make_url

    given = make_url(url)
    options = dict(given.query)
    known = {name: options.pop(name, None) for name in ("region", "endpoint", "ttl")}
    is_plain = not (given.username or given.password or given.port or given.database or options)
    if not given.host or not is_plain or known["ttl"] not in (None, "off"):
        raise ConfigError(
            "IDEMPOTENCY_STORE is not a DynamoDB URL; write it like dynamodb://table?region=eu-central-1, and give"
            " credentials as the AWS SDK takes them: by a role, or in the environment."
        )
    region, endpoint = (None if known[name] is None else str(known[name]) for name in ("region", "endpoint"))
    return DynamoStore(Address(given.host, region, endpoint), expires=known["ttl"] is None)
