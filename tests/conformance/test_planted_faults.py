"""A server that keeps its promises is told so, and each fault that is planted in it is named."""

import pytest

from flask_idempotency.conformance.promises import PROMISES
from flask_idempotency.conformance.verdicts import Broken, Holds, NotShown
from tests.conformance.conftest import judged, of_kind
from tests.conformance.faults import FAULTS, NEEDED_WITH, ONLY_COUNTED, STRIPE_FAULTS
from tests.conformance.planted import serving

FOLLOWS = {promise.id: promise.follows for promise in PROMISES}


def planted(fault):
    return serving(fault, *([NEEDED_WITH[fault]] if fault in NEEDED_WITH else []))


@pytest.mark.parametrize("dialect", ["ietf", "stripe"])
@pytest.mark.parametrize("named", [True, False], ids=["named", "auto"])
def test_a_server_that_keeps_its_promises_is_told_so(dialect, named):
    with serving(dialect=dialect) as url:
        report = judged(url, dialect=dialect if named else None)

    assert report.dialect.name == dialect
    assert of_kind(report, Broken) == {}
    opaque = {"key-unbalanced"} if dialect == "stripe" else set()
    assert of_kind(report, NotShown).keys() == opaque


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named(fault):
    broken = FAULTS[fault]
    rests_on = {name for promise in broken for name in FOLLOWS[promise]}

    with planted(fault) as url:
        report = judged(url, dialect="ietf", only=(*broken, *rests_on))

    assert of_kind(report, Broken).keys() == broken, of_kind(report, Broken)
    assert all(verdict.evidence for _, verdict in report.verdicts if isinstance(verdict, Broken))


@pytest.mark.parametrize("fault", ONLY_COUNTED)
def test_what_answers_alone_do_not_show_is_not_said_to_be_broken(fault):
    with planted(fault) as url:
        report = judged(url, dialect="ietf", counts=False, only=tuple(FAULTS[fault]))

    assert of_kind(report, Broken) == {}


def test_without_a_count_it_is_said_what_cannot_be_shown():
    with serving() as url:
        report = judged(url, counts=False, only=("hang-up-runs-once", "burst-runs-once"))

    assert "count effects" in of_kind(report, NotShown)["hang-up-runs-once"]
    assert of_kind(report, Holds)["burst-runs-once"]


@pytest.mark.parametrize("fault", STRIPE_FAULTS)
def test_a_planted_fault_is_named_in_stripes_dialect(fault):
    broken = STRIPE_FAULTS[fault]

    with serving(fault, dialect="stripe") as url:
        report = judged(url, dialect="stripe", only=tuple(broken))

    assert of_kind(report, Broken).keys() == broken, of_kind(report, Broken)


def test_a_dialect_that_is_not_the_servers_is_seen():
    with serving(dialect="ietf") as url:
        report = judged(url, dialect="stripe", only=("stripe-headers", "refusal-status", "explained"))

    assert of_kind(report, Broken).keys() == {"stripe-headers", "refusal-status", "explained"}
