"""Turns a response into a snapshot and back: which headers are replayed, and that they always fit the body."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum, auto
from functools import lru_cache

from flask import Request, Response

from flask_idempotency.core.keeping import is_final
from flask_idempotency.core.outcome import Made, Outcome
from flask_idempotency.core.snapshot import TRACE, Answer, Headers, NotKept, Snapshot, are_storable
from flask_idempotency.http.coding import decoded
from flask_idempotency.http.dialects import OURS, Dialect
from flask_idempotency.policy import Policy

log = logging.getLogger("flask_idempotency")


class Fate(Enum):
    """What happens to a header in a replay."""

    REPLAYED = auto()  # as in the first answer
    FRESH = auto()  # as set by the hooks and the server for this request
    NEVER = auto()  # not stored, and dropped if found


_FRESH = frozenset(
    """
    content-length date server via age alt-svc nel report-to server-timing x-runtime
    x-request-id request-id x-correlation-id traceparent tracestate baggage x-amzn-trace-id cf-ray
    strict-transport-security x-frame-options permissions-policy referrer-policy
    signature signature-input
    """.split()
)
_FRESH_BEGINNINGS = ("access-control-", "content-security-policy", "ratelimit", "x-ratelimit-", "x-rate-limit-")
_NEVER = frozenset(
    """
    set-cookie set-cookie2 www-authenticate proxy-authenticate authentication-info proxy-authentication-info
    retry-after clear-site-data
    connection keep-alive proxy-connection te trailer transfer-encoding upgrade
    """.split()
)
_BODILESS = frozenset({204, 304})  # statuses whose answers never have a body


@lru_cache(maxsize=512)  # an app has a few dozen names
def fate_of(name: str) -> Fate:
    """Look a header up by name."""
    lower = name.lower()
    if lower in _NEVER or lower in OURS:
        return Fate.NEVER
    return Fate.FRESH if lower in _FRESH or lower.startswith(_FRESH_BEGINNINGS) else Fate.REPLAYED


def capture(response: Response, limit: int) -> Answer:
    """Make a snapshot of an answer that is about to be sent. It can still be sent; a stream is not consumed."""
    hop_by_hop = {name.strip().lower() for line in response.headers.getlist("Connection") for name in line.split(",")}
    headers = tuple(
        (name, value)
        for name, value in response.headers
        if fate_of(name) is Fate.REPLAYED and name.lower() not in hop_by_hop
    )
    body = _body(response, limit)
    if body is None or not are_storable(headers):
        location = response.headers.get("Location")
        keeps = location is not None and are_storable((("Location", location),))
        is_streamed = body is None and not response.is_sequence
        return NotKept(response.status_code, location if keeps else None, is_streamed)
    return Snapshot(response.status_code, headers, body)


def is_kept(policy: Policy, response: Response, *, is_views_own: bool = False) -> bool:
    """Say whether an answer is final, by the view's own rule or the default one.

    *is_views_own*: the view has returned it, or raised it as an answer; no handler of an exception, and no hook.
    """
    keep = policy.keep
    by_default = is_final(response.status_code, keeps_failures=is_views_own and policy.dialect.keeps_failures)
    if keep is None:
        return by_default
    if not callable(keep):
        return response.status_code in keep
    try:
        return bool(keep(response))
    except Exception:
        log.exception("a keep= function failed; whether its answer is kept was decided by the default rule")
        return by_default


def has_failed(policy: Policy, outcome: Outcome, sent: Response | None) -> bool:
    """Say whether there is no answer, or another hook has failed after it: by raising, or by sending a failure."""
    if sent is None or not isinstance(outcome, Made):
        return True
    return _is_spoilt(policy, outcome, sent) and not is_final(sent.status_code)


def take_down(policy: Policy, made: Made, before: Response | None, sent: Response | None, limit: int) -> Answer:
    """Make a snapshot of an answer as it is *sent*, or as it was *before* hooks that replaced it by a failure."""
    for response in (sent, before):
        if response is None or _is_spoilt(policy, made, response):
            continue
        try:
            return policy.dialect.note_origin(capture(response, limit), response if sent is None else sent)
        except Exception:
            log.exception("the body of an answer could not be read and is not kept; its retries get 410")
            return NotKept(made.status, is_streamed=True)  # what has been read of it cannot be read again
    return NotKept(made.status)


def with_trace(answer: Answer, trace: str) -> Answer:
    """Add to an answer that will be stored where the trace of its run is. As a header of ours it is never sent."""
    return replace(answer, headers=(*answer.headers, (TRACE, trace))) if isinstance(answer, Snapshot) else answer


def _is_spoilt(policy: Policy, made: Made, sent: Response) -> bool:
    return sent.status_code != made.status and not is_kept(policy, sent)


def restore(snapshot: Snapshot, request: Request, reference: str, response: Response, dialect: Dialect) -> Response:
    """Restore a snapshot into *response*: status, body and kept headers are the first answer's, fresh ones stay."""
    # Filtered again, because another version may have stored it.
    headers = tuple((name, value) for name, value in snapshot.headers if fate_of(name) is Fate.REPLAYED)
    headers, body = _decoded_for(request, headers, snapshot.body)
    today = [
        (name, value)
        for name, value in response.headers
        if fate_of(name) is not Fate.REPLAYED and name.lower() not in OURS
    ]
    vary = _merged([*(value for name, value in headers if name.lower() == "vary"), *response.headers.getlist("Vary")])
    lines = [line for line in headers if line[0].lower() != "vary"] + today
    if vary:
        lines.append(("Vary", vary))
    response.status_code = snapshot.status
    response.direct_passthrough = False
    response.headers.clear()
    response.headers.extend(lines)
    response.set_data(body)
    return dialect.mark_replay(response, reference, snapshot)


def with_fresh_headers(response: Response, other: Response) -> Response:
    """Copy the headers that the hooks have set on *other*, the response that this one replaces."""
    for name, value in other.headers:
        if fate_of(name) is Fate.FRESH and name.lower() != "content-length" and name not in response.headers:
            response.headers.add(name, value)
    return response


def read_whole(response: Response, limit: int) -> None:
    """Read a response that is sent piece by piece, if it has a Content-Length up to the limit; any other streams.

    Such a response is a file, or one that Flask makes for abort(). An exception is raised here, and again when the
    response is read.
    """
    if response.is_sequence or response.status_code in _BODILESS:
        return
    length = response.headers.get("Content-Length", type=int)
    if length is None or length > limit:
        return
    source, pieces = response.response, list[bytes]()

    def pieces_then(error: Exception) -> Iterator[bytes]:
        yield from pieces
        raise error

    if hasattr(source, "close"):
        response.call_on_close(source.close)
    try:
        pieces.extend(response.iter_encoded())
    except BaseException as error:
        response.response = pieces_then(
            error if isinstance(error, Exception) else RuntimeError("the worker was stopped")
        )
        raise
    response.response = pieces


def _body(response: Response, limit: int) -> bytes | None:
    """Give the body's bytes, or None if it streams or is over the limit."""
    read_whole(response, limit)
    if not response.is_sequence and response.status_code not in _BODILESS:
        return None
    response.direct_passthrough = False
    body = response.get_data()
    return body if len(body) <= limit else None


def _decoded_for(request: Request, headers: Headers, body: bytes) -> tuple[Headers, bytes]:
    """Undo a compression that this client does not accept, and drop the headers that describe the compressed bytes."""
    coding = next((value.strip().lower() for name, value in headers if name.lower() == "content-encoding"), "")
    if not coding or _accepts(request, coding, headers) or (plain := decoded(coding, body)) is None:
        return headers, body
    dropped = {"content-encoding", "content-digest", "repr-digest", "etag"}
    return tuple((name, value) for name, value in headers if name.lower() not in dropped), plain


def _accepts(request: Request, coding: str, headers: Headers) -> bool:
    if "Accept-Encoding" in request.headers:
        return request.accept_encodings.quality(coding) > 0
    # A client that names no coding accepts any; but an app whose answer varies by it would have sent it uncompressed.
    vary = _merged([value for name, value in headers if name.lower() == "vary"]).lower()
    return "accept-encoding" not in vary.split(", ")


def _merged(values: list[str]) -> str:
    names = [name.strip() for value in values for name in value.split(",") if name.strip()]
    first: dict[str, str] = {}
    for name in names:
        first.setdefault(name.lower(), name)
    return ", ".join(first.values())
