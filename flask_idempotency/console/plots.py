"""Bars for a plot, from numbers. Pure: a template draws them as SVG, with classes and without a style."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log10

WIDTH, HEIGHT = 600, 120  # of the drawing; it is stretched to the width of the page


@dataclass(frozen=True, slots=True)
class Bar:
    """One rectangle."""

    kind: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Plot:
    """Stacked bars over time, and what their axis reaches up to."""

    bars: tuple[Bar, ...]
    top: int
    totals: Counter[str]


def stack(columns: Sequence[Counter[str]], kinds: Sequence[str]) -> Plot:
    """Stack the counts of each column, in the order of *kinds*."""
    top = round_up(max((sum(each.values()) for each in columns), default=0))
    step = WIDTH / max(len(columns), 1)
    bars = []
    for number, counts in enumerate(columns):
        y = float(HEIGHT)
        for kind in kinds:
            if counts[kind]:
                height = HEIGHT * counts[kind] / top
                y -= height
                bars.append(Bar(kind, round(number * step + 1, 2), round(y, 2), round(step - 2, 2), round(height, 2)))
    return Plot(tuple(bars), top, sum(columns, Counter()))


def round_up(number: int) -> int:
    """Give the next number that reads well on an axis, such as 1, 2, 5, 10, 20 or 50."""
    if number <= 1:
        return 1
    power = 10 ** int(log10(number))
    return next(int(each * power) for each in (1, 2, 5, 10) if ceil(number / power) <= each)
