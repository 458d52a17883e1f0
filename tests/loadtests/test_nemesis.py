"""The nemesis' plan: the same for the same seed, dense, and never so cruel that nobody is left to see it."""

import json
from collections import Counter
from itertools import pairwise

import pytest

from loadtests.breaking.nemesis import (
    CRASHES,
    CYCLE,
    KINDS,
    MASTERS,
    OF_THE_DATABASE,
    STOPS,
    Act,
    load,
    make_schedule,
    save,
    tell,
)

LEASE = 2.0
SEEDS = range(25)


def stops_of(acts: list[Act]) -> list[Act]:
    return [act for act in acts if act.kind in STOPS]


def test_a_plan_is_a_function_of_its_seed():
    assert make_schedule(7, 60, LEASE) == make_schedule(7, 60, LEASE)
    assert make_schedule(7, 60, LEASE) != make_schedule(8, 60, LEASE)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_act_begins_and_ends_within_the_run_and_in_order(seed):
    acts = make_schedule(seed, 60, LEASE)

    assert [act.at for act in acts] == sorted(act.at for act in acts)
    assert all(act.at > 0 and act.at + act.length < 60 for act in acts)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_minute_has_a_hundred_acts_and_every_kind_of_them(seed):
    acts = make_schedule(seed, 60, LEASE)

    assert len(acts) >= 100
    # A restart or a silence is rare, and a minute may be without one.
    assert {act.kind for act in acts} >= set(KINDS) - {"rolling_restart", "silence", "pause_worker"}


def test_a_long_run_has_every_kind_of_act():
    assert {act.kind for act in make_schedule(1, 600, LEASE)} == set(KINDS)


def test_twenty_minutes_have_two_thousand_acts():
    assert len(make_schedule(1, 1200, LEASE)) >= 2000


@pytest.mark.parametrize("seed", SEEDS)
def test_of_a_masters_workers_never_two_are_stopped_at_once(seed):
    stops = stops_of(make_schedule(seed, 60, LEASE))

    for master in range(MASTERS):
        ours = [stop for stop in stops if stop.master == master]
        assert all(one.at + one.length < other.at for one, other in pairwise(ours))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("lease", [1.0, 2.0, 5.0])
def test_a_stop_lasts_longer_than_the_lease_and_at_the_seam_long_enough_for_a_takeover(seed, lease):
    for stop in stops_of(make_schedule(seed, 90, lease)):
        assert lease * (1.5 if stop.kind == "stop_at_seam" else 1.2) <= round(stop.length + 0.001, 3)
        assert stop.length <= 2 * lease + 0.001


@pytest.mark.parametrize("seed", SEEDS)
def test_the_database_crashes_about_once_a_cycle_and_never_while_a_worker_is_stopped(seed):
    acts = make_schedule(seed, 60, LEASE)
    crashes = [act for act in acts if act.kind in CRASHES]

    assert 60 / (CYCLE * LEASE) - 2 < len(crashes) <= 60 / (CYCLE * LEASE)
    for crash in crashes:
        assert not [stop for stop in stops_of(acts) if stop.at <= crash.at <= stop.at + stop.length]


def test_a_plan_can_be_restricted_to_some_kinds():
    acts = make_schedule(3, 30, LEASE, ["stop_at_seam", "gateway_reset"])

    assert set(Counter(act.kind for act in acts)) == {"stop_at_seam", "gateway_reset"}


def test_without_crashes_their_time_is_given_to_the_rest():
    spared = [kind for kind in KINDS if kind not in OF_THE_DATABASE]

    acts = make_schedule(3, 24, LEASE, spared)

    gaps = [later.at - earlier.at for earlier, later in pairwise(acts)]
    assert max(gaps) < 1


def test_a_plan_is_read_again_as_it_was_written(tmp_path):
    acts = make_schedule(5, 20, LEASE)

    save(tmp_path / "schedule.json", 5, acts)

    assert load(tmp_path / "schedule.json") == (5, acts)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"seed": 1}',
        '{"seed": 1, "acts": [{"when": 1}]}',
        '{"seed": 1, "acts": [{"at": 1, "kind": "flood"}]}',
    ],
)
def test_what_is_no_plan_is_refused_in_a_sentence(tmp_path, text):
    (tmp_path / "schedule.json").write_text(text)

    with pytest.raises(ValueError, match=r"schedule\.json (is not a schedule|has acts of an unknown kind)"):
        load(tmp_path / "schedule.json")


def test_a_written_plan_is_readable_by_other_programs(tmp_path):
    save(tmp_path / "schedule.json", 5, [Act(1.5, "kill_worker", 3)])

    plan = json.loads((tmp_path / "schedule.json").read_text())

    assert plan["seed"] == 5
    assert plan["acts"] == [{"at": 1.5, "kind": "kill_worker", "target": 3, "length": 0.0, "times": 0}]


def test_a_plan_is_told_one_act_a_line():
    told = tell([Act(1.5, "pause_worker", 3, 2.5), Act(2, "gateway_error", 0, 0, 4), Act(3, "kill_worker", 1)])

    assert [line.split() for line in told.splitlines()] == [
        ["1.50", "s", "pause_worker", "3", "2.50", "s"],
        ["2.00", "s", "gateway_error", "0", "4", "×"],
        ["3.00", "s", "kill_worker", "1"],
    ]
