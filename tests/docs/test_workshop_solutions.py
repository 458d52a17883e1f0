"""The workshop's solutions, by hand and with the extension, keep every promise that their labs have asked for."""

import pytest

from docs.workshop.checks import Broken
from docs.workshop.labs import LABS, checks_of

WHOLE = 5  # from this lab on a solution is tried with what the labs before it ask for, too: it has another shape


@pytest.mark.parametrize("which", ["solution", "extended"])
@pytest.mark.parametrize(
    ("number", "check"),
    [
        pytest.param(number, check, id=f"{number}-{check.__name__}")
        for number, lab in LABS.items()
        for check in (lab.checks if number < WHOLE else checks_of(number))
    ],
)
def test_a_solution_keeps_every_promise(number, check, which):
    try:
        check(LABS[number].file(which))
    except Broken as broken:
        pytest.fail(f"{broken}\n{broken.picture}")


@pytest.mark.parametrize(
    ("number", "check"),
    [pytest.param(number, check, id=f"{number}-{check.__name__}") for number in LABS for check in LABS[number].checks],
)
def test_what_a_lab_begins_with_breaks_what_it_teaches_and_keeps_the_rest(number, check):
    kept_from_the_beginning = {"retry", "same_order", "offline"}
    try:
        check(LABS[number].file("begin"))
    except Broken:
        assert check.__name__ not in kept_from_the_beginning
    else:
        assert check.__name__ in kept_from_the_beginning
