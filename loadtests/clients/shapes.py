"""How the number of users changes during a run, as data. Pure; the locustfile makes Locust's class of it."""

from typing import NamedTuple


class Stage(NamedTuple):
    """A part of a run: its end in seconds, the number of users, and how many of them start per second."""

    until: float
    users: float
    spawn_rate: float


# For 100 seconds and 100 users; each run scales them.
SHAPES: dict[str, tuple[Stage, ...]] = {
    "steady": (Stage(100, 100, 100),),
    "ramp": (
        Stage(20, 20, 20),
        Stage(40, 40, 20),
        Stage(60, 60, 20),
        Stage(80, 80, 20),
        Stage(100, 100, 20),
    ),
    "spike": (
        Stage(40, 20, 20),
        Stage(60, 100, 100),
        Stage(100, 20, 100),
    ),
    "black friday": (
        Stage(10, 10, 10),  # the night before
        Stage(20, 40, 10),  # some know the hour
        Stage(50, 100, 100),  # the doors open
        Stage(70, 60, 50),
        Stage(85, 100, 100),  # the last hour
        Stage(100, 20, 50),
    ),
}


def shape_named(name: str) -> tuple[Stage, ...]:
    """Look up a shape; hyphens and underscores count as spaces."""
    try:
        return SHAPES[name.lower().replace("-", " ").replace("_", " ")]
    except KeyError:
        raise ValueError(f"{name!r} is not a shape; choose from {', '.join(SHAPES)}") from None


def scaled(shape: tuple[Stage, ...], seconds: float, users: int) -> tuple[Stage, ...]:
    """Scale a shape to a run of this many seconds and users at its peak. No stage takes long to reach."""
    longer, larger = seconds / shape[-1].until, users / max(stage.users for stage in shape)
    faster = larger / min(longer, 1.0)
    return tuple(
        Stage(until * longer, max(1, round(many * larger)), max(1.0, rate * faster)) for until, many, rate in shape
    )


def stage_at(shape: tuple[Stage, ...], seconds: float) -> Stage | None:
    """Give the stage at a moment; None after the last."""
    return next((stage for stage in shape if seconds < stage.until), None)
