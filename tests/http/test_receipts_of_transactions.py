"""Receipts under the transaction guard, whose record is committed with its answer and not before."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from flask import Flask, request
from flask_sqlalchemy import SQLAlchemy

from flask_idempotency import Idempotency, idempotent, receipts
from tests.apps.shop import Gate

ALICE, BOB = {"X-User": "alice"}, {"X-User": "bob"}


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def client(shop_url, gate):
    """Of an app whose view stands at the gate, if it is asked to."""
    app = Flask("orders")
    app.config.update(SQLALCHEMY_DATABASE_URI=shop_url, IDEMPOTENCY_HOUSEKEEPING=False)
    db = SQLAlchemy(app)
    Idempotency(app, db=db, scope=lambda: request.headers.get("X-User"))
    app.register_blueprint(receipts.blueprint())

    def order():
        if request.args.get("slowly"):
            gate.stop()
        return {"number": 1}, 503 if request.args.get("fails") else 201

    app.post("/orders")(idempotent(in_flight="accepted")(order))
    app.post("/refused", endpoint="refused")(idempotent(order))

    with app.app_context():
        db.create_all()
        yield app.test_client()
        db.engine.dispose()


def send(client, query="", **headers):
    return client.post(f"/orders{query}", headers={**ALICE, "Idempotency-Key": "1", **headers})


@pytest.mark.postgresql
@pytest.mark.parametrize("shop_url", ["postgresql"], indirect=True)
def test_while_its_transaction_is_open_the_caller_alone_sees_that_it_runs(client, gate):
    with ThreadPoolExecutor(max_workers=1) as threads:
        first = threads.submit(send, client, "?slowly=1")
        gate.wait_for_view()
        accepted = send(client, "?slowly=1")
        address = accepted.headers["Location"]
        receipt, answer = client.get(address, headers=ALICE), client.get(f"{address}?answer=1", headers=ALICE)
        stranger = client.get(address, headers=BOB)
        gate.open()
        made = first.result(30)

    assert (accepted.status_code, receipt.status_code, receipt.json["state"]) == (202, 200, "running")
    assert int(receipt.headers["Retry-After"]) >= 1
    assert (answer.status_code, answer.json["code"]) == (409, "request-in-flight")
    assert stranger.status_code == 404
    assert client.get(f"{address}?answer=1", headers=ALICE).data == made.data


@pytest.mark.postgresql
@pytest.mark.parametrize("shop_url", ["postgresql"], indirect=True)
@pytest.mark.parametrize(
    ("preferred", "status"),
    [("respond-async", 202), ("wait=1", 409), ("respond-async, wait=1", 202), ("wait=soon", 409)],
)
def test_a_client_may_prefer_what_it_gets_while_the_transaction_is_open(client, gate, preferred, status):
    with ThreadPoolExecutor(max_workers=1) as threads:
        asked = {"headers": {**ALICE, "Idempotency-Key": "1"}}
        first = threads.submit(client.post, "/refused?slowly=1", **asked)
        gate.wait_for_view()
        asked["headers"]["Prefer"] = preferred
        answer = client.post("/refused?slowly=1", **asked)
        gate.open()
        first.result(30)

    assert answer.status_code == status
    wanted = {"wait=soon": None, "respond-async, wait=1": "wait=1, respond-async"}.get(preferred, preferred)
    assert answer.headers.get("Preference-Applied") == wanted


def test_who_would_rather_wait_gets_the_replay_once_the_transaction_is_committed(client, gate):
    with ThreadPoolExecutor(max_workers=2) as threads:
        first = threads.submit(send, client, "?slowly=1")
        gate.wait_for_view()
        second = threads.submit(send, client, "?slowly=1", Prefer="wait=9")
        gate.open()

        assert second.result(30).data == first.result(30).data
    assert (second.result().status_code, second.result().headers["Preference-Applied"]) == (201, "wait=9")


def test_once_it_is_committed_it_has_a_receipt_like_any_other(client):
    first = send(client)
    address = f"/receipts/{first.headers['Idempotency-Reference']}"

    assert client.get(address, headers=ALICE).json["state"] == "finished"
    assert client.get(f"{address}?answer=1", headers=ALICE).data == first.data
    assert client.get(address, headers=BOB).status_code == 404


def test_one_that_is_committed_between_two_looks_is_not_missed(client, monkeypatch):
    address = f"/receipts/{send(client).headers['Idempotency-Reference']}"
    look, seen = receipts._record_of, []
    monkeypatch.setattr(receipts, "_record_of", lambda *asked: look(*asked) if seen else seen.append(asked))

    assert client.get(address, headers=ALICE).json["state"] == "finished"


def test_a_request_that_was_rolled_back_has_no_receipt(client):
    failed = send(client, "?fails=1")
    address = f"/receipts/{failed.headers['Idempotency-Reference']}"

    assert failed.status_code == 503
    assert client.get(address, headers=ALICE).status_code == 404
