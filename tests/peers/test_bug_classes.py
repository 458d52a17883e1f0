"""The classes of bugs that most others share, C1 to C11."""

import io
import json
import threading
from datetime import timedelta
from functools import wraps

import pytest
from flask import Flask, Response, abort, jsonify, make_response, redirect, request, send_file

from flask_idempotency import idempotent
from flask_idempotency.core.record import Claim, Running
from flask_idempotency.core.snapshot import Snapshot
from flask_idempotency.errors import ClaimLost, OutcomeUnknown
from flask_idempotency.testing import LEASE, RETENTION, make_asked
from tests.apps.guarded_outside import is_definitive, is_first, kill
from tests.apps.shop import REPLAYED
from tests.fixtures.processes import eventually, race


def is_replay(answer):
    return answer.headers.get(REPLAYED) == "true"


# -- C1: the lock lives as long as the retention -----------------------------------------------------------------------


def test_a_killed_worker_frees_its_key(serve, ledger, gate):
    counter = serve(LEASE=1, RETENTION=86_400)
    counter.order_in_background("order-1", X_Gate="1")

    kill(gate.next().pid)
    answer = counter.order_until(is_definitive, "order-1", within=10)

    assert is_first(answer)
    assert ledger.count("effect") == 1


# -- C2: the zombie's write --------------------------------------------------------------------------------------------


def test_a_paused_owner_cannot_complete_release_or_renew_after_a_takeover(store, let_pass):
    zombie = store.claim(make_asked(), LEASE)
    let_pass(store, LEASE)
    owner = store.claim(make_asked(), LEASE)
    before = store.find(make_asked().id)

    with pytest.raises(ClaimLost):
        store.complete(zombie, Snapshot(201, (), b"the zombie's"), RETENTION)
    with pytest.raises(ClaimLost):
        store.renew(zombie, LEASE * 9)
    with pytest.raises(ClaimLost):
        store.release(zombie)

    after = store.find(make_asked().id)
    assert isinstance(owner, Claim)
    assert isinstance(after.condition, Running)
    assert after.condition.token == owner.guard.token
    assert after.condition.lease_until == before.condition.lease_until


# -- C3: no second look after the lock ---------------------------------------------------------------------------------


def test_a_record_finished_between_look_and_claim_is_replayed(make_shop, monkeypatch):
    quick, slow = make_shop(), make_shop()
    run = slow.store.real._run_all

    def run_later(verbs, values):
        """Let the other finish the whole request just before our claim, after whatever look there was."""
        if "claim" in verbs and quick.n == 0:
            quick.send()
        return run(verbs, values)

    monkeypatch.setattr(slow.store.real, "_run_all", run_later)
    answer = slow.send()

    assert is_replay(answer)
    assert (quick.n, slow.n) == (1, 0)


# -- C4: the third concurrent request ----------------------------------------------------------------------------------


@pytest.mark.parametrize("callers", [3, 10, 100])
def test_of_many_callers_one_runs_however_the_others_end(make_shop, door, callers):
    shop = make_shop()
    waiting = make_shop(options={"in_flight": "wait"}, wait=0.05)
    runs = []

    def view():
        runs.append(threading.get_ident())
        door.stop()
        return {"id": len(runs)}, 201

    shop.answer = waiting.answer = view

    def call(number):
        """Ask; the others conflict, run out of patience, or ask for something else."""
        room = waiting if number % 3 == 1 else shop
        answer = room.send(json={"cups": 2 if number and number % 3 == 2 else 1})
        if answer.status_code != 201:
            ended.release()
        return answer.status_code

    ended = threading.Semaphore(0)
    opener = threading.Thread(target=lambda: [ended.acquire(timeout=30) for _ in range(callers - 1)] and door.open())
    opener.start()
    statuses = race(callers, call)
    opener.join()

    assert len(runs) == 1
    assert statuses.count(201) == 1
    assert set(statuses) <= {201, 409, 422}


# -- C5: a success, then a storage problem -----------------------------------------------------------------------------


def too_big(shop):
    shop.answer = lambda: (b"x" * 2000, 201)
    shop.send()


def streamed(shop):
    shop.answer = lambda: Response((b"one", b"two")[i] for i in range(2))
    shop.send()


def store_down(shop):
    shop.store.fails("complete", OutcomeUnknown(retry_after=1))
    shop.send()
    shop.store.heals()


def client_gone(shop):
    shop.send(buffered=False).close()  # nobody reads the answer; the server closes it


@pytest.mark.parametrize("problem", [too_big, streamed, store_down, client_gone], ids=lambda each: each.__name__)
def test_a_success_is_never_run_again(make_shop, problem):
    shop = make_shop(max_body=1000, housekeeping=True)

    try:
        problem(shop)
        eventually(lambda: shop.send().status_code != 409, what="an end of the run")
    finally:
        shop.app.extensions["idempotency"].housekeeper.stop()
    retry = shop.send()

    assert shop.n == 1
    assert (retry.status_code == 410) if problem in (too_big, streamed) else is_replay(retry)


# -- C6: keys shared by all callers ------------------------------------------------------------------------------------


def test_another_principal_with_the_same_key_gets_a_run_of_its_own(shop):
    alices = shop.send(headers={"X-User": "alice"})
    bobs = shop.send(headers={"X-User": "bob"})

    assert (alices.status_code, bobs.status_code) == (201, 201)
    assert alices.json != bobs.json
    assert not is_replay(bobs)
    assert shop.send(headers={"X-User": "alice"}).json == alices.json
    assert shop.send("/plain").status_code == 422
    assert shop.send("/orders?express=1").status_code == 422


# -- C7: replay before authorisation -----------------------------------------------------------------------------------


def test_a_replay_is_authorised_like_a_first_run(shop):
    allowed = {"alice"}

    def login_required(view):
        @wraps(view)
        def checked():
            user = request.headers.get("X-User")
            return view() if user in allowed else abort(403 if user else 401)

        return checked

    shop.app.add_url_rule("/till", "till", login_required(idempotent(shop.run)), methods=["POST"])
    first = shop.send("/till", headers={"X-User": "alice"})
    replay = shop.send("/till", headers={"X-User": "alice"})
    nobody = shop.send("/till")
    allowed.clear()
    withdrawn = shop.send("/till", headers={"X-User": "alice"})

    assert first.status_code == 201
    assert is_replay(replay)
    assert (nobody.status_code, withdrawn.status_code) == (401, 403)
    assert first.data not in (nobody.data, withdrawn.data)


# -- C8: a transient failure is remembered -----------------------------------------------------------------------------


def test_a_503_is_not_remembered(shop):
    shop.answer = lambda: ("the gateway is down", 503)
    failed = shop.send()
    shop.answer = shop.create

    answer = shop.send()

    assert failed.status_code == 503
    assert answer.status_code == 201
    assert not is_replay(answer)


# -- C9: body fidelity -------------------------------------------------------------------------------------------------

ANSWERS = {
    "text": lambda: "tëxt",
    "bytes": lambda: (bytes(range(256)), {"Content-Type": "application/octet-stream"}),
    "dict": lambda: {"b": 1.0, "a": [None, "é"]},
    "list": lambda: [1, "2"],
    "tuple": lambda: ({"id": 1}, 201, [("Link", "</b>"), ("Link", "</a>")]),
    "jsonify": lambda: jsonify(z=1, a=2),
    "make_response": lambda: make_response("made", 202),
    "redirect": lambda: redirect("/elsewhere", 303),
    "send_file": lambda: send_file(io.BytesIO(b"\x89PNG\r\n"), mimetype="image/png"),
    "abort": lambda: abort(404),
    "no content": lambda: ("", 204),
    "empty": lambda: ("", 200),
    "not JSON though it says so": lambda: ("{nope", {"Content-Type": "application/json"}),
    "gzip": lambda: (b"\x1f\x8b\x08\x00", {"Content-Encoding": "gzip"}),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_the_second_answer_equals_the_first_whatever_the_view_returned(shop, name):
    bare = Flask("bare")
    bare.add_url_rule("/orders", "orders", ANSWERS[name], methods=["POST"])
    shop.answer = ANSWERS[name]

    without = bare.test_client().post("/orders")
    first, second = shop.send(), shop.send()

    ours = {REPLAYED, "Idempotency-Reference"}
    headers = [[pair for pair in answer.headers if pair[0] not in ours] for answer in (without, first, second)]
    assert without.status == first.status == second.status
    assert without.data == first.data == second.data
    assert sorted(headers[0]) == sorted(headers[1]) == sorted(headers[2])
    assert is_replay(second)
    assert shop.n == 1


# -- C10: a fingerprint with holes -------------------------------------------------------------------------------------


def form(text):
    return {"data": text, "content_type": "application/x-www-form-urlencoded"}


def upload(content, boundary):
    body = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n'
        f"Content-Type: text/plain\r\n\r\n{content}\r\n--{boundary}--\r\n"
    )
    return {"data": body.encode(), "content_type": f"multipart/form-data; boundary={boundary}"}


FINGERPRINTS = {
    "a form field": (form("item=tea&cups=1"), form("item=tea&cups=2"), 422),
    "the order of form fields": (form("item=tea&cups=1"), form("cups=1&item=tea"), 201),
    "an upload with a new boundary": (upload("tea", "one"), upload("tea", "two"), 201),
    "an upload with a changed file": (upload("tea", "one"), upload("jam", "one"), 422),
    "the query": ({"query_string": "a=1"}, {"query_string": "a=2"}, 422),
    "the order of JSON names": (
        {"data": b'{"a": 1, "b": 2}', "content_type": "application/json"},
        {"data": b'{"b":2,"a":1}', "content_type": "application/json"},
        201,
    ),
    "a JSON name twice": (
        {"data": b'{"a": 1, "a": 2}', "content_type": "application/json"},
        {"data": b'{"a": 2}', "content_type": "application/json"},
        422,
    ),
}


@pytest.mark.parametrize("name", FINGERPRINTS)
def test_fingerprint_table(shop, name):
    first, second, expected = FINGERPRINTS[name]
    assert shop.send(**first).status_code == 201

    answer = shop.send(**second)

    assert answer.status_code == expected
    assert is_replay(answer) == (expected == 201)
    assert shop.n == 1


# -- C11: expired but still present ------------------------------------------------------------------------------------


def test_an_expired_record_not_yet_reaped_counts_as_absent(shop, let_pass):
    first = shop.send(json={"cups": 1})
    let_pass(shop, timedelta(hours=24))
    assert len(shop.records()) == 1

    same = shop.send(json={"cups": 1})
    let_pass(shop, timedelta(hours=24))
    other = shop.send(json={"cups": 2})

    assert [json.loads(answer.data)["id"] for answer in (first, same, other)] == [1, 2, 3]
    assert len(shop.records()) == 1
