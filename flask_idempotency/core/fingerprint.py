"""Computes fingerprints of requests by versioned rules. A rule that has been released never changes: add a version.

The caller reads the request; nothing here knows headers, and none is part of a fingerprint.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from typing import Self

from flask_idempotency.core.canonical import Part, canonical_json, canonical_pairs, canonical_parts, parse_pairs
from flask_idempotency.core.framing import frame, utf8
from flask_idempotency.core.key import FORM_FIELD

CURRENT = 1  # the version that new records get

_DIGEST_SIZE = 15  # bytes of SHA-256: a collision takes 2^60 tries, and its finder can only collide with himself
_FIELD = FORM_FIELD.encode()
_FORM = "application/x-www-form-urlencoded"
_JSON = re.compile(r"application/json|[^/;]+/[^/;]+\+json")  # JSON with a charset parameter is compared by its bytes


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The digest of a request and the version of the rule that made it. ``bytes()`` gives the stored form."""

    version: int
    digest: bytes

    def __bytes__(self) -> bytes:
        return bytes([self.version]) + self.digest

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Read the stored form, also of a version that this release does not know. Raises ValueError if damaged."""
        if len(raw) != 1 + _DIGEST_SIZE:
            raise ValueError(f"A fingerprint is stored in {1 + _DIGEST_SIZE} bytes, not {len(raw)}; it is damaged.")
        return cls(raw[0], bytes(raw[1:]))


@dataclass(frozen=True, slots=True)
class Raw:
    """The body as it was received, compressed or not."""

    body: bytes


@dataclass(frozen=True, slots=True)
class Form:
    """A urlencoded body that a hook has parsed; it gives the same fingerprint as the body."""

    pairs: tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class Multipart:
    """The parts of a multipart form, in their order."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Custom:
    """The value of the view's own ``fingerprint=`` function, which replaces media type and body."""

    value: bytes


@dataclass(frozen=True, slots=True)
class Content:
    """What was asked.

    *path* is decoded, *query* as sent. *kind* is the media type in lower case, with ``;charset=…`` unless that is the
    default; *coding* is the Content-Encoding, empty if there is none.
    """

    method: str
    path: bytes
    query: bytes
    kind: str
    coding: str
    payload: Raw | Form | Multipart | Custom


def fingerprint(content: Content, version: int = CURRENT) -> Fingerprint:
    """Digest *content* by the rule of *version*. Raises KeyError for a version that is not in RULES."""
    return Fingerprint(version, RULES[version](content)[:_DIGEST_SIZE])


def same(a: Fingerprint, b: Fingerprint) -> bool:
    """Say whether both name the same request, in a time that does not depend on where they differ."""
    return compare_digest(bytes(a), bytes(b))


def _rule_1(content: Content) -> bytes:
    query = canonical_pairs(parse_pairs(content.query)) if content.query else b""
    return sha256(frame(b"fp1", utf8(content.method), content.path, query, *_payload_1(content))).digest()


def _payload_1(content: Content) -> tuple[bytes, ...]:
    # Each form is tagged, so that the bytes of one can never be mistaken for those of another.
    kind = (utf8(content.kind), utf8(content.coding))
    match content.payload:
        case Raw(body) if content.coding:
            return *kind, b"raw", body
        case Raw(body) if _JSON.fullmatch(content.kind):
            text = canonical_json(body)
            return (*kind, b"raw", body) if text is None else (*kind, b"json", text)
        case Raw(body) if content.kind == _FORM:
            return *kind, b"pairs", _pairs_1(parse_pairs(body))
        case Raw(body):
            return *kind, b"raw", body
        case Form(pairs):
            return *kind, b"pairs", _pairs_1(pairs)
        case Multipart(parts):
            return *kind, b"parts", canonical_parts(part for part in parts if not _is_key(part))
        case Custom(value):  # pragma: no branch - the union is closed; mypy sees to it
            return b"custom", value


def _pairs_1(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    return canonical_pairs(pair for pair in pairs if pair[0] != _FIELD)


def _is_key(part: Part) -> bool:
    return part.name == FORM_FIELD and part.filename is None  # a file of that name is not a key


RULES: dict[int, Callable[[Content], bytes]] = {1: _rule_1}
