"""The diary: written at once, read back whole, and strict about what ends an intent."""

import pytest

from loadtests.diary import Answer, Diary, Fault, Heard, Intent, Sent, classify, collect, heard, new_id, read

INTENT = Intent("i-1", "purchase", "impatient", "ada", "key-1", "/api/buy", "application/json", "{}ÿ", 1.0)
SENT = Sent("i-1", "a-1", 2.0)
PROBLEM = "application/problem+json"


def answer(status=201, body=b"{}", kind="application/json", **headers):
    """An answer off the wire."""
    return Answer(
        status, {"content-type": kind, **{name.replace("_", "-"): value for name, value in headers.items()}}, body
    )


def test_what_is_written_is_read_back(tmp_path):
    told = Heard("i-1", "a-1", 3.0, "definitive", 201, True, "digest", "AAAA-BBBB-CCCC", "")
    fault = Fault(4.0, 5.0, "kill", "worker")

    with Diary(tmp_path, "client") as diary:
        for entry in (INTENT, SENT, told, fault):
            diary.write(entry)

    history = read(tmp_path)
    assert history.intents == {"i-1": INTENT}
    assert (history.sent, history.heard, history.faults) == ({"i-1": [SENT]}, {"i-1": [told]}, [fault])


def test_an_entry_is_in_the_file_before_the_diary_is_closed(tmp_path):
    diary = Diary(tmp_path, "client")
    diary.write(INTENT)

    found = read(tmp_path).intents
    diary.close()

    assert found == {"i-1": INTENT}


def test_two_writers_of_one_name_do_not_share_a_file(tmp_path):
    with Diary(tmp_path, "client") as one, Diary(tmp_path, "client") as other:
        one.write(INTENT)
        other.write(SENT)

    history = read(tmp_path)
    assert (history.intents, history.sent) == ({"i-1": INTENT}, {"i-1": [SENT]})


def test_a_last_line_that_was_cut_short_is_left_out(tmp_path):
    with Diary(tmp_path, "client") as diary:
        diary.write(INTENT)
        diary.write(SENT)
    (path,) = tmp_path.glob("*.jsonl")
    path.write_bytes(path.read_bytes()[:-5])

    history = read(tmp_path)

    assert history.intents == {"i-1": INTENT}
    assert history.sent == {}


def test_entries_of_several_diaries_are_in_the_order_of_their_times():
    late, early = Sent("i-1", "a-2", 9.0), Sent("i-1", "a-1", 2.0)

    history = collect([late, early, Heard("i-1", "a-2", 11.0, "transient"), Heard("i-1", "a-1", 10.0, "transient")])

    assert history.sent["i-1"] == [early, late]
    assert [each.attempt for each in history.heard["i-1"]] == ["a-1", "a-2"]


def test_an_intent_is_open_until_a_definitive_answer_was_heard():
    history = collect([INTENT, SENT, Heard("i-1", "a-1", 3.0, "conflict", 409)])
    assert list(history.open_intents()) == [INTENT]

    history.heard["i-1"].append(Heard("i-1", "a-1", 4.0, "definitive", 201))

    assert list(history.open_intents()) == []


@pytest.mark.parametrize(
    ("status", "kind", "outcome"),
    [
        (201, "application/json", "definitive"),
        (204, "", "definitive"),
        (402, "application/json", "definitive"),
        (404, "application/json", "definitive"),
        (409, "application/json", "definitive"),
        (410, PROBLEM, "definitive"),
        (409, PROBLEM, "conflict"),
        (422, PROBLEM, "reused"),
        (500, "text/html", "transient"),
        (502, "text/html", "transient"),
        (503, PROBLEM, "transient"),
        (429, "application/json", "transient"),
        (425, "application/json", "transient"),
        (408, "text/html", "transient"),
    ],
)
def test_an_answer_decides_by_its_status_and_type(status, kind, outcome):
    assert classify(answer(status, kind=kind)) == outcome


def test_no_answer_is_heard_too_and_ends_nothing():
    entry = heard(SENT, None, 3.0, problem="connection reset")

    assert entry == Heard("i-1", "a-1", 3.0, "transient", problem="connection reset")


def test_an_answer_is_heard_with_its_mark_its_reference_and_its_problem():
    said = b'{"reference": "AAAA-BBBB-CCCC", "type": "https://example.org/errors#key-reused"}'

    entry = heard(SENT, answer(422, said, PROBLEM, idempotent_replayed="true"), 3.0)

    assert (entry.outcome, entry.status, entry.is_replay) == ("reused", 422, True)
    assert (entry.reference, entry.problem) == ("AAAA-BBBB-CCCC", "https://example.org/errors#key-reused")


@pytest.mark.parametrize("body", [b"", b"not json", b"[1]", b'{"reference": null}'])
def test_a_body_that_says_nothing_is_no_error(body):
    assert heard(SENT, answer(body=body), 3.0).reference == ""


@pytest.mark.parametrize(
    "other", [answer(200), answer(body=b"{ }"), answer(kind="text/plain")], ids=["status", "body", "type"]
)
def test_answers_are_equal_if_status_type_and_body_are(other):
    assert answer(date="today").digest == answer(date="tomorrow").digest
    assert answer().digest != other.digest


def test_a_name_is_not_had_before():
    assert len({new_id() for _ in range(1000)}) == 1000
