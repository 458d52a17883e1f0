"""How a run goes: who comes, which hosts are asked, what the seed repeats, and how it stops."""

import json
import re
from collections import Counter

from loadtests.diary import read
from tests.fixtures.processes import eventually, free_port
from tests.loadtests.flooding import LOCUSTFILE, flood, start

REFUSED = b'{"type": "https://example.org/errors#request-in-flight"}'


def has(n):
    """Say whether so many intents have had an answer."""
    return lambda history: sum(bool(heard) for heard in history.heard.values()) >= n


def has_repeated(history):
    """Say whether an intent has had two answers."""
    return any(sum(each.status > 0 for each in heard) > 1 for heard in history.heard.values())


def test_nobody_comes_without_a_key_or_too_late_unless_they_are_asked_for(tmp_path):
    nobody = f"http://127.0.0.1:{free_port()}"
    crowd = ("--users", "41", "--spawn-rate", "41", "--run-time", "1s")

    ran = flood(LOCUSTFILE, [nobody], tmp_path / "diary", *crowd, LOADTESTS_DRIVEN="1")

    spawned = json.loads(re.search(r"All users spawned: (\{.*?\})", ran.output)[1])
    assert not {"LateReturner", "Unprotected"} & set(spawned)
    assert len(spawned) == 13
    assert min(spawned.values()) >= 1


def test_attempts_at_one_intent_go_to_all_hosts_in_turn_and_whoever_drives_it_judges_it(serve, tmp_path):
    shops = [serve(), serve()]

    ran = flood(
        LOCUSTFILE,
        [shop.url for shop in shops],
        tmp_path / "diary",
        "DoubleClicker",
        until=has(6),
        LOADTESTS_DRIVEN="1",
    )

    asked = [Counter(key for key, _ in shop.attempts) for shop in shops]
    whole = [ran.history.intents[id_].key for id_, sent in ran.history.sent.items() if len(sent) == 3]
    assert whole
    assert all({asked[0][key], asked[1][key]} == {1, 2} for key in whole)
    assert not re.search("INNOCENT|GUILTY", ran.output)


def test_the_same_seed_makes_the_same_choices(serve, tmp_path):
    def choices(name):
        diary = tmp_path / name / "diary"
        told = {"LOADTESTS_DRIVEN": "1", "LOADTESTS_SEED": "11"}
        ran = flood(LOCUSTFILE, [serve().url], diary, "DoubleClicker", until=has(6), **told)
        return [
            (each.account, each.content_type, each.body.replace(id_, "")) for id_, each in ran.history.intents.items()
        ]

    first, second = choices("first")[:6], choices("second")[:6]

    assert first == second
    assert len(set(first)) > 1


def test_a_run_that_is_stopped_brings_open_intents_to_an_answer_and_judges_the_answers(serve, tmp_path):
    ran = flood(LOCUSTFILE, [serve().url], tmp_path / "diary", "Leaver", until=has(8))

    assert "INNOCENT" in ran.output, ran.output
    assert "Answers only" in ran.output
    assert list(ran.history.open_intents()) == []
    assert ran.code == 0


def test_a_promise_that_a_client_sees_broken_is_a_failure_with_its_name(serve, tmp_path):
    shop = serve(lambda attempts: (201, {}, b"{}"))

    ran = flood(LOCUSTFILE, [shop.url], tmp_path / "diary", "DoubleClicker", until=has_repeated, LOADTESTS_DRIVEN="1")

    assert "BrokenPromise('ran more than once: a second answer without the mark of a replay')" in ran.output
    assert ran.code == 1


def test_a_client_comes_again_when_the_server_says_and_not_before(serve, tmp_path):
    def busy_at_first(attempts):
        if sum(key == attempts[-1][0] for key, _ in attempts) <= 2:
            return 409, {"Content-Type": "application/problem+json", "Retry-After": "1"}, REFUSED
        return 201, {"Idempotent-Replayed": "true"}, b"{}"

    shop = serve(busy_at_first)

    ran = flood(
        LOCUSTFILE,
        [shop.url],
        tmp_path / "diary",
        "DoubleClicker",
        until=lambda history: any(len(sent) > 2 for sent in history.sent.values()),
        LOADTESTS_DRIVEN="1",
    )

    story = next(id_ for id_, sent in ran.history.sent.items() if len(sent) > 2)
    third, refused = ran.history.sent[story][2], ran.history.heard[story][:2]
    assert [each.outcome for each in refused] == ["conflict", "conflict"]
    assert third.at - refused[0].at >= 0.99


def test_a_client_that_is_killed_has_said_before_what_it_was_about_to_do(serve, tmp_path):
    shop, diary = serve(), tmp_path / "diary"
    process = start(LOCUSTFILE, [shop.url], diary, "--headless", "--users", "4", "--spawn-rate", "4", "Burster")

    try:
        eventually(lambda: len(shop.attempts) > 50, 30, what="a flood")
    finally:
        process.kill()
        process.wait()

    history = read(diary)
    sent = Counter(history.intents[id_].key for id_, those in history.sent.items() for _ in those)
    assert not Counter(key for key, _ in shop.attempts) - sent


def test_a_client_that_would_wait_long_goes_home_when_it_is_told(serve, tmp_path):
    shop = serve(lambda attempts: (503, {"Retry-After": "3600"}, b"{}"))
    graceful = ("--stop-timeout", "50", "--users", "2", "--spawn-rate", "2")

    ran = flood(
        LOCUSTFILE, [shop.url], tmp_path / "diary", *graceful, "DoubleClicker", until=has(2), LOADTESTS_DRIVEN="1"
    )

    assert "Not all users finished" not in ran.output
    assert {each.problem for heard in ran.history.heard.values() for each in heard} == {""}
    assert max(map(len, ran.history.sent.values())) == 2
