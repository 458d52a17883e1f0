"""The diary: what every client wanted, recorded before it is sent, and what it was told, as soon as it is heard.

The auditor compares it with what the shop and the gateway did.
"""

import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, ClassVar, Literal, Self

Outcome = Literal["definitive", "conflict", "reused", "transient"]
Asks = Literal["same", "other body"]
PASSING = (401, 403, 408, 425, 429)  # the answers below 500 that mean: not you, or not now; they are not kept


@dataclass(frozen=True, slots=True)
class Intent:
    """One click of one client. It is recorded before anything is sent, with all that is needed to send it again."""

    word: ClassVar[str] = "intent"
    id: str  # also part of the request, so that its effects can be counted where they happen
    kind: str  # what is wanted: "purchase" or "review" in the demo shop
    user: str  # the class of the client
    account: str
    key: str
    path: str
    content_type: str
    body: str  # its bytes, as latin-1
    at: float


@dataclass(frozen=True, slots=True)
class Sent:
    """One attempt at an intent, about to go out."""

    word: ClassVar[str] = "sent"
    intent: str
    attempt: str
    at: float
    asks: Asks = "same"


@dataclass(frozen=True, slots=True)
class Heard:
    """The outcome of an attempt, as its client sees it. Status 0: there was no answer."""

    word: ClassVar[str] = "heard"
    intent: str
    attempt: str
    at: float
    outcome: Outcome
    status: int = 0
    is_replay: bool = False
    answer: str = ""  # digest of status, type and body
    reference: str = ""
    problem: str = ""  # of a refusal: its type; without an answer: why


@dataclass(frozen=True, slots=True)
class Fault:
    """A deliberate fault."""

    word: ClassVar[str] = "fault"
    at: float
    until: float
    kind: str
    target: str


Entry = Intent | Sent | Heard | Fault
KINDS: Mapping[str, type[Entry]] = {kind.word: kind for kind in (Intent, Sent, Heard, Fault)}


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as received."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes

    @property
    def is_replay(self) -> bool:
        """Whether it says that it is a replay."""
        return self.headers.get("idempotent-replayed", "") == "true"

    @property
    def digest(self) -> str:
        """A digest of what equal answers have in common."""
        head = f"{self.status}\n{self.headers.get('content-type', '')}\n".encode()
        return sha256(head + self.body).hexdigest()[:16]

    def said(self) -> dict[str, Any]:
        """Give the body, if it is a JSON object."""
        if "json" not in self.headers.get("content-type", ""):
            return {}
        try:
            body = json.loads(self.body)
        except ValueError:
            return {}
        return body if isinstance(body, dict) else {}


def classify(answer: Answer) -> Outcome:
    """Say what an answer means for its intent. A definitive one ends it; after any other, the client asks again."""
    is_refusal = answer.headers.get("content-type", "").startswith("application/problem+json")
    if answer.status == 409 and is_refusal:
        return "conflict"
    if answer.status == 422:
        return "reused"
    if answer.status >= 500 or answer.status in PASSING:
        return "transient"
    return "definitive"


def heard(sent: Sent, answer: Answer | None, at: float, *, problem: str = "") -> Heard:
    """Make the entry for an answer, or for none."""
    if answer is None:
        return Heard(sent.intent, sent.attempt, at, "transient", problem=problem)
    said = answer.said()
    return Heard(
        sent.intent,
        sent.attempt,
        at,
        classify(answer),
        answer.status,
        answer.is_replay,
        answer.digest,
        str(said.get("reference") or ""),
        str(said.get("type") or said.get("title") or ""),
    )


def new_id() -> str:
    """Generate an id for an intent or an attempt."""
    return secrets.token_hex(12)


class Diary:
    """Writes entries at once, one line each, so that the diary of a killed client has what it was about to do."""

    def __init__(self, folder: Path, writer: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = (folder / f"{writer}-{os.getpid()}-{secrets.token_hex(3)}.jsonl").open(
            "ab", buffering=0
        )

    def write(self, entry: Entry) -> None:
        """Write an entry."""
        line = json.dumps({"is": entry.word, **asdict(entry)}, separators=(",", ":"))
        self._file.write(line.encode() + b"\n")

    def close(self) -> None:
        """Close the diary."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(slots=True)
class History:
    """All diaries of a run. Attempts and answers are by intent, in the order of their times."""

    intents: dict[str, Intent] = field(default_factory=dict)
    sent: dict[str, list[Sent]] = field(default_factory=dict)
    heard: dict[str, list[Heard]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def open_intents(self) -> Iterator[Intent]:
        """Give the intents without a definitive answer."""
        for intent in self.intents.values():
            if not any(each.outcome == "definitive" for each in self.heard.get(intent.id, ())):
                yield intent


def read(folder: Path) -> History:
    """Read every diary of a folder. An incomplete last line was never sent, and is left out."""
    return collect(entry for path in sorted(folder.glob("*.jsonl")) for entry in _entries(path))


def collect(entries: Iterable[Entry]) -> History:
    """Build a history from entries."""
    history = History()
    for entry in entries:
        match entry:
            case Intent():
                history.intents[entry.id] = entry
            case Sent():
                history.sent.setdefault(entry.intent, []).append(entry)
            case Heard():
                history.heard.setdefault(entry.intent, []).append(entry)
            case Fault():
                history.faults.append(entry)
    for listed in (*history.sent.values(), *history.heard.values(), history.faults):
        listed.sort(key=lambda entry: entry.at)  # type: ignore[attr-defined]  # each of them has a time
    return history


def _entries(path: Path) -> Iterator[Entry]:
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                fields = json.loads(line)
                yield KINDS[fields.pop("is")](**fields)
