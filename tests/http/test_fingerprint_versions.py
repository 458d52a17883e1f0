"""A deploy that changes the rules of fingerprints refuses nobody: F1, fault G12."""

from hashlib import sha256

import pytest
from flask import abort

from flask_idempotency.core import fingerprint as rules
from flask_idempotency.http import reading
from tests.apps.shop import REPLAYED


@pytest.fixture
def deploy(monkeypatch):
    """Deploy a release whose new records are made by the rules of version 2, and which knows those of version 1."""

    def upgrade():
        monkeypatch.setitem(rules.RULES, 2, lambda content: sha256(b"2" + rules.RULES[1](content)).digest())
        monkeypatch.setattr(reading, "fingerprint", lambda content, version=2: rules.fingerprint(content, version))

    return upgrade


def test_a_record_is_compared_by_the_rules_that_made_it(shop, deploy):
    shop.send(json={"a": 1})
    deploy()

    same, other = shop.send(json={"a": 1}), shop.send(json={"a": 2})

    assert (same.headers.get(REPLAYED), other.status_code, shop.n) == ("true", 422, 1)


def test_a_request_that_was_begun_before_the_deploy_can_be_resumed(shop, deploy):
    shop.answer = lambda: abort(503)
    shop.send(json={"a": 1})
    deploy()
    shop.answer = shop.create

    other, same = shop.send(json={"a": 2}), shop.send(json={"a": 1})

    assert (other.status_code, same.status_code, shop.n) == (422, 201, 2)


def test_a_request_in_flight_is_recognised_across_the_deploy(shop, deploy):
    seen = []
    shop.answer = lambda: (deploy(), seen.append(shop.send(json={"a": 1}).status_code), shop.create())[2]

    shop.send(json={"a": 1})

    assert seen == [409]


def test_new_records_are_made_by_the_new_rules(shop, deploy):
    deploy()
    shop.send(json={"a": 1})

    assert shop.records()[0].asked.fingerprint.version == 2
    assert shop.send(json={"a": 1}).headers[REPLAYED] == "true"


def make_record_of_a_newer_release(sql):
    """Give the one record a fingerprint by rules that are not known here."""
    ((stored,),) = sql("SELECT fingerprint FROM idempotency_record")
    sql("UPDATE idempotency_record SET fingerprint = :f", f=b"\x63" + bytes(stored)[1:])


def test_a_record_of_a_newer_release_is_neither_run_nor_called_another_request(shop, sql):
    shop.send()
    make_record_of_a_newer_release(sql)

    answer = shop.send()

    assert (answer.status_code, answer.json["code"], shop.n) == (503, "checkpoint-unknown", 1)
    assert (answer.json["retryable"], answer.json["safe_new_key"]) == (True, False)


def test_a_failed_attempt_of_a_newer_release_is_left_to_it(shop, sql):
    shop.answer = lambda: abort(503)
    shop.send()
    make_record_of_a_newer_release(sql)
    shop.answer = shop.create

    answer = shop.send()

    assert (answer.status_code, answer.json["code"], shop.n) == (503, "checkpoint-unknown", 1)
