"""The report: one self-contained HTML file for readers who did not see the run.

Its statements are the auditor's; its drawings are counted from the diaries and the books. It loads nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from loadtests.auditing.audit import PROMISES, Figures, Finding, Verdict
from loadtests.auditing.books import Books, Effects
from loadtests.diary import History
from loadtests.reporting import histograms, plots
from loadtests.reporting.drawing import clock, cut, duration, lasting, number
from loadtests.reporting.tallies import effects_in, faults_of, in_time, span_of, took, users_of

HERE = Path(__file__).parent
WIDE, NARROW = 1060.0, 346.0  # the drawings' widths, in the page's own pixels
SHOWN, LINES, LETTERS = 10, 12, 240  # of a broken rule: findings, lines of evidence each, letters each


def write(
    path: Path, history: History, verdict: Verdict, books: Books | Effects | None, facts: Mapping[str, str]
) -> None:
    """Write the report of a run. *facts* are what else a sceptic asks for: command, seed, machine, versions."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(history, verdict, books, facts), encoding="utf-8")


def render(history: History, verdict: Verdict, books: Books | Effects | None, facts: Mapping[str, str]) -> str:
    """Render the page. Everything from a diary is escaped."""
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    rules = rules_of(history, verdict)
    users = users_of(history)
    environment.filters |= {
        "number": number,
        "duration": duration,
        "clock": clock,
        "lasting": lasting,
        "sentence": sentence,
    }
    span = span_of(history)
    return environment.get_template("report.html").render(
        style=Markup((HERE / "report.css").read_text(encoding="utf-8")),  # noqa: S704  # our own file
        verdict=verdict,
        figures=verdict.figures,
        tiles=tiles_of(verdict),
        sentence=sentence_of(verdict),
        bound=bound_of(verdict.figures),
        rules=rules,
        broken=[rule for rule in rules if rule.broken],
        users=users,
        everybody=[sum(column) for column in zip(*(user.counts for user in users), strict=True)],
        faults=faults_of(history.faults, span[0]),
        facts=facts,
        began=datetime.fromtimestamp(span[0], UTC) if history.sent else None,
        lasted=span[1] - span[0],
        **drawings_of(history, verdict, books, span),
    )


# The auditor's figures


def sentence(words: str) -> str:
    """Capitalise the words and add a full stop."""
    return f"{words[:1].upper()}{words[1:]}."


def sentence_of(verdict: Verdict) -> str:
    """Sum up in a sentence what was judged, and the result."""
    told = verdict.figures
    judged = f"{number(told.intents)} intents, sent {number(told.attempts)} times"
    judged += f" through {number(told.faults)} faults" if told.faults else ""
    if not verdict.is_guilty:
        waiting = f" {number(told.quarantined)} wait for manual review." if told.quarantined else ""
        effects = "" if told.duplicates is None else "nothing happened twice, nothing was lost, and "
        return f"{judged}: {effects}no two answers differed.{waiting}"
    rules = sorted({finding.rule for finding in verdict.findings}, key=lambda rule: (len(rule), rule))
    many = len(verdict.findings)
    return f"{judged}: {number(many)} broken {'promise' if many == 1 else 'promises'} ({', '.join(rules)})."


def bound_of(told: Figures) -> str:
    """Say what the number of duplicates allows to conclude about the true rate."""
    if told.duplicates is None:
        return "Effects were not counted: only answers were compared."
    if told.upper_bound_per_million is None:
        return f"{number(told.duplicates)} of them took effect more than once."
    bound = number(told.upper_bound_per_million)
    return f"None took effect more than once; with 95 % confidence the true rate is below {bound} per million."


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure with its name and meaning. `tone` is good or bad for those that must be zero."""

    name: str
    value: str
    says: str
    must: bool = False  # be zero
    tone: str = ""


def tiles_of(verdict: Verdict) -> list[Tile]:
    """Give the figures that a sceptic looks for, beginning with those that must be zero."""
    told = verdict.figures
    bound = "" if told.upper_bound_per_million is None else number(told.upper_bound_per_million)
    twice = f"none found; true rate below {bound} at 95 %" if bound else f"{number(told.duplicates or 0)} found"
    zeros = (
        ("duplicates per million", told.duplicates_per_million, twice),
        ("lost", told.lost, "told yes, but no effect"),
        ("phantom", told.phantom, "told no for good, but an effect"),
        ("differing", told.differing, "intents with unequal answers"),
        ("unresolved", told.unresolved, "intents without a final answer"),
    )
    others = (
        ("intents", told.intents, "clicks of one client each"),
        ("attempts", told.attempts, "requests sent for them"),
        ("attempts per intent", round(told.attempts_per_intent, 2), "on average"),
        ("effects", told.effects, "orders and reviews, or what else counts"),
        ("charges", told.charges, "for them, in the gateway’s own ledger"),
        ("replays", told.replays, "answers given again"),
        ("conflicts", told.conflicts, "409: the first is still running"),
        ("takeovers", told.takeovers, "unfinished work resumed by another"),
        ("quarantined", told.quarantined, "set aside for manual review"),
        ("faults", told.faults, "things broken on purpose"),
    )
    blame, praise = "bad" if verdict.is_guilty else "", "good" if told.intents else ""
    return [
        *(_tile(name, value, says, must=True, tone=blame if value else praise) for name, value, says in zeros),
        *(_tile(name, value, says) for name, value, says in others),
    ]


def _tile(name: str, value: float | None, says: str, *, must: bool = False, tone: str = "") -> Tile:
    if value is None:
        return Tile(name, "–", "not counted: the books were not read", must)
    return Tile(name, number(value), says, must, tone)


@dataclass(frozen=True, slots=True)
class Rule:
    """A promise, and whether it was kept."""

    code: str
    promise: str
    findings: Sequence[Finding]  # those that are shown
    broken: int  # times
    gaps: Sequence[str]  # what could not be judged, and why
    is_judged: bool

    @property
    def state(self) -> str:
        """Give its state."""
        return "broken" if self.broken else "kept" if self.is_judged else "not judged"


def rules_of(history: History, verdict: Verdict) -> list[Rule]:
    """Give every rule, kept or broken, with the first findings against it."""
    found: dict[str, list[Finding]] = {code: [] for code in PROMISES}
    for finding in verdict.findings:
        found.setdefault(finding.rule, []).append(finding)
    gaps: dict[str, list[str]] = {}
    for gap in verdict.not_judged:
        gaps.setdefault(gap.rule, []).append(gap.why)
    if not any(each.asks == "other body" for sent in history.sent.values() for each in sent):
        gaps.setdefault("K7", []).append("no client sent another body")
    return [
        Rule(
            code,
            PROMISES.get(code, "a promise without a name"),
            tuple(replace(each, evidence=_shortened(each.evidence)) for each in those[:SHOWN]),
            len(those),
            gaps.get(code, []),
            # "This part: that reason" leaves the rest judged; a reason alone leaves nothing.
            bool(history.sent) and all(": " in why for why in gaps.get(code, ())),
        )
        for code, those in found.items()
    ]


def _shortened(evidence: Sequence[str]) -> tuple[str, ...]:
    shown = tuple(cut(line, LETTERS) for line in evidence[:LINES])
    return (*shown, f"and {len(evidence) - LINES} more lines") if len(evidence) > LINES else shown


# Drawings


def drawings_of(
    history: History, verdict: Verdict, books: Books | Effects | None, span: tuple[float, float]
) -> dict[str, object]:
    """Draw everything, for wide and for narrow screens."""
    series = [
        plots.Series("attempts", "attempts", [each.at for those in history.sent.values() for each in those]),
    ]
    strayed = 0
    if isinstance(books, Books):
        for name, effects in effects_in(books).items():
            times, astray = in_time(effects, history, span)
            series.append(plots.Series(name, name.split()[0], times))
            strayed += astray
    series.append(plots.Series("intents", "intents", [each.at for each in history.intents.values()]))
    spreads = [
        histograms.Spread(name, name.split()[0], seconds, *verdict.figures.latencies.get(name, (0, 0.0, 0.0)))
        for name, seconds in took(history).items()
    ]
    counted = histograms.heaps(len(those) for those in history.sent.values())
    half = (WIDE - 40) / 2
    return {
        "series": series,
        "strayed": strayed,
        "over_time": [
            plots.over_time(series, history.faults, span, width=width, name=f"time-{width:.0f}")
            for width in (WIDE, NARROW)
        ],
        "latencies": [histograms.latencies(spreads, width=width, name=f"took-{width:.0f}") for width in (half, NARROW)],
        "attempts": [
            histograms.attempts_per_intent(counted, width=width, name=f"often-{width:.0f}") for width in (half, NARROW)
        ],
    }
