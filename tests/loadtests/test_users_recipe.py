"""The recipe for an endpoint of one's own, run as the page has it: innocent with the protection, guilty without."""

import re

import pytest

from loadtests.diary import Heard, Sent, collect
from tests.fixtures.processes import ROOT
from tests.loadtests.flooding import flood

PAGE = ROOT / "docs" / "guide" / "loadtest.md"
CROWD = ("--users", "8", "--spawn-rate", "8")


@pytest.fixture
def recipe(tmp_path, gunicorn):
    """`recipe(**environ)`: the page's app is served; give its URL, its locustfile, and what both are told."""
    blocks = re.findall(r"^```py\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    app, locustfile = blocks
    (tmp_path / "transfers.py").write_text(app)
    (tmp_path / "locustfile.py").write_text(locustfile)

    def serve(**environ):
        told = {"DATABASE_URL": f"sqlite:///{tmp_path / 'transfers.db'}"}
        paths = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
        server = gunicorn("transfers:create_app()", workers=1, threads=8, env=told | paths | environ)
        return server.url, tmp_path / "locustfile.py", told

    return serve


def has_shown_everything(history):
    """Say whether a client has hung up, one has heard a replay, and one was refused another body."""
    heard = [each for those in history.heard.values() for each in those]
    is_shown = {each.outcome for each in heard} >= {"definitive", "reused"} and any(each.is_replay for each in heard)
    return is_shown and any(each.problem == "hung up" for each in heard)


def has_answered_twice(history):
    """Say whether somebody was told two things about one request; another body under its key is another request."""
    same = {each.attempt for those in history.sent.values() for each in those if each.asks == "same"}
    heard = [each for those in history.heard.values() for each in those if each.attempt in same]
    told = {(each.intent, each.answer) for each in heard if each.outcome == "definitive"}
    return len(told) > len({intent for intent, _ in told})


@pytest.mark.parametrize(("asks", "is_second"), [("same", True), ("other body", False)])
def test_an_answer_to_another_body_is_no_second_answer_to_wait_for(asks, is_second):
    # The verdict counts it under another promise, so a run that ends with it is not guilty of what the tests expect.
    sent = [Sent("intent", "first", 1.0), Sent("intent", "second", 1.0, asks=asks)]
    heard = [Heard("intent", each.attempt, 2.0, "definitive", 201, answer=each.attempt) for each in sent]

    assert has_answered_twice(collect([*sent, *heard])) is is_second


def has_answered(history):
    return any(each.status for those in history.heard.values() for each in those)


def test_the_recipe_finds_a_protected_endpoint_innocent(recipe, tmp_path):
    url, locustfile, told = recipe()

    ran = flood(locustfile, [url], tmp_path / "diary", *CROWD, until=has_shown_everything, **told)

    assert "INNOCENT" in ran.output, ran.output
    assert ran.code == 0
    assert re.search(r"effects +[1-9]", ran.output)
    assert {"transfer: first run", "transfer: replay", "transfer: hung up", "transfer: key reused"} <= set(
        re.findall(r"transfer: [a-z]+(?: [a-z]+)?", ran.output)
    )


def test_the_recipe_finds_an_unprotected_endpoint_guilty(recipe, tmp_path):
    url, locustfile, told = recipe(PROTECTED="0")

    ran = flood(locustfile, [url], tmp_path / "diary", *CROWD, until=has_answered_twice, **told)

    assert "GUILTY" in ran.output, ran.output
    assert ran.code == 1
    assert "what was wanted once happened once: broken" in ran.output
    assert "BrokenPromise" in ran.output
    assert "two different answers to one intent" in ran.output


def test_without_a_count_of_effects_the_answers_alone_convict(recipe, tmp_path):
    url, locustfile, told = recipe(PROTECTED="0")
    source = locustfile.read_text()
    counting = source[source.index("    @classmethod") : source.index("    @task")]
    locustfile.write_text(source.replace(counting, ""))

    ran = flood(locustfile, [url], tmp_path / "diary", *CROWD, until=has_answered_twice, **told)

    assert ran.code == 1, ran.output
    assert "effects were not counted" in ran.output
    assert "all definitive answers to an intent are equal: broken" in ran.output


def test_a_wrong_path_is_a_failure_and_not_an_innocent_run(recipe, tmp_path):
    url, locustfile, told = recipe()
    locustfile.write_text(locustfile.read_text().replace('"/transfers"', '"/transfer"'))

    ran = flood(locustfile, [url], tmp_path / "diary", *CROWD, until=has_answered, **told)

    assert ran.code == 1, ran.output
    assert "answered 404 on /transfer" in ran.output


def test_effects_alone_convict_where_every_answer_looks_right(recipe, tmp_path):
    url, locustfile, told = recipe()
    locustfile.write_text(locustfile.read_text().replace("{memo: times for", "{memo: 2 * times for"))

    ran = flood(locustfile, [url], tmp_path / "diary", *CROWD, until=has_shown_everything, **told)

    assert ran.code == 1, ran.output
    assert "BrokenPromise" not in ran.output
    assert "what was wanted once happened once: broken" in ran.output
