"""The histograms of the report: how long answers took, and how often an intent was sent."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from markupsafe import Markup

from loadtests.reporting.drawing import LINE, count_into, duration, number, short, svg, tag

SHORTEST = 0.0001  # seconds; a logarithm cannot start at zero
PER_DECADE = 10
HEAPS = ((1, 1), (2, 2), (3, 3), (4, 4), (5, 9), (10, 29), (30, 99))  # and more


@dataclass(frozen=True, slots=True)
class Spread:
    """How long answers of one kind took, in seconds, with the auditor's percentiles."""

    name: str
    shape: str
    seconds: Sequence[float]
    count: int
    p50: float
    p99: float


def latencies(spreads: Sequence[Spread], *, width: float, name: str) -> Markup:
    """Draw how long each kind of answer took, on one logarithmic axis, with the median and the 99th percentile."""
    seconds = [value for each in spreads for value in (*each.seconds, each.p50, each.p99) if value > 0]
    low = floor(log10(max(min(seconds, default=0.001), SHORTEST)))
    high = max(ceil(log10(max(max(seconds, default=1.0), SHORTEST)) + 1e-9), low + 1)
    left, right, tall = 8.0, width - 8.0, 56.0
    scale = (right - left) / (high - low)

    def x(value: float) -> float:
        return left + scale * (min(max(log10(max(value, SHORTEST)), low), high) - low)

    foot = len(spreads) * (tall + LINE * 2.2)
    parts = []
    for decade in range(low, high + 1):
        at = left + scale * (decade - low)
        side = "start" if decade == low else "end" if decade == high else "middle"
        parts.append(tag("line", x1=at, x2=at, y1=LINE, y2=foot, class_="grid"))
        parts.append(tag("text", duration(10.0**decade), x=at, y=foot + LINE, class_=f"tick {side}"))
    for row, each in enumerate(spreads):
        top = row * (tall + LINE * 2.2) + LINE
        parts += _spread(each, x, (left, right), (low, high), top, tall)
    says = "; ".join(
        f"{each.name}: {number(each.count)}, median {duration(each.p50)}, 99 of 100 within {duration(each.p99)}"
        for each in spreads
        if each.count
    )
    return svg(width, foot + LINE + 8, name, "How long answers took, by outcome", says or "No answers.", parts)


def _spread(
    each: Spread,
    x: Callable[[float], float],
    sides: tuple[float, float],
    decades: tuple[int, int],
    top: float,
    tall: float,
) -> list[Markup]:
    """Draw one kind of answer: its frequencies, and its two marks."""
    left, right = sides
    foot = top + tall + LINE
    parts = [
        tag("text", each.name, tag("tspan", f"  {number(each.count)}", class_="tick"), x=left, y=top, class_="row")
    ]
    parts.append(tag("line", x1=left, x2=right, y1=foot, y2=foot, class_="base"))
    if not each.count:
        return parts
    parts.append(
        tag("text", f"p50 {duration(each.p50)} · p99 {duration(each.p99)}", x=right, y=top, class_="tick end strong")
    )
    logs = (log10(max(value, SHORTEST)) for value in each.seconds)
    counts = count_into(logs, *decades, (decades[1] - decades[0]) * PER_DECADE)
    most, wide = max(counts) or 1, (right - left) / len(counts)
    bars = "".join(
        f"M{short(left + n * wide + 0.5)} {short(foot)}v-{short(max(tall * count / most, 1.0))}"
        f"h{short(wide - 1)}V{short(foot)}z"
        for n, count in enumerate(counts)
        if count
    )
    parts.append(tag("path", d=bars, class_=f"bars {each.shape}"))
    for value, word in ((each.p50, "p50"), (each.p99, "p99")):
        at = x(value)
        is_left = (word == "p50" and at > left + 30) or at > right - 30
        beside = {"x": at - 4 if is_left else at + 4, "class_": f"tick mark-name {'end' if is_left else 'start'}"}
        parts.append(tag("line", x1=at, x2=at, y1=foot - tall - 12, y2=foot, class_=f"mark {word}"))
        parts.append(tag("text", word, y=foot - tall - 3, **beside))
    return parts


def heaps(attempts: Iterable[int]) -> list[tuple[str, int]]:
    """Count intents by how often they were sent. From five on, bins are wider; empty bins at the end are dropped."""
    names = [str(low) if low == high else f"{low}–{high}" for low, high in HEAPS] + [f"{HEAPS[-1][1] + 1}+"]
    counts = [0] * len(names)
    for many in attempts:
        if many:
            counts[next((n for n, (_, high) in enumerate(HEAPS) if many <= high), len(HEAPS))] += 1
    last = max((n for n, count in enumerate(counts) if count), default=0)
    return list(zip(names, counts, strict=True))[: max(last + 1, 5)]


def attempts_per_intent(counted: Sequence[tuple[str, int]], *, width: float, name: str) -> Markup:
    """Draw how many intents were sent once, twice, and more often."""
    left, right, tall, top = 8.0, width - 8.0, 204.0, 2 * LINE
    most = max((count for _, count in counted), default=0) or 1
    wide = (right - left) / max(len(counted), 1)
    foot = top + tall
    parts = []
    for n, (label, count) in enumerate(counted):
        high = max(tall * count / most, 1.5) if count else 0.0
        middle = left + (n + 0.5) * wide
        size = {"x": left + n * wide + 3, "y": foot - high, "width": wide - 6, "height": high}
        parts.append(tag("rect", **size, class_="bars attempts"))
        parts.append(tag("text", number(count), x=middle, y=foot - high - 6, class_="tick middle strong"))
        parts.append(tag("text", label, x=middle, y=foot + LINE, class_="tick middle"))
    parts.append(tag("line", x1=left, x2=right, y1=foot, y2=foot, class_="base"))
    parts.append(tag("text", "intents", x=left, y=LINE - 6, class_="axis-title"))
    parts.append(tag("text", "attempts at the same intent", x=right, y=foot + 2 * LINE, class_="axis-title end"))
    says = "; ".join(f"{label}: {number(count)}" for label, count in counted)
    return svg(width, foot + 2 * LINE + 8, name, "How many intents were sent how often", says, parts)
