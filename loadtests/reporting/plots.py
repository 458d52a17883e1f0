"""The time line of the report: what was sent, what happened, and which faults there were meanwhile.

Everything is counted into bins first, so a hundred thousand attempts are drawn like a hundred: in linear time, and at a
size that does not grow with the run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil

from markupsafe import Markup

from loadtests.diary import Fault
from loadtests.reporting.drawing import LINE, clock, count_into, cut, number, short, steps, svg, tag, time_step

LEFT, RIGHT = 52.0, 8.0  # room for the numbers on the left, a margin on the right
MARGIN = 216.0  # room for the names of the lanes, in a wide drawing
BROAD = 600.0  # the least width of a drawing with that room
LANE, GAP = 12.0, 8.0  # height of a lane, and what is between two
LANES = 24  # kinds of faults with a lane of their own
_Drawn = tuple[list[float], list[Markup]]  # the marks of an axis, and what is drawn along it


@dataclass(frozen=True, slots=True)
class Series:
    """Things that happened, each at its time: `shape` is a class of the stylesheet."""

    name: str
    shape: str
    times: Sequence[float]


def over_time(
    series: Sequence[Series], faults: Sequence[Fault], span: tuple[float, float], *, width: float, name: str
) -> Markup:
    """Draw what happened, in total and per second, and below it the faults, on the same time line."""
    start, end = span
    tall = 230.0 if width > BROAD else 160.0
    parts: list[Markup] = []
    across = _Across(start, end, MARGIN if faults and width > BROAD else LEFT, width - RIGHT)
    top = LINE
    parts += _panel("all in all", across, top, tall, _sums(series, across, top, tall))
    top += tall + LINE + 16
    parts += _panel("per second", across, top, tall * 0.62, _rates(series, across, top, tall * 0.62))
    foot = top + tall * 0.62
    parts += _time_marks(across, foot)
    below = foot + 2 * LINE + 4
    lanes, below = _lanes(faults, across, below, is_broad=width > BROAD)
    parts += lanes
    says = f"{'; '.join(f'{each.name}: {number(len(each.times))}' for each in series)}. Faults: {number(len(faults))}."
    return svg(
        width, below, name, f"Over {clock(end - start)}: what was sent, what happened, what was broken", says, parts
    )


@dataclass(frozen=True, slots=True)
class _Across:
    """A time line from left to right."""

    start: float
    end: float
    left: float
    right: float

    def x(self, at: float) -> float:
        """Give the coordinate of a time."""
        return self.left + (self.right - self.left) * (min(max(at, self.start), self.end) - self.start) / self.span

    @property
    def span(self) -> float:
        """Its length in seconds."""
        return self.end - self.start


def _panel(title: str, across: _Across, top: float, tall: float, drawn: _Drawn) -> list[Markup]:
    marks, inside = drawn
    parts = [tag("text", title, x=across.left, y=top - 6, class_="axis-title")]
    for mark in marks:
        y = top + tall * (1 - mark / marks[-1])
        parts.append(tag("line", x1=across.left, x2=across.right, y1=y, y2=y, class_="base" if mark == 0 else "grid"))
        parts.append(tag("text", number(mark), x=across.left - 8, y=y + 4, class_="tick end"))
    return parts + inside


def _sums(series: Sequence[Series], across: _Across, top: float, tall: float) -> _Drawn:
    bins = int((across.right - across.left) / 2)
    sums = [[0, *accumulate(count_into(each.times, across.start, across.end, bins))] for each in series]
    marks = steps(max((sum_[-1] for sum_ in sums), default=0), 4)
    step = (across.right - across.left) / bins
    parts = []
    for each, counted in zip(series, sums, strict=True):
        points = [(across.left + n * step, top + tall * (1 - count / marks[-1])) for n, count in enumerate(counted)]
        parts += _line(each.shape, points, top + tall)
    return marks, parts


def _rates(series: Sequence[Series], across: _Across, top: float, tall: float) -> _Drawn:
    second = max(time_step(across.span, 120), 0.1)
    bins = max(ceil(across.span / second), 1)
    shown = [each for each in series if each.shape != "intents"]
    rates = [
        [count / second for count in count_into(each.times, across.start, across.start + bins * second, bins)]
        for each in shown
    ]
    marks = steps(max((max(rate) for rate in rates), default=0), 3)
    parts = []
    for each, rate in zip(shown, rates, strict=True):
        points: list[tuple[float, float]] = []
        for n, value in enumerate(rate):
            y = top + tall * (1 - value / marks[-1])
            points += [(across.x(across.start + n * second), y), (across.x(across.start + (n + 1) * second), y)]
        parts += _line(each.shape, points, top + tall)
    return marks, parts


def _line(shape: str, points: Sequence[tuple[float, float]], foot: float) -> list[Markup]:
    """Draw a line, and the area below it."""
    bends = [
        here
        for before, here, after in zip((None, *points[:-1]), points, (*points[1:], None), strict=True)
        if not (before and after and before[1] == here[1] == after[1])
    ]
    path = "L".join(f"{short(x)} {short(y)}" for x, y in bends)
    area = f"M{short(bends[0][0])} {short(foot)}L{path}V{short(foot)}Z"
    return [tag("path", d=area, class_=f"area {shape}"), tag("path", d=f"M{path}", class_=f"line {shape}")]


def _time_marks(across: _Across, foot: float) -> list[Markup]:
    step = time_step(across.span, int((across.right - across.left) / 90))
    parts = []
    for n in range(int(across.span / step + 1e-6) + 1):
        x = across.x(across.start + n * step)
        side = "start" if n == 0 else "end" if across.right - x < 16 else "middle"
        parts.append(tag("line", x1=x, x2=x, y1=foot, y2=foot + 5, class_="base"))
        parts.append(tag("text", clock(n * step), x=x, y=foot + LINE, class_=f"tick {side}"))
    return parts


def _lanes(faults: Sequence[Fault], across: _Across, top: float, *, is_broad: bool) -> tuple[list[Markup], float]:
    """Draw a lane for each kind of fault: the darker, the more at once."""
    by_kind: dict[str, list[Fault]] = {}
    for fault in faults:
        by_kind.setdefault(fault.kind.replace("_", " "), []).append(fault)
    told = "faults, a lane for each kind" if faults else "no faults: nothing was broken on purpose"
    parts = [tag("text", told, x=across.left, y=top, class_="axis-title")]
    top += GAP
    for kind, those in list(by_kind.items())[:LANES]:
        label = f"{cut(kind, 29 if is_broad else 44)} × {number(len(those))}"
        beside = {"x": across.left - 8, "y": top + 10, "class_": "tick lane-name end"}
        above = {"x": across.left, "y": top + 11, "class_": "tick lane-name"}
        parts.append(tag("text", label, **(beside if is_broad else above)))
        top += 0 if is_broad else 15
        size = {"x": across.left, "y": top, "width": across.right - across.left, "height": LANE}
        inside = [tag("title", f"{cut(kind, 200)}: {len(those)}"), tag("rect", **size, class_="lane")]
        parts.append(tag("g", *inside, *_heat(those, across, top)))
        top += LANE + GAP - 1
    if (more := len(by_kind) - LANES) > 0:
        parts.append(tag("text", f"and {more} more kinds, in the table", x=across.left, y=top + 11, class_="tick"))
        top += LINE
    return parts, top + 4


def _heat(faults: Sequence[Fault], across: _Across, top: float) -> list[Markup]:
    bins = int((across.right - across.left) / 2)
    step = (across.right - across.left) / bins
    changes = [0] * (bins + 1)
    for fault in faults:
        first = min(int((across.x(fault.at) - across.left) / step), bins - 1)
        last = min(int((across.x(max(fault.until, fault.at)) - across.left) / step), bins - 1)
        changes[first] += 1
        changes[last + 1] -= 1
    paths: dict[int, list[str]] = {}
    level, since = 0, 0
    for n, count in enumerate((*accumulate(changes[:-1]), 0)):
        now = min(count, 3) if n < bins else 0
        if now != level:
            if level:
                x, wide = across.left + since * step, (n - since) * step
                paths.setdefault(level, []).append(
                    f"M{short(x)} {short(top)}h{short(wide)}v{short(LANE)}h-{short(wide)}z"
                )
            level, since = now, n
    return [tag("path", d="".join(those), class_=f"heat heat-{level}") for level, those in sorted(paths.items())]
