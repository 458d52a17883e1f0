"""The report for people: a table of promises, below each broken one what was sent and answered."""

from collections.abc import Iterator
from typing import Final

from flask_idempotency.conformance.exchanges import Exchange, NoAnswer
from flask_idempotency.conformance.masking import Mask
from flask_idempotency.conformance.promises import PROMISES
from flask_idempotency.conformance.running import Report
from flask_idempotency.conformance.verdicts import Broken, Holds, NotShown, Verdict

WORDS: Final[dict[type[Verdict], str]] = {Holds: "holds", Broken: "BROKEN", NotShown: "not shown"}
COLOURS: Final[dict[type[Verdict], str]] = {Holds: "32", Broken: "1;31", NotShown: "2"}
SHOWN_HEADERS: Final = frozenset(
    {
        "content-type",
        "idempotent-replayed",
        "link",
        "location",
        "original-request",
        "request-id",
        "retry-after",
        "set-cookie",
    }
)
MOST: Final = 160  # characters of a body: enough to recognise it, and still one line or two
MANY: Final = 7  # exchanges of one broken promise


def list_promises() -> str:
    """Name all promises with one sentence each."""
    width = max(len(promise.id) for promise in PROMISES)
    lines: list[str] = []
    group = ""
    for promise in PROMISES:
        if promise.group != group:
            group = promise.group
            lines += ["", group] if lines else [group]
        only = f" (only in the dialect {promise.only_in})" if promise.only_in else ""
        lines.append(f"  {promise.id:{width}}  {promise.sentence}{only}")
    return "\n".join(lines) + "\n"


def table(report: Report, mask: Mask, *, is_coloured: bool = False) -> str:
    """Show the verdict on each promise, and a summary."""
    return "\n".join(_lines(report, mask, is_coloured)) + "\n"


def summary(report: Report) -> str:
    """Say in a line how many promises hold, and what the run took."""
    return (
        f"{report.count(Holds)} hold, {report.count(Broken)} broken, {report.count(NotShown)} not shown;"
        f" dialect {report.dialect.name}, {report.sent} requests in {report.seconds:.1f} s"
    )


def _lines(report: Report, mask: Mask, is_coloured: bool) -> Iterator[str]:
    width = max((len(promise.id) for promise, _ in report.verdicts), default=0)
    group = ""
    for promise, verdict in report.verdicts:
        if promise.group != group:
            group = promise.group
            yield from ("", group)
        word = WORDS[type(verdict)]
        padded = f"{word:9}"
        shown = f"\x1b[{COLOURS[type(verdict)]}m{padded}\x1b[0m" if is_coloured else padded
        yield f"  {shown}  {promise.id:{width}}  {promise.sentence}"
        if not isinstance(verdict, Holds):
            yield f"  {'':9}  {'':{width}}  {mask.text(verdict.reason)}"
        if isinstance(verdict, Broken):
            for exchange in verdict.evidence[:MANY]:
                yield from (f"               {line}" for line in exchange_lines(exchange, mask))
            if len(verdict.evidence) > MANY:
                yield f"               … and {len(verdict.evidence) - MANY} more, which --json-report shows"
    if not report.counts_effects:
        yield from ("", "Effects were not counted: promises were judged by answers alone. See --effects-url.")
    yield from ("", summary(report))


def exchange_lines(exchange: Exchange, mask: Mask) -> list[str]:
    """Show one request and its answer in a few lines."""
    request = exchange.request
    keys = "  ".join(f"{request.key_header}: {key.decode('latin-1')!r}" for key in request.keys) or "(no key)"
    manner = f"  ({exchange.manner})" if exchange.manner else ""
    names = {name.lower() for name, _ in request.headers}
    others = "  ".join(
        f"{name}: {value}" for name, value in mask.sent(request) if name.lower() in names and name != "Content-Type"
    )
    first = f"{request.method} {mask.text(request.target)}  {keys}{f'  {others}' if others else ''}{manner}"
    lines = [first]
    if request.body:
        lines.append(f"    {mask.body(request.body, MOST)}")
    if isinstance(exchange.answer, NoAnswer):
        return [*lines, f"  → no answer: {exchange.answer.reason}"]
    shown = "  ".join(
        f"{name}: {value}" for name, value in mask.received(exchange.answer) if name.lower() in SHOWN_HEADERS
    )
    body = " ".join(mask.body(exchange.answer.body, MOST).split())
    return [*lines, f"  → {exchange.answer.status}  {shown}", *([f"    {body}"] if body else [])]
