"""Beside a planted fault, nothing else is said to be broken; and most faults are visible without counting effects."""

import pytest

from flask_idempotency.conformance.verdicts import Broken
from tests.conformance.conftest import judged, of_kind
from tests.conformance.faults import FAULTS, NEEDED_WITH, ONLY_COUNTED, STRIPE_FAULTS
from tests.conformance.planted import serving


def planted(fault):
    return serving(fault, *([NEEDED_WITH[fault]] if fault in NEEDED_WITH else []))


@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_else_is_said_to_be_broken(fault):
    with planted(fault) as url:
        report = judged(url, dialect="ietf")

    assert of_kind(report, Broken).keys() == FAULTS[fault], of_kind(report, Broken)


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault not in ONLY_COUNTED])
def test_answers_alone_show_it_too(fault):
    with planted(fault) as url:
        report = judged(url, dialect="ietf", counts=False)

    assert of_kind(report, Broken).keys() == FAULTS[fault], of_kind(report, Broken)


@pytest.mark.parametrize("fault", STRIPE_FAULTS)
def test_nothing_else_is_said_to_be_broken_in_stripes_dialect(fault):
    with serving(fault, dialect="stripe") as url:
        report = judged(url, dialect="stripe")

    assert of_kind(report, Broken).keys() == STRIPE_FAULTS[fault], of_kind(report, Broken)
