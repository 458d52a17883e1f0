"""Single bugs of others that deserve a test of their own."""

import gzip
import io
import logging
import pickle
from datetime import timedelta

import pytest
from blinker import NamedSignal
from flask import Response, request, session
from sqlalchemy import text

from flask_idempotency import signals
from flask_idempotency.core.lifecycle import State
from flask_idempotency.core.record import Running
from flask_idempotency.core.snapshot import Snapshot
from flask_idempotency.errors import ClaimLost, OutcomeUnknown, StoreUnavailable
from flask_idempotency.stores import open_store
from flask_idempotency.testing import LEASE, RETENTION, make_asked
from tests.apps.shop import KEY, REPLAYED, Shop
from tests.fixtures.processes import eventually, race
from tests.fixtures.proxy import Proxy
from tests.stores.worlds import SqlWorld


def is_replay(answer):
    return answer.headers.get(REPLAYED) == "true"


def stop_at(shop, door, then=None):
    """Have the view stop at the door, then answer."""
    shop.answer = lambda: (door.stop(), (then or shop.create)())[1]


def everything(store):
    """Every byte that is stored, as text."""
    return repr(SqlWorld(store).dump())


# -- leases ------------------------------------------------------------------------------------------------------------


def test_a_view_slower_than_its_lease_runs_once(make_shop, threads, door):
    shop = make_shop(lease=1, housekeeping=True)
    stop_at(shop, door)
    first = threads.submit(shop.send)
    door.wait_for_view()
    (begun,) = (record.condition.lease_until for record in shop.records())

    try:
        eventually(lambda: shop.records()[0].condition.lease_until > begun + timedelta(seconds=1), what="renewals")
        second = shop.send()
        door.open()
        answer = first.result(10)
    finally:
        shop.app.extensions["idempotency"].housekeeper.stop()

    assert second.status_code == 409
    assert (answer.status_code, shop.n) == (201, 1)


def test_renewal_needs_our_token(store, let_pass):
    zombie = store.claim(make_asked(), LEASE)
    let_pass(store, LEASE)
    store.claim(make_asked(), LEASE)
    before = store.find(make_asked().id).condition.lease_until

    with pytest.raises(ClaimLost):
        store.renew(zombie, LEASE * 9)

    assert store.find(make_asked().id).condition.lease_until == before


def test_a_late_finish_is_accepted_while_the_token_is_ours(shop, let_pass):
    shop.answer = lambda: (let_pass(shop, timedelta(days=1)), shop.create())[1]

    first, second = shop.send(), shop.send()

    assert first.status_code == 201
    assert is_replay(second)
    assert shop.n == 1


def test_the_claim_is_visible_before_the_view_runs(make_shop):
    here, there = make_shop(), make_shop()
    seen = []
    here.answer = lambda: (seen.extend(there.records()), seen.append(there.send().status_code), here.create())[2]

    here.send()

    record, status = seen
    assert isinstance(record.condition, Running)
    assert status == 409
    assert there.n == 0


def test_an_exception_frees_the_key(shop):
    shop.answer = lambda: 1 / 0
    failed = shop.send()
    shop.answer = shop.create

    answer = shop.send()

    assert failed.status_code == 500
    assert answer.status_code == 201
    assert not is_replay(answer)


@pytest.mark.parametrize("ending", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_system_exit_ends_the_lease(shop, ending):
    def leave():
        raise ending

    shop.answer = leave
    with pytest.raises(ending):
        shop.send()
    shop.answer = shop.create

    (record,) = shop.records()
    assert (record.state, record.condition.token) == (State.RUNNING, None)
    assert shop.send().status_code == 201


def test_reap_leaves_running_records_alone(store, let_pass):
    store.claim(make_asked("running"), LEASE)
    store.complete(store.claim(make_asked("finished"), LEASE), Snapshot(201, (), b""), RETENTION)
    let_pass(store, timedelta(days=3650))

    reaped = store.reap(timedelta(0))

    assert reaped == 1
    assert [record.state for record in store.browse()] == [State.RUNNING]


# -- waiting -----------------------------------------------------------------------------------------------------------


def test_a_waiter_that_gives_up_leaves_the_claim_alone(make_shop, threads, door):
    shop = make_shop(options={"in_flight": "wait"}, wait=0.05)
    stop_at(shop, door)
    first = threads.submit(shop.send)
    door.wait_for_view()
    before = shop.records()[0].condition

    gave_up = shop.send()

    after = shop.records()[0].condition
    assert gave_up.status_code == 409
    assert (after.token, after.lease_until) == (before.token, before.lease_until)
    door.open()
    assert first.result(10).status_code == 201
    assert shop.n == 1


def test_a_waiter_runs_when_the_holder_fails(make_shop, threads, door):
    shop = make_shop(options={"in_flight": "wait"}, wait=30)
    stop_at(shop, door, lambda: ("no", 503) if shop.n == 1 else shop.create())
    first = threads.submit(shop.send)
    door.wait_for_view()
    waiters = [threads.submit(shop.send) for _ in range(3)]
    eventually(lambda: shop.waiting == 3, what="three who wait")

    door.open()
    answers = [waiter.result(30) for waiter in waiters]

    assert first.result(10).status_code == 503
    assert [answer.status_code for answer in answers] == [201] * 3
    assert sum(map(is_replay, answers)) == 2
    assert shop.n == 2


def test_waiting_ends_at_its_limit(make_shop, threads, door):
    shop = make_shop(options={"in_flight": "wait"}, wait=0.2)
    stop_at(shop, door)
    first = threads.submit(shop.send)
    door.wait_for_view()

    answer = threads.submit(shop.send).result(5)

    assert (answer.status_code, answer.json["code"]) == (409, "request-in-flight")
    door.open()
    assert first.result(10).status_code == 201


def test_the_memory_store_serves_threads():
    shop = Shop(open_store("memory://"), options={"in_flight": "wait"}, wait=30)

    answers = race(40, lambda i: shop.send(key=f"order-{i % 4}"))

    assert [answer.status_code for answer in answers] == [201] * 40
    assert sum(map(is_replay, answers)) == 36
    assert shop.n == 4


# -- what is kept ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 202, 204, 206, 301, 303, 307, 400, 402, 404, 405, 406, 410, 422, 451])
def test_every_final_status_is_kept_by_default(shop, status):
    shop.answer = lambda: ("", status)

    first, second = shop.send(), shop.send()

    assert first.status_code == second.status_code == status
    assert is_replay(second)
    assert shop.n == 1


@pytest.mark.parametrize("status", [200, 201, 303, 404])
def test_replay_keeps_the_status(shop, status):
    shop.answer = lambda: ("x", status)
    shop.send()

    assert shop.send().status_code == status


def test_an_unknown_outcome_is_never_final(shop):
    def charge():
        raise ConnectionError("the gateway did not answer")

    for trouble in (charge, lambda: ("the gateway did not answer", 504), lambda: ("", 502)):
        shop.answer = trouble
        assert shop.send().status_code >= 500
        assert [record.state for record in shop.records()] == [State.RUNNING]
    shop.answer = shop.create

    assert shop.send().status_code == 201


def test_exception_text_is_never_stored(shop):
    def fail():
        raise RuntimeError("card 4111-1111-1111-1111 was refused")

    shop.answer = fail
    shop.send()

    assert "4111" not in everything(shop.store.real)


def test_cookies_are_never_replayed(shop):
    def view():
        session["user_id"] = "alice"
        answer = Response("hello", 201)
        answer.set_cookie("token", "secret")
        return answer

    shop.answer = view

    first, second = shop.send(), shop.send()

    assert len(first.headers.getlist("Set-Cookie")) == 2
    assert is_replay(second)
    assert second.headers.getlist("Set-Cookie") == []
    assert "secret" not in everything(shop.store.real)


class Bomb:
    """Leaves a mark where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.mark.parametrize("column", ["headers", "body"])
def test_nothing_is_unpickled(shop, tmp_path, column):
    shop.send()
    bomb = pickle.dumps(Bomb(str(tmp_path / "mark")), protocol=0)
    with shop.store.real._engine.connect() as connection:
        value = bomb.decode() if column == "headers" else bomb
        connection.execute(text(f"UPDATE idempotency_record SET {column} = :value"), {"value": value})
        connection.commit()

    answer = shop.send()

    assert answer.status_code == 410
    assert not (tmp_path / "mark").exists()
    assert shop.n == 1


# -- who and what ------------------------------------------------------------------------------------------------------


def test_the_same_key_on_another_path_is_refused(shop):
    shop.send("/orders/1/pay")

    answer = shop.send("/orders/2/pay")

    assert (answer.status_code, answer.json["code"]) == (422, "key-reused")
    assert shop.n == 1


def test_a_custom_scope_does_not_weaken_the_fingerprint(make_shop):
    shop = make_shop(options={"scope": lambda: "the tenant"})
    shop.send("/orders", json={"amount": 1})

    others = [shop.send("/orders/1/pay", json={"amount": 1}), shop.send("/orders", json={"amount": 2})]

    assert [answer.status_code for answer in others] == [422, 422]
    assert shop.n == 1


def test_a_principal_scope_survives_a_new_token(make_shop):
    users = {"token-1": "alice", "token-2": "alice"}
    shop = make_shop(scope=lambda: users[request.authorization.token])

    first = shop.send(headers={"Authorization": "Bearer token-1"})
    second = shop.send(headers={"Authorization": "Bearer token-2"})

    assert first.status_code == 201
    assert is_replay(second)
    assert shop.n == 1


def test_two_forms_differ(shop):
    shop.send(data={"item": "tea"})

    assert shop.send(data={"item": "jam"}).status_code == 422
    assert is_replay(shop.send(data={"item": "tea"}))


def upload(content):
    return {"data": {"item": "tea", "file": (io.BytesIO(content), "list.csv")}}


def test_uploads_are_compared_by_content(shop):
    shop.send(**upload(b"one"))

    assert shop.send(**upload(b"two")).status_code == 422
    assert is_replay(shop.send(**upload(b"one")))


def test_uploads_differ_even_after_a_hook_read_the_form(shop):
    shop.app.before_request_funcs.setdefault(None, []).insert(0, lambda: request.form and None)
    shop.send("/plain", **upload(b"one"))

    assert shop.send("/plain", **upload(b"two")).status_code == 422
    assert is_replay(shop.send("/plain", **upload(b"one")))


def test_media_type_parameters_do_not_matter(shop):
    shop.send(data=b'{"a": 1}', content_type="application/json")

    answer = shop.send(data=b'{"a":1}', content_type="application/json; charset=utf-8; x=y")

    assert is_replay(answer)


def test_trace_headers_do_not_change_the_fingerprint(shop):
    shop.send(headers={"traceparent": "00-1-1-00", "User-Agent": "one", "X-Request-Id": "1"})

    answer = shop.send(headers={"traceparent": "00-2-2-00", "User-Agent": "two", "X-Retry-Count": "1"})

    assert is_replay(answer)


def test_a_body_over_the_limit_is_refused_not_run(make_shop):
    shop = make_shop(max_body=100)

    chunked = {"input_stream": io.BytesIO(b"x" * 101), "environ_overrides": {"wsgi.input_terminated": True}}
    answers = [shop.send(data=b"x" * 101), shop.send(**chunked)]

    assert [answer.status_code for answer in answers] == [413, 413]
    assert (shop.n, shop.records()) == (0, [])


def test_two_key_headers_are_refused(shop):
    twice = [("Idempotency-Key", "one"), ("Idempotency-Key", "one")]

    answer = shop.app.test_client().post("/orders", headers=twice)

    assert (answer.status_code, answer.json["code"]) == (400, "key-invalid")
    assert shop.n == 0


def test_a_missing_key_is_400(make_shop):
    shop = make_shop(options={"required": True})

    answer = shop.send(key=None)

    assert (answer.status_code, answer.json["code"]) == (400, "key-missing")
    assert shop.n == 0


def test_a_route_without_a_key_is_untouched(shop):
    answers = [shop.send(path, key=None) for path in ("/plain", "/orders", "/plain")]

    assert [answer.json["id"] for answer in answers] == [1, 2, 3]
    assert not any("idempot" in name.lower() for answer in answers for name, _ in answer.headers)
    assert shop.records() == []
    assert shop.store.calls == []


# -- hooks -------------------------------------------------------------------------------------------------------------


def compress(response):
    response.set_data(gzip.compress(response.get_data(), mtime=0))
    response.headers["Content-Encoding"] = "gzip"
    return response


def replace_it(response):
    return Response(response.get_data(), response.status, response.headers)


def stream_it(response):
    """What a middleware does that hands on one chunk at a time."""
    body = response.get_data()
    response.response = (body[i : i + 1] for i in range(len(body)))
    return response


@pytest.mark.parametrize("hook", [compress, replace_it, stream_it], ids=lambda hook: hook.__name__)
def test_other_hooks_do_not_switch_protection_off(store, hook):
    shop = Shop(store)
    shop.app.after_request(hook)

    first, second = shop.send(), shop.send()

    assert first.status_code == 201
    assert second.status_code in (201, 410)
    assert is_replay(second) == (second.status_code == 201)
    assert shop.n == 1


# -- the store ---------------------------------------------------------------------------------------------------------


def test_a_store_error_before_the_view_is_503(shop):
    shop.store.fails("claim", StoreUnavailable(retry_after=1))

    answer = shop.send()

    assert (answer.status_code, answer.json["code"]) == (503, "store-unavailable")
    assert shop.n == 0


def test_a_dead_store_answers_503_within_its_timeout(proxy: Proxy, postgres_url):
    shop = Shop(open_store(proxy.through(postgres_url) + "&connect_timeout=2"))
    proxy.refuse()
    refused = shop.send()
    proxy.pass_through()
    proxy.blackhole()

    silent = race(1, lambda _: shop.send(), within=10)[0]

    assert [answer.status_code for answer in (refused, silent)] == [503, 503]
    assert shop.n == 0
    proxy.pass_through()
    shop.store.real.close()


def test_no_connection_is_held_during_an_effect(shop):
    held = []
    shop.answer = lambda: (held.append(shop.store.real._engine.pool.checkedout()), shop.create())[1]

    shop.send()

    assert held == [0]


def test_a_pool_of_one_serves_runs_and_replays(make_shop):
    shop = make_shop(options={"in_flight": "wait"}, wait=30)
    pool = shop.store.real._engine.pool
    pool._pool.maxsize, pool._max_overflow, pool._timeout = 1, 0, 20
    shop.store.real.close()

    answers = race(20, lambda i: shop.send(key=f"order-{i % 5}"))

    assert [answer.status_code for answer in answers] == [201] * 20
    assert shop.n == 5
    assert shop.store.real._engine.pool.size() == 1


# -- what is told ------------------------------------------------------------------------------------------------------


def test_no_key_in_logs_metrics_or_traces(make_shop, caplog, let_pass):
    caplog.set_level(logging.DEBUG)
    shop, told = make_shop(), []

    def listen(sender, **facts):
        told.append(facts)

    for signal in vars(signals).values():
        if isinstance(signal, NamedSignal):
            signal.connect(listen, shop.app)
    canary = {"key": "canary-key", "data": b"canary-body", "content_type": "text/plain"}

    def fail():
        raise RuntimeError("the view failed")

    shop.answer = fail
    shop.send(**canary)
    shop.answer = lambda: (let_pass(shop, timedelta(days=1)), make_shop().send(**canary), shop.create())[2]
    shop.send(**canary)  # its claim is lost while it runs
    shop.send(**canary)
    shop.send(**{**canary, "data": b"another canary-body"})
    shop.send(key="canary-key,")
    shop.send(key="canary-key " * 900)
    for verb, error in (("claim", StoreUnavailable()), ("complete", OutcomeUnknown()), ("release", StoreUnavailable())):
        shop.store.fails(verb, error)
        shop.send(**{**canary, "key": f"canary-key-{verb}"})
        shop.store.heals()

    assert {"claim_lost", "taken_over"} <= {word.strip(":") for word in caplog.text.split()}
    assert len(told) > 8
    assert "canary" not in caplog.text
    assert "canary" not in repr(told)
    assert "canary" not in everything(shop.store.real)
    assert KEY not in everything(shop.store.real)
