"""The building blocks of the report's drawings: elements, readable numbers, and scales.

Colours come from the page's stylesheet. A drawing can have any width: the page has a wide one and a narrow one.
"""

from collections.abc import Iterable
from math import ceil, floor, log10

from markupsafe import Markup, escape

LINE = 18.0  # a line of text

# Text


def tag(name: str, *inside: str | Markup, **attributes: object) -> Markup:
    """Write an element. Text is escaped; `class_` becomes class, and a_b becomes a-b."""
    given = ((key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items())
    told = Markup("").join(Markup(' {}="{}"').format(key, short(value)) for key, value in given)
    return Markup("<{0}{1}>{2}</{0}>").format(name, told, Markup("").join(escape(each) for each in inside))


def number(value: float) -> str:
    """Format a number: 12,345 or 2.75 or 0.031."""
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3g}"


def duration(seconds: float) -> str:
    """Format a short time in a suitable unit."""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms" if seconds * 1000 < 100 else f"{seconds * 1000:.0f} ms"
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:,.0f} s"


def clock(seconds: float) -> str:
    """Format a time since the start: 45 s, or 12:30."""
    whole = round(seconds)
    if whole < 60:
        return f"{number(round(seconds, 1))} s"
    return (
        f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}" if whole >= 3600 else f"{whole // 60}:{whole % 60:02}"
    )


def lasting(seconds: float) -> str:
    """Format the length of a run: 45 s, 1 min 30 s, 2 h 5 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, minutes = divmod(whole // 60, 60)
    told = f"{hours} h {minutes} min" if hours else f"{minutes} min"
    return told if hours or whole % 60 == 0 else f"{told} {whole % 60} s"


def cut(text: str, length: int) -> str:
    """Shorten a text that would not fit."""
    return text if len(text) <= length else text[: length - 1] + "…"


def short(value: object) -> object:
    """Format a coordinate to a tenth of a pixel, which is all that can be seen."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value


def svg(width: float, height: float, name: str, title: str, says: str, parts: Iterable[Markup]) -> Markup:
    """Put parts into a drawing with a text alternative."""
    names = f"{name}-title {name}-desc"
    head = (tag("title", title, id=f"{name}-title"), tag("desc", says, id=f"{name}-desc"))
    box = f"0 0 {width:.0f} {height:.0f}"
    return tag("svg", *head, *parts, viewBox=box, role="img", aria_labelledby=names, class_="plot")


# Scales


def steps(most: float, wanted: int) -> list[float]:
    """Give round numbers from 0 to at least *most*, about as many as wanted."""
    rough = max(most, 1e-9) / max(wanted, 1)
    power = 10.0 ** floor(log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    return [step * each for each in range(ceil(most / step - 1e-9) + 1)] if most > 0 else [0.0, 1.0]


def time_step(span: float, wanted: int) -> float:
    """Give a customary distance between the marks of a time line."""
    choices = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600)
    return next((each for each in choices if span / each <= wanted), max(3600.0, span / wanted))


def count_into(times: Iterable[float], start: float, end: float, bins: int) -> list[int]:
    """Count times into equal bins. A time outside goes to the nearest bin."""
    counts = [0] * bins
    width = (end - start) / bins
    for at in times:
        counts[min(max(int((at - start) / width), 0), bins - 1)] += 1
    return counts
