"""Times, durations and sizes in words for operators, on the command line and in the console."""

from datetime import datetime, timedelta


def ago(age: timedelta) -> str:
    """Say how long ago something was."""
    return f"{how_long(age)} ago"


def how_long(age: timedelta) -> str:
    """Write a duration in one unit."""
    seconds = round(age.total_seconds())
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def how_much(size: int) -> str:
    """Write a number of bytes in one unit."""
    for unit, power in (("GB", 3), ("MB", 2), ("kB", 1)):
        if size >= 1000**power:
            return f"{size / 1000**power:.1f} {unit}"
    return f"{size} bytes"


def when(instant: datetime) -> str:
    """Write a point in time."""
    return instant.strftime("%Y-%m-%d %H:%M:%S UTC")
