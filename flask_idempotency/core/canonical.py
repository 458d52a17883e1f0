"""Canonical forms of queries, JSON, forms and multipart bodies: the same meaning gives the same bytes.

A false "same" would answer the wrong request, a false "different" only refuses one: in doubt, bytes stay as sent.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NoReturn
from urllib.parse import unquote_to_bytes

from flask_idempotency.core.framing import frame, utf8

MAX_NESTING = 64  # deeper than any real document, and far from the interpreter's own limit

_SHORT = 18  # characters up to which a whole number is written out, sent as 1e3 or 1000; longer ones may need bignums
_LONGEST_EXPONENT = 600  # characters; below what int() accepts under any setting of the interpreter


def canonical_json(body: bytes) -> bytes | None:
    """Write the JSON text *body* in the form shared by all texts of the same value. Never raises.

    None if it is not JSON, or JSON that parsers disagree about (duplicate names, NaN, half a surrogate pair, deep
    nesting): such a body equals only itself. Numbers are compared as decimals, never as doubles; -0 and 0 differ.
    """
    if _nests_too_deep(body):
        return None
    try:
        return _encode(_decode(body.decode())).encode()
    except (ValueError, RecursionError):
        return None  # RecursionError only if the caller has almost no stack left


def canonical_pairs(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Ignore the order of different names, but not that of values with the same name."""
    return frame(*[text for pair in sorted(pairs, key=lambda pair: pair[0]) for text in pair])


def parse_pairs(text: bytes) -> list[tuple[bytes, bytes]]:
    """Parse a query or a urlencoded body to bytes, not to text: decoding could make different bytes equal."""
    pairs = []
    for segment in text.replace(b"+", b" ").split(b"&"):
        if segment:
            name, _, value = segment.partition(b"=")
            pairs.append((unquote_to_bytes(name), unquote_to_bytes(value)))
    return pairs


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a multipart form; *digest* is the SHA-256 of its bytes."""

    name: str
    filename: str | None
    type: str
    digest: bytes


def canonical_parts(parts: Iterable[Part]) -> bytes:
    """List the parts in their order. The boundary between them is not part of what was asked."""
    return frame(*[field for part in parts for field in _fields(part)])


def _fields(part: Part) -> tuple[bytes, ...]:
    filename = b"" if part.filename is None else b"=" + utf8(part.filename)  # none and an empty one differ
    return utf8(part.name), filename, utf8(part.type), part.digest


def _nests_too_deep(body: bytes) -> bool:
    # Decided before parsing: otherwise the result would depend on how much stack the caller has left.
    if body.count(b"[") + body.count(b"{") <= MAX_NESTING:
        return False
    unescaped = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside_strings = b"".join(unescaped.split(b'"')[::2])
    brackets = outside_strings.translate(None, _NO_BRACKETS)
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > MAX_NESTING


_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS = bytes(set(range(256)) - _STEPS.keys())


# The hooks of the JSON decoder. What they return is encoded again: a number as itself if it is whole and short, else as
# {"n": "digits e exponent"}. An object {"n": …}, which could be mistaken for such a number, is wrapped once more.


def _integer(text: str) -> Any:
    return int(text) if len(text) <= _SHORT and text != "-0" else _decimal(text)


def _decimal(text: str) -> Any:
    mantissa, _, power = text.lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    sign = "-" if whole[0] == "-" else ""
    digits = (whole + fraction).lstrip("-0")
    significant = digits.rstrip("0")
    if not significant:
        return {"n": "-0e0"} if sign else 0
    if len(power) > _LONGEST_EXPONENT:
        raise ValueError
    exponent = int(power or 0) - len(fraction) + len(digits) - len(significant)
    if exponent >= 0 and len(sign) + len(significant) + exponent <= _SHORT:
        return int(sign + significant + "0" * exponent)
    return {"n": f"{sign}{significant}e{exponent}"}


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError  # with duplicate names the last wins in Python, the first elsewhere
    return {"n": members} if len(members) == 1 and "n" in members else members


def _constant(_: str) -> NoReturn:
    raise ValueError  # NaN and Infinity are Python's, not JSON's


_decode = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_decimal, parse_constant=_constant
).decode
_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False, sort_keys=True, separators=(",", ":")).encode
