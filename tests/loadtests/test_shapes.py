"""Shapes: every one fits the time and the crowd it is given, and Locust follows it and ends by itself."""

import re

import pytest

from loadtests.clients.shapes import SHAPES, Stage, scaled, shape_named, stage_at
from tests.fixtures.processes import free_port
from tests.loadtests.flooding import LOCUSTFILE, flood


@pytest.mark.parametrize("name", SHAPES)
def test_a_scaled_shape_ends_on_time_and_peaks_at_the_crowd_that_was_asked_for(name):
    shape = scaled(SHAPES[name], seconds=30, users=17)

    assert shape[-1].until == pytest.approx(30)
    assert max(stage.users for stage in shape) == 17


@pytest.mark.parametrize("name", SHAPES)
def test_the_stages_of_a_shape_follow_each_other(name):
    ends = [stage.until for stage in SHAPES[name]]

    assert ends == sorted(set(ends))
    assert ends[0] > 0


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(("seconds", "users"), [(5, 1), (30, 40), (1200, 200)])
def test_every_stage_has_somebody_who_comes_before_it_is_over(name, seconds, users):
    shape = scaled(SHAPES[name], seconds, users)

    lasts = [stage.until - before for stage, before in zip(shape, [0, *(each.until for each in shape)], strict=False)]
    jumps = [abs(stage.users - before) for stage, before in zip(shape, [0, *(s.users for s in shape)], strict=False)]
    assert all(stage.users >= 1 for stage in shape)
    assert all(
        jump / stage.spawn_rate <= max(length, 1) for jump, stage, length in zip(jumps, shape, lasts, strict=True)
    )


def test_the_stage_of_a_moment_is_the_one_that_is_not_over():
    shape = (Stage(10, 1, 1), Stage(20, 2, 1))

    assert stage_at(shape, 0) == shape[0]
    assert stage_at(shape, 9.9) == shape[0]
    assert stage_at(shape, 10) == shape[1]
    assert stage_at(shape, 20) is None


@pytest.mark.parametrize("name", ["black friday", "black-friday", "Black_Friday"])
def test_a_shape_is_found_however_its_name_is_joined(name):
    assert shape_named(name) is SHAPES["black friday"]


def test_an_unknown_shape_is_refused_with_the_names_there_are():
    with pytest.raises(ValueError, match="'stampede' is not a shape; choose from steady, ramp, spike, black friday"):
        shape_named("stampede")


def test_locust_follows_the_shape_and_ends_with_it(tmp_path):
    nobody = f"http://127.0.0.1:{free_port()}"
    told = {"LOADTESTS_SHAPE": "spike", "LOADTESTS_SECONDS": "5", "LOADTESTS_DRIVEN": "1"}

    ran = flood(LOCUSTFILE, [nobody], tmp_path / "diary", "--users", "10", **told)

    assert re.findall(r"Shape test updating to (\d+) users", ran.output) == ["2", "10", "2"], ran.output
    assert ran.code == 0
