"""prometheus-flask-exporter: one page has the numbers of both."""

from collections.abc import Callable
from typing import Any

from tests.ecosystem.apps.prometheus_flask_exporter import Counted


def test_one_page_shows_what_the_exporter_counts_and_what_we_count(make_shop: Callable[..., Any]) -> None:
    shop = make_shop(Counted)
    shop.send("tea")
    shop.send("tea")

    page = shop.app.test_client().get("/metrics").text

    assert 'flask_http_request_total{method="POST",status="201"} 2.0' in page
    for outcome in ("first", "replayed"):
        labels = f'endpoint="view",guard="transaction",outcome="{outcome}"'
        assert f"idempotency_requests_total{{{labels}}} 1.0" in page
