"""One intent as its client remembers it: what it asked for, what it was told, and what it must not be told any more.

Pure: no socket, clock or chance, and no Locust, whose import changes the whole process.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from loadtests.diary import Asks, Heard, Intent

ORDINARY = frozenset({402, 409, 410})  # answers from 400 up that are expected
BACKOFF = 0.05  # seconds before the second try; twice as long before each further one
LONGEST = 2.0  # seconds between two tries, unless the server asks for more


@dataclass(frozen=True, slots=True)
class Request:
    """The request to post. The intent's marker must be in it, so that effects can be counted by it."""

    path: str
    body: bytes
    content_type: str = "application/json"

    @classmethod
    def of_json(cls, path: str, content: Mapping[str, Any]) -> Self:
        """Make a request with a JSON body."""
        return cls(path, json.dumps(content).encode())


@dataclass(slots=True)
class Wish:
    """An intent in progress."""

    intent: Intent
    request: Request
    tries: int = 0
    answer: Heard | None = None  # the first definitive one
    first_runs: int = 0
    is_taken: bool = False  # an answer has shown that the key belongs to this body
    not_before: float = 0.0  # when the server wants to be asked again, on the clock of its client

    @property
    def lot(self) -> int:
        """Say which of several hosts is asked first; the others follow in turn."""
        return int(self.intent.id, 16)

    @property
    def is_open(self) -> bool:
        """Whether its client still has to ask again."""
        return self.answer is None

    def hear(self, heard: Heard, asks: Asks) -> str:
        """Take in the outcome of an attempt. Gives the promise that it breaks, or an empty string."""
        complaint = self._complaint(heard, asks)
        if asks == "same" and heard.outcome in ("definitive", "conflict"):
            self.is_taken = True
        if asks == "same" and heard.outcome == "definitive":
            self.answer = self.answer or heard
            self.first_runs += not is_repetition(heard)
        return complaint

    def _complaint(self, heard: Heard, asks: Asks) -> str:
        """Say which promise an answer breaks. The auditor knows more; this is what a client can see."""
        if heard.is_replay and heard.outcome == "transient":
            return f"a temporary failure ({heard.status}) was kept and replayed"
        if asks == "other body":
            return "another body was answered under a key in use" if heard.outcome == "definitive" else ""
        if heard.outcome == "reused":
            return "the key was refused to the body that it was made for (422)"
        if heard.outcome != "definitive":
            return ""
        if self.answer is not None and self.answer.answer != heard.answer and heard.is_replay == is_repetition(heard):
            return f"two different answers to one intent ({self.answer.status}, {heard.status})"
        if self.first_runs and not is_repetition(heard):
            return "ran more than once: a second answer without the mark of a replay"
        return ""


def is_repetition(heard: Heard) -> bool:
    """Say whether an answer says that nothing was run for it."""
    return heard.is_replay or (heard.status == 410 and heard.problem.endswith("body-not-kept"))


def name_of(heard: Heard) -> str:
    """Name an outcome for the statistics."""
    match heard.outcome:
        case "definitive":
            return "replay" if is_repetition(heard) else "first run"
        case "conflict":
            return "conflict"
        case "reused":
            return "key reused"
        case _ if heard.status:
            return f"not now ({heard.status})"
        case _:
            return heard.problem if heard.problem in ("hung up", "stopped") else "no answer"


def pause_before(tries: int, share: float) -> float:
    """Give the pause before the next attempt in seconds; *share*, from 0 to 1, keeps clients out of step."""
    return min(BACKOFF * 2.0 ** min(tries, 10), LONGEST) * (0.5 + share / 2)


def seconds_to_wait(retry_after: str, most: float) -> float:
    """Read a Retry-After header. A date counts as absent."""
    return min(float(retry_after), most) if retry_after.isdecimal() else 0.0
