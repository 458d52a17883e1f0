"""How the SQL stores count their records: exactly while there are few, and later by indexes and by a sample."""

from datetime import timedelta
from functools import partial
from typing import Any

from flask_idempotency.core.figures import Figures
from flask_idempotency.stores.rows import SqlRows
from flask_idempotency.stores.schema import RECORD
from flask_idempotency.stores.tables import SqlTables

SAMPLE = 5_000  # records: an error of 1.4 per cent, in a few milliseconds
COUNTED = 10_000  # entries of an index at most: a tenth of a second, on a busy machine
SCANNED = 200_000  # records at most that are read for the quarantined ones, where no index leads to these: the same
QUARANTINED = f"{RECORD}_quarantined"  # the index that an operator may add to a very large table


class SqlFigures(SqlTables, SqlRows):
    """Counts of which none reads more than a bounded number of rows."""

    def figures(self) -> Figures:
        """Count the records; of a large table, estimate what no index counts."""
        ((count, highest, scanned, running, quarantined, expired, oldest, lag),) = self._run(
            "figures_sample", limit=SAMPLE
        )
        if count < SAMPLE:
            lag = self._to_lag(lag) if expired else None
            finished = count - running - quarantined - expired
            return Figures(running, quarantined, finished, expired, self._bytes(), self._to_lag(oldest), lag)
        total = count / _share(highest)
        estimate = partial(_scale, total / count)

        ((held, oldest),) = self._run("figures_running", limit=COUNTED)
        running = held if held < COUNTED else max(held, estimate(running))
        # A few quarantined ones among millions would not be in the sample, and their number is what counts most.
        quarantined = None
        if estimate(scanned) <= SCANNED or QUARANTINED in self._structure().indexes:
            ((quarantined,),) = self._run("figures_quarantined", limit=COUNTED)
        ((counted, since, are_all),) = self._run("figures_expired", limit=COUNTED)
        lags = [self._to_lag(since), self._to_lag(lag) if expired else None]
        gone = counted if are_all and counted < COUNTED else max(counted, estimate(expired))
        return Figures(
            running,
            quarantined,
            max(0, round(total) - running - (quarantined or 0) - gone),
            gone,
            self._bytes(),
            self._to_lag(oldest),
            max((each for each in lags if each is not None), default=None),
            is_estimate=True,
        )

    def _bytes(self) -> int | None:
        """Say how many bytes the tables take."""
        ((found,),) = self._run("figures_bytes")
        return None if found is None else int(found)

    def _to_lag(self, value: Any) -> timedelta | None:
        return None if value is None else self._to_duration(value)


def _scale(factor: float, sampled: int) -> int:
    return round(factor * sampled)


def _share(highest: str) -> float:
    """Say what share of all digests are not above this one, which is written in hexadecimal digits."""
    return (int(highest[:16], 16) + 1) / 2**64
