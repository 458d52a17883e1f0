"""What to do after an attempt: one pure function, which is told the time and the chance."""

from dataclasses import dataclass
from typing import Final

from flask_idempotency.client.policy import RetryPolicy, seconds_of
from flask_idempotency.client.reading import Reply

NEVER: Final = {410, 422}  # done without its answer; the key is another request's. Whatever the document says
LOOK_AGAIN: Final = 2.0  # seconds between two questions whether the first request is still running


@dataclass(frozen=True, slots=True)
class Lost:
    """No answer came. *was_sent*: some of the request may have reached the server."""

    was_sent: bool
    why: str
    may_pass: bool = True  # False for what the next attempt will meet too, such as a certificate that is not trusted


@dataclass(frozen=True, slots=True)
class History:
    """The attempts at an action, the last one included."""

    failures: int  # those after which the server was not known to be at work
    elapsed: float  # seconds since the first began
    can_repeat: bool  # the body is still there


@dataclass(frozen=True, slots=True)
class Answer:
    """The action has its answer."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Send it again, *after* so many seconds. *is_free*: the server is at work, so no budget is needed."""

    after: float
    is_free: bool


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Send it no more, for this reason."""

    reason: str


def may_retry(result: Reply | Lost, policy: RetryPolicy) -> bool:
    """Say whether the same request may succeed later."""
    if isinstance(result, Lost):
        return True  # or be given up: it has no answer
    if result.status < 400 or result.status in NEVER or result.is_replay or result.retryable is False:
        return False
    return result.retryable is True or result.is_in_flight or result.status in policy.statuses


def may_have_run(result: Reply | Lost) -> bool:
    """Say whether it is possible that this attempt, or an earlier one under the key, took effect."""
    if isinstance(result, Lost):
        return result.was_sent
    if result.safe_new_key is not None:
        return not result.safe_new_key
    return result.status not in (401, 425, 429)  # these say that the request was not begun


def decide(result: Reply | Lost, history: History, policy: RetryPolicy, chance: float) -> Answer | Retry | GiveUp:
    """Turn the last attempt's result into one of three courses. *chance* is between 0 and 1."""
    if not may_retry(result, policy):
        return Answer()
    if isinstance(result, Lost) and not result.may_pass:
        return GiveUp("it cannot be sent like this")
    if may_have_run(result) and not policy.server_honours_keys:
        return GiveUp("the server may not honour keys, so a retry could repeat the effect")
    if not history.can_repeat:
        return GiveUp("its body is over max_body and cannot be sent a second time")
    is_at_work = isinstance(result, Reply) and result.is_in_flight
    if policy.attempts == 1:
        return GiveUp("it was to be sent once")
    if history.failures >= policy.attempts and not is_at_work:
        return GiveUp(f"{history.failures} attempts failed")
    pause = pause_after(result, history, policy, chance)
    if policy.deadline is not None and history.elapsed + pause >= seconds_of(policy.deadline):
        return GiveUp(f"the next attempt would be after the deadline of {seconds_of(policy.deadline):g} seconds")
    return Retry(pause, is_at_work)


def pause_after(result: Reply | Lost, history: History, policy: RetryPolicy, chance: float) -> float:
    """Give the seconds to the next attempt: full jitter, or at least what the server asks for."""
    longest = seconds_of(policy.longest_pause)
    exponent = min(max(history.failures, 1) - 1, 32)  # what is doubled more often is over any pause
    backoff = min(longest, seconds_of(policy.base) * 2.0**exponent) * chance
    if isinstance(result, Lost):
        return backoff
    if result.retry_after is not None:
        # Not all at the moment that the server named: it names the same to everybody.
        return result.retry_after + min(backoff, seconds_of(policy.base))
    return LOOK_AGAIN if result.is_in_flight else backoff
