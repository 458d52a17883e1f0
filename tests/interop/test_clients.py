"""Clients that retry by themselves: an answer lost after the work was done costs nobody a second charge."""

import uuid
from datetime import timedelta

import httpx
import pytest
import requests
import stripe
from requests.adapters import HTTPAdapter
from urllib3 import Retry

from tests.apps.shop import REPLAYED
from tests.fixtures.processes import race

pytestmark = pytest.mark.xdist_group("interop clients")  # one server for all


@pytest.fixture
def client(payments):
    """Stripe's own client, as anybody would make it."""
    return stripe.StripeClient("sk_test_x", base_addresses={"api": payments.url}, max_network_retries=2)


@pytest.fixture
def before(payments):
    return len(payments.effects())


# -- Stripe's client ---------------------------------------------------------------------------------------------------


def test_stripe_gets_its_charge_under_keys_of_its_own(payments, before, client):
    charges = [client.v1.charges.create({"amount": 100, "currency": "eur"}) for _ in range(3)]

    assert [charge.amount for charge in charges] == [100] * 3
    assert len({charge.id for charge in charges}) == 3
    assert not any(REPLAYED in charge.last_response.headers for charge in charges)
    assert len(payments.effects()) == before + 3


@pytest.mark.parametrize("lost", [1, 2])
def test_stripe_resends_what_was_lost_and_gets_the_replay_of_one_charge(payments, before, client, lost):
    payments.lose_answers(lost)

    charge = client.v1.charges.create({"amount": 250, "currency": "eur", "metadata": {"a": "1", "b": "2"}})

    assert payments.are_lost()
    assert charge.amount == 250
    assert charge.last_response.headers[REPLAYED] == "true"
    assert len(payments.effects()) == before + 1


def test_stripe_with_a_key_of_the_callers_own_is_replayed_whatever_the_order_of_its_parameters(
    payments, before, client
):
    key = {"idempotency_key": str(uuid.uuid4())}

    first = client.v1.charges.create({"amount": 1, "currency": "eur", "metadata": {"a": "1", "b": "2"}}, key)
    second = client.v1.charges.create({"metadata": {"b": "2", "a": "1"}, "currency": "eur", "amount": 1}, key)

    assert first.id == second.id
    assert second.last_response.headers[REPLAYED] == "true"
    assert len(payments.effects()) == before + 1


def test_stripe_is_told_that_a_key_was_used_for_another_charge_and_does_not_retry(payments, before, client):
    key = {"idempotency_key": str(uuid.uuid4())}
    client.v1.charges.create({"amount": 1, "currency": "eur"}, key)

    with pytest.raises(stripe.StripeError) as raised:
        client.v1.charges.create({"amount": 2, "currency": "eur"}, key)

    assert raised.value.http_status == 422
    assert len(payments.effects()) == before + 1


@pytest.mark.parametrize("key", ["x" * 256, "one,two"])
def test_stripe_is_told_that_a_key_is_malformed(payments, before, client, key):
    with pytest.raises(stripe.StripeError) as raised:
        client.v1.charges.create({"amount": 1, "currency": "eur"}, {"idempotency_key": key})

    assert raised.value.http_status == 400
    assert len(payments.effects()) == before


def test_four_stripe_clients_with_one_key_all_get_the_same_charge(payments, before):
    key = {"idempotency_key": str(uuid.uuid4())}

    def charge(_):
        own = stripe.StripeClient("sk_test_x", base_addresses={"api": payments.url}, max_network_retries=2)
        return own.v1.charges.create({"amount": 5, "currency": "eur"}, key).id

    assert len(set(race(4, charge))) == 1
    assert len(payments.effects()) == before + 1


# -- requests and httpx ------------------------------------------------------------------------------------------------


def headers():
    return {"Idempotency-Key": str(uuid.uuid4()), "Authorization": "Bearer sk_test_x"}


def test_requests_with_urllib3s_retry_gets_the_replay(payments, before):
    payments.lose_answers(2)
    retry = Retry(total=4, allowed_methods={"POST"}, status_forcelist={409, 503}, backoff_factor=0.05)

    with requests.Session() as session:
        session.mount("http://", HTTPAdapter(max_retries=retry))
        answer = session.post(f"{payments.url}/v1/charges", data={"amount": 7}, headers=headers(), timeout=10)

    assert payments.are_lost()
    assert (answer.status_code, answer.json()["amount"]) == (200, 7)
    assert answer.headers[REPLAYED] == "true"
    assert len(payments.effects()) == before + 1


def test_an_upload_that_requests_sends_again_with_a_new_boundary_is_the_same(payments, before):
    key = headers()

    def send():
        return requests.post(f"{payments.url}/orders", files={"list": ("a.csv", b"1;2")}, headers=key, timeout=10)

    first, second = send(), send()

    assert first.request.headers["Content-Type"] != second.request.headers["Content-Type"]
    assert second.headers[REPLAYED] == "true"
    assert first.content == second.content
    assert len(payments.effects()) == before + 1


def test_a_retry_loop_around_httpx_gets_the_replay(payments, before):
    payments.lose_answers(2)
    key = headers()

    def send_until_answered(client):
        for _ in range(5):
            try:
                answer = client.post("/orders", json={"b": 1, "a": 2}, headers=key)
            except httpx.TransportError:
                continue
            if answer.status_code not in (409, 503):
                return answer
        raise AssertionError("never answered")

    with httpx.Client(base_url=payments.url, timeout=10) as client:
        answer = send_until_answered(client)

    assert payments.are_lost()
    assert answer.status_code == 201
    assert answer.headers[REPLAYED] == "true"
    assert answer.elapsed < timedelta(seconds=5)
    assert len(payments.effects()) == before + 1
