"""The key of an effect stands for the request that was recorded: the same request has the same key, another has not."""

from datetime import timedelta
from hashlib import sha256

import pytest
from flask import request

from flask_idempotency import effect
from flask_idempotency.core import fingerprint as rules
from flask_idempotency.http import reading
from tests.phases.conftest import KEY, id_of
from tests.phases.foreign import Foreign, Trouble

RETENTION = timedelta(hours=1)


@pytest.fixture
def gateway():
    """A gateway that remembers its keys longer than the records are kept, and charges once for each."""

    charges = {}

    class Gateway(Foreign):
        def charge(self, key, amount):
            self.call(key)
            return {"amount": charges.setdefault(key, amount)}

    return Gateway()


def serve(desk, gateway):
    desk.serve(lambda: (effect("charge", lambda key: gateway.charge(key, request.json["amount"])), 201))


@pytest.fixture
def desk(make_desk, gateway):
    desk = make_desk(retention=RETENTION)
    serve(desk, gateway)
    return desk


@pytest.fixture
def deploy(monkeypatch):
    """Deploy a version whose new records are made by fingerprint rules of version 2, and which knows version 1."""

    def upgrade():
        monkeypatch.setitem(rules.RULES, 2, lambda content: sha256(b"2" + rules.RULES[1](content)).digest())
        monkeypatch.setattr(reading, "fingerprint", lambda content, version=2: rules.fingerprint(content, version))

    return upgrade


def test_another_request_under_an_expired_key_does_not_get_the_first_ones_charge(desk, gateway):
    first = desk.send(json={"amount": 10})
    desk.tables.let_pass(RETENTION)

    second = desk.send(json={"amount": 9000})

    assert (first.json, second.json) == ({"amount": 10}, {"amount": 9000})
    assert len(set(gateway.keys)) == 2


def test_the_same_request_after_expiry_keeps_the_key_of_its_effect(desk, gateway):
    first = desk.send(data='{"amount": 10, "to": "bob"}', content_type="application/json")
    desk.tables.let_pass(RETENTION)

    second = desk.send(data='{"to": "bob",  "amount": 10}', content_type="application/json")

    assert (first.status_code, second.status_code) == (201, 201)
    assert "Idempotent-Replayed" not in second.headers
    assert len(gateway.keys) == 2
    assert len(set(gateway.keys)) == 1


def test_a_request_resumed_after_new_fingerprint_rules_keeps_the_key_of_its_effect(desk, gateway, deploy):
    gateway.answers = [Trouble()]
    desk.send(json={"amount": 10})
    deploy()

    resumed = desk.send(json={"amount": 10})

    assert resumed.status_code == 201
    assert len(gateway.keys) == 2
    assert len(set(gateway.keys)) == 1


# -- namespaces --------------------------------------------------------------------------------------------------------


def test_two_namespaces_share_a_database_and_a_gateway_but_no_record_and_no_effect_key(make_desk, tables, gateway):
    desks = []
    for namespace in ("shop", "billing", ""):
        desks.append(make_desk(namespace=namespace))
        serve(desks[-1], gateway)

    answers = [desk.send(json={"amount": 10}) for desk in desks]

    assert [answer.status_code for answer in answers] == [201, 201, 201]
    assert not any("Idempotent-Replayed" in answer.headers for answer in answers)
    assert len({answer.headers["Idempotency-Reference"] for answer in answers}) == 3
    assert len(set(gateway.keys)) == 3
    assert tables.sql("SELECT count(*) FROM idempotency_record") == [(3,)]


def test_workers_of_one_namespace_share_their_records(make_desk, gateway):
    one, other = make_desk(namespace="shop"), make_desk(namespace="shop")
    for desk in (one, other):
        serve(desk, gateway)

    one.send(json={"amount": 10})
    answer = other.send(json={"amount": 10})

    assert answer.headers["Idempotent-Replayed"] == "true"
    assert len(gateway.keys) == 1


def test_without_a_namespace_a_record_has_the_id_it_always_had(desk, tables):
    desk.send(json={"amount": 10})

    assert tables.store.find(id_of(KEY)) is not None
