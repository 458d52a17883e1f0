"""Which partitions there should be, and which can go: values, without a database."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from flask_idempotency.stores.schema import RECORD

FIRST_DAY = date(2000, 1, 1)  # day 0 of the column; no record of ours is that old, so 0 is free for the open partition
AHEAD = 2  # days more than the longest retention needs: housekeeping may be off for as long
LONGEST = timedelta(days=31)  # each claim looks into every partition; what is kept for longer stays in the open one


@dataclass(frozen=True, slots=True)
class Partition:
    """One table, and how it stands."""

    name: str
    is_attached: bool
    is_half_detached: bool

    @property
    def day(self) -> date:
        """The day, in UTC, on which everything in it expires."""
        return datetime.strptime(self.name[-8:], "%Y%m%d").replace(tzinfo=UTC).date()

    @property
    def parent(self) -> str:
        """The table that it is a part of."""
        return self.name[:-9]


@dataclass(frozen=True, slots=True)
class Partitions:
    """The partitions of days, and the time by the database's clock."""

    now: datetime
    are_ours: bool  # whether our role may make and drop them
    tables: Sequence[Partition]

    @property
    def days(self) -> set[date]:
        """The days whose records have a partition."""
        return {each.day for each in self.tables if each.is_attached and each.parent == RECORD}

    def last_day(self, retention: timedelta) -> date:
        """The day on which a record expires that is finished now and kept for so long."""
        return (self.now + min(retention, LONGEST)).date()

    def missing(self, retention: timedelta) -> list[date]:
        """The days that records finished now, or in the next days, expire on, and that have no partition."""
        today = self.now.date()
        count = (self.last_day(retention) - today).days + 1 + AHEAD
        return [day for day in (today + timedelta(n) for n in range(count)) if day not in self.days]

    def dead(self, grace: timedelta) -> list[Partition]:
        """The tables in which everything has expired for longer than *grace*, the oldest first."""
        gone = [each for each in self.tables if start_of(each.day + timedelta(1)) + grace < self.now]
        return sorted(gone, key=lambda each: (each.day, each.parent != RECORD))  # records before their checkpoints


def start_of(day: date) -> datetime:
    """Midnight, in UTC: the clock of no country decides what is dropped."""
    return datetime.combine(day, time(), UTC)


def number_of(day: date) -> int:
    """Count the days as the column does."""
    return (day - FIRST_DAY).days
