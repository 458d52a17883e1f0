"""The progress of a run under the lease guard: one checkpoint for each phase and effect, in their order."""

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

REQUEST = "@request"  # the name of the checkpoint with the request itself: a view's names cannot begin with @
MAX_RESULT = 64 * 1024  # characters of JSON: a checkpoint is read again on every resume

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,99}")


class Kind(StrEnum):
    """What a checkpoint records."""

    PHASE = "phase"
    EFFECT = "effect"
    REQUEST = "request"


class Progress(StrEnum):
    """The state of a phase or an effect. A phase is always done: its work is committed in the same transaction."""

    SENT = "sent"  # it may have happened
    DONE = "done"  # it has happened, and this is the result
    VOID = "void"  # it has not happened, and this is the proof; it is sent again as a new generation


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One phase or effect of a run. ``age`` is by the store's clock, for an effect since it was first sent."""

    name: str
    kind: Kind
    position: int
    state: Progress = Progress.DONE
    generation: int = 1
    result: str | None = None  # JSON
    age: timedelta = timedelta(0)

    @property
    def point(self) -> str:
        """The ``point`` of a record after this checkpoint. Each is different within a run."""
        if self.kind is not Kind.EFFECT:
            return self.name
        return f"{self.name} {self.state}" + (f" {self.generation}" if self.generation > 1 else "")


def check_name(name: object) -> str:
    """Check the name of a phase or effect. Raises IdempotencyError if it is not valid."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise IdempotencyError(
            f"{name!r} is not a valid name for a phase or effect: use at most 100 letters, digits and _ . : -, and"
            " start with a letter."
        )
    return name


def dump_result(result: object, whose: str) -> str:
    """Write a result as JSON. Raises IdempotencyError if that is impossible, or the text is over MAX_RESULT."""
    try:
        text = json.dumps(result, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise IdempotencyError(
            f"The result of {whose} cannot be stored as JSON: {error}. Return only dicts, lists, strings, numbers,"
            " booleans and None; instead of an object, return its id."
        ) from None
    if len(text) > MAX_RESULT:
        raise IdempotencyError(
            f"The result of {whose} is {len(text):,} characters of JSON, over the limit of {MAX_RESULT:,}: store it in"
            " your own table and return its id."
        )
    return text


def load_result(text: str | None) -> Any:
    """Read a stored result. The first run gets it in this form too, with lists for tuples."""
    return None if text is None else json.loads(text)


def effect_key(record: RecordId, asked: Fingerprint, name: str, generation: int) -> str:
    """Derive the key with which an effect is sent to a foreign system.

    It depends on the record's id, which stands for namespace, scope and key, and on the request as recorded, *asked*:
    another request that uses the key after it has expired must not get the first one's charge. It does not depend on
    the attempt, the token or any row, so every retry sends the same key.
    """
    parts = (b"effect", record, bytes(asked), name.encode(), str(generation).encode())
    return sha256(frame(*parts)).hexdigest()[:32]
