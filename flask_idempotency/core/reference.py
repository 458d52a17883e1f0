"""References: the first twelve characters of a RecordId, such as 7D3F-92AB-1C4E, as people read them out."""

import re
from functools import lru_cache
from typing import NewType

from flask_idempotency.core.scope import RecordId

Reference = NewType("Reference", str)

_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base32: without I, L, O, U
_ID_BITS = 256
_REFERENCE_BITS = 60  # twelve digits of five bits: among a million records, two alike are a one in two million chance
_REST_BITS = _ID_BITS - _REFERENCE_BITS

# Only ASCII is translated: str.upper() would also read a dotless i as I.
_READ = str.maketrans(_DIGITS.lower() + "OoIiLl", _DIGITS + "001111", " -")
_CANONICAL = re.compile(rf"[{_DIGITS}]{{12}}")
PATTERN = "^[0-9A-HJKMNP-TV-Z]{4}(-[0-9A-HJKMNP-TV-Z]{4}){2}$"  # for JSON Schema


@lru_cache(maxsize=256)  # a request needs its own several times
def reference_of(id: RecordId) -> Reference:
    """Shorten the id to its first 60 bits, in groups of four."""
    number = int.from_bytes(id, "big") >> _REST_BITS
    return _grouped("".join([_DIGITS[number >> shift & 31] for shift in range(_REFERENCE_BITS - 5, -1, -5)]))


def parse_reference(text: str) -> Reference:
    """Read a reference as people type it: any case, spaces and hyphens anywhere, O for 0, I and L for 1.

    Raises ValueError with a sentence for the person who typed it.
    """
    digits = text.translate(_READ)
    if not _CANONICAL.fullmatch(digits):
        raise ValueError("A reference is 12 letters and digits, such as 7D3F-92AB-1C4E; compare it with the original.")
    return _grouped(digits)


def id_range(reference: Reference) -> tuple[bytes, bytes]:
    """Give the lowest and the highest id with that reference, both included."""
    number = 0
    for digit in reference.replace("-", ""):
        number = number << 5 | _DIGITS.index(digit)
    lowest = number << _REST_BITS
    highest = lowest | (1 << _REST_BITS) - 1
    return lowest.to_bytes(_ID_BITS // 8, "big"), highest.to_bytes(_ID_BITS // 8, "big")


def _grouped(digits: str) -> Reference:
    return Reference(f"{digits[:4]}-{digits[4:8]}-{digits[8:]}")
