"""What became of an action, for the caller to read: one value on every answer and on every exception of the client."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from flask_idempotency.client.policy import SAFE


class Course(StrEnum):
    """How an action ended."""

    FIRST = "first"
    REPLAYED = "replayed"
    REFUSED = "refused"
    RUNNING = "running"
    GIVEN_UP = "given up"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an action.

    ``course`` is ``first`` for the server's own answer, whatever its status, ``replayed`` for the answer to an earlier
    attempt, ``refused`` if the server refused the key, ``running`` for a 202 whose work goes on, and ``given up`` if
    the retries ended before there was an answer.
    """

    course: Course
    key: str
    attempts: int
    may_have_run: bool  # False only if it is certain that nothing took effect
    reference: str | None = None  # what to quote to the server's operators
    code: str | None = None  # the refusal's, such as "key-reused"
    reason: str = ""  # why it was refused or given up, in a sentence


def outcome_of(response: Any) -> Outcome | None:
    """Give the outcome of the action that an httpx or requests response answers, through redirects too.

    ``None`` if the request was no action: it has no key, or it was not sent through a transport of this package.
    """
    hops = (response, *reversed(response.history))
    # After a 303, the action's answer is the redirect; the GET has only fetched what it points to.
    for each in sorted(hops, key=_only_fetches):
        found = getattr(each, "extensions", {}).get("idempotency") or getattr(each, "idempotency", None)
        if isinstance(found, Outcome):
            return found
    return None


def _only_fetches(response: Any) -> bool:
    try:
        return response.request.method in SAFE
    except (AttributeError, RuntimeError):  # it was made by hand, without a request
        return False
