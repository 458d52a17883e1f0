"""A quarantined record and the person who settles it: what is seen, `flask idempotency resolve`, and who did it."""

import json
import logging
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask

from flask_idempotency import effect, idempotent, phase, signals
from flask_idempotency.core.lifecycle import State
from flask_idempotency.errors import NeedsPerson
from tests.phases.conftest import KEY, Desk

DAY = timedelta(days=1)


class Letters:
    """A letter is sent, at most once, between two orders; the post does as it is told."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.keys: list[str] = []
        self.trouble: Exception | None = TimeoutError()
        desk.serve(self.view)

    def view(self) -> Any:
        phase("order_placed", self.place, "placed")
        letter = effect("mail", self.post, policy="at_most_once")
        phase("order_told", self.place, "told")
        return {"letter": letter}, 201

    def place(self, note: str) -> None:
        self.desk.db.session.add(self.desk.db.Order(note=note))

    def post(self, key: str) -> str:
        self.keys.append(key)
        if self.trouble is not None:
            raise self.trouble
        return "posted"


@pytest.fixture
def letters(desk: Desk) -> Letters:
    """A request whose letter may or may not have been sent."""
    return Letters(desk)


@pytest.fixture
def reference(letters: Letters) -> str:
    answer = letters.desk.send()
    assert answer.json["code"] == "quarantined"
    return str(answer.headers["Idempotency-Reference"])


def run(app: Flask, *arguments: str, **options: Any) -> tuple[int, str]:
    """Run a command; give its exit code and what it said."""
    result = app.test_cli_runner().invoke(args=["idempotency", *arguments], **options)
    return result.exit_code, result.output


def state_of(letters: Letters) -> State:
    record = letters.desk.tables.record()
    assert record is not None
    return record.state


def test_a_persons_answer_is_kept_as_long_as_the_longest_retention_of_any_view(desk, tmp_path):
    """A record does not say which view it is of; forgotten too early, a late retry would send the letter again."""
    letters = Letters(desk)
    desk.app.view_functions["/"] = idempotent(required=True, guard="lease", retention=30 * DAY)(letters.view)
    reference = desk.send().headers["Idempotency-Reference"]
    answer = tmp_path / "answer.json"
    answer.write_text('{"status": 201}')

    assert run(desk.app, "resolve", reference, "--answer", str(answer))[0] == 0
    desk.tables.let_pass(2 * DAY)

    assert desk.send().headers["Idempotent-Replayed"] == "true"
    assert len(letters.keys) == 1


# What is seen


def test_a_client_is_told_to_ask_support_and_given_the_reference(letters):
    answer = letters.desk.send()

    assert (answer.status_code, answer.json["code"], answer.json["retryable"]) == (409, "quarantined", False)
    assert answer.json["reference"] == answer.headers["Idempotency-Reference"]
    assert "Retry-After" not in answer.headers


def test_a_quarantine_is_told_once_when_it_happens_and_logged_as_critical(letters, caplog):
    told: list[Any] = []
    with (
        signals.quarantined.connected_to(lambda sender, **facts: told.append(facts)),
        caplog.at_level(logging.CRITICAL),
    ):
        answer, *_ = [letters.desk.send() for _ in range(3)]

    assert [facts["reference"] for facts in told] == [answer.headers["Idempotency-Reference"]]
    assert len([line for line in caplog.messages if line.startswith("quarantined: ")]) == 1


def test_a_retry_of_a_quarantined_request_runs_nothing(letters, reference):
    answer = letters.desk.send()

    assert (answer.status_code, answer.json["code"]) == (409, "quarantined")
    assert len(letters.keys) == 1
    assert letters.desk.notes == ["placed"]


def test_support_sees_the_reason_how_far_it_came_and_what_to_do(letters, reference):
    code, said = run(letters.desk.app, "show", reference.lower().replace("-", " "))

    assert code == 0
    assert "state:      quarantined\n" in said
    assert "reason:     mail was sent, and it is not known whether it happened\n" in said
    assert "to do:      find out what took effect; then: flask idempotency resolve\n" in said
    assert "done:       phase order_placed, done " in said
    assert "            effect mail, sent " in said


def test_the_reason_of_too_many_takeovers_is_shown(desk, let_pass):
    desk.serve(lambda: ("fine", 201))
    claim = desk.tables.store.claim
    answer = desk.send(key="pattern")
    asked = desk.tables.record("pattern").asked
    desk.tables.sql("DELETE FROM idempotency_record")
    for _ in range(7):
        claim(asked, timedelta(minutes=1))
        let_pass(timedelta(minutes=2))

    _, said = run(desk.app, "show", answer.headers["Idempotency-Reference"])

    assert "reason:     6 attempts in a row crashed or lost their lease\n" in said


def test_a_person_that_the_call_asks_for_gets_its_reason(letters):
    letters.trouble = NeedsPerson("the post office has closed for good")

    answer = letters.desk.send()

    assert (answer.status_code, answer.json["code"]) == (409, "quarantined")
    assert letters.desk.tables.record().reason == "mail: the post office has closed for good"


# An answer


def answer_file(tmp_path, content: object) -> str:
    path = tmp_path / "answer.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def test_an_answer_is_given_to_every_retry_and_the_view_is_not_run(letters, reference, tmp_path):
    given = {"status": 201, "headers": {"Location": "/letters/1"}, "body": {"letter": "posted by hand"}}

    code, said = run(letters.desk.app, "resolve", reference, "--answer", answer_file(tmp_path, given))
    answers = [letters.desk.send() for _ in range(2)]

    assert (code, said) == (0, "The next attempt gets this answer.\n")
    for answer in answers:
        assert (answer.status_code, answer.json) == (201, {"letter": "posted by hand"})
        assert answer.headers["Location"] == "/letters/1"
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.headers["Idempotent-Replayed"] == "true"
    assert len(letters.keys) == 1
    assert letters.desk.notes == ["placed"]


def test_a_text_is_given_as_text(letters, reference, tmp_path):
    run(letters.desk.app, "resolve", reference, "--answer", answer_file(tmp_path, {"status": 409, "body": "too late"}))

    answer = letters.desk.send()

    assert (answer.status_code, answer.text, answer.mimetype) == (409, "too late", "text/plain")


def test_an_answer_is_kept_for_the_retention_and_then_the_key_is_new(letters, reference, tmp_path, let_pass):
    run(letters.desk.app, "resolve", reference, "--answer", answer_file(tmp_path, {"status": 200}))
    letters.trouble = None
    let_pass(2 * DAY)

    assert letters.desk.send().status_code == 201
    assert letters.desk.notes == ["placed", "placed", "told"]


@pytest.mark.parametrize(
    "content",
    [
        "no JSON",
        [],
        {},
        {"status": "201"},
        {"status": 99},
        {"status": True, "body": ""},
        {"status": 201, "headers": ["Location"]},
        {"status": 201, "headers": {"Lo\ncation": "x"}},
        {"status": 201, "header": {"Location": "x"}},
    ],
    ids=str,
)
def test_an_answer_that_makes_no_sense_is_one_sentence_and_changes_nothing(letters, reference, tmp_path, content):
    code, said = run(letters.desk.app, "resolve", reference, "--answer", answer_file(tmp_path, content))

    assert code == 1
    assert said.startswith('Error: The answer must be a JSON file like {"status": 201,')
    assert state_of(letters) is State.QUARANTINED


def test_an_owner_that_wakes_up_after_an_answer_was_given_gives_that_answer(desk, tmp_path):
    """The view swallows the refusal and answers for itself; meanwhile a person has settled the record."""

    def view() -> Any:
        try:
            effect("mail", lambda key: 1 / 0, policy="at_most_once")
        except Exception as refusal:  # noqa: BLE001  # views do such things
            run(desk.app, "resolve", refusal.reference, "--answer", answer_file(tmp_path, {"status": 200, "body": "A"}))
        return "B", 201

    desk.serve(view)

    answers = [desk.send() for _ in range(2)]

    assert [(answer.status_code, answer.text) for answer in answers] == [(200, "A")] * 2


# Going on


def test_a_letter_that_was_not_sent_is_sent_anew_under_a_new_key(letters, reference):
    letters.trouble = None

    code, said = run(letters.desk.app, "resolve", reference, "--rerun", "--nothing-happened", "mail")
    answer = letters.desk.send()

    assert (code, said) == (0, "The next attempt resumes where the last one stopped.\n")
    assert (answer.status_code, answer.json) == (201, {"letter": "posted"})
    assert len(set(letters.keys)) == 2
    assert letters.desk.notes == ["placed", "told"]


def test_a_letter_in_doubt_is_not_sent_again_unless_a_person_says_so(letters, reference):
    code, said = run(letters.desk.app, "resolve", reference, "--rerun")

    assert code == 1
    assert said.startswith("Error: mail was sent ")
    assert "use --rerun --nothing-happened mail" in said
    assert state_of(letters) is State.QUARANTINED


def test_what_is_not_in_doubt_cannot_be_said_not_to_have_happened(letters, reference):
    code, said = run(letters.desk.app, "resolve", reference, "--rerun", "--nothing-happened", "order_placed")

    assert (code, said) == (1, "Error: order_placed is not in doubt; effects in doubt: mail.\n")


def test_a_record_with_too_many_takeovers_goes_on_after_a_rerun_and_may_be_taken_over_again(desk, let_pass):
    desk.serve(lambda: ("fine", 201))
    reference = desk.send(key="pattern").headers["Idempotency-Reference"]
    asked = desk.tables.record("pattern").asked
    desk.tables.sql("DELETE FROM idempotency_record")
    for _ in range(7):
        desk.tables.store.claim(asked, timedelta(minutes=1))
        let_pass(timedelta(minutes=2))

    assert desk.send(key="pattern").json["code"] == "quarantined"
    assert run(desk.app, "resolve", reference, "--rerun")[0] == 0
    desk.tables.store.claim(asked, timedelta(minutes=1))
    let_pass(timedelta(minutes=2))

    assert desk.send(key="pattern").status_code == 201


# Who, and mistakes


def test_who_settled_it_and_when_is_written_on_the_record(letters, reference, tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        run(letters.desk.app, "resolve", reference, "--answer", answer_file(tmp_path, {"status": 200}), "--by", "ada")

    assert letters.desk.tables.record().reason.startswith(
        "mail was sent, and it is not known whether it happened; answered"
    )
    _, said = run(letters.desk.app, "show", reference)
    assert "answered by ada on 20" in said
    assert " UTC" in said
    assert f"resolved: {reference} was answered by ada" in caplog.messages


def test_who_reopened_it_stays_on_the_record_when_it_is_finished(letters, reference):
    letters.trouble = None
    run(letters.desk.app, "resolve", reference, "--rerun", "--nothing-happened", "mail", "--by", "ada")

    letters.desk.send()

    assert "reopened by ada on 20" in run(letters.desk.app, "show", reference)[1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "Give either --answer FILE or --rerun."),
        (["--rerun", "--answer", "-"], "Give either --answer FILE or --rerun."),
        (["--answer", "-", "--nothing-happened", "mail"], "--nothing-happened needs --rerun."),
    ],
)
def test_options_that_contradict_each_other_are_refused(letters, reference, arguments, sentence):
    code, said = run(letters.desk.app, "resolve", reference, *arguments)

    assert code == 2
    assert sentence in said


def test_a_record_that_is_not_quarantined_is_left_alone(letters, tmp_path):
    letters.trouble = None
    reference = letters.desk.send(key=KEY).headers["Idempotency-Reference"]

    for arguments in (["--rerun"], ["--answer", answer_file(tmp_path, {"status": 500})]):
        code, said = run(letters.desk.app, "resolve", reference, *arguments)

        assert (code, said) == (1, "Error: This record is not quarantined; there is nothing to resolve.\n")
    assert letters.desk.send().status_code == 201


def test_an_unknown_reference_is_one_sentence(letters):
    code, said = run(letters.desk.app, "resolve", "7D3F-92AB-1C4E", "--rerun")

    assert (code, len(said.splitlines())) == (1, 1)
    assert said.startswith("Error: There is no record 7D3F-92AB-1C4E; it may have expired and been reaped, or it runs")
