"""A record is settled in the console: after a page that says what will happen, once, and with who did it."""

from datetime import timedelta

import pytest
from flask import abort

from flask_idempotency import effect, reference
from flask_idempotency.core.snapshot import NotKept
from tests.apps.shop import REFERENCE, REPLAYED
from tests.console.conftest import PREFIX, quarantine, token_in, words

ANSWER = {"status": "201", "kind": "application/json", "location": "/orders/7", "body": '{"id": 7}'}


def state_of(shop):
    [record] = shop.records()
    return str(record.state)


# -- what will happen --------------------------------------------------------------------------------------------------


def test_what_will_happen_is_said_before_anything_does(shop, operator, stuck):
    pages = [
        operator.press(f"/records/{stuck}/reopen", refuted="mail"),
        operator.press(f"/records/{stuck}/answer", **ANSWER),
    ]

    assert "The next attempt with the same key resumes, and sends mail again with a new key." in words(pages[0])
    assert "Every retry gets this answer, 201, for the next 24 h, and nothing runs again." in words(pages[1])
    assert '{"id": 7}' in words(pages[1])
    assert all("The record will say that ada did this, and when." in words(page) for page in pages)
    assert state_of(shop) == "quarantined"


def test_only_what_is_possible_is_offered(shop, operator, stuck):
    done = shop.send(key="paid").headers[REFERENCE]

    offered = {known: operator.client.get(f"{PREFIX}/records/{known}").text for known in (stuck, done)}

    assert [f"/records/{stuck}/{act}" in offered[stuck] for act in ("reopen", "answer", "release", "forget")] == [
        True,
        True,
        False,
        False,
    ]
    assert [f"/records/{done}/{act}" in offered[done] for act in ("reopen", "answer", "release", "forget")] == [
        False,
        False,
        False,
        True,
    ]


@pytest.mark.parametrize("act", ["reopen", "answer", "release"])
def test_what_is_not_possible_is_refused(shop, operator, act):
    known = shop.send().headers[REFERENCE]

    answers = [operator.client.get(f"{PREFIX}/records/{known}/{act}"), operator.press(f"/records/{known}/{act}")]

    assert [answer.status_code for answer in answers] == [409, 409]
    assert state_of(shop) == "finished"


def test_an_act_or_a_record_that_does_not_exist_is_not_found(shop, operator, stuck):
    paths = (f"/records/{stuck}/explode", "/records/7D3F-92AB-1C4E/reopen", "/records?state=absent")

    assert [operator.client.get(PREFIX + path).status_code for path in paths] == [404, 404, 404]


def test_a_link_cannot_say_that_something_was_done(shop, operator, stuck):
    assert "Reopened." not in operator.see(f"/records/{stuck}?done=reopen")


# -- reopen ------------------------------------------------------------------------------------------------------------


def test_a_record_that_is_reopened_is_resumed_by_its_next_attempt(shop, operator, stuck):
    answer = operator.confirm(f"/records/{stuck}/reopen", refuted="mail")
    page = operator.see(answer.headers["Location"].removeprefix(PREFIX))
    sent = []
    shop.answer = lambda: (effect("mail", sent.append, policy="at_most_once"), shop.create())[1]

    assert "Reopened. The next attempt with the same key runs." in page
    assert "reopened by ada on " in page
    assert shop.send().status_code == 201
    assert len(sent) == 1


def test_an_effect_that_may_have_happened_is_not_sent_again_unless_somebody_says_that_it_did_not(shop, operator, stuck):
    answer = operator.press(f"/records/{stuck}/reopen")

    assert answer.status_code == 422
    assert "mail was sent 0 s ago and may have happened. Find out" in words(answer)
    assert state_of(shop) == "quarantined"


def test_what_is_not_in_doubt_cannot_be_sent_again(shop, operator, stuck):
    answer = operator.press(f"/records/{stuck}/reopen", refuted=["charge"])

    assert answer.status_code == 422


def test_a_request_that_reached_no_step_is_reopened_without_a_question_and_runs_from_the_start(shop, operator):
    shop.answer = lambda: abort(503)
    known = shop.send().headers[REFERENCE]
    store, [record] = shop.store.real, shop.records()
    store.quarantine(store.claim(record.asked, timedelta(seconds=30)), "too many attempts")
    shop.answer = shop.create

    page = operator.see(f"/records/{known}/reopen")
    operator.confirm(f"/records/{known}/reopen")

    assert "The next attempt with the same key runs from the start." in page
    assert shop.send().status_code == 201


# -- answer ------------------------------------------------------------------------------------------------------------


def test_a_retry_gets_the_answer_that_a_person_gave(shop, operator, stuck):
    operator.confirm(f"/records/{stuck}/answer", **ANSWER)

    retry = shop.send()

    assert (retry.status_code, retry.json, retry.headers["Location"]) == (201, {"id": 7}, "/orders/7")
    assert retry.headers[REPLAYED] == "true"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"status": "999"}, "The status must be a number from 200 to 599"),
        ({"status": "²"}, "The status must be a number from 200 to 599"),
        ({"status": "9" * 5000}, "The status must be a number from 200 to 599"),
        ({"body": "{"}, "The body is not JSON"),
        ({"location": "/a\r\nSet-Cookie: b"}, "a single line"),
        ({"body": "x" * 70_000, "kind": "text/plain"}, "The body has 70,000 characters; 65,536 is the most."),
    ],
    ids=["status", "digit", "digits", "JSON", "line break", "length"],
)
def test_an_answer_that_could_not_be_sent_is_refused_with_what_to_change(shop, operator, stuck, wrong, said):
    answer = operator.press(f"/records/{stuck}/answer", **{**ANSWER, **wrong})

    assert answer.status_code == 422
    assert said in words(answer)
    assert state_of(shop) == "quarantined"


def test_what_was_filled_in_is_still_there_after_a_mistake(shop, operator, stuck):
    answer = operator.press(f"/records/{stuck}/answer", **{**ANSWER, "body": "<b>{"})

    assert 'value="/orders/7"' in answer.text
    assert "&lt;b&gt;{</textarea>" in answer.text


# -- release and forget ------------------------------------------------------------------------------------------------


def test_an_attempt_whose_lease_is_ended_can_store_nothing_more_and_the_next_one_runs(shop, operator):
    said = []

    def hang():
        operator.confirm(f"/records/{reference()}/release")
        shop.answer = shop.create
        said.append(shop.send().status_code)
        return "too late"

    shop.answer = hang
    late = shop.send()

    assert said == [201]
    assert late.json == {"id": 2}, "whoever lost its claim answers like any duplicate"
    assert "released by ada on " in shop.records()[0].reason


def test_an_answer_that_is_forgotten_is_gone_and_its_retry_runs_nothing(shop, operator):
    known = shop.send().headers[REFERENCE]

    page = operator.confirm(f"/records/{known}/forget")
    retry = shop.send()

    assert page.status_code == 303
    assert "every retry gets 410, and nothing runs" in operator.see(f"/records/{known}")
    assert (retry.status_code, retry.json["code"]) == (410, "body-not-kept")
    assert shop.n == 1
    [record] = shop.records()
    assert isinstance(record.condition.answer, NotKept)
    assert "forgotten by ada on " in record.reason


def test_results_of_a_request_whose_answer_was_not_kept_can_be_forgotten_once(shop, operator):
    shop.answer = lambda: (effect("mail", lambda _: "posted"), iter(["streamed"]))[1]
    known = shop.send().headers[REFERENCE]

    answers = [operator.client.get(f"{PREFIX}/records/{known}/forget"), operator.confirm(f"/records/{known}/forget")]

    assert [answer.status_code for answer in answers] == [200, 303]
    assert operator.client.get(f"{PREFIX}/records/{known}/forget").status_code == 409


# -- too late ----------------------------------------------------------------------------------------------------------


def test_a_second_click_does_nothing_and_says_so(shop, operator, stuck):
    page = operator.press(f"/records/{stuck}/reopen", refuted="mail")

    answers = [operator.press(f"/records/{stuck}/reopen", token=token_in(page)) for _ in range(2)]

    assert [answer.status_code for answer in answers] == [303, 409]
    assert "Nothing was done: the record has changed" in words(answers[1])
    assert shop.records()[0].reason.count("reopened by ada") == 1


def test_a_record_that_has_run_and_stopped_again_is_not_settled_by_an_older_page(shop, operator, stuck):
    older = token_in(operator.press(f"/records/{stuck}/answer", **ANSWER))
    operator.confirm(f"/records/{stuck}/reopen", refuted="mail")
    quarantine(shop)

    answer = operator.press(f"/records/{stuck}/answer", token=older)

    assert answer.status_code == 409
    assert state_of(shop) == "quarantined"


def test_somebody_who_was_quicker_by_a_moment_is_told_of(shop, operator, stuck):
    token = token_in(operator.press(f"/records/{stuck}/reopen", refuted="mail"))
    [record] = shop.records()
    shop.store.before["reopen"] = lambda: shop.store.real.reopen(record.asked.id, "reopened by grace")

    answer = operator.press(f"/records/{stuck}/reopen", token=token)

    assert answer.status_code == 409
    assert "reopened by grace" in words(answer)
