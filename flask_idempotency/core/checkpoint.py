"""How far a leased run has come: what each of its phases and effects has left behind, in the order in which it went."""

import json
import re
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Any

from flask_idempotency.core.fingerprint import Fingerprint
from flask_idempotency.core.framing import frame
from flask_idempotency.core.scope import RecordId
from flask_idempotency.errors import IdempotencyError

REQUEST = "@request"  # the name of the one checkpoint that is not made by the view: no name can begin like this
MAX_RESULT = 64 * 1024  # characters of JSON: a checkpoint is read again on every resume

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,99}")


class Kind(StrEnum):
    """What a checkpoint stands for."""

    PHASE = "phase"
    EFFECT = "effect"
    REQUEST = "request"


class Progress(StrEnum):
    """How far a phase or an effect has come. A phase has only done: its work is in the same transaction."""

    SENT = "sent"  # it may have happened
    DONE = "done"  # it has, and this is the result
    VOID = "void"  # it has not, and this is the proof; the next sending is of a new generation


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One phase or effect of a run. ``age`` is by the store's clock: of an effect, since it was first sent."""

    name: str
    kind: Kind
    position: int
    state: Progress = Progress.DONE
    generation: int = 1
    result: str | None = None  # JSON
    age: timedelta = timedelta(0)

    @property
    def point(self) -> str:
        """Where a record stands that has come this far. No two of a run are alike."""
        if self.kind is not Kind.EFFECT:
            return self.name
        return f"{self.name} {self.state}" + (f" {self.generation}" if self.generation > 1 else "")


def check_name(name: object) -> str:
    """Give the name of a phase or effect. Raises IdempotencyError if it is none."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise IdempotencyError(
            f"{name!r} is not a valid name for a phase or effect: use at most 100 letters, digits and _ . : -, and"
            " start with a letter."
        )
    return name


def dump_result(result: object, whose: str) -> str:
    """Write a result as JSON. Raises IdempotencyError if it is none, or too large to be read on every resume."""
    try:
        text = json.dumps(result, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise IdempotencyError(
            f"The result of {whose} is not JSON: {error}. Return only dicts, lists, strings, numbers, booleans and"
            " None; instead of an object, return its id."
        ) from None
    if len(text) > MAX_RESULT:
        raise IdempotencyError(
            f"The result of {whose} is {len(text):,} characters of JSON, over the limit of {MAX_RESULT:,}: store it in"
            " your own table and return its id."
        )
    return text


def load_result(text: str | None) -> Any:
    """Read a result as it was written: tuples have become lists, on the first run too."""
    return None if text is None else json.loads(text)


def effect_key(record: RecordId, asked: Fingerprint, name: str, generation: int) -> str:
    """Derive the key under which a foreign system gets an effect.

    The record's id stands for namespace, scope and key, *asked* for the request, as the record has it: once a key has
    expired, another request under it must not be given the first one's charge. Nothing else counts, neither the
    attempt nor the token nor a row, so every retry sends the same key.
    """
    parts = (b"effect", record, bytes(asked), name.encode(), str(generation).encode())
    return sha256(frame(*parts)).hexdigest()[:32]
