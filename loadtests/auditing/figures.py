"""The figures of a run, counted from its cases. Pure."""

from collections import defaultdict
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

from loadtests.auditing.books import Books
from loadtests.auditing.cases import PURCHASE, REVIEW, Case, Cases, Try

MILLION = 1_000_000
RULE_OF_THREE = 3  # none among n: with 95 % confidence the true rate is below 3/n


class Latency(NamedTuple):
    """How long answers of one kind took, in seconds."""

    times: int
    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class Figures:
    """What was counted. None: it could not be counted, because the books were not read."""

    intents: int
    attempts: int
    attempts_per_intent: float
    purchases: int
    reviews: int
    charges: int | None  # for the purchases of this run
    effects: int | None  # orders and reviews, or what else was counted
    duplicates: int | None  # intents with more than one effect
    duplicates_per_million: float | None  # among the intents whose effects were counted
    upper_bound_per_million: float | None  # below which it is with 95 % confidence, if there was none
    lost: int | None  # told yes, and no effect
    phantom: int | None  # told no for good, and an effect
    differing: int  # intents with more than one answer
    unresolved: int  # intents without a definitive answer, except those that wait for manual review
    quarantined: int | None  # records that wait for manual review
    takeovers: int | None  # by the shop's notes
    replays: int
    conflicts: int
    faults: int
    latencies: dict[str, Latency] = field(default_factory=dict)  # of first runs, replays and conflicts


def count(cases: Cases, books: Books | None, faults: int) -> Figures:
    """Count everything in one pass."""
    attempts = sum(case.attempts for case in cases)
    counted = [case for case in cases if case.effects is not None]
    duplicates = sum(is_duplicate(case) for case in counted) if counted else None
    is_charged = books is not None and books.charges is not None
    tries = [one for case in cases for one in (*case.tries, *case.others)]
    return Figures(
        intents=len(cases),
        attempts=attempts,
        attempts_per_intent=attempts / len(cases) if len(cases) else 0.0,
        purchases=sum(case.intent.kind == PURCHASE for case in cases),
        reviews=sum(case.intent.kind == REVIEW for case in cases),
        charges=sum(case.charges for case in cases) if is_charged else None,
        effects=sum(case.effects or 0 for case in counted) if counted else None,
        duplicates=duplicates,
        duplicates_per_million=None if duplicates is None else duplicates / len(counted) * MILLION,
        upper_bound_per_million=RULE_OF_THREE / len(counted) * MILLION if duplicates == 0 else None,
        lost=sum(is_lost(case, is_charged=is_charged) for case in counted) if counted else None,
        phantom=sum(case.is_told_no and case.has_taken_effect for case in counted) if counted else None,
        differing=sum(is_differing(case) for case in cases),
        unresolved=sum(case.is_unresolved for case in cases),
        quarantined=sum(record.state == "quarantined" for record in books.records) if books else None,
        takeovers=sum(n for (event, _), n in books.notes.items() if event == "taken_over") if books else None,
        replays=sum(one.heard.is_replay for one in tries),
        conflicts=sum(one.heard.outcome == "conflict" for one in tries),
        faults=faults,
        latencies=_latencies(tries),
    )


def is_duplicate(case: Case) -> bool:
    """Say whether something happened more than once, wherever it was counted."""
    return max(case.effects or 0, case.charges, case.payments) > 1


def is_lost(case: Case, *, is_charged: bool) -> bool:
    """Say whether something did not happen although the client was told so."""
    if not case.is_told_yes:
        return False
    if case.intent.kind == PURCHASE and case.sales:
        return not case.payments or (is_charged and not case.charges)
    return not case.effects


def is_differing(case: Case) -> bool:
    """Say whether clients were given different answers."""
    return len({one.heard.answer for one in case.definitive if not one.is_kept_no_more}) > 1


def _latencies(tries: list[Try]) -> dict[str, Latency]:
    taken: defaultdict[str, list[float]] = defaultdict(list)
    for one in tries:
        if one.sent is not None and (sort := _sort(one)):
            taken[sort].append(one.heard.at - one.sent.at)
    return {sort: _latency(taken[sort]) for sort in ("first run", "replay", "conflict") if sort in taken}


def _sort(one: Try) -> str | None:
    if one.heard.outcome == "conflict":
        return "conflict"
    if one.is_definitive:
        return "replay" if one.is_repetition else "first run"
    return None


def _latency(seconds: list[float]) -> Latency:
    ordered = sorted(seconds)
    return Latency(len(ordered), *(ordered[ceil(share * len(ordered)) - 1] for share in (0.50, 0.99)))
