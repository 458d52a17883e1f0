"""OpenTelemetry: one span for each request, whoever was registered first, and the view's statements in them."""

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from tests.ecosystem.apps.opentelemetry import After, Before


@pytest.mark.parametrize("kind", [Before, After])
def test_replays_and_refusals_have_spans_like_any_request(make_shop: Callable[..., Any], kind: Any) -> None:
    shop = make_shop(kind)

    answers = [shop.send("tea"), shop.send("tea"), shop.send("coffee"), shop.send("tea", key='"')]

    assert shop.statuses == [answer.status_code for answer in answers] == [201, 201, 422, 400]


@pytest.mark.parametrize("kind", [Before, After])
def test_a_request_that_failed_has_a_span_that_says_so(make_shop: Callable[..., Any], kind: Any) -> None:
    shop = make_shop(kind)
    shop.meanwhile = lambda: 1 / 0

    shop.send("tea")

    assert shop.statuses == [500]
    assert (shop.orders, shop.records) == ([], 0)


@pytest.mark.parametrize(
    ("database", "instrumentation"),
    [("sqlite", "sqlalchemy"), ("postgresql", "sqlalchemy"), ("postgresql", "psycopg")],
)
def test_the_statement_of_the_view_has_one_span_and_a_replay_none(
    make_shop: Callable[..., Any], database: str, instrumentation: str
) -> None:
    shop = make_shop(Before, database)
    shop.spans.clear()

    shop.send("tea")
    shop.send("tea")

    inserts = [text for text in shop.statements(instrumentation) if text.startswith("INSERT INTO orders")]
    assert len(inserts) == 1
    assert shop.orders == ["tea"]


@pytest.mark.parametrize("order", list(permutations(["instrument", "protect", "trace"])), ids="-".join)
def test_the_spans_of_requests_say_what_became_of_them_in_any_order(
    make_shop: Callable[..., Any], order: tuple[str, ...]
) -> None:
    shop = make_shop(type("Ordered", (Before,), {"order": order}))

    for item, key in [("tea", "a"), ("tea", "a"), ("coffee", "a"), ("tea", '"')]:
        shop.send(item, key=key)

    first, replay, *_ = shop.requests
    outcomes = [span.attributes["idempotency.outcome"] for span in shop.requests]
    assert outcomes == ["first", "replayed", "key-reused", "key-invalid"]
    assert [link.context.span_id for link in replay.links] == [first.context.span_id]
    claim, commit = (shop.named(f"idempotency {step}")[0] for step in ("claim", "commit"))
    assert claim.parent.span_id == commit.parent.span_id == first.context.span_id
