"""Workers whose clocks are an hour off: nothing changes, for only the database's clock is asked."""

import pytest

from tests.apps.guarded_outside import is_conflict, is_first, is_replay
from tests.fixtures.processes import eventually


@pytest.fixture
def store_url(postgres_url):
    return postgres_url


@pytest.mark.parametrize("owner_is_off", [True, False], ids=["the owner is off", "the other is off"])
@pytest.mark.parametrize("shift", ["3600", "-3600"], ids=["an hour ahead", "an hour behind"])
def test_a_clock_that_is_an_hour_off_changes_nothing(serve, ledger, gate, records, shift, owner_is_off):
    off = {"TEST_CLOCK_OFF": shift}
    hosts = [serve(server={"workers": 1, "threads": 2, "env": env}, LEASE=1, RETENTION=60) for env in (off, {})]
    owner, other = hosts if owner_is_off else reversed(hosts)
    first = owner.order_in_background("order-1", X_Gate="1")
    runner = gate.next()
    (begun,) = (record.condition.lease_until for record in records.browse())

    meanwhile = [other.order("order-1")]
    eventually(lambda: records.browse()[0].condition.lease_until > begun, what="a renewal")
    meanwhile.append(other.order("order-1"))
    runner.say("201")

    assert all(map(is_conflict, meanwhile))
    assert is_first(first.result(10))
    assert is_replay(other.order("order-1"))
    assert is_replay(owner.order("order-1"))
    assert ledger.count("run") == 1
