"""What the console shows: what runs and since when, what waits for a person, what expires; nothing personal."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from flask import abort

from flask_idempotency import console, effect, reference
from flask_idempotency.errors import StoreUnavailable
from flask_idempotency.stores.memory import MemoryStore
from tests.apps.shop import REFERENCE, Shop
from tests.console.conftest import HERE, PREFIX, Operator, words

CANARY = "canary-5af1"


@pytest.fixture
def clock():
    """The time, which a test moves."""
    return [datetime(2026, 3, 1, 12, tzinfo=UTC)]


@pytest.fixture
def timed(clock, monkeypatch):
    """A shop that has that time, with a console."""
    monkeypatch.setattr("flask_idempotency.console.showing.time", lambda: clock[0].timestamp())
    shop = Shop(MemoryStore(clock=lambda: clock[0]))
    shop.app.register_blueprint(console.blueprint(lambda: "ada"))
    return shop


# -- the lists ---------------------------------------------------------------------------------------------------------


def test_what_runs_is_shown_with_since_when_by_the_stores_clock_and_who_may_go_on(timed, clock, monkeypatch):
    operator, pages = Operator(timed), []
    monkeypatch.setattr("flask_idempotency.console.showing.time", lambda: 0.0)

    def look():
        for minutes in (4, 20):
            clock[0] += timedelta(minutes=minutes)
            pages.append(operator.see("/records?state=running"))
        return "done"

    timed.answer = lambda: (pages.append(operator.see("/records?state=running")), look())[1]
    timed.send("/orders/7/pay")

    assert "POST /orders/<int:number>/pay" in pages[0]
    assert "held for another 30 s, unless it is renewed" in pages[0]
    assert "expired 3 min ago; the next attempt takes over" in pages[1]
    assert pages[2].endswith("24 min")


def test_a_run_that_has_failed_is_told_apart_from_one_that_is_held(shop, operator):
    shop.answer = lambda: abort(503)
    known = shop.send().headers[REFERENCE]

    assert "ended; the next attempt runs" in operator.see("/records?state=running")
    assert "No attempt is running. A retry with the same key goes on." in operator.see(f"/records/{known}")


def test_what_is_quarantined_is_shown_with_its_reason_and_how_far_it_came(operator, stuck):
    for path in ("/", "/records?state=quarantined"):
        assert f"{stuck} POST /orders mail sent mail was sent, and it is not known whether it" in operator.see(path)


def test_what_expires_first_is_first_and_what_has_expired_is_left_out(timed, clock):
    operator, known = Operator(timed), []
    for key in ("one", "two", "three"):
        known.append(timed.send(key=key).headers[REFERENCE])
        clock[0] += timedelta(hours=10)

    by_expiry = operator.see("/records?state=finished&order=expiry")
    newest = operator.see("/records?state=finished")

    assert re.findall("|".join(known), by_expiry) == known[1:]
    assert re.findall("|".join(known), newest) == known[::-1]
    assert f"{known[0]} POST /orders 201 2026-03-01 12:00:00 UTC expired" in newest
    assert f"{known[1]} POST /orders 201 2026-03-01 22:00:00 UTC in 4 h" in by_expiry


def test_a_list_that_was_cut_says_so(shop, operator, monkeypatch):
    monkeypatch.setattr("flask_idempotency.console.pages.MOST", 2)
    for key in ("one", "two", "three"):
        shop.send(key=key)

    assert "These are the 2 newest." in operator.see("/records?state=finished")
    assert "Only the 2 newest records were looked at" in operator.see("/records?state=finished&order=expiry")


def test_the_overview_has_the_numbers_of_the_store(shop, operator, stuck):
    shop.send(key="paid")

    page = operator.see("/")

    assert "Quarantined 1 Running 0 Finished 1 Expired, not yet deleted 0" in page


def test_a_request_is_named_by_its_route_under_a_prefix_and_on_a_host_of_its_own(make_shop):
    shop = make_shop()
    shop.app.config["SERVER_NAME"] = "shop.example"
    shop.app.subdomain_matching = True
    shop.app.add_url_rule("/tills/<name>", "till", shop.run, methods=["POST"], subdomain="<town>")
    shop.send("/orders/7/pay", "one", base_url="http://shop.example/prefix")
    shop.send("/tills/ada", "two", base_url="http://york.shop.example")

    page = words(shop.app.test_client().get(f"{PREFIX}/records?state=finished", base_url="http://shop.example/prefix"))

    assert "POST /orders/<int:number>/pay" in page
    assert "POST /tills/<name>" in page


# -- the search --------------------------------------------------------------------------------------------------------


def test_a_run_outside_of_requests_is_named_by_its_name_and_found_by_its_scope_and_key(shop, operator):
    with shop.app.app_context():
        shop.idempotency.once("billing", "invoice-7", name="send_invoice")(lambda: None)()

    assert "RUN send_invoice" in operator.see("/records?state=finished")
    found = operator.press("/record", scope="billing", key="invoice-7")
    assert "RUN send_invoice" in operator.see(found.headers["Location"].removeprefix(PREFIX))


@pytest.mark.parametrize(
    "spell",
    [str, str.lower, lambda text: " ".join(text), lambda text: text.replace("0", "o").replace("1", "l")],
    ids=["as written", "lower case", "spaces", "look-alikes"],
)
def test_a_record_is_found_by_its_reference_as_it_is_read_over_the_phone(shop, operator, spell):
    known = shop.send().headers[REFERENCE]

    found = operator.client.get(f"{PREFIX}/record", query_string={"reference": spell(known)})

    assert found.headers["Location"] == f"{PREFIX}/records/{known}"


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("rubbish", "A reference is 12 letters and digits, such as 7D3F-92AB-1C4E; compare it with the original."),
        ("7D3F92AB1C4E", "There is no record 7D3F-92AB-1C4E; it may have expired and been reaped."),
    ],
)
def test_a_reference_that_is_not_found_is_one_sentence_and_can_be_corrected(operator, said, answer):
    found = operator.client.get(f"{PREFIX}/record", query_string={"reference": said})

    assert found.status_code == 404
    assert answer in words(found)
    assert f'value="{said}"' in found.text
    assert operator.client.get(f"{PREFIX}/records/{said}").status_code == 404


@pytest.mark.parametrize("namespace", ["", "shop"])
@pytest.mark.parametrize("key", [CANARY, f'"{CANARY}"'], ids=["bare", "quoted"])
def test_a_record_is_found_by_its_caller_and_key_which_are_repeated_nowhere(make_shop, caplog, namespace, key):
    shop = make_shop(namespace=namespace)
    operator, known = Operator(shop), shop.send(key=CANARY, headers={"X-User": "bob"}).headers[REFERENCE]
    caplog.clear()

    found = operator.press("/record", scope="bob", key=key)
    missed = operator.press("/record", scope="alice", key=key)

    assert (found.status_code, found.headers["Location"]) == (303, f"{PREFIX}/records/{known}")
    assert missed.status_code == 404
    assert "There is no record " in words(missed)
    assert CANARY not in missed.text + caplog.text
    assert operator.client.get(f"{PREFIX}/record?scope=bob&key={CANARY}").status_code == 200, "an empty search"


@pytest.mark.parametrize("fields", [{}, {"scope": "", "key": "k"}, {"scope": "bob", "key": "ü"}], ids=str)
def test_a_key_that_cannot_be_one_is_a_sentence(operator, fields):
    found = operator.press("/record", **fields)

    assert found.status_code == 404
    assert "note-bad" in found.text


def test_markup_in_what_is_searched_for_is_text(operator):
    found = operator.client.get(f"{PREFIX}/record", query_string={"reference": '"><script>'})

    assert "<script" not in found.text
    assert "&lt;script&gt;" in found.text


# -- what is personal --------------------------------------------------------------------------------------------------


def personal(shop):
    """A shop in which a canary was sent wherever somebody may send one; give the references."""
    headers = {"X-User": f"{CANARY}-user"}
    shop.answer = lambda: ({"name": f"{CANARY}-answer"}, 201, {"X-Canary": f"{CANARY}-header"})
    done = shop.send(f"/orders/4711/pay?{CANARY}=1", f"{CANARY}-key", json={"body": f"{CANARY}-body"}, headers=headers)

    def stop():
        effect("mail", lambda _: f"{CANARY}-result")
        effect("charge", lambda _: (_ for _ in ()).throw(TimeoutError), policy="at_most_once")

    shop.answer = stop
    stuck = shop.send("/orders/8/pay", f"{CANARY}-other", data=f"{CANARY}-body", headers=headers)
    unrouted = Shop(shop.store.real)
    unrouted.app.add_url_rule(f"/{CANARY}-path", "gone", view_func=lambda: "done", methods=["POST"])
    gone = unrouted.send(f"/{CANARY}-path", f"{CANARY}-third", headers=headers)
    return [each.headers[REFERENCE] for each in (done, stuck, gone)]


def all_pages(operator, references):
    """Everything that the console shows of them."""
    paths = ["/", *(f"/records?state={state}" for state in ("running", "quarantined", "finished"))]
    paths += [f"/records/{each}" for each in references]
    paths += [f"/records/{references[0]}/forget", *(f"/records/{references[1]}/{act}" for act in ("reopen", "answer"))]
    return "".join(operator.client.get(PREFIX + path).text for path in paths)


def test_no_page_shows_a_key_a_body_or_what_may_be_personal(shop, operator):
    references = personal(shop)

    pages = all_pages(operator, references)

    assert "POST /orders/&lt;int:number&gt;/pay" in pages
    assert "4711" not in pages
    assert CANARY not in pages


def test_what_may_be_personal_is_shown_if_the_app_wants_it_but_never_a_key_or_a_request(make_shop):
    shop = make_shop({"show_answers": True})
    references = personal(shop)

    pages = all_pages(Operator(shop), references)

    shown = set(re.findall(rf"{CANARY}-(\w+)", pages))
    assert shown == {"user", "answer", "header", "result", "path"}
    assert "/orders/4711/pay" in pages


def test_an_answer_is_shown_as_text_and_never_as_a_page(make_shop):
    shop = make_shop({"show_answers": True})
    operator = Operator(shop)
    shop.answer = lambda: "<script>alert(1)</script>"
    page = shop.send(key="page").headers[REFERENCE]
    shop.answer = lambda: b"\xff\x00" * 8
    image = shop.send(key="image").headers[REFERENCE]

    shown = [operator.client.get(f"{PREFIX}/records/{each}").text for each in (page, image)]

    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown[0]
    assert "<script" not in shown[0]
    assert "16 bytes that are not text." in shown[1]


# -- trouble -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/", "/records?state=finished", "/records/7D3F-92AB-1C4E", "/record?reference=7D3F92AB1C4E"]
)
def test_a_store_that_is_down_is_one_sentence(shop, operator, path):
    shop.store.fails("browse", StoreUnavailable())
    shop.store.fails("figures", StoreUnavailable())

    found = operator.client.get(PREFIX + path)

    assert found.status_code == 503
    assert "The store cannot be reached, or has not answered in time." in words(found)


def test_the_console_does_not_disturb_the_requests_that_it_shows(shop, operator):
    pages = []
    shop.answer = lambda: (pages.append(operator.see(f"/records/{reference()}")), shop.create())[1]

    first, retry = shop.send(), shop.send()

    assert (first.data, shop.n) == (retry.data, 1)
    assert "An attempt is running." in pages[0]


def test_a_form_of_the_console_with_a_key_is_no_protected_request(shop, operator, stuck):
    shop.store.calls.clear()

    operator.press(f"/records/{stuck}/reopen", headers={**HERE, "Idempotency-Key": "k"}, refuted="mail")

    assert "claim" not in shop.store.calls
