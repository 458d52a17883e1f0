"""What was sent and what came back: frozen values. Nothing here sends or judges."""

import json
from dataclasses import dataclass, replace
from typing import Self

Header = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Request:
    """One request. ``keys`` are the values of its Idempotency-Key lines, as they stand."""

    method: str
    target: str
    headers: tuple[Header, ...] = ()
    body: bytes = b""
    keys: tuple[bytes, ...] = ()
    key_header: str = "Idempotency-Key"
    is_chunked: bool = False

    def under(self, *keys: bytes) -> Self:
        """Give the same request with other keys, one header line for each."""
        return replace(self, keys=keys)

    def with_header(self, name: str, value: str) -> Self:
        """Give the same request with this header, instead of others of its name."""
        others = tuple(each for each in self.headers if each[0].lower() != name.lower())
        return replace(self, headers=(*others, (name, value)))


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: tuple[Header, ...] = ()
    body: bytes = b""
    seconds: float = 0.0

    def values(self, name: str) -> tuple[str, ...]:
        """Give the values of all lines of a header."""
        return tuple(value for each, value in self.headers if each.lower() == name.lower())

    def header(self, name: str) -> str:
        """Give the value of a header, or an empty text."""
        return ", ".join(self.values(name))

    @property
    def is_success(self) -> bool:
        """Say whether the request was carried out; a redirection counts, as after a form."""
        return 200 <= self.status < 400

    @property
    def is_marked(self) -> bool:
        """Say whether the answer calls itself a replay."""
        return self.header("Idempotent-Replayed").strip().lower() == "true"

    @property
    def is_pending(self) -> bool:
        """Say whether the answer only promises another: 202 with a time to come back."""
        return self.status == 202 and bool(self.header("Retry-After"))

    @property
    def asks_for_patience(self) -> bool:
        """Say whether nothing can be told now, and when it can: 503 with a time to come back."""
        return self.status == 503 and bool(self.header("Retry-After"))

    @property
    def is_for_later(self) -> bool:
        """Say whether the same request may get another answer in a moment."""
        return self.status in (409, 425) or self.is_pending or self.asks_for_patience

    @property
    def document(self) -> object:
        """Give the JSON in the body, or None if there is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    def says_the_same_as(self, other: "Answer") -> bool:
        """Compare what two bodies say: bytes, or the same JSON in another spelling."""
        if self.body == other.body:
            return True
        return self.document is not None and self.document == other.document


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Nothing came back, or not all of it; or nobody waited for it."""

    reason: str
    is_closed: bool = False  # all was sent that was to be sent, and then one side hung up


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request with what came back, and how it was sent if not simply so."""

    label: str
    request: Request
    answer: Answer | NoAnswer
    manner: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """All exchanges of one probe in the order in which they were sent, and how many effects it had, if counted."""

    exchanges: tuple[Exchange, ...]
    effects: int | None = None

    def all(self, label: str) -> tuple[Exchange, ...]:
        """Give the exchanges of one label."""
        return tuple(each for each in self.exchanges if each.label == label)

    def __getitem__(self, label: str) -> Answer | NoAnswer:
        return self.all(label)[-1].answer

    def answers(self, *labels: str) -> tuple[Answer, ...]:
        """Give the answers under these labels, without those that did not come."""
        found = (each.answer for each in self.exchanges if each.label in labels)
        return tuple(each for each in found if isinstance(each, Answer))
