"""What a probe does, step by step, as values: the sender carries them out, and their number is known before."""

from dataclasses import dataclass
from typing import ClassVar

from flask_idempotency.conformance.exchanges import Request


@dataclass(frozen=True, slots=True)
class Send:
    """Send once and wait for the answer."""

    label: str
    request: Request
    cost: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class Burst:
    """Send several copies at one instant, each on a connection of its own."""

    label: str
    request: Request
    copies: int

    @property
    def cost(self) -> int:
        """The number of requests."""
        return self.copies


@dataclass(frozen=True, slots=True)
class Leave:
    """Send, or a share of the body only, and close the connection without waiting for the answer."""

    label: str
    request: Request
    share: float = 1.0
    after: float = 0.0  # seconds between sending and closing
    cost: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class Persist:
    """Send until the answer is not that an earlier copy is still running; the last exchange counts."""

    label: str
    request: Request
    cost: ClassVar[int] = 6  # with pauses that double from 0.25 s, nearly 8 s of patience


@dataclass(frozen=True, slots=True)
class Copy:
    """A request to send while another is running, this many seconds after its start."""

    label: str
    request: Request
    after: float


@dataclass(frozen=True, slots=True)
class Overlap:
    """Send one request, its body within this many seconds, and copies while it is running."""

    label: str
    request: Request
    copies: tuple[Copy, ...]
    trickle: float = 0.0

    @property
    def cost(self) -> int:
        """The number of requests, at most."""
        return 1 + len(self.copies)


Step = Send | Burst | Leave | Persist | Overlap
Script = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Why a probe cannot be made: what the command line does not give."""

    reason: str


def cost_of(script: Script) -> int:
    """Give the number of requests that a script sends at most."""
    return sum(step.cost for step in script)
