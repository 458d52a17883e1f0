"""A thousand actions through thirty percent of faults: one effect for each, with each kind of client."""

import asyncio
import contextlib
import json
import random
from collections import Counter

import httpx
import pytest
import requests

from flask_idempotency.client import Adapter, AsyncTransport, Budget, Outbox, RetryPolicy, Transport, outcome_of
from tests.apps.actions import make_app
from tests.client.in_process import App, AsyncApp, RequestsApp
from tests.client.worlds import Time

COUNT, URL = 1000, "http://api.test/actions"
FAULTS = ["unconnected", "lost", "busy"]  # ten percent of each


@pytest.fixture
def ledger(tmp_path):
    return tmp_path / "ledger"


@pytest.fixture
def chaos():
    chance = random.Random(18)
    happened = Counter()

    def chaos():
        fault = chance.choice(FAULTS) if chance.random() < 0.3 else None
        happened[fault] += 1
        return fault

    chaos.happened = happened
    return chaos


def options(time):
    return {"policy": RetryPolicy(attempts=30, deadline=None), "budget": Budget(10**6), **time.options()}


def with_httpx(app, chaos, time):
    with httpx.Client(transport=Transport(App(app, chaos), sleep=time.sleep, **options(time))) as client:
        return [client.post(URL, json={"intent": n}) for n in range(COUNT)]


def with_async(app, chaos, time):
    async def act():
        transport = AsyncTransport(AsyncApp(app, chaos), sleep=time.sleep_async, **options(time))
        async with httpx.AsyncClient(transport=transport) as client:
            return await asyncio.gather(*(client.post(URL, json={"intent": n}) for n in range(COUNT)))

    with contextlib.closing(asyncio.new_event_loop()) as loop:
        return loop.run_until_complete(act())


def with_requests(app, chaos, time):
    with requests.Session() as session:
        session.mount("http://", Adapter(RequestsApp(app, chaos), sleep=time.sleep, **options(time)))
        return [session.post(URL, json={"intent": n}) for n in range(COUNT)]


def effects(ledger):
    return Counter(json.loads(line)["intent"] for line in ledger.read_text().splitlines())


def check_faults(happened):
    total = happened.total()
    assert total > COUNT * 1.3
    assert all(0.07 < happened[fault] / total < 0.13 for fault in FAULTS)


@pytest.mark.parametrize("send", [with_httpx, with_async, with_requests])
def test_each_action_takes_effect_once(send, ledger, chaos):
    answers = send(make_app(ledger), chaos, Time())

    assert effects(ledger) == dict.fromkeys(range(COUNT), 1)
    assert [(answer.status_code, answer.json()["done"]) for answer in answers] == [(201, n) for n in range(COUNT)]
    assert {outcome_of(answer).course for answer in answers} == {"first", "replayed"}
    check_faults(chaos.happened)


def test_an_outbox_has_each_done_once_and_in_order(ledger, chaos, tmp_path):
    outbox = Outbox(tmp_path / "actions.sqlite", chance=lambda: 0.0)
    for n in range(COUNT):
        outbox.put("POST", URL, json={"intent": n}, subject=str(n % 7))
    with httpx.Client(transport=App(make_app(ledger), chaos)) as client:
        while outbox.send(client, hurry=True).next_in is not None:
            pass

    done = effects(ledger)
    assert done == dict.fromkeys(range(COUNT), 1)
    for subject in range(7):
        order = [n for n in done if n % 7 == subject]
        assert order == sorted(order)
    check_faults(chaos.happened)
