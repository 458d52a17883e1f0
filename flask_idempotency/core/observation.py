"""What shadow mode has seen of an API, and what enforcing would have made of it: pure, from digests and times alone."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256

from flask_idempotency.core.scope import Scope

CALLER_BYTES = 16
ERROR = "error"  # the scope or the key function fails: a 500, if this were enforced


@dataclass(frozen=True, slots=True)
class Observation:
    """One request that enforcing would have looked at, and its answer. Nothing here can be turned back into a key, a
    caller or a body.
    """

    endpoint: str
    method: str
    begun: float  # seconds since the epoch, by the clock of the machine
    ended: float
    caller: bytes | None  # None: not known
    record: bytes | None  # the id of the record that it would have; None: it has no key, or it would be refused
    fingerprint: bytes | None  # None: the view did not read the whole body, or it is too large
    problem: str | None  # the code of the refusal that it would get before any record is looked for
    kept_for: float  # seconds that its answer would be kept; 0: it would not be
    answer: bytes | None  # a digest of its status and body; None: it was streamed, or is too large

    def frees_key_at(self, time: float) -> bool:
        """Say whether its key could be used again: its answer is not kept, or not any more."""
        return time >= self.ended + self.kept_for

    def is_same_as(self, other: "Observation") -> bool | None:
        """Say whether both ask for the same; None if that is not known."""
        if self.fingerprint is None or other.fingerprint is None:
            return None
        return self.fingerprint == other.fingerprint

    def was_answered_unlike(self, other: "Observation") -> bool:
        """Say whether both are known to have got different answers."""
        return None not in (self.answer, other.answer) and self.answer != other.answer


@dataclass(slots=True)
class Tally:
    """What enforcing would have changed for one method of one endpoint."""

    endpoint: str
    method: str
    requests: int = 0
    keyed: int = 0  # with a key, well-formed or not
    callers: set[bytes] = field(default_factory=set)
    keyed_callers: set[bytes] = field(default_factory=set)
    refused: Counter[str] = field(default_factory=Counter)  # by code, before any record is looked for
    reused: int = 0  # a key that came with another request before: 422
    in_flight: int = 0  # a duplicate of a request that was still running: 409, or it would have waited
    replayed: int = 0  # a retry that would have got the first answer again
    differed: int = 0  # of those, got another answer than the first
    not_compared: int = 0  # of a key that was used before, but a body is not known
    repeated: int = 0  # without a key, and the same as one shortly before from the same caller
    repeated_differed: int = 0  # of those, got another answer
    new_keys: int = 0  # the same as one shortly before from the same caller, with another key

    @property
    def changes(self) -> int:
        """The requests that would have got another answer, or a refusal."""
        return self.reused + self.in_flight + self.replayed + self.refused.total()


def tally(observations: Iterable[Observation], window: float) -> list[Tally]:
    """Judge what was seen, in the order in which it began, as if each request had been enforced.

    Two requests without a key count as one and its retry if no more than *window* seconds lie between them.
    """
    tallies: dict[tuple[str, str], Tally] = {}
    firsts: dict[bytes, Observation] = {}
    lasts: dict[tuple[bytes, bytes], Observation] = {}
    for seen in observations:
        place = seen.endpoint, seen.method
        counted = tallies.setdefault(place, Tally(*place))
        _count(counted, seen)
        if seen.record is not None:
            first = firsts.get(seen.record)
            if first is None or first.frees_key_at(seen.begun):
                firsts[seen.record] = seen
            else:
                _compare(counted, first, seen)
        if seen.problem in (None, "key-missing") and seen.caller is not None and seen.fingerprint is not None:
            who_and_what = seen.caller, seen.fingerprint
            last, lasts[who_and_what] = lasts.get(who_and_what), seen
            if last is not None and seen.begun - last.begun <= window:
                _suspect(counted, last, seen)
    return sorted(tallies.values(), key=lambda each: (-each.changes - each.repeated, each.endpoint, each.method))


def _count(counted: Tally, seen: Observation) -> None:
    counted.requests += 1
    has_key = seen.record is not None or seen.problem not in (None, "key-missing")
    counted.keyed += has_key
    if seen.caller is not None:
        counted.callers.add(seen.caller)
        if has_key:
            counted.keyed_callers.add(seen.caller)
    if seen.problem is not None:
        counted.refused[seen.problem] += 1


def _compare(counted: Tally, first: Observation, seen: Observation) -> None:
    """Count a request whose key was used before: what another body gets is decided before anybody waits."""
    match seen.is_same_as(first):
        case None:
            counted.not_compared += 1
        case False:
            counted.reused += 1
        case True if seen.begun < first.ended:
            counted.in_flight += 1
        case True:
            counted.replayed += 1
            counted.differed += seen.was_answered_unlike(first)


def _suspect(counted: Tally, last: Observation, seen: Observation) -> None:
    """Count a request that looks like a retry, although no key says so."""
    if seen.record is None and last.record is None:
        counted.repeated += 1
        counted.repeated_differed += seen.was_answered_unlike(last)
    elif None not in (seen.record, last.record) and seen.record != last.record:
        counted.new_keys += 1


def digest_of_caller(filed: Scope) -> bytes:
    """Name a caller without naming him: the same for all his requests."""
    return sha256(filed.encode()).digest()[:CALLER_BYTES]
