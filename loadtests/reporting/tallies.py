"""The tallies: users, faults, effects and durations, counted from diaries and books."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loadtests.auditing.books import Books
from loadtests.auditing.cases import Try
from loadtests.diary import Fault, Heard, History
from loadtests.reporting.drawing import cut

SLACK = 2.0  # seconds that an effect may lie outside the diaries before its clock counts as wrong
OUTCOMES = ("first run", "replay", "conflict")


# Who came, and what was broken


@dataclass(slots=True)
class User:
    """What clients of one kind did and were told."""

    name: str
    intents: int = 0
    attempts: int = 0
    first: int = 0
    replays: int = 0
    conflicts: int = 0
    reused: int = 0
    passing: int = 0
    silent: int = 0
    open: int = 0

    @property
    def counts(self) -> tuple[int, ...]:
        """All numbers, in the order of the table."""
        told = (self.intents, self.attempts, self.first, self.replays, self.conflicts)
        return (*told, self.reused, self.passing, self.silent, self.open)


def users_of(history: History) -> list[User]:
    """Count by kind of client."""
    users: dict[str, User] = {}
    for intent in history.intents.values():
        user = users.setdefault(intent.user, User(intent.user))
        sent, heard = history.sent.get(intent.id, ()), history.heard.get(intent.id, ())
        user.intents += 1
        user.attempts += len(sent)
        user.silent += max(len(sent) - len(heard), 0)
        others = {each.attempt for each in sent if each.asks == "other body"}
        user.open += not any(each.outcome == "definitive" and each.attempt not in others for each in heard)
        for each in heard:
            if each.outcome == "definitive":
                user.replays += each.is_replay
                user.first += not each.is_replay
            elif each.outcome == "transient":
                user.passing += each.status > 0
                user.silent += each.status == 0
            else:
                user.conflicts += each.outcome == "conflict"
                user.reused += each.outcome == "reused"
    return sorted(users.values(), key=lambda user: (-user.attempts, user.name))


@dataclass(frozen=True, slots=True)
class Breakage:
    """All faults of one kind. Times are seconds since the start."""

    kind: str
    count: int
    targets: str
    seconds: float
    first: float
    last: float


def faults_of(faults: Sequence[Fault], start: float) -> list[Breakage]:
    """Count by kind of fault, in the order of first occurrence."""
    kinds: dict[str, list[Fault]] = {}
    for fault in faults:
        kinds.setdefault(fault.kind.replace("_", " "), []).append(fault)
    return [
        Breakage(
            kind,
            len(those),
            _targets(Counter(each.target for each in those)),
            sum(max(each.until - each.at, 0.0) for each in those),
            max(those[0].at - start, 0.0),
            max(those[-1].at - start, 0.0),
        )
        for kind, those in kinds.items()
    ]


def _targets(counted: Counter[str]) -> str:
    named = ", ".join(f"{cut(target, 40)} × {count}" for target, count in counted.most_common(4) if target)
    return f"{named} and {len(counted) - 4} more" if len(counted) > 4 else named


# Times


def span_of(history: History) -> tuple[float, float]:
    """Give the start and end of the run by its clients' clocks."""
    entries = (each for kind in (history.sent, history.heard) for those in kind.values() for each in those)
    times = [*(each.at for each in entries), *(each.at for each in history.faults)]
    return (min(times), max(max(times), min(times) + 1.0)) if times else (0.0, 1.0)


def effects_in(books: Books) -> dict[str, list[tuple[str, float]]]:
    """Give the effects by kind, each with its intent and its time."""
    rows = [(each.note, each.at) for each in books.orders] + [(each.text, each.at) for each in books.reviews]
    effects = {"effects (orders, reviews)": rows}
    if books.charges is not None:
        notes = {each.number: each.note for each in books.orders}
        effects["charges"] = [(notes.get(each.order, ""), each.at) for each in books.charges]
    return effects


def in_time(
    effects: Iterable[tuple[str, float]], history: History, span: tuple[float, float]
) -> tuple[list[float], int]:
    """Give the times of effects. If a clock was wrong, use the time at which the client first heard of the effect."""
    times, strayed = [], 0
    for intent, at in effects:
        is_astray = not span[0] - SLACK <= at <= span[1] + SLACK
        strayed += is_astray
        answers = history.heard.get(intent, ()) if is_astray else ()
        times.append(next((each.at for each in answers if each.outcome == "definitive"), span[1]) if is_astray else at)
    return times, strayed


def took(history: History) -> dict[str, list[float]]:
    """Give how long answers took, in seconds, by outcome."""
    seconds: dict[str, list[float]] = {name: [] for name in OUTCOMES}
    for intent, those in history.heard.items():
        began = {each.attempt: each.at for each in history.sent.get(intent, ())}
        for each in those:
            if each.attempt in began and (name := _outcome(each)):
                seconds[name].append(each.at - began[each.attempt])
    return seconds


def _outcome(heard: Heard) -> str | None:
    if heard.outcome == "conflict":
        return "conflict"
    if heard.outcome != "definitive":
        return None
    return "replay" if Try(None, heard).is_repetition else "first run"
