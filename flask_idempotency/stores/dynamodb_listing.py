"""Looking for records: through the index of unfinished ones, or by reading the table from its beginning.

What the index lists may be out of date, so each record is read again, as it is now, before anything is said or done.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from heapq import merge
from itertools import islice
from typing import Any

from flask_idempotency.core.checkpoint import REQUEST
from flask_idempotency.core.figures import Figures
from flask_idempotency.core.lifecycle import ABANDONED, State
from flask_idempotency.core.record import Record
from flask_idempotency.core.reference import Reference
from flask_idempotency.core.scope import RecordId, Scope
from flask_idempotency.errors import StoreUnavailable
from flask_idempotency.stores.dynamodb_conditions import Condition, as_seen
from flask_idempotency.stores.dynamodb_items import (
    SHARDS,
    SINCE,
    Item,
    in_state,
    milliseconds,
    record_in,
    shelf,
    to_milliseconds,
)
from flask_idempotency.stores.dynamodb_schema import INDEX
from flask_idempotency.stores.dynamodb_table import BATCH, ConditionFailed, Table

PAGES = 20  # of 1 MB each, that a person's look at finished records reads at most
COUNTED = 5_000  # entries of each shard of the index, which has 32 for each state
SAMPLE = 1_000  # items: one page, if they are small
REWRITES = 5  # tries: whoever wrote in between has mostly settled the matter


class DynamoListing:
    """The verbs that look for records whose ids nobody has given."""

    def __init__(self, table: Table, *, expires: bool = True) -> None:
        self._table = table
        self._expires = expires  # the service deletes expired items itself

    def abandoned(self, age: timedelta, limit: int = 50) -> list[Record]:
        """Read requests that were abandoned half-way and can be resumed."""
        now = self._table.earliest()
        line = now - to_milliseconds(age)
        left = [
            item
            for item in self._unfinished(State.RUNNING, before=line)
            if is_free(item, now) and item.get(SINCE + REQUEST, now) <= line
        ]
        return [self._record(item) for item in sorted(left, key=lambda item: item["lease_until"])[:limit]]

    def browse(
        self,
        *,
        reference: Reference | None = None,
        scope: Scope | None = None,
        state: State | None = None,
        limit: int = 50,
    ) -> list[Record]:
        """Read records for a person, newest first. Of finished ones, only the first part of the table is read."""
        if reference is not None:
            found = self._query("@reference = :reference", {"reference": reference}, ConsistentRead=True)
            items = [item for item in found if state in (None, item["state"]) and scope in (None, item["scope"])]
        elif state in (State.RUNNING, State.QUARANTINED):
            listed = self._unfinished(state, newest_first=True)
            items = list(islice((item for item in listed if scope in (None, item["scope"])), limit))
        else:
            items = [item for item in self._scan(state) if scope in (None, item["scope"])]
        newest_first = sorted(items, key=lambda item: item["created_at"], reverse=True)
        return [self._record(item) for item in newest_first[:limit]]

    def figures(self) -> Figures:
        """Count what is not finished by the index of it, and estimate the others by a sample of the table."""
        now, is_estimate, oldest = self._table.latest(), False, None
        counts = dict.fromkeys((State.RUNNING, State.QUARANTINED), 0)
        for state in counts:
            for shard in range(SHARDS):
                place = {"shelf": shelf(state, shard)}
                listed = list(islice(self._query("@listed = :shelf", place, IndexName=INDEX), COUNTED))
                counts[state] += len(listed)
                is_estimate |= len(listed) == COUNTED
                if state is State.RUNNING and listed:
                    oldest = min(filter(None, [oldest, listed[0]["created_at"]]))
        some, are_all = self._table.first_page(SAMPLE)
        known = self._table.describe()
        total = len(some) if are_all else max(len(some), known["ItemCount"])
        dates = [item["expires_at"] for item in some if item.get("expires_at", now) < now]
        expired = len(dates) if are_all else round(total * len(dates) / len(some))
        return Figures(
            counts[State.RUNNING],
            counts[State.QUARANTINED],
            max(0, total - sum(counts.values()) - expired),
            expired,
            known.get("TableSizeBytes") or None,
            None if oldest is None else milliseconds(now - oldest),
            milliseconds(now - min(dates)) if dates else None,
            is_estimate=is_estimate or not are_all,
        )

    def reap(self, grace: timedelta, limit: int = 500) -> int:
        """Delete finished records that expired more than *grace* ago, unless the service does so itself."""
        if self._expires:
            return 0
        line, reaped = self._table.earliest() - to_milliseconds(grace), 0
        expired = Condition("@expires_at < :line", {"line": line}).as_filter("FilterExpression")
        for page in self._table.pages("scan", ConsistentRead=True, **expired):
            for item in page:
                if reaped == limit:
                    return reaped
                reaped += self._delete(item)
        return reaped

    def reap_abandoned(self, age: timedelta, limit: int = 500) -> tuple[int, list[RecordId]]:
        """End running records that no attempt has held for *age*."""
        line = self._table.earliest() - to_milliseconds(age)
        reaped, quarantined = 0, list[RecordId]()
        for item in self._unfinished(State.RUNNING, before=line):
            if item["lease_until"] >= line:
                continue
            if item.get("point") in (None, REQUEST):
                reaped += reaped < limit and self._delete(item)
            elif len(quarantined) < limit and self._rewrite(RecordId(item["id"]), _abandon(line)):
                quarantined.append(RecordId(item["id"]))
        return reaped, quarantined

    # -- how it is done ----------------------------------------------------------------------------------------------

    def _record(self, item: Item) -> Record:
        return record_in(item, self._table.latest())

    def _unfinished(self, state: State, *, before: int | None = None, newest_first: bool = False) -> Iterator[Item]:
        """Read the records in a state, in the order in which they were created, or the reverse; as they are now.

        With *before*, only those that were created by then.
        """
        until = {} if before is None else {"before": before}
        text = "@listed = :shelf" + (" AND @created_at <= :before" if until else "")
        lists = [
            self._query(
                text,
                {"shelf": shelf(state, shard), **until},
                IndexName=INDEX,
                Limit=BATCH,
                ScanIndexForward=not newest_first,
            )
            for shard in range(SHARDS)
        ]
        listed = merge(*lists, key=lambda item: item["created_at"], reverse=newest_first)
        while some := list(islice(listed, BATCH)):
            places = {item["id"]: place for place, item in enumerate(some)}
            keys = [{"reference": item["reference"], "id": item["id"]} for item in some]
            found = [item for item in self._table.read_all(keys) if item["state"] == state.value]
            yield from sorted(found, key=lambda item: places[item["id"]])

    def _query(self, text: str, values: Item, **options: Any) -> Iterator[Item]:
        asked = Condition(text, values).as_filter("KeyConditionExpression")
        for page in self._table.pages("query", **asked, **options):
            yield from page

    def _scan(self, state: State | None) -> list[Item]:
        found = list[Item]()
        for page in islice(self._table.pages("scan"), PAGES):
            found += [item for item in page if state in (None, item["state"])]
        return found

    def _delete(self, item: Item) -> bool:
        """Delete a record unless somebody has written it since; say whether it was done."""
        try:
            self._table.delete(RecordId(item["id"]), as_seen(item))
        except ConditionFailed:
            return False
        return True

    def _rewrite(self, record: RecordId, change: "Callable[[Item], Change]") -> bool:
        """Change a record by what it is now, and again if somebody else was faster; say whether it was done."""
        item = self._table.read(record)
        for _ in range(REWRITES):
            if item is None or (changed := change(item)) is None:
                return False
            changes, without = changed
            try:
                self._table.update(record, changes, as_seen(item), without=without)
                return True
            except ConditionFailed as failure:
                if failure.is_repeated and has_said(failure.item, changes):
                    return True  # it was done by an earlier sending, and somebody has gone on from there
                item = failure.item
        raise StoreUnavailable(retry_after=1)


Change = tuple[Item, Sequence[str]] | None  # what to set and what to remove; None: nothing


def is_free(item: Item, now: int) -> bool:
    """Say whether nobody holds a running record."""
    return "token" not in item or item["lease_until"] <= now


def given_up(item: Item, reason: str) -> Item:
    """Give what changes when a record is quarantined."""
    return {**in_state(RecordId(item["id"]), State.QUARANTINED), "reason": said(item, reason)}


def said(item: Item, reason: str) -> str:
    """Add a reason to those that a record has."""
    return "; ".join(filter(None, [item.get("reason"), reason]))


def has_said(item: Item | None, changes: Item) -> bool:
    """Say whether a record has the remark of a change that a person has decided on."""
    return item is not None and "reason" in changes and str(item.get("reason", "")).startswith(changes["reason"])


def _abandon(line: int) -> Callable[[Item], Change]:
    def change(item: Item) -> Change:
        is_left = item["state"] == State.RUNNING and item["lease_until"] < line
        return (given_up(item, ABANDONED), ()) if is_left else None

    return change
