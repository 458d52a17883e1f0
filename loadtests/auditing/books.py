"""The books: what really happened, as rows of the shop and of the gateway. Values only; reading.py reads them."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Order:
    """An order of the shop. Its note is the id of the intent behind it."""

    id: int
    number: str
    note: str
    state: str
    total_cents: int
    reference: str
    at: float

    @property
    def is_paid(self) -> bool:
        """Whether the shop believes that it was paid; a refunded order was, too."""
        return self.state not in ("placed", "declined")


@dataclass(frozen=True, slots=True)
class Payment:
    """A charge that the shop has recorded."""

    order: int  # the id of the order
    charge: str  # the id of the charge, as the gateway told it
    amount_cents: int


@dataclass(frozen=True, slots=True)
class Charge:
    """Money that the gateway took."""

    id: str
    order: str  # the number of the order
    amount: int  # in cents
    key: str
    at: float


@dataclass(frozen=True, slots=True)
class Review:
    """A review. Its text is the id of the intent behind it."""

    id: int
    text: str
    reference: str
    at: float


@dataclass(frozen=True, slots=True)
class Record:
    """An unfinished record of the extension."""

    reference: str
    state: str  # running or quarantined
    reason: str


@dataclass(frozen=True, slots=True)
class Books:
    """Everything that the shop and the gateway know about a run."""

    orders: tuple[Order, ...] = ()
    payments: tuple[Payment, ...] = ()
    reviews: tuple[Review, ...] = ()
    charges: tuple[Charge, ...] | None = None  # None: nobody has asked the gateway
    notes: Mapping[tuple[str, str], int] = field(default_factory=dict)  # (event, reference) → how often
    records: tuple[Record, ...] = ()  # those that are not finished


@dataclass(frozen=True, slots=True)
class Effects:
    """How often each intent took effect, as the author of the endpoint counts. A missing intent took none."""

    per_intent: Mapping[str, int]
