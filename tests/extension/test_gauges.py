"""Each gauge shows what the store holds when it is scraped, and is absent, not zero, if the store cannot be asked."""

import os
import sys
from threading import Event, Thread

import pytest
from flask import abort
from prometheus_client import CollectorRegistry, generate_latest

from flask_idempotency import telemetry
from flask_idempotency.core.figures import Figures
from flask_idempotency.errors import ConfigError, StoreUnavailable
from flask_idempotency.telemetry import measuring
from tests.extension.test_cli import run

ALL = {
    *("running_records", "quarantined_records", "live_records", "expired_records", "store_bytes"),
    *("oldest_running_seconds", "reap_lag_seconds"),
}


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(measuring, "monotonic", lambda: now[0])
    return lambda seconds: now.append(now.pop() + seconds)


@pytest.fixture
def scrape(clock):
    """`scrape(shop)`: the gauges of a shop, asked anew."""

    def read(*shops):
        clock(measuring.LIFETIME)
        return gauges_in(registry_of(*shops))

    return read


def registry_of(*shops):
    registry = CollectorRegistry()
    for shop in shops:
        telemetry.gauges(shop.app, registry)
    return registry


def gauges_in(registry):
    return {
        sample.name.removeprefix("idempotency_"): sample.value
        for family in registry.collect()
        for sample in family.samples
        if family.type == "gauge"
    }


def test_of_an_empty_store_every_gauge_is_there(shop, scrape):
    found = scrape(shop)

    assert found.keys() | {"store_bytes"} == ALL
    assert {name: value for name, value in found.items() if value and name != "store_bytes"} == {}


def test_running_records_come_and_go(shop, scrape):
    inside = []
    shop.answer = lambda: inside.append(scrape(shop)["running_records"]) or shop.create()

    shop.send()

    assert (inside, scrape(shop)["running_records"]) == ([1], 0)


def test_the_oldest_running_record_ages_until_it_ends(shop, scrape, let_pass):
    shop.answer = lambda: abort(503)
    shop.send()
    let_pass(3600)
    left = scrape(shop)["oldest_running_seconds"]
    shop.answer = shop.create
    shop.send()

    assert 3600 <= left < 3700
    assert scrape(shop)["oldest_running_seconds"] == 0


def test_quarantined_records_are_there_until_somebody_settles_them(shop, scrape, sql, tmp_path):
    known = shop.send().headers["Idempotency-Reference"]
    sql("UPDATE idempotency_record SET state = 'quarantined', expires_at = NULL, lease_until = created_at")
    before = scrape(shop)["quarantined_records"]
    answer = tmp_path / "answer.json"
    answer.write_text('{"status": 201}')
    run(shop, "resolve", known, "--answer", str(answer))

    assert (before, scrape(shop)["quarantined_records"]) == (1, 0)


def test_live_records_become_expired_ones_and_the_reaper_is_behind_until_it_comes(shop, scrape, let_pass):
    shop.send(key="one")
    shop.send(key="two")
    live = scrape(shop)
    let_pass(86400 + 7200)
    expired = scrape(shop)
    run(shop, "reap")
    reaped = scrape(shop)

    wanted = ("live_records", "expired_records")
    assert [[found[name] for name in wanted] for found in (live, expired, reaped)] == [[2, 0], [0, 2], [0, 0]]
    assert (live["reap_lag_seconds"], reaped["reap_lag_seconds"]) == (0, 0)
    assert 7200 <= expired["reap_lag_seconds"] < 7300


def test_the_size_grows_with_what_is_stored(shop, scrape):
    before = scrape(shop)["store_bytes"]
    shop.answer = lambda: (os.urandom(400_000).hex(), 201)
    shop.send()

    assert scrape(shop)["store_bytes"] > before + 300_000


@pytest.mark.parametrize("error", [StoreUnavailable(), RuntimeError("a bug")], ids=["unreachable", "a bug"])
def test_gauges_are_absent_if_the_store_cannot_be_asked_and_come_back(shop, scrape, error):
    shop.store.fails("figures", error)
    without = scrape(shop)
    shop.store.heals()

    assert without == {}
    assert scrape(shop).keys() == ALL


def test_what_the_store_does_not_know_is_absent_alone(shop, scrape):
    shop.store.real.figures = lambda: Figures(1, None, 2, 3, bytes=None, is_estimate=True)

    assert scrape(shop).keys() == ALL - {"quarantined_records", "store_bytes"}


def test_a_scrape_does_not_wait_for_a_slow_store(shop, monkeypatch):
    monkeypatch.setattr(measuring, "PATIENCE", 0.01)
    go_on = Event()
    shop.store.before["figures"] = lambda: go_on.wait(30)
    registry = registry_of(shop)

    first, second = gauges_in(registry), gauges_in(registry)
    asked = shop.store.calls.count("figures")
    go_on.set()
    monkeypatch.setattr(measuring, "PATIENCE", 30)

    assert (first, second, asked) == ({}, {}, 1)
    assert gauges_in(registry).keys() == ALL


def test_two_scrapes_within_a_few_seconds_ask_the_store_once(shop, clock):
    registry = registry_of(shop)

    gauges_in(registry)
    gauges_in(registry_of(shop))  # as where each scrape makes one to gather several workers
    once = shop.store.calls.count("figures")
    clock(measuring.LIFETIME)
    gauges_in(registry)

    assert (once, shop.store.calls.count("figures")) == (1, 2)


def test_scrapers_at_one_time_share_an_answer(shop):
    registry, go_on, found = registry_of(shop), Event(), []
    shop.store.before["figures"] = lambda: go_on.wait(30)
    scrapers = [Thread(target=lambda: found.append(gauges_in(registry))) for _ in range(3)]

    for scraper in scrapers:
        scraper.start()
    go_on.set()
    for scraper in scrapers:
        scraper.join(30)

    assert [each.keys() for each in found] == [ALL] * 3


def test_registering_asks_no_store(shop):
    registry = CollectorRegistry(auto_describe=True)

    telemetry.prometheus(shop.app, registry)

    assert "figures" not in shop.store.calls
    assert b"idempotency_running_records 0.0" in generate_latest(registry)


def test_the_records_of_two_apps_in_one_registry_are_added_up(make_shop, scrape):
    shops = [make_shop(), make_shop()]
    for shop in shops:
        shop.store.real.figures = lambda: Figures(1, 2, 3, 4)

    found = scrape(*shops)

    assert [found[name] for name in ("running_records", "quarantined_records", "live_records", "expired_records")] == [
        *(2, 4, 12, 8)
    ]


def test_an_app_that_is_not_set_up_yet_has_no_gauges(shop):
    app = shop.app
    registry = registry_of(shop)
    state = app.extensions.pop("idempotency")
    without = gauges_in(registry)
    app.extensions["idempotency"] = state

    assert without == {}
    assert gauges_in(registry).keys() == ALL


def test_a_forked_worker_asks_for_itself(shop):
    reading = measuring.reading_of(shop.app)
    reading._asked = Event()  # the parent's thread was asking

    reading.start_afresh()

    assert gauges_in(registry_of(shop)).keys() == ALL


def test_without_the_client_library_it_says_what_to_install(shop, monkeypatch):
    monkeypatch.delitem(sys.modules, "flask_idempotency.telemetry.measuring", raising=False)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)

    with pytest.raises(ConfigError, match=r"pip install flask-idempotency\[metrics\]"):
        telemetry.gauges(shop.app, CollectorRegistry())
