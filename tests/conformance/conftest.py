"""A tester that is in a hurry: all of its pauses are a tenth as long, and so is what the planted server takes."""

import uuid
from collections.abc import Callable

import pytest

from flask_idempotency.conformance import effects
from flask_idempotency.conformance.bodies import Body
from flask_idempotency.conformance.dialects import DIALECTS
from flask_idempotency.conformance.keys import Keys
from flask_idempotency.conformance.promises import PROMISES
from flask_idempotency.conformance.running import Report, plan, run
from flask_idempotency.conformance.sending import Sender
from flask_idempotency.conformance.subject import Subject
from flask_idempotency.conformance.verdicts import Verdict
from flask_idempotency.conformance.wire import Place, Wire

PACE = 0.2
ALICE, BOB = ("Authorization", "Bearer alice-has-a-key"), ("Authorization", "Bearer bob-has-another")


def judged(
    url: str, *, dialect: str | None = None, counts: bool = True, only: tuple[str, ...] = (), most: int = 500
) -> Report:
    """Test a planted server, with everything that a command line can give."""
    place, target = Place.of(f"{url}/orders")
    wire = Wire(place, 15)
    subject = Subject(
        method="POST",
        target=target,
        body=Body.of_json('{"tea": 2}'),
        keys=Keys(uuid.uuid4()),
        headers=(ALICE,),
        other_headers=(BOB,),
        slow_body=Body.of_json('{"tea": 2, "seconds": 0.5}'),
        failing_body=Body.of_json('{"tea": 2, "fail": true}'),
        other_target="/refunds",
        pace=PACE,
    )
    chosen = tuple(each for each in PROMISES if not only or each.id in only)
    spoken = DIALECTS[dialect] if dialect else None
    made = plan(subject, chosen, most, guesses_dialect=spoken is None)
    count = effects.of_url(wire, "/count", (), ("orders", "made")) if counts else None
    return run(subject, chosen, made, Sender(wire, PACE), spoken, count, within=60, tell=lambda *_: None)


def of_kind(report: Report, kind: type[Verdict]) -> dict[str, str]:
    """Give the reasons of the promises that have one verdict."""
    return {promise.id: verdict.reason for promise, verdict in report.verdicts if isinstance(verdict, kind)}


@pytest.fixture
def judge() -> Callable[..., Report]:
    """Test a planted server; see `judged`."""
    return judged
