"""An action from its first attempt to its end, as steps that somebody else takes: httpx, httpx with async, requests."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urljoin, urlsplit

from flask_idempotency.client.budget import Budget
from flask_idempotency.client.deciding import LOOK_AGAIN, Answer, GiveUp, History, Lost, Retry, decide, may_have_run
from flask_idempotency.client.outcome import Course, Outcome
from flask_idempotency.client.policy import RetryPolicy, seconds_of
from flask_idempotency.client.reading import Reply, read_receipt, read_reply

SHORTEST = 1.0  # seconds that an attempt may take, however near the deadline is
# The beginnings of headers that are about the request's body, or its answer, and not for a receipt.
ABOUT_THE_BODY = ("content-", "transfer-encoding", "prefer", "expect", "accept", "range", "if-")


@dataclass(frozen=True, slots=True)
class Send:
    """Send the request; no part of it may take longer than *within* seconds."""

    within: float | None


@dataclass(frozen=True, slots=True)
class Look:
    """Get this address, with the request's credentials."""

    url: str
    within: float | None


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Ended:
    """The end: an answer; or, if the action was given up, the last answer that came, or none."""

    outcome: Outcome
    response: Any = None


@dataclass(frozen=True, slots=True)
class Heard:
    """What came back, and the response that it came in."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    response: Any


Step = Send | Look | Pause | Ended
Steps = Generator[Step, Heard | Lost | None, None]


@dataclass(frozen=True, slots=True)
class Asked:
    """One action: where it goes, its key, whether its body is still there to be sent, and what is known before."""

    url: str
    key: str
    can_repeat: Callable[[], bool]
    has_run: bool = False  # at another address: this is where a redirect went


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Time and chance, which come in by the door."""

    clock: Callable[[], float]  # seconds that only go up
    wall: Callable[[], float]  # seconds since 1970
    chance: Callable[[], float]  # between 0 and 1


def follow(asked: Asked, policy: RetryPolicy, budget: Budget, around: Surroundings) -> Steps:
    """Give the steps of an action; take the result of each. The last step is ``Ended``."""
    began = around.clock()
    attempts = failures = 0
    has_run = asked.has_run
    reference: str | None = None

    def left() -> float | None:
        return None if policy.deadline is None else seconds_of(policy.deadline) - (around.clock() - began)

    def ended(course: Course, reply: Reply | None, response: Any, *, ran: bool, reason: str) -> Ended:
        code = reply.code if reply is not None and course is not Course.FIRST else None
        return Ended(Outcome(course, asked.key, attempts, ran, reference, code, reason), response)

    while True:
        result = yield Send(_within(left))
        assert result is not None
        attempts += 1
        heard = result if isinstance(result, Heard) else None
        said = result if isinstance(result, Lost) else _read(result, around)
        reply = said if isinstance(said, Reply) else None
        if reply is not None:
            reference = reply.reference or reference
        failures += reply is None or not reply.is_in_flight
        if heard is not None and reply is not None and (receipt := _receipt_of(reply, asked, attempts, policy)):
            watched = yield from _watch(asked, receipt, reply.retry_after, around, left)
            if watched == "ask" and asked.can_repeat():
                continue
            if isinstance(watched, Heard):
                yield ended(Course.REPLAYED, None, watched.response, ran=True, reason="")
        history = History(failures, around.clock() - began, asked.can_repeat())
        has_run = has_run or may_have_run(said)
        match decide(said, history, policy, around.chance()):
            case Answer():
                assert heard is not None
                assert reply is not None
                budget.put_back()
                course = _course_of(reply)
                ran = has_run or reply.status < 400
                reason = reply.detail if course is Course.REFUSED else ""
                yield ended(course, reply, heard.response, ran=ran, reason=reason)
            case Retry(after, is_free):
                if is_free or budget.take():
                    yield Pause(after)
                    continue
                given_up = "the budget for retries is used up"
            case GiveUp(given_up):
                pass
        why = said.why if isinstance(said, Lost) else f"the answer was {said.status} {said.code or ''}".rstrip()
        response = None if heard is None else heard.response
        yield ended(Course.GIVEN_UP, reply, response, ran=has_run, reason=f"{given_up}; {why}")


def _receipt_of(reply: Reply, asked: Asked, attempts: int, policy: RetryPolicy) -> str | None:
    """Give the receipt to look at: an answer was lost, and this is not it, but says where the answer will be."""
    is_wanted = policy.follow_receipts and attempts > 1 and reply.receipt is not None
    return _near(asked, reply.receipt) if is_wanted and reply.receipt else None


def _watch(
    asked: Asked, receipt: str, pause: float | None, around: Surroundings, left: Callable[[], float | None]
) -> Generator[Step, Heard | Lost | None, Heard | Literal["running", "ask"]]:
    """Look at a receipt until the answer is there, and give it.

    Gives *running* if the work goes on at the deadline, and *ask* if only the request itself can tell.
    """
    while True:
        seconds = LOOK_AGAIN if pause is None else max(pause, SHORTEST)
        if (remaining := left()) is not None and seconds >= remaining:
            return "running"
        yield Pause(seconds)
        looked = yield Look(receipt, _within(left))
        if not isinstance(looked, Heard):
            return "ask"
        found = read_receipt(looked.status, looked.headers, looked.body, around.wall())
        if not found.is_running:
            break
        pause = found.retry_after
    answer = found.answer and _near(asked, found.answer)
    if not answer:
        return "ask"
    looked = yield Look(answer, _within(left))
    return looked if isinstance(looked, Heard) and _read(looked, around).is_replay else "ask"


def _within(left: Callable[[], float | None]) -> float | None:
    remaining = left()
    return None if remaining is None else max(SHORTEST, remaining)


def _read(heard: Heard, around: Surroundings) -> Reply:
    return read_reply(heard.status, heard.headers, heard.body, around.wall())


def _near(asked: Asked, address: str) -> str | None:
    """Give the whole address if it is on the server that was asked: no other may see the request's credentials."""
    whole = urljoin(asked.url, address)
    here, there = urlsplit(asked.url), urlsplit(whole)
    return whole if (here.scheme, here.netloc) == (there.scheme, there.netloc) else None


def _course_of(reply: Reply) -> Course:
    if reply.is_replay:
        return Course.REPLAYED
    if reply.is_refusal:
        return Course.REFUSED
    return Course.RUNNING if reply.receipt is not None else Course.FIRST
