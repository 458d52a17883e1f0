"""The real shop and the real gateway: its events come twice, before the answer, late and never."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import Any
from uuid import uuid4

import pytest

from tests.demo_shop.demo import REAL, Demo
from tests.fixtures.processes import ROOT, ask, eventually

MODES = ["", "event_early", "event_late", "event_lost"]


@pytest.fixture
def demo(start_demo: Any) -> Demo:
    demo: Demo = start_demo(program=REAL, GATEWAY_SLOW_SECONDS="1")
    demo.open()
    return demo


def post(url: str, token: str, body: dict[str, Any], key: str | None = None) -> Any:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    if key:
        headers["Idempotency-Key"] = key
    return ask(url, "POST", body=json.dumps(body).encode(), headers=headers, timeout=30)


def rows(demo: Demo, database: str, query: str) -> list[Any]:
    with closing(sqlite3.connect(demo.data / f"{database}.sqlite", timeout=30)) as connection:
        return connection.execute(query).fetchall()


def test_however_the_events_come_each_charge_is_recorded_once(demo):
    shop, gateway = (f"http://127.0.0.1:{port}" for port in (demo.port, demo.gateway_port))
    api_key = (demo.data / "gateway_key").read_text()
    token = post(f"{shop}/api/tokens", "", {"account": "ada"}).json["token"]

    for mode in MODES:
        post(f"{gateway}/knobs", api_key, {"behaviour": mode})
        bought = post(f"{shop}/api/buy", token, {"product": "whisk", "card": "card_ok"}, uuid4().hex)
        assert bought.status == 201, bought
    undelivered = "SELECT count(*) FROM events WHERE NOT is_delivered"
    eventually(lambda: rows(demo, "gateway", undelivered) == [(1,)], what="all events but the one that is lost")
    secret = (demo.data / "webhook_secret").read_text()
    environ = {
        "DEMO_DATA": str(demo.data),
        "GATEWAY_API_KEY": api_key,
        "GATEWAY_WEBHOOK_URL": f"{shop}/webhooks/gateway",
        "GATEWAY_WEBHOOK_SECRET": secret,
    }
    command = [sys.executable, "-m", "flask", "--app", "demo_shop.gateway.app", "events"]
    subprocess.run(command, cwd=ROOT, env=os.environ | environ, check=True, timeout=60)
    eventually(lambda: rows(demo, "shop", "SELECT count(*) FROM job") == [(0,)], what="the outbox")

    assert rows(demo, "gateway", undelivered) == [(0,)]
    charges = rows(demo, "gateway", 'SELECT "order", id FROM charges ORDER BY number')
    paid = 'SELECT number, charge FROM payment JOIN "order" ON "order".id = order_id ORDER BY payment.id'
    assert len(charges) == len(MODES)
    assert rows(demo, "shop", paid) == charges
    assert rows(demo, "shop", 'SELECT DISTINCT state FROM "order"') == [("paid",)]
    assert rows(demo, "shop", "SELECT count(*) FROM letter") == [(len(MODES),)]
    received = "SELECT count(*) FROM idempotency_record WHERE path = '/webhooks/gateway' AND state = 'finished'"
    assert rows(demo, "shop", received) == [(len(MODES),)]
