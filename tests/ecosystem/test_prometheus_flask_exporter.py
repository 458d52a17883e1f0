"""prometheus-flask-exporter: one page has the numbers of both."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.ecosystem.apps.prometheus_flask_exporter import Counted
from tests.fixtures.processes import Gunicorn, ask


def test_one_page_shows_what_the_exporter_counts_and_what_we_count(make_shop: Callable[..., Any]) -> None:
    shop = make_shop(Counted)
    shop.send("tea")
    shop.send("tea")

    page = shop.app.test_client().get("/metrics").text

    assert 'flask_http_request_total{method="POST",status="201"} 2.0' in page
    for outcome in ("first", "replayed"):
        labels = f'endpoint="view",guard="transaction",outcome="{outcome}"'
        assert f"idempotency_requests_total{{{labels}}} 1.0" in page


def test_one_page_has_the_sums_of_several_workers_of_both(gunicorn: Callable[..., Gunicorn], tmp_path: Path) -> None:
    (tmp_path / "numbers").mkdir()
    env = {"INSTANCE": str(tmp_path), "PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "numbers")}
    server = gunicorn("tests.ecosystem.served_metrics:create_app()", workers=2, env=env)
    workers: list[int] = []

    while len(set(workers)) < 2:
        assert len(workers) < 1000, "one worker takes all requests"
        headers = {"Idempotency-Key": f"k{len(workers)}"}
        workers.append(ask(f"{server.url}/orders", "POST", headers=headers).json["worker"])

    page = ask(f"{server.url}/metrics").body.decode().splitlines()
    labels = 'endpoint="create_order",guard="lease",outcome="first"'
    assert f"idempotency_requests_total{{{labels}}} {len(workers)}.0" in page
    assert f'flask_http_request_total{{method="POST",status="201"}} {len(workers)}.0' in page
