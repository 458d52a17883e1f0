"""What becomes of a promise: it holds, is broken, or could not be shown. And what all judgements share."""

from dataclasses import dataclass
from enum import StrEnum

from flask_idempotency.conformance.dialects import Dialect
from flask_idempotency.conformance.exchanges import Answer, Exchange, NoAnswer, Seen


@dataclass(frozen=True, slots=True)
class Holds:
    """The promise was kept whenever it was tried."""

    reason: str


@dataclass(frozen=True, slots=True)
class Broken:
    """The promise was broken, and these exchanges show it."""

    reason: str
    evidence: tuple[Exchange, ...] = ()


@dataclass(frozen=True, slots=True)
class NotShown:
    """Nothing can be said, for this reason."""

    reason: str


Verdict = Holds | Broken | NotShown


@dataclass(frozen=True, slots=True)
class Bench:
    """What judgements rest on: the dialect, and whether two runs can be told apart by their answers."""

    dialect: Dialect
    is_telling: bool


class Course(StrEnum):
    """What a server did with a request, as far as its answer tells."""

    REPLAYED = "got the first answer"
    RAN = "ran"
    UNCLEAR = "was carried out or replayed"
    REFUSED = "was refused"
    FAILED = "failed"
    UNANSWERED = "got no answer"


ALIKE = "every run gives the same answer, and effects were not counted: see --effects-url and --effects-command"


def course_of(first: Answer, other: Answer | NoAnswer, bench: Bench) -> Course:
    """Say what happened to a request that followed a first one with the same key."""
    if isinstance(other, NoAnswer):
        return Course.UNANSWERED
    if other.status >= 500:
        return Course.FAILED
    if other.status >= 400:
        return Course.REFUSED
    if other.says_the_same_as(first):
        return Course.REPLAYED if bench.is_telling or other.is_marked else Course.UNCLEAR
    return Course.RAN if bench.is_telling else Course.UNCLEAR


def begun(seen: Seen, label: str = "first") -> Answer | NotShown:
    """Give the answer to a probe's first request, without which nothing can be shown."""
    answer = seen[label]
    if isinstance(answer, NoAnswer):
        return NotShown(f"the first request got no answer: {answer.reason}")
    if not answer.is_success:
        return NotShown(f"the first request was answered with {answer.status}")
    return answer


def times(count: int) -> str:
    """Spell a number of effects."""
    return {0: "no effect", 1: "one effect"}.get(count, f"{count} effects")


def replays(seen: Seen, bench: Bench, *labels: str, effects: int = 1, what: str = "the retry") -> Verdict:
    """Judge requests that must get the first answer again, in a probe that may have this many effects."""
    first = begun(seen)
    if isinstance(first, NotShown):
        return first
    unclear = False
    for label in labels:
        other = seen[label]
        shown = (*seen.all("first"), *seen.all(label))
        match course_of(first, other, bench), other:
            case Course.UNANSWERED, NoAnswer(reason):
                return NotShown(f"{what} got no answer: {reason}")
            case Course.FAILED | Course.REFUSED as course, Answer(status=status):
                return Broken(f"{what} {course} with {status}", shown)
            case Course.RAN, _ if seen.effects is None:
                return Broken(f"{what} ran again", shown)
            case Course.UNCLEAR, _:
                unclear = True
    if seen.effects is not None and seen.effects > effects:
        return Broken(f"{what} ran again: {times(seen.effects)} instead of {times(effects)}", seen.exchanges)
    if unclear and seen.effects is None:
        return NotShown(ALIKE)
    return Holds(f"{what} got the first answer")


def refuses_reuse(seen: Seen, bench: Bench, *, or_runs: bool = False, what: str = "the other request") -> Verdict:
    """Judge another request under a used key: it must be refused, or may run where that is another action.

    The status of the refusal is another promise's matter.
    """
    first = begun(seen)
    if isinstance(first, NotShown):
        return first
    other = seen["other"]
    match course_of(first, other, bench), other:
        case Course.UNANSWERED, NoAnswer(reason):
            return NotShown(f"{what} got no answer: {reason}")
        case Course.REFUSED, Answer(status=status):
            if seen.effects is not None and seen.effects > 1:
                return Broken(f"{what} was refused with {status}, but took effect", seen.exchanges)
            return Holds(f"{what} was refused with {status}")
        case Course.FAILED, Answer(status=status):
            return Broken(f"{what} failed with {status}", seen.exchanges)
        case Course.RAN, _ if or_runs:
            return Holds(f"{what} ran by itself")
        case Course.UNCLEAR, _ if or_runs and seen.effects is None:
            return NotShown(ALIKE)
        case Course.UNCLEAR, _ if or_runs and seen.effects == 2:
            return Holds(f"{what} ran by itself")
        case Course.UNCLEAR, Answer(status=status):
            return Broken(f"{what} was answered with {status}, not refused", seen.exchanges)
        case course, _:
            return Broken(f"{what} {course}", seen.exchanges)
