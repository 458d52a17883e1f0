"""A duplicate that meets a running claim, and what its client prefers: `accepted`, `Prefer`, section 5."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from flask import Blueprint

from flask_idempotency import receipts
from flask_idempotency.guards import claiming
from tests.apps.shop import REFERENCE, REPLAYED, Gate
from tests.fixtures.processes import eventually

PATIENT = 60  # seconds: far more than any of these tests takes
APPLIED = "Preference-Applied"


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def threads(gate):
    with ThreadPoolExecutor(max_workers=4) as pool:
        yield pool
        gate.open()


@pytest.fixture
def no_looking(monkeypatch):
    """Waiters do not look by themselves: whoever wakes one is the holder."""
    monkeypatch.setattr(claiming, "FIRST_LOOK", PATIENT)
    monkeypatch.setattr(claiming, "LONGEST_PAUSE", PATIENT)


@pytest.fixture
def start(make_shop, threads, gate):
    """`start(…)`: a shop whose first request stands in its view."""

    def start(in_flight="conflict", *, has_receipts=True, **settings):
        shop = make_shop(options={"in_flight": in_flight}, **{"wait": PATIENT, **settings})
        if has_receipts:
            shop.app.register_blueprint(receipts.blueprint())
        shop.answer = lambda: (gate.stop(), shop.create())[1]
        shop.first = threads.submit(shop.send)
        gate.wait_for_view()
        return shop

    return start


def prefer(shop, preferred, **options):
    return shop.send(headers={"Prefer": preferred}, **options)


# -- accepted ----------------------------------------------------------------------------------------------------------


def test_a_duplicate_is_told_where_the_answer_will_be(start, gate):
    shop = start("accepted")

    accepted = shop.send()

    reference = accepted.headers[REFERENCE]
    assert accepted.status_code == 202
    assert accepted.json == {"reference": reference, "state": "running", "receipt": f"/receipts/{reference}"}
    assert accepted.headers["Location"] == f"/receipts/{reference}"
    assert accepted.headers["Cache-Control"] == "no-store"
    assert int(accepted.headers["Retry-After"]) >= 1
    assert not {REPLAYED, APPLIED} & set(accepted.headers.keys())
    gate.open()
    first = shop.first.result(30)
    assert shop.send(f"{accepted.headers['Location']}?answer=1", method="GET").data == first.data
    assert shop.n == 1


def test_a_202_is_never_kept_and_the_retry_gets_the_answer(start, gate):
    shop = start("accepted")
    shop.send()
    gate.open()

    assert shop.first.result(30).data == shop.send().data


def test_another_body_is_422_and_no_202(start):
    shop = start("accepted")

    assert shop.send(json={"a": 2}).status_code == 422
    assert prefer(shop, "respond-async, wait=5", json={"a": 2}).status_code == 422


def test_hooks_cannot_spoil_a_202(start):
    shop = start("accepted")
    hooks = shop.app.after_request_funcs[None]
    hooks.append(lambda response: (response.headers.update({"Cache-Control": "public", "Location": "/"}), response)[1])

    accepted = shop.send()

    assert accepted.headers["Cache-Control"] == "no-store"
    assert accepted.headers["Location"].startswith("/receipts/")


def test_without_receipts_a_view_that_answers_with_one_is_refused_in_a_sentence(make_shop, caplog):
    shop = make_shop(options={"in_flight": "accepted"})
    shop.app.config["PROPAGATE_EXCEPTIONS"] = False

    assert shop.send().status_code == 500
    assert "register flask_idempotency.receipts.blueprint()" in caplog.text
    assert (shop.n, shop.records()) == (0, [])


def test_a_view_whose_callers_have_names_of_their_own_needs_receipts_for_them(make_shop, caplog):
    shop = make_shop(options={"in_flight": "accepted", "scope": lambda: "the-till"})
    shop.app.register_blueprint(receipts.blueprint())
    shop.app.config["PROPAGATE_EXCEPTIONS"] = False

    assert shop.send().status_code == 500
    assert "receipts.blueprint(scope=...) with the scope= of this view" in caplog.text


def test_a_202_leads_to_the_receipts_of_the_views_own_callers(make_shop, threads, gate):
    till = lambda: "the-till"  # noqa: E731  # as an app writes it
    shop = make_shop(options={"in_flight": "accepted", "scope": till})
    shop.app.register_blueprint(receipts.blueprint())
    shop.app.register_blueprint(receipts.blueprint("till", url_prefix="/till", scope=till))
    shop.answer = lambda: (gate.stop(), shop.create())[1]
    threads.submit(shop.send)
    gate.wait_for_view()

    address = shop.send().headers["Location"]

    assert address.startswith("/till/")
    assert shop.send(address, method="GET").json["state"] == "running"


@pytest.mark.parametrize("scope", [None, lambda: "the-till"], ids=["a path of another", "callers of others"])
def test_a_client_whose_receipt_has_no_address_gets_what_the_view_says(make_shop, threads, gate, scope):
    shop, api = make_shop(options={"scope": scope}), Blueprint("api", __name__, url_prefix="/<tenant>")
    api.register_blueprint(receipts.blueprint())
    shop.app.register_blueprint(api)
    shop.answer = lambda: (gate.stop(), shop.create())[1]
    threads.submit(shop.send)
    gate.wait_for_view()

    assert prefer(shop, "respond-async").status_code == 409


def test_a_202_keeps_the_variables_of_its_own_path(make_shop, threads, gate):
    shop, api = make_shop(), Blueprint("api", __name__, url_prefix="/<tenant>")
    api.register_blueprint(receipts.blueprint())
    api.add_url_rule("/orders", "orders", lambda tenant: shop.run(), methods=["POST"])
    shop.app.register_blueprint(api)
    shop.answer = lambda: (gate.stop(), shop.create())[1]
    threads.submit(shop.send, "/acme/orders")
    gate.wait_for_view()

    accepted = prefer(shop, "respond-async", path="/acme/orders")

    assert accepted.headers["Location"].startswith("/acme/receipts/")


def test_nor_may_a_blueprint_have_its_views_answer_with_a_receipt(make_shop, caplog):
    shop, api = make_shop(), Blueprint("api", __name__, url_prefix="/api")
    api.post("/orders")(shop.run)
    shop.idempotency.defaults(api, in_flight="accepted")
    shop.app.register_blueprint(api)
    shop.app.config["PROPAGATE_EXCEPTIONS"] = False

    assert shop.send("/api/orders").status_code == 500
    assert "'api.run' has in_flight='accepted'" in caplog.text


def test_receipts_may_be_registered_after_the_extension_and_an_app_may_answer_all_with_them(make_shop, threads, gate):
    shop = make_shop(in_flight="accepted")
    shop.app.register_blueprint(receipts.blueprint(url_prefix="/r"))
    shop.answer = lambda: (gate.stop(), shop.create())[1]
    threads.submit(shop.send, "/plain")
    gate.wait_for_view()

    assert shop.send("/plain").headers["Location"].startswith("/r/")


# -- Prefer: wait ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["conflict", "accepted"])
def test_a_client_that_would_rather_wait_gets_the_replay(start, threads, gate, no_looking, mode):
    shop = start(mode)
    second = threads.submit(prefer, shop, "wait=30")
    eventually(lambda: shop.waiting == 1)

    gate.open()

    assert (second.result(30).headers[REPLAYED], second.result().headers[APPLIED]) == ("true", "wait=30")
    assert second.result().data == shop.first.result().data


@pytest.mark.parametrize(("mode", "status"), [("conflict", 409), ("wait", 409), ("accepted", 202)])
def test_when_its_patience_is_over_it_gets_what_the_mode_says(start, mode, status):
    shop, began = start(mode), time.monotonic()

    answer = prefer(shop, "wait=1")

    assert (answer.status_code, answer.headers[APPLIED]) == (status, "wait=1")
    assert 1 <= time.monotonic() - began < PATIENT / 2


def test_nobody_waits_longer_than_the_app_lets_anybody(start):
    shop = start(wait=1)

    answer = prefer(shop, "wait=3600")

    assert (answer.status_code, answer.headers[APPLIED]) == (409, "wait=1")


def test_an_app_that_waits_for_nobody_cannot_be_made_to(start, no_looking):
    shop = start(wait=0)

    answer = prefer(shop, "wait=30")

    assert (answer.status_code, APPLIED in answer.headers) == (409, False)


def test_a_waiter_whose_first_request_fails_runs_and_is_a_first_answer(start, threads, gate, no_looking):
    shop = start()
    answers = iter([("later", 503), ("done", 201)])
    shop.create = lambda: next(answers)
    second = threads.submit(prefer, shop, "wait=30")
    eventually(lambda: shop.waiting == 1)
    gate.open()

    found = second.result(30)

    assert (found.status_code, REPLAYED in found.headers, APPLIED in found.headers) == (201, False, False)


# -- Prefer: respond-async ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["conflict", "wait", "accepted"])
def test_a_client_may_prefer_a_receipt(start, no_looking, mode):
    shop = start(mode)

    answer = prefer(shop, "respond-async")

    assert (answer.status_code, answer.headers[APPLIED]) == (202, "respond-async")


def test_with_both_preferences_the_receipt_comes_after_the_wait(start):
    answer = prefer(start(), "respond-async, wait=1")

    assert (answer.status_code, answer.headers[APPLIED]) == (202, "wait=1, respond-async")


def test_without_receipts_a_client_that_prefers_one_gets_what_the_view_says(start):
    answer = prefer(start(has_receipts=False), "respond-async")

    assert (answer.status_code, APPLIED in answer.headers) == (409, False)


def test_a_first_request_runs_in_its_own_whatever_its_client_prefers(make_shop):
    shop = make_shop()
    shop.app.register_blueprint(receipts.blueprint())

    first = prefer(shop, "respond-async, wait=5")

    assert (first.status_code, APPLIED in first.headers) == (201, False)


@pytest.mark.parametrize("preferred", ["wait=soon", "wait=-1", ",", "respond-async=1", "x" * 5000, "wait=9e9"])
def test_a_malformed_preference_is_ignored(start, preferred):
    answer = prefer(start(), preferred)

    assert (answer.status_code, APPLIED in answer.headers) == (409, False)
