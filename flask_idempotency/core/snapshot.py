"""The stored answer, and its stored form: JSON headers, raw bytes, and a checksum of both.

Nothing is ever unpickled, and header names and values are validated when written and again when read.
"""

import json
import re
from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain

from flask_idempotency.core.framing import frame
from flask_idempotency.core.scope import RecordId

Headers = tuple[tuple[str, str], ...]

SEALED = "Idempotency-Sealed"  # the header that marks an encrypted answer; a view's own is dropped
TRACE = "Idempotency-Trace"  # the header that says where the first run's trace is; it is never sent

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A final answer as it was first given: status, the headers that travel, body bytes."""

    status: int
    headers: Headers
    body: bytes


@dataclass(frozen=True, slots=True)
class NotKept:
    """A final answer whose body cannot be replayed: streamed, too large, or damaged in the store."""

    status: int
    location: str | None = None
    is_streamed: bool = False  # it was stored before the stream began, so the stream's work may be incomplete


Answer = Snapshot | NotKept


def blanked(answer: Answer) -> NotKept:
    """Give what is left of an answer that is forgotten: how the request ended, and whether that may be incomplete."""
    return NotKept(answer.status, is_streamed=isinstance(answer, NotKept) and answer.is_streamed)


class Damaged(ValueError):
    """A stored answer is not what was put in."""


def are_storable(headers: Headers) -> bool:
    """Say whether every name is a token, and no value contains a line break or control character."""
    return all(_NAME.fullmatch(name) and _VALUE.fullmatch(value) for name, value in headers)


def pack(record: RecordId, answer: Answer) -> tuple[int, str, bytes | None]:
    """Turn an answer into status, headers (names and values in turn) and body, with a checksum bound to the record."""
    match answer:
        case Snapshot(status, headers, _):
            body: bytes | None = answer.body
        case NotKept(status, location, is_streamed):
            headers, body = (() if location is None else (("Location", location),)), None
            headers += (("Streamed", ""),) if is_streamed else ()
    text = _encode(headers)
    return status, f"{_check(record, status, text, body)}{text}", body


def unpack(record: RecordId, status: int | None, headers: str | None, body: bytes | None) -> Answer:
    """Turn stored columns back into the answer. Raises Damaged unless they are what *pack* made for *record*."""
    check, text = (headers or "")[:_CHECK_LENGTH], (headers or "")[_CHECK_LENGTH:]
    if status is None or check != _check(record, status, text, body):
        raise Damaged
    pairs = _decode(text)
    if not are_storable(pairs):
        raise Damaged
    if body is not None:
        return Snapshot(status, pairs, body)
    known = dict(pairs)
    return NotKept(status, known.get("Location"), "Streamed" in known)


def reseal(record: RecordId, status: int, headers: str, body: bytes | None) -> str | None:
    """Turn headers that version 1 or 2 of the tables holds into what *pack* makes now; None if they are damaged."""
    check, text = headers[:_FIRST_CHECK_LENGTH], headers[_FIRST_CHECK_LENGTH:]
    if check != _check(record, status, text, body, _FIRST_CHECK_LENGTH):
        return None
    text = _encode(tuple((name, value) for name, value in json.loads(text)))
    return f"{_check(record, status, text, body)}{text}"


_JSON = ("Content-Type", "application/json")  # the first header, often the only one, of nearly every answer
_IS_JSON = "j"  # stands for that header, and saves a tenth of a record
_dump = json.JSONEncoder(separators=(",", ":")).encode  # ASCII, whatever the database's encoding is


def _encode(headers: Headers) -> str:
    """Write names and values in turn."""
    if headers[:1] == (_JSON,):
        return _IS_JSON + _dump([*chain.from_iterable(headers[1:])])
    return _dump([*chain.from_iterable(headers)])


def _decode(text: str) -> Headers:
    """Read names and values in turn. Raises Damaged for any other JSON, or none."""
    first = (_JSON,) if text.startswith(_IS_JSON) else ()
    try:
        words = json.loads(text.removeprefix(_IS_JSON))
    except ValueError:
        raise Damaged from None
    if not isinstance(words, list) or len(words) % 2 or not all(isinstance(word, str) for word in words):
        raise Damaged
    return (*first, *zip(words[::2], words[1::2], strict=True))


_FIRST_CHECK_LENGTH = 16
_CHECK_LENGTH = 8  # base64 of 6 bytes: detects damage, not forgery


def _check(record: RecordId, status: int, text: str, body: bytes | None, length: int = _CHECK_LENGTH) -> str:
    """Bind an answer to its record, so that a damaged or swapped one is detected."""
    kept = (b"kept", body) if body is not None else (b"not kept",)
    digest = sha256(frame(record, str(status).encode(), text.encode(), *kept)).digest()
    return b64encode(digest[: length * 3 // 4]).decode()
