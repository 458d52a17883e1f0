"""What a page says about a record. Personal data is left out unless the app has asked for it."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import time
from urllib.parse import unquote

from flask import current_app, request
from werkzeug.exceptions import HTTPException
from werkzeug.routing import MapAdapter, RequestRedirect

from flask_idempotency.core.checkpoint import REQUEST, Checkpoint
from flask_idempotency.core.record import RUN, Finished, Record, Running
from flask_idempotency.core.reference import Reference, reference_of
from flask_idempotency.core.scope import caller_named
from flask_idempotency.core.snapshot import Answer, NotKept, Snapshot
from flask_idempotency.legible import how_long
from flask_idempotency.state import current_state

HIDDEN = "not shown"
LONGEST_TEXT = 20_000  # characters of an answer: a page is for reading


@dataclass(frozen=True, slots=True)
class Shown:
    """One record in the words of a page."""

    record: Record
    reference: Reference
    state: str
    place: str  # its method and route
    endpoint: str | None
    attempt: int
    created: datetime
    age: str
    lease: str  # of a running record
    is_held: bool  # an attempt holds it
    point: str | None
    reasons: tuple[str, ...]  # why it was not finished, and who settled it, in order
    status: str  # of a finished record
    expires: datetime | None
    left: str  # until it expires
    is_expired: bool

    @property
    def caller(self) -> str:
        """Who sent the request: personal."""
        return caller_named(self.record.asked.scope, current_state().settings.namespace)

    @property
    def path(self) -> str:
        """The path as it was sent: personal."""
        return self.record.asked.path

    @property
    def answer(self) -> "ShownAnswer | None":
        """The stored answer, if there is one: personal."""
        match self.record.condition:
            case Finished(answer=Snapshot() as snapshot):
                return show_answer(snapshot)
        return None


@dataclass(frozen=True, slots=True)
class ShownAnswer:
    """A stored answer as text."""

    status: int
    headers: tuple[tuple[str, str], ...]
    text: str | None  # None: it is not text
    size: int
    is_cut: bool


def show(record: Record) -> Shown:
    """Say what may be said of a record."""
    asked = record.asked
    rule, endpoint = _route(asked.method, asked.path)
    lease, is_held, status, expires, left, now = "", False, "", None, "", _now()
    match record.condition:
        case Running(token=token, lease_until=until, lease_left=remaining):
            now = until - remaining  # by the store's clock
            is_held = token is not None and remaining > timedelta(0)
            lease = _lease(token, remaining)
        case Finished(answer=answer, expires_at=expires_at):
            status, expires = _status(answer), expires_at
            left = f"in {how_long(expires_at - now)}" if expires_at > now else "expired"
    return Shown(
        record=record,
        reference=reference_of(asked.id),
        state=str(record.state),
        place=f"{asked.method} {rule}",
        endpoint=endpoint,
        attempt=record.attempt,
        created=record.created_at,
        age=how_long(max(now - record.created_at, timedelta(0))),
        lease=lease,
        is_held=is_held,
        point=None if record.point == REQUEST else record.point,
        reasons=tuple(record.reason.split("; ")) if record.reason else (),
        status=status,
        expires=expires,
        left=left,
        is_expired=expires is not None and expires <= now,
    )


def show_result(made: Checkpoint) -> str | None:
    """Give what a step has returned, as JSON for people."""
    return None if made.result is None else json.dumps(json.loads(made.result), indent=2, ensure_ascii=False)


def show_answer(snapshot: Snapshot) -> ShownAnswer:
    """Give an answer as text, if it is text."""
    try:
        text = snapshot.body.decode()
    except UnicodeDecodeError:
        return ShownAnswer(snapshot.status, snapshot.headers, None, len(snapshot.body), is_cut=False)
    is_cut = len(text) > LONGEST_TEXT
    return ShownAnswer(snapshot.status, snapshot.headers, text[:LONGEST_TEXT], len(snapshot.body), is_cut)


def _route(method: str, path: str) -> tuple[str, str | None]:
    """Give the rule that a path matches, and its endpoint: what is variable in a path may be personal.

    The path of a run is its name, which is in the code.
    """
    if method == RUN:
        return path, None
    host = ""
    if path.startswith("//"):  # a rule with a host or a subdomain
        host, _, path = path.removeprefix("//").partition("/")
        path = f"/{path}"
    try:
        rule, _ = _adapter(host).match(unquote(path.removeprefix(request.root_path)), method, return_rule=True)
    except (HTTPException, RequestRedirect):
        return f"({HIDDEN}: no route of this app)", None
    return rule.rule, rule.endpoint


def _adapter(host: str) -> MapAdapter:
    urls, domain = current_app.url_map, f".{current_app.config['SERVER_NAME']}"
    is_subdomain = not urls.host_matching and host.endswith(domain)
    return urls.bind(host or "localhost", subdomain=host.removesuffix(domain) if is_subdomain else None)


def _lease(token: bytes | None, left: timedelta) -> str:
    if token is None:
        return "ended; the next attempt runs"
    if left > timedelta(0):
        return f"held for another {how_long(left)}, unless it is renewed"
    return f"expired {how_long(-left)} ago; the next attempt takes over"


def _status(answer: Answer) -> str:
    return f"{answer.status}, body not kept" if isinstance(answer, NotKept) else str(answer.status)


def _now() -> datetime:
    return datetime.fromtimestamp(time(), UTC)


def soonest_first(records: list[Shown]) -> list[Shown]:
    """Sort finished records by when they expire, without those that have."""
    live = [(each.expires, number, each) for number, each in enumerate(records) if each.expires and not each.is_expired]
    return [each for _, _, each in sorted(live)]
