"""The verdict as text for a terminal: what was counted, broken and not judged, and the conclusion."""

from collections import defaultdict
from collections.abc import Iterator

from loadtests.auditing.findings import PROMISES, Finding, Verdict

EXAMPLES = 5  # of each broken promise; the others are counted
WIDTH = 112


def tell(verdict: Verdict, *, title: str) -> str:
    """Write the verdict. Its last line is INNOCENT or GUILTY."""
    parts = (_figures(verdict), _harm(verdict), _latencies(verdict), _quarantines(verdict), _findings(verdict))
    told = [[title, "─" * len(title)], *map(list, parts), list(_not_judged(verdict))]
    last = "GUILTY" if verdict.is_guilty else "INNOCENT"
    return "\n\n".join("\n".join(part) for part in (*told, [last]) if part)


def _figures(verdict: Verdict) -> Iterator[str]:
    figures = verdict.figures
    yield _row("intents", figures.intents, f"{figures.purchases:,} purchases, {figures.reviews:,} reviews")
    yield _row("attempts", figures.attempts, f"{figures.attempts_per_intent:.2f} per intent")
    yield _row("effects", figures.effects)
    yield _row("charges", figures.charges)
    yield _row("replays", figures.replays)
    yield _row("conflicts", figures.conflicts)
    yield _row("takeovers", figures.takeovers)
    yield _row("faults", figures.faults)


def _harm(verdict: Verdict) -> Iterator[str]:
    figures = verdict.figures
    rate = (
        "" if figures.duplicates_per_million is None else f"{figures.duplicates_per_million:,.0f} per million intents"
    )
    if figures.upper_bound_per_million is not None:
        rate += f"; with 95 % confidence below {figures.upper_bound_per_million:,.0f} (3/n)"
    yield _row("duplicates", figures.duplicates, rate)
    yield _row("lost", figures.lost, "told yes, but it did not happen")
    yield _row("phantom", figures.phantom, "told no for good, but it happened")
    yield _row("differing", figures.differing, "more than one answer")
    yield _row("unresolved", figures.unresolved, "no definitive answer")
    yield _row("quarantined", figures.quarantined, "waits for manual review")


def _row(name: str, number: int | None, remark: str = "") -> str:
    shown = "unknown" if number is None else f"{number:,}"
    return f"  {name:<12}{shown:>12}   {remark}".rstrip()


def _latencies(verdict: Verdict) -> Iterator[str]:
    if verdict.figures.latencies:
        yield f"  {'':<12}{'answers':>12}{'p50':>12}{'p99':>12}"
    for name, (times, p50, p99) in verdict.figures.latencies.items():
        yield f"  {name:<12}{times:>12,}{_milliseconds(p50):>12}{_milliseconds(p99):>12}"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.1f} ms"


def _quarantines(verdict: Verdict) -> Iterator[str]:
    """Show every record that waits for manual review: an unnoticed quarantine is a loss."""
    by_reason: defaultdict[str, list[str]] = defaultdict(list)
    for each in verdict.quarantines:
        by_reason[each.reason].append(each.reference)
    if by_reason:
        yield f"Quarantined: {_many(len(verdict.quarantines), 'record')}, each needs manual review"
    for reason, references in by_reason.items():
        yield f"  {reason or 'no reason given'}: {len(references)}"
        for at in range(0, len(references), 6):
            yield f"      {'  '.join(references[at : at + 6])}"


def _findings(verdict: Verdict) -> Iterator[str]:
    by_rule: defaultdict[str, list[Finding]] = defaultdict(list)
    for finding in verdict.findings:
        by_rule[finding.rule].append(finding)
    if by_rule:
        yield f"Broken: {_many(len(by_rule), 'promise')} of {len(PROMISES)}, {_many(len(verdict.findings), 'time')}"
    for rule, found in by_rule.items():
        yield f"  {rule:<4} {PROMISES[rule]}: broken {_many(len(found), 'time')}"
        for finding in found[:EXAMPLES]:
            yield f"       {f'intent {finding.intent}: ' if finding.intent else ''}{finding.says}"
            yield from (_short(f"           {line}") for line in finding.evidence)
        if len(found) > EXAMPLES:
            yield f"       … and {len(found) - EXAMPLES:,} more"


def _not_judged(verdict: Verdict) -> Iterator[str]:
    if verdict.not_judged:
        yield "Not judged"
    for each in sorted(verdict.not_judged, key=lambda each: int(each.rule[1:])):
        yield f"  {each.rule:<4} {each.why}"


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _short(line: str) -> str:
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"
