"""The six labs: what they are called, where their code is, and what it must do in the end."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from docs.workshop import checks
from docs.workshop.checks import Check

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Lab:
    """One lab. Its code must also do what the labs before it have asked for."""

    title: str
    begin: str
    solution: str
    extended: str
    checks: tuple[Check, ...]

    def file(self, which: str) -> Path:
        """Give a file of the lab: what it begins with, its solution by hand, or that with the extension."""
        folder = HERE / ("extended" if which == "extended" else "steps")
        return folder / f"{getattr(self, which)}.py"


LABS: Final = {
    1: Lab(
        "Twelve lines that look right",
        "naive",
        "compared",
        "orders",
        (checks.retry, checks.other_order, checks.same_order, checks.other_customer),
    ),
    2: Lab("Two copies at once", "compared", "claimed", "orders", (checks.copies,)),
    3: Lab("The work is done, the answer is lost", "claimed", "one_transaction", "orders", (checks.killed,)),
    4: Lab("How long is a key remembered?", "one_transaction", "expiring", "orders", (checks.offline, checks.tomorrow)),
    5: Lab("A clean-up races the retry", "leased", "fenced", "slow_orders", (checks.late,)),
    6: Lab("A foreign system", "charging", "same_key", "checkout", (checks.charged, checks.lost)),
}


def checks_of(number: int) -> list[Check]:
    """Give what the code of a lab must do: first what this one teaches, then what was learnt before."""
    return [*LABS[number].checks, *(check for lab in range(1, number) for check in LABS[lab].checks)]
