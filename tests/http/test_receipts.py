"""Receipts: what became of a request, by its reference, for the caller who sent it and for nobody else."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from flask import Blueprint, Response, abort

from flask_idempotency import receipts
from flask_idempotency.errors import ConfigError, StoreUnavailable
from tests.apps.shop import REFERENCE, REPLAYED, Gate


@pytest.fixture
def shop(make_shop):
    shop = make_shop()
    shop.app.register_blueprint(receipts.blueprint())
    return shop


@pytest.fixture
def running(shop):
    """A shop whose first request runs, and its reference."""
    gate = Gate()
    shop.answer = lambda: (gate.stop(), shop.create())[1]
    with ThreadPoolExecutor(max_workers=1) as threads:
        first = threads.submit(shop.send)
        gate.wait_for_view()
        yield shop.send().headers[REFERENCE]
        gate.open()
        first.result(30)


def get(shop, reference, query="", **headers):
    return shop.send(f"/receipts/{reference}{query}", key=None, method="GET", headers=headers)


def test_a_finished_request_has_a_receipt_with_its_times_and_its_status(shop):
    reference = shop.send().headers[REFERENCE]

    receipt = get(shop, reference)

    assert receipt.status_code == 200
    assert receipt.headers["Cache-Control"] == "no-store"
    assert receipt.headers[REFERENCE] == reference
    assert "Retry-After" not in receipt.headers
    record = shop.records()[0]
    assert receipt.json == {
        "reference": reference,
        "state": "finished",
        "status": 201,
        "created_at": record.created_at.isoformat(),
        "expires_at": record.condition.expires_at.isoformat(),
        "answer": f"/receipts/{reference}?answer=1",
    }


def test_a_receipt_gives_the_stored_answer_so_that_a_client_who_lost_it_need_not_send_again(shop):
    first = shop.send()

    answer = get(shop, first.headers[REFERENCE], "?answer=1")

    assert (answer.status, answer.data, answer.headers["Location"]) == (first.status, first.data, "/orders/1")
    assert (answer.headers[REPLAYED], answer.headers[REFERENCE]) == ("true", first.headers[REFERENCE])
    assert shop.n == 1


def test_an_answer_that_is_no_json_is_given_to_who_accepts_its_type(shop):
    shop.answer = lambda: Response(b"%PDF-1.7", content_type="application/pdf")
    reference = shop.send().headers[REFERENCE]

    assert get(shop, reference, Accept="application/pdf").data == b"%PDF-1.7"
    assert get(shop, reference, Accept="application/json").json["state"] == "finished"
    assert get(shop, reference, Accept="*/*").json["state"] == "finished"


@pytest.mark.parametrize("headers", [{}, {"Cache-Control": "public, max-age=600"}], ids=["unsaid", "allowed"])
def test_no_cache_may_keep_an_answer_that_belongs_to_its_caller(shop, headers):
    shop.answer = lambda: ("made", 200, headers)
    reference = shop.send().headers[REFERENCE]

    answer = get(shop, reference, "?answer=1")

    assert answer.data == b"made"
    assert answer.headers.getlist("Cache-Control") == ["no-store"]


def test_an_answer_is_given_as_it_was_whatever_hooks_make_of_it(shop):
    @shop.app.after_request
    def meddle(response):
        response.headers["X-Version"] = "2"
        if response.headers.get(REPLAYED):
            response.set_data(b"another")
        return response

    first = shop.send()

    assert get(shop, first.headers[REFERENCE], "?answer=1").data == first.data


def test_a_reference_is_read_as_people_write_it(shop):
    reference = shop.send().headers[REFERENCE]

    assert get(shop, reference.lower().replace("-", "")).json["reference"] == reference


def test_while_the_request_runs_its_receipt_says_when_to_look_again(shop, running):
    receipt = get(shop, running)

    assert (receipt.status_code, receipt.json["state"]) == (200, "running")
    assert int(receipt.headers["Retry-After"]) >= 1
    assert "status" not in receipt.json


def test_while_the_request_runs_it_has_no_answer_yet(shop, running):
    answer = get(shop, running, "?answer=1")

    assert (answer.status_code, answer.json["code"]) == (409, "request-in-flight")
    assert int(answer.headers["Retry-After"]) >= 1


def test_of_an_attempt_that_failed_the_receipt_says_to_send_it_again(shop):
    shop.answer = lambda: abort(503)
    reference = shop.send().headers[REFERENCE]

    receipt = get(shop, reference)

    assert receipt.json["state"] == "running"
    assert "send the same request with the same key" in receipt.json["detail"]
    assert "Retry-After" not in receipt.headers


def test_of_a_quarantined_request_the_receipt_says_what_to_do_and_not_why(shop, sql):
    reference = shop.send().headers[REFERENCE]
    sql("UPDATE idempotency_record SET state = 'quarantined', reason = 'a secret of ours'")

    receipt, answer = get(shop, reference), get(shop, reference, "?answer=1")

    assert receipt.json["state"] == "quarantined"
    assert "contact support" in receipt.json["detail"]
    assert b"secret" not in receipt.data + answer.data
    assert (answer.status_code, answer.json["code"]) == (409, "quarantined")


def test_an_answer_that_was_not_kept_is_a_410_with_its_status(shop):
    shop.answer = lambda: Response(iter([b"a", b"b"]), 201)
    reference = shop.send().headers[REFERENCE]

    receipt, answer = get(shop, reference), get(shop, reference, "?answer=1")

    assert (receipt.json["state"], receipt.json["status"], "answer" in receipt.json) == ("finished", 201, False)
    assert (answer.status_code, answer.json["code"], answer.json["original_status"]) == (410, "body-not-kept", 201)


def test_an_expired_receipt_says_so_and_has_no_answer_any_more(shop, let_pass):
    reference = shop.send().headers[REFERENCE]
    let_pass(25 * 3600)

    receipt = get(shop, reference)

    assert (receipt.status_code, receipt.json["state"], receipt.json["status"]) == (200, "expired", 201)
    assert "answer" not in receipt.json
    assert get(shop, reference, "?answer=1").status_code == 404


@pytest.mark.parametrize("query", ["", "?answer=1"])
@pytest.mark.parametrize("user", ["bob", ""], ids=["another caller", "nobody"])
def test_another_callers_receipt_cannot_be_told_from_one_that_does_not_exist(shop, user, query):
    reference = shop.send().headers[REFERENCE]
    nowhere = "0000-0000-0000"

    theirs, none, nonsense = (
        get(shop, each, query, **{"X-User": user}) for each in (reference, nowhere, "no-reference-at-all")
    )

    assert theirs.status_code == 404
    for other in (none, nonsense):
        assert (theirs.status, theirs.data, list(theirs.headers)) == (other.status, other.data, list(other.headers))


def test_apps_that_share_a_database_see_only_the_receipts_of_their_own_callers(make_shop):
    shops = [make_shop(namespace=name) for name in ("books", "books/eu", "")]
    for shop in shops:
        shop.app.register_blueprint(receipts.blueprint())
    references = [shop.send().headers[REFERENCE] for shop in shops]

    seen = [[get(shop, reference).status_code for reference in references] for shop in shops]

    assert seen == [[200, 404, 404], [404, 200, 404], [404, 404, 200]]


def test_a_view_whose_callers_have_names_of_their_own_has_receipts_where_its_scope_is_given(make_shop):
    shop = make_shop(options={"scope": lambda: "the-till"})
    shop.app.register_blueprint(receipts.blueprint())
    shop.app.register_blueprint(receipts.blueprint("till", url_prefix="/till", scope=lambda: "the-till"))
    reference = shop.send().headers[REFERENCE]

    statuses = [shop.send(f"/{place}/{reference}", method="GET").status_code for place in ("receipts", "till")]

    assert statuses == [404, 200]


def test_receipts_can_live_in_another_blueprint_behind_its_hooks(make_shop):
    shop, api = make_shop(), Blueprint("api", __name__, url_prefix="/api")
    api.before_request(lambda: abort(401))
    api.register_blueprint(receipts.blueprint())
    shop.app.register_blueprint(api)
    reference = shop.send().headers[REFERENCE]

    assert shop.send(f"/api/receipts/{reference}", method="GET").status_code == 401


def test_receipts_can_live_below_a_path_with_variables(make_shop):
    shop, api = make_shop(), Blueprint("api", __name__, url_prefix="/<tenant>")
    api.register_blueprint(receipts.blueprint())
    shop.app.register_blueprint(api)
    reference = shop.send().headers[REFERENCE]

    receipt = shop.send(f"/acme/receipts/{reference}", method="GET")

    assert receipt.json["answer"] == f"/acme/receipts/{reference}?answer=1"
    assert shop.send(receipt.json["answer"], method="GET").json == {"id": 1}


def test_the_address_of_the_answer_is_below_the_place_where_the_app_is_mounted(shop):
    reference = shop.send().headers[REFERENCE]

    receipt = shop.send(f"/receipts/{reference}", method="GET", environ_overrides={"SCRIPT_NAME": "/shop"})

    assert receipt.json["answer"] == f"/shop/receipts/{reference}?answer=1"


@pytest.mark.parametrize("kind", ["receipt", "answer", "404", "410", "409"])
def test_nothing_of_it_is_put_into_a_cache(shop, sql, kind):
    def cacheable():
        body = iter([b"a"]) if kind == "410" else b"for alice only"
        expires = "Thu, 01 Jan 2099 00:00:00 GMT"
        return Response(body, headers={"Cache-Control": "public, max-age=3600", "Expires": expires})

    shop.answer = cacheable
    reference = shop.send().headers[REFERENCE]
    if kind == "409":
        sql("UPDATE idempotency_record SET state = 'quarantined'")

    found = get(shop, "0000-0000-0000" if kind == "404" else reference, "" if kind == "receipt" else "?answer=1")

    assert found.status_code == (200 if kind in ("receipt", "answer") else int(kind))
    assert found.headers.getlist("Cache-Control") == ["no-store"]
    assert "Expires" not in found.headers


def test_the_replay_of_the_post_has_the_views_own_rules_for_caches(shop):
    shop.answer = lambda: Response("public", headers={"Cache-Control": "public, max-age=60"})
    reference = shop.send().headers[REFERENCE]
    get(shop, reference, "?answer=1")

    assert shop.send().headers["Cache-Control"] == "public, max-age=60"


@pytest.mark.parametrize("query", ["", "?answer=1"])
def test_the_head_of_a_receipt_is_that_of_its_get(shop, query):
    reference = shop.send().headers[REFERENCE]

    shown, head = (shop.send(f"/receipts/{reference}{query}", method=method) for method in ("GET", "HEAD"))

    assert (head.status, list(head.headers), head.data) == (shown.status, list(shown.headers), b"")


def test_where_the_records_cannot_be_read_there_is_no_receipt_either(shop):
    reference = shop.send().headers[REFERENCE]
    shop.store.fails("browse", StoreUnavailable(retry_after=1))

    answer = get(shop, reference)

    assert (answer.status_code, answer.json["code"]) == (503, "store-unavailable")


def test_a_scope_that_can_not_be_asked_is_refused_at_start():
    with pytest.raises(ConfigError, match="scope= must be a function without arguments"):
        receipts.blueprint(scope="user")
