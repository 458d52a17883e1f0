"""What answers mean: tables of what was seen and the verdict. Nothing is sent."""

import pytest

from flask_idempotency.conformance import judging_others as others
from flask_idempotency.conformance import judging_races as races
from flask_idempotency.conformance import judging_retries as retries
from flask_idempotency.conformance.dialects import IETF, STRIPE, dialect_of
from flask_idempotency.conformance.exchanges import Answer, Exchange, NoAnswer, Request, Seen
from flask_idempotency.conformance.promises import PROMISES, judge_all
from flask_idempotency.conformance.verdicts import Bench, Broken, Course, Holds, NotShown, course_of

SENT = Request("POST", "/orders", keys=(b"k",))
TELLING, ALIKE = Bench(IETF, is_telling=True), Bench(IETF, is_telling=False)
FIRST, SECOND, SPELT = Answer(201, (), b'{"id": 1}'), Answer(201, (), b'{"id": 2}'), Answer(201, (), b'{ "id":1 }')
REPLAYED = Answer(201, (("idempotent-replayed", "True"),), b'{"id": 1}')
GONE, LEFT = NoAnswer("connection reset"), NoAnswer("the client hung up", is_closed=True)


def refused(status, *headers, body=b"{}"):
    return Answer(status, headers, body)


def seen(effects=None, /, **answers):
    return Seen(tuple(Exchange(label, SENT, answer) for label, answer in answers.items()), effects)


@pytest.mark.parametrize(
    ("other", "bench", "course"),
    [
        (FIRST, TELLING, Course.REPLAYED),
        (SPELT, TELLING, Course.REPLAYED),
        (SECOND, TELLING, Course.RAN),
        (FIRST, ALIKE, Course.UNCLEAR),
        (REPLAYED, ALIKE, Course.REPLAYED),
        (SECOND, ALIKE, Course.UNCLEAR),
        (refused(422), TELLING, Course.REFUSED),
        (refused(500), TELLING, Course.FAILED),
        (GONE, TELLING, Course.UNANSWERED),
    ],
)
def test_what_became_of_a_request(other, bench, course):
    assert course_of(FIRST, other, bench) is course


TABLE = [
    # retries
    (retries.runs_once, seen(2, first=FIRST, second=SECOND, retry=FIRST, again=FIRST), Holds),
    (retries.runs_once, seen(3, first=FIRST, second=SECOND, retry=FIRST, again=FIRST), Broken),
    (retries.runs_once, seen(None, first=FIRST, second=SECOND, retry=SECOND, again=FIRST), Broken),
    (retries.runs_once, seen(None, first=FIRST, second=SECOND, retry=refused(409), again=refused(409)), Holds),
    (retries.runs_once, seen(None, first=FIRST, second=SECOND, retry=GONE, again=GONE), NotShown),
    (retries.runs_once, seen(None, first=refused(401), second=GONE, retry=GONE, again=GONE), NotShown),
    (retries.same_status, seen(None, first=FIRST, retry=FIRST, again=refused(409)), Broken),
    (retries.same_status, seen(None, first=FIRST, retry=GONE, again=FIRST), NotShown),
    (retries.same_body, seen(None, first=FIRST, retry=SPELT, again=FIRST), Broken),
    (retries.same_body, seen(None, first=FIRST, retry=FIRST, again=FIRST), Holds),
    (retries.same_body, seen(None, first=FIRST, retry=refused(409), again=GONE), NotShown),
    (retries.same_headers, seen(None, first=FIRST, retry=FIRST, again=FIRST), NotShown),
    (retries.marked, seen(None, first=REPLAYED, second=SECOND, retry=REPLAYED, again=REPLAYED), Broken),
    (retries.marked, seen(None, first=FIRST, second=SECOND, retry=REPLAYED, again=FIRST), Broken),
    (retries.marked, seen(None, first=FIRST, second=SECOND, retry=FIRST, again=FIRST), NotShown),
    (retries.large, seen(0, first=refused(413), other=refused(413)), Holds),
    (retries.large, seen(1, first=refused(413), other=refused(413)), Broken),
    (retries.chunked, seen(None, first=FIRST, other=refused(411)), NotShown),
    (races.burst_answers, seen(None, copies=refused(503)), Broken),
    (races.burst_answers, seen(None, copies=refused(503, ("Retry-After", "1"))), Holds),
    (races.burst_answers, seen(None, copies=GONE), Broken),
    (races.burst_answers, seen(None, copies=Answer(202, (("Retry-After", "1"),))), Holds),
    (races.slow_answers, seen(None, first=FIRST), NotShown),
    (races.slow_answers, seen(None, first=FIRST, copy=refused(423)), Broken),
    (races.slow_other, seen(None, first=FIRST, other=refused(409)), Broken),
    (races.slow_other, seen(None, first=FIRST, other=refused(422)), Holds),
    (races.slow_other, seen(None, first=FIRST, other=GONE), NotShown),
    (races.slow_other, seen(None, first=FIRST, other=refused(503, ("Retry-After", "1"))), NotShown),
    (races.slow_answers, seen(None, first=FIRST, copy=refused(503, ("Retry-After", "1"))), Holds),
    (races.slow_answers, seen(None, first=FIRST, copy=refused(503)), Broken),
    (races.slow_body, seen(2, slow=FIRST, copy=FIRST, after=FIRST), Broken),
    (races.slow_body, seen(None, slow=SECOND, copy=refused(409), after=SECOND), Holds),
    (races.cut_body, seen(None, cut=LEFT, whole=refused(422)), Broken),
    (races.cut_body, seen(1, cut=LEFT, whole=FIRST), Holds),
    (races.cut_body, seen(1, cut=refused(400), whole=FIRST), Holds),
    (races.cut_body, seen(1, cut=FIRST, whole=FIRST), Broken),
    (races.cut_body, seen(1, cut=GONE, whole=FIRST), NotShown),
    (races.cut_body, seen(2, cut=GONE, whole=FIRST), Broken),
    (retries.server_error, seen(None, failed=FIRST, again=FIRST, other=SECOND), NotShown),
    (retries.server_error, seen(None, failed=refused(503), again=refused(503), other=refused(503)), NotShown),
    (retries.server_error, seen(None, failed=refused(503), again=FIRST, other=refused(503)), Holds),
    # other requests
    (others.other_value, seen(2, first=FIRST, other=refused(422)), Broken),
    (others.other_value, seen(1, first=FIRST, other=refused(422)), Holds),
    (others.other_value, seen(None, first=FIRST, other=FIRST), Broken),
    (others.other_value, seen(None, first=FIRST, other=GONE), NotShown),
    (others.other_query, seen(None, first=FIRST, other=SECOND), Holds),
    (others.other_path, seen(None, first=FIRST, other=refused(404)), NotShown),
    (others.other_method, seen(None, first=FIRST, other=refused(405)), NotShown),
    (others.safe_method, seen(None, first=FIRST, other=refused(405)), Holds),
    (others.repeated_member, seen(None, first=refused(400), other=FIRST), Holds),
    (others.after_refusal, seen(None, first=FIRST, refused=FIRST, other=FIRST), NotShown),
    (others.missing, seen(None, one=FIRST, two=FIRST), Broken),
    (others.missing, seen(None, one=FIRST, two=SECOND), Holds),
    (others.malformed, seen(0, one=GONE, two=GONE), Holds),
    (others.malformed, seen(None, one=GONE, two=GONE), NotShown),
    (others.malformed, seen(1, one=refused(400), two=refused(400)), Broken),
    (others.malformed, seen(None, one=refused(500), two=refused(500)), Broken),
    (others.quoted, seen(None, first=refused(400), other=FIRST), Holds),
    (others.quoted, seen(None, first=FIRST, other=refused(400)), Broken),
    (others.distinct_keys, seen(None, first=FIRST, other=refused(400)), NotShown),
    (others.distinct_keys, seen(None, first=FIRST, other=FIRST), Broken),
    (others.other_caller, seen(None, first=FIRST, other=refused(403)), NotShown),
    (others.other_caller, seen(None, first=FIRST, other=refused(422)), Broken),
    (others.stranger, seen(None, first=FIRST, stranger=FIRST, fresh=SECOND, allowed=SECOND), NotShown),
    (others.stranger, seen(None, first=FIRST, stranger=FIRST, fresh=refused(401), allowed=SECOND), Broken),
    (
        others.unauthorised_claims_nothing,
        seen(None, first=FIRST, stranger=GONE, fresh=refused(401), allowed=refused(409)),
        Broken,
    ),
]


def burst(*copies, after, effects=None):
    """What one burst brought."""
    found = [Exchange("copies 0", SENT, answer) for answer in copies]
    return Seen((*found, Exchange("after 0", SENT, after)), effects)


def left(back, again, effects=None, left=LEFT):
    """What two clients got that left and came back."""
    found = {
        f"{name} {n}": answer for n in (0, 1) for name, answer in (("left", left), ("back", back), ("again", again))
    }
    return seen(effects, **found)


RACES = [
    (races.burst_runs_once, burst(FIRST, refused(409), after=FIRST), TELLING, Holds),
    (races.burst_runs_once, burst(FIRST, refused(409), after=FIRST), ALIKE, NotShown),
    (races.burst_runs_once, burst(FIRST, refused(409), after=FIRST, effects=1), ALIKE, Holds),
    (races.burst_runs_once, burst(FIRST, FIRST, after=FIRST, effects=2), ALIKE, Broken),
    (races.burst_runs_once, burst(FIRST, SECOND, after=FIRST), TELLING, Broken),
    (races.burst_runs_once, burst(refused(429), refused(429), after=refused(429)), TELLING, NotShown),
    (races.burst_answers, burst(FIRST, refused(409), after=FIRST), TELLING, Holds),
    (races.burst_answers, burst(FIRST, refused(422), after=FIRST), TELLING, Broken),
    (races.burst_settles, burst(FIRST, refused(409), after=refused(409)), TELLING, Broken),
    (races.burst_settles, burst(FIRST, refused(409), after=GONE), TELLING, NotShown),
    (races.slow_runs_once, seen(2, first=FIRST, copy=FIRST, after=FIRST), ALIKE, Broken),
    (races.slow_runs_once, seen(1, first=FIRST, copy=FIRST, after=FIRST), ALIKE, Holds),
    (races.slow_runs_once, seen(None, first=FIRST, copy=FIRST, after=FIRST), ALIKE, NotShown),
    (races.slow_runs_once, seen(None, first=FIRST, copy=SECOND, after=FIRST), TELLING, Broken),
    (races.slow_runs_once, seen(None, first=FIRST, after=FIRST), TELLING, NotShown),
    (races.slow_runs_once, seen(None, first=refused(422), after=FIRST), TELLING, NotShown),
    (races.slow_answers, seen(None, first=FIRST, copy=GONE), TELLING, Broken),
    (races.slow_other, seen(None, first=FIRST), TELLING, NotShown),
    (races.slow_other, seen(None, first=FIRST, other=FIRST), TELLING, Broken),
    (races.slow_body, seen(1, slow=FIRST, copy=FIRST, after=FIRST), TELLING, Holds),
    (races.slow_body, seen(1, slow=FIRST, after=FIRST), TELLING, NotShown),
    (races.slow_body, seen(None, slow=FIRST, copy=FIRST, after=FIRST), ALIKE, NotShown),
    (races.slow_body, seen(None, slow=FIRST, copy=FIRST, after=refused(408)), TELLING, NotShown),
    (races.slow_body, seen(None, slow=FIRST, copy=SECOND, after=SECOND), TELLING, Broken),
    (races.hang_up_runs_once, left(FIRST, FIRST), TELLING, NotShown),
    (races.hang_up_runs_once, left(FIRST, SECOND), TELLING, Broken),
    (races.hang_up_runs_once, left(refused(409), GONE), TELLING, NotShown),
    (races.hang_up_runs_once, left(FIRST, FIRST, effects=2), TELLING, Holds),
    (races.hang_up_runs_once, left(FIRST, FIRST, effects=1), TELLING, Broken),
    (races.hang_up_runs_once, left(FIRST, FIRST, effects=2, left=GONE), TELLING, NotShown),
    (races.hang_up_settles, left(FIRST, FIRST), TELLING, Holds),
    (races.hang_up_settles, left(FIRST, FIRST, left=GONE), TELLING, NotShown),
    (races.hang_up_settles, left(refused(409), GONE), TELLING, Broken),
    (races.cut_body, seen(None, cut=GONE, whole=GONE), TELLING, NotShown),
    (retries.same_request, seen(None, first=FIRST, other=FIRST), ALIKE, NotShown),
    (retries.same_request, seen(1, first=FIRST, other=FIRST), ALIKE, Holds),
    (retries.same_request, seen(2, first=FIRST, other=FIRST), ALIKE, Broken),
    (retries.same_request, seen(None, first=FIRST, other=refused(500)), TELLING, Broken),
    (retries.runs_once, seen(None, first=FIRST, second=FIRST, retry=FIRST, again=FIRST), ALIKE, NotShown),
    (others.other_value, seen(None, first=FIRST, other=refused(500)), TELLING, Broken),
    (others.other_value, seen(None, first=FIRST, other=FIRST), ALIKE, Broken),
    (others.other_query, seen(None, first=FIRST, other=FIRST), ALIKE, NotShown),
    (others.other_query, seen(2, first=FIRST, other=FIRST), ALIKE, Holds),
    (others.other_query, seen(1, first=FIRST, other=FIRST), ALIKE, Broken),
    (others.missing, seen(1, one=FIRST, two=FIRST), ALIKE, Broken),
    (others.missing, seen(None, one=FIRST, two=FIRST), ALIKE, NotShown),
    (others.missing, seen(None, one=refused(500), two=FIRST), TELLING, NotShown),
    (others.quoted, seen(None, first=FIRST, other=SECOND), Bench(STRIPE, is_telling=True), Holds),
    (others.distinct_keys, seen(None, first=FIRST, other=FIRST), ALIKE, NotShown),
    (others.distinct_keys, seen(2, first=FIRST, other=FIRST), ALIKE, Holds),
    (others.distinct_keys, seen(1, first=FIRST, other=FIRST), ALIKE, Broken),
    (others.other_caller, seen(None, first=FIRST, other=FIRST), ALIKE, NotShown),
    (others.other_caller, seen(2, first=FIRST, other=FIRST), ALIKE, Holds),
    (others.other_caller, seen(1, first=FIRST, other=FIRST), ALIKE, Broken),
]


@pytest.mark.parametrize(
    ("judge", "found", "bench", "verdict"), RACES, ids=lambda each: getattr(each, "__name__", None)
)
def test_a_verdict_where_runs_can_or_cannot_be_told_apart(judge, found, bench, verdict):
    assert isinstance(judge(found, bench), verdict)


@pytest.mark.parametrize(("judge", "found", "verdict"), TABLE, ids=lambda each: getattr(each, "__name__", None))
def test_a_verdict(judge, found, verdict):
    assert isinstance(judge(found, TELLING), verdict)


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.id)
@pytest.mark.parametrize("effects", [None, 0, 1])
def test_without_answers_nothing_is_said_to_be_broken_but_what_the_effects_or_races_show(promise, effects):
    labels = [
        "first",
        "second",
        "retry",
        "again",
        "other",
        "refused",
        "copy",
        "after",
        "slow",
        "cut",
        "whole",
        "failed",
    ]
    labels += ["one", "two", "stranger", "fresh", "allowed"]
    labels += [f"{name} {n}" for name in ("one", "two", "left", "back", "again", "copies", "after") for n in (0, 1)]
    silent = seen(effects, **dict.fromkeys(labels, GONE))

    verdict = promise.judge(silent, TELLING)

    expected = Broken if promise.id in ("burst-answers", "slow-answers") else (NotShown, Holds)
    assert isinstance(verdict, expected), verdict


def test_a_promise_that_rests_on_a_broken_one_is_not_judged():
    chosen = tuple(each for each in PROMISES if each.id in ("retry-runs-once", "retry-body"))
    broken = seen(None, first=FIRST, second=SECOND, retry=SECOND, again=SECOND)

    (_, first), (_, second) = judge_all(chosen, {"retry": broken}, TELLING)

    assert isinstance(first, Broken)
    assert second == NotShown("it depends on retry-runs-once, which is broken")


def test_a_promise_rests_only_on_those_before_it():
    ids = [promise.id for promise in PROMISES]

    assert len(set(ids)) == len(ids)
    for number, promise in enumerate(PROMISES):
        assert set(promise.follows) <= set(ids[:number])


@pytest.mark.parametrize(
    ("answers", "dialect"),
    [
        ([FIRST, refused(422)], IETF),
        ([FIRST, refused(400, body=b'{"error": {"type": "idempotency_error"}}')], STRIPE),
        ([refused(201, ("Original-Request", "req_1"))], STRIPE),
        ([refused(400, body=b'{"error": "no"}'), refused(400, body=b"[" * 5000)], IETF),
    ],
)
def test_a_dialect_is_known_by_its_answers(answers, dialect):
    assert dialect_of(answers) is dialect


PROBLEM = ("Content-Type", "application/problem+json; charset=utf-8")


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (refused(422, PROBLEM, body=b'{"type": "https://x.example/#a"}'), None),
        (refused(422, PROBLEM, ("Link", "<https://x.example>"), body=b"{}"), None),
        (refused(422, body=b"{}"), "without a media type"),
        (refused(422, ("Content-Type", "application/json"), body=b"{}"), "application/json, not"),
        (refused(422, PROBLEM, body=b"[]"), "no JSON object"),
        (refused(422, PROBLEM, body=b"{}"), "documentation"),
        (refused(422, PROBLEM, body=b'{"status": 400, "type": "https://x.example"}'), "status line"),
    ],
)
def test_a_problem_document(answer, fault):
    found = IETF.find_fault("reused", answer)

    assert found is None if fault is None else fault in found


@pytest.mark.parametrize(
    ("body", "headers", "fault"),
    [
        (b'{"error": {"type": "idempotency_error"}}', [("Stripe-Should-Retry", "false")], None),
        (b'{"error": {"type": "idempotency_error"}}', [], "Stripe-Should-Retry"),
        (b'{"error": {"type": "idempotency_error", "code": "x"}}', [], "error.code"),
        (b'{"error": {"type": "api_error"}}', [], "error.type"),
        (b'{"error": "no"}', [], "no top-level error object"),
    ],
)
def test_an_error_envelope(body, headers, fault):
    found = STRIPE.find_fault("reused", refused(400, *headers, body=body))

    assert found is None if fault is None else fault in found
