"""A foreign system in a few lines, for tests in which only its answers count."""

from collections.abc import Callable
from typing import Any

DONE = {"id": "ch_1"}
PROBLEM = "application/problem+json"


class Foreign:
    """Answers each call and each question as the test says, and raises exceptions; afterwards it works normally."""

    def __init__(self, *calls: Any, known: tuple[Any, ...] = ()) -> None:
        self.answers, self.known = list(calls), list(known)
        self.keys: list[str] = []  # of the calls
        self.asked: list[str] = []  # of the questions

    def call(self, key: str) -> Any:
        self.keys.append(key)
        return _give(self.answers.pop(0) if self.answers else DONE)

    def ask(self, key: str) -> Any:
        self.asked.append(key)
        return _give(self.known.pop(0) if self.known else None)


class Trouble(Exception):
    """Whatever a view, a step or a call may raise."""


def fail_once() -> Callable[[], None]:
    """Make a function that raises when it is called first."""
    failures = [Trouble]

    def fail() -> None:
        if failures:
            raise failures.pop()

    return fail


def _give(answer: Any) -> Any:
    if isinstance(answer, BaseException):
        raise answer
    return answer


def code_of(response: Any) -> tuple[int, str | None]:
    """The status of an answer, and its code if it is a problem document."""
    is_problem = response.content_type == PROBLEM
    return response.status_code, response.json["code"] if is_problem else None
