"""What every app gets, whatever package it is built with: the promises of a protected request, with rows counted."""

import pytest

from tests.ecosystem.shop import REPLAYED, Shop
from tests.fixtures.processes import eventually, race

MEMBERS = {"type", "title", "status", "detail", "code", "retryable", "safe_new_key", "reference"}
RACERS = 4


def test_a_first_request_runs_and_is_answered_as_without_a_key(shop: Shop) -> None:
    without_key = shop.send("tea", key=None)

    first = shop.send("tea")

    assert (first.status_code, first.content_type) == (without_key.status_code, without_key.content_type)
    assert first.status_code == shop.status
    assert REPLAYED not in first.headers
    assert shop.orders == ["tea", "tea"]
    assert shop.records == 1


def test_a_retry_gets_the_first_answer_and_runs_nothing(shop: Shop) -> None:
    first = shop.send("tea")

    retries = [shop.send("tea") for _ in range(2)]

    for retry in retries:
        assert (retry.status_code, retry.data) == (first.status_code, first.data)
        assert retry.content_type == first.content_type
        assert retry.headers[REPLAYED] == "true"
    assert shop.orders == shop.runs == ["tea"]


def test_of_duplicates_at_once_one_runs_and_the_others_wait_or_are_refused(shop: Shop) -> None:
    clients = [shop.client() for _ in range(RACERS)]
    shop.arrived = 0
    shop.meanwhile = lambda: eventually(lambda: shop.arrived == RACERS, what="every duplicate")

    answers = race(RACERS, lambda i: shop.send("tea", client=clients[i]))

    assert shop.orders == shop.runs == ["tea"]
    (first,) = [answer for answer in answers if answer.status_code == shop.status and REPLAYED not in answer.headers]
    for answer in answers:
        if answer is first:
            continue
        if answer.status_code == 409:
            assert answer.json["code"] == "request-in-flight"
        else:
            assert (answer.status_code, answer.data) == (first.status_code, first.data)


def test_another_body_under_the_same_key_is_refused_with_the_whole_problem_document(shop: Shop) -> None:
    shop.send("tea")

    refusal = shop.send("coffee")

    assert refusal.status_code == 422
    assert refusal.mimetype == "application/problem+json"
    assert set(refusal.json) == MEMBERS
    assert (refusal.json["code"], refusal.json["status"]) == ("key-reused", 422)
    assert refusal.json["reference"] == refusal.headers["Idempotency-Reference"]
    assert REPLAYED not in refusal.headers
    assert shop.orders == shop.runs == ["tea"]


def test_a_validation_error_is_that_of_a_request_without_a_key(shop: Shop) -> None:
    without_key = shop.send(key=None, **shop.invalid)

    answers = [shop.send(**shop.invalid) for _ in range(2)]

    assert without_key.status_code == shop.invalid_status
    for answer in answers:
        assert (answer.status_code, answer.data) == (without_key.status_code, without_key.data)
        assert answer.content_type == without_key.content_type
    assert [REPLAYED in answer.headers for answer in answers] == [False, shop.invalid_is_kept]
    assert shop.records == (1 if shop.invalid_is_kept else 0)
    assert shop.orders == []


def test_an_exception_leaves_nothing_and_the_retry_runs(shop: Shop) -> None:
    def fail() -> None:
        shop.meanwhile = lambda: None
        raise RuntimeError("the view failed behind its commit")

    shop.meanwhile = fail

    failure = shop.send("tea")

    assert failure.status_code == 500
    assert REPLAYED not in failure.headers
    assert (shop.orders, shop.records) == ([], 0)
    retry = shop.send("tea")
    assert retry.status_code == shop.status
    assert REPLAYED not in retry.headers
    assert shop.orders == ["tea"]
    assert shop.runs == ["tea", "tea"]


@pytest.mark.parametrize("key", ["", '"unfinished'])
def test_a_malformed_key_is_refused_with_the_whole_problem_document(shop: Shop, key: str) -> None:
    refusal = shop.send("tea", key=key)

    assert (refusal.status_code, refusal.mimetype) == (400, "application/problem+json")
    assert refusal.json["code"] == "key-invalid"
    assert set(refusal.json) == MEMBERS - {"reference"}
    assert shop.orders == shop.runs == []
