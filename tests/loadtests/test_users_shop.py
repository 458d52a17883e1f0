"""The shop's customers against a real shop: each makes its move, each move leaves its mark in the diary, and the audit
finds nothing; with clients who send no key it must."""

import re
from collections import Counter

import pytest

from loadtests.staging.stage import Plan, Stage
from tests.loadtests.flooding import LOCUSTFILE, flood

BUYERS = {
    "Burster",
    "Declined",
    "DoubleClicker",
    "HotKeyUser",
    "ImpatientRetrier",
    "KeyBorrower",
    "KeyReuser",
    "Leaver",
    "SlowPayer",
    "Stumbler",
    "TokenRefresher",
    "Uploader",
}
CRITICS = {"LateReturner", "Reviewer"}
CROWD = ("--users", "14", "--spawn-rate", "14", "--equal-weights")
RETENTION = 9.0

pytestmark = pytest.mark.postgresql


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    """A shop, its gateway and its database; what reviews leave behind expires soon."""
    with Stage(Plan(tmp_path_factory.mktemp("stage"), retention=RETENTION)) as started:
        yield started


def told_of(stage):
    """Say where the auditor finds the books."""
    return {"SHOP_DATABASE_URL": stage.shop_url, "GATEWAY_DATABASE_URL": stage.gateway_url}


@pytest.fixture(scope="module")
def ran(stage, tmp_path_factory):
    """A run with one customer of each sort, until each has shown what it does."""
    diary = tmp_path_factory.mktemp("ran") / "diary"
    told = told_of(stage) | {"LOADTESTS_RETENTION": f"{RETENTION:g}", "LOADTESTS_SEED": "7"}

    def is_shown(history):
        return all(shows(history) for shows in (late, borrowed, hot, stumbled, reused, declined, slow, retried))

    return flood(LOCUSTFILE, stage.hosts, diary, *CROWD, *sorted(BUYERS | CRITICS), until=is_shown, **told)


# What is looked for in a diary


def intents_of(history, user):
    return {id_: intent for id_, intent in history.intents.items() if intent.user == user}


def told(history, user, asks="same"):
    """Give what customers of a sort were told, by intent."""
    asked = {each.attempt: each.asks for sent in history.sent.values() for each in sent}
    return {
        id_: [each for each in history.heard.get(id_, ()) if asked[each.attempt] == asks]
        for id_ in intents_of(history, user)
    }


def answered(history, user):
    return {id_ for id_, heard in told(history, user).items() if any(each.outcome == "definitive" for each in heard)}


def late(history):
    """Find keys that were used for more than one review."""
    late = intents_of(history, "LateReturner")
    used = Counter(late[id_].key for id_ in answered(history, "LateReturner"))
    return [key for key, times in used.items() if times > 1]


def borrowed(history):
    """Find keys under which two accounts got what they wanted."""
    theirs = intents_of(history, "KeyBorrower")
    accounts = {}
    for id_ in answered(history, "KeyBorrower"):
        accounts.setdefault(theirs[id_].key, set()).add(theirs[id_].account)
    return [key for key, names in accounts.items() if len(names) == 2]


def hot(history):
    """Find intents at which there were many attempts."""
    return [id_ for id_ in intents_of(history, "HotKeyUser") if len(history.sent.get(id_, ())) > 3]


def stumbled(history):
    """Find intents that were told "not now" by the shop, and then yes."""
    statuses = [[each.status for each in heard] for heard in told(history, "Stumbler").values()]
    return [each for each in statuses if {503, 201} <= set(each)]


def reused(history):
    """Find both sorts of customers who were refused another body."""
    by_user = [
        [each for heard in told(history, user, "other body").values() for each in heard]
        for user in ("KeyReuser", "Uploader")
    ]
    return all(any(each.outcome == "reused" for each in heard) for heard in by_user)


def declined(history):
    """Find refusals of a card that were replayed."""
    heard = [each for heard in told(history, "Declined").values() for each in heard]
    return [each for each in heard if each.status == 402 and each.is_replay]


def slow(history):
    return answered(history, "SlowPayer")


def retried(history):
    """Find customers who hung up, came again, and got their answer: some of each sort that does."""
    sorts = ("ImpatientRetrier", "Leaver", "TokenRefresher", "Reviewer")
    return all(
        any(
            any(each.problem == "hung up" for each in heard) and any(each.status == 201 for each in heard)
            for heard in told(history, user).values()
        )
        for user in sorts
    )


# What must be true of the run


def test_the_full_audit_finds_nothing(ran):
    assert "INNOCENT" in ran.output, ran.output
    assert "Answers, orders and charges" in ran.output
    assert ran.code == 0


def test_every_sort_of_customer_made_its_move(ran):
    assert ran.users() == BUYERS | CRITICS


def test_nothing_was_sent_that_was_not_wanted_before(ran):
    history = ran.history

    assert set(history.sent) == set(history.intents)
    assert all(sent[0].at >= history.intents[id_].at for id_, sent in history.sent.items())


def test_the_marker_is_in_every_body(ran):
    assert all(intent.id in intent.body for intent in ran.history.intents.values())


def test_every_attempt_was_heard_of_even_of_clients_that_were_stopped(ran):
    sent = {each.attempt for those in ran.history.sent.values() for each in those}
    heard = {each.attempt for those in ran.history.heard.values() for each in those}

    assert sent == heard


@pytest.mark.parametrize("user", ["Burster", "DoubleClicker"])
def test_who_clicks_often_sends_again_before_an_answer_is_heard(ran, user):
    heard = {each.attempt: each.at for those in ran.history.heard.values() for each in those}
    sent = [ran.history.sent[id_] for id_ in intents_of(ran.history, user)]

    overlapping = [each for each in sent if len(each) > 1 and each[1].at < heard[each[0].attempt]]

    assert len(overlapping) > len(sent) / 2


def test_who_hangs_up_comes_again_and_gets_an_answer(ran):
    assert retried(ran.history)


def test_another_body_is_refused_and_the_first_one_never(ran):
    assert reused(ran.history)
    for user in ("KeyReuser", "Uploader"):
        others = [each for heard in told(ran.history, user, "other body").values() for each in heard]
        same = [each for heard in told(ran.history, user).values() for each in heard]
        assert {each.outcome for each in others} <= {"reused", "transient"}
        assert "reused" not in {each.outcome for each in same}


def test_a_form_with_a_new_boundary_is_the_same_form(ran):
    assert any(each.is_replay for heard in told(ran.history, "Uploader").values() for each in heard)


def test_a_borrowed_key_serves_both_accounts(ran):
    assert borrowed(ran.history)


def test_a_hot_key_is_asked_for_many_times(ran):
    assert hot(ran.history)


def test_a_card_in_trouble_is_charged_after_a_503(ran):
    assert stumbled(ran.history)


def test_a_slow_card_is_charged(ran):
    assert slow(ran.history)


def test_a_refused_card_is_refused_again_alike(ran):
    heard = [each for heard in told(ran.history, "Declined").values() for each in heard]

    assert declined(ran.history)
    assert {each.status for each in heard if each.outcome == "definitive"} == {402}


def test_a_key_that_has_expired_runs_once_more_for_something_else(ran):
    assert late(ran.history)


def test_the_statistics_name_each_outcome_and_count_no_refusal_as_a_failure(ran):
    rows = dict(re.findall(r"^POST +((?:buy|review): [a-z ()0-9]+?) {2,}\d+ +(\d+)\(", ran.output, re.MULTILINE))

    assert {"buy: first run", "buy: replay", "buy: conflict", "buy: key reused", "review: replay"} <= set(rows)
    assert set(rows.values()) == {"0"}


def test_clients_without_a_key_are_found_guilty(stage, tmp_path):
    told = told_of(stage) | {"LOADTESTS_BASELINE": "1"}

    guilty = flood(LOCUSTFILE, stage.hosts, tmp_path / "diary", "Unprotected", until=has_doubled, **told)

    assert guilty.code == 1, guilty.output
    assert "what was wanted once happened once: broken" in guilty.output
    assert {intent.key for intent in guilty.history.intents.values()} == {""}


def has_doubled(history):
    return any([each.status for each in heard].count(201) > 1 for heard in history.heard.values())
