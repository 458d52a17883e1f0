"""The payment gateway charges once for a key, whatever goes wrong, and its ledger hides nothing."""

import re
from html import unescape

import pytest

from demo_shop.gateway.app import BadSetting, create_app
from tests.demo_shop.conftest import API_KEY, AUTHORIZATION, charge_for
from tests.fixtures.processes import race

REPLAYED = "Idempotent-Replayed"


# -- charges -----------------------------------------------------------------------------------------------------------


def test_a_charge_says_what_was_charged_and_stands_in_the_ledger(gateway):
    answer = gateway.charge("key-1", order="T-7", amount=1950)

    assert answer.status_code == 201
    charged = answer.get_json()
    assert charged == {"id": charged["id"], "order": "T-7", "amount": 1950, "card": "card_ok"}
    assert charged["id"].startswith("ch_")
    [entry] = gateway.charges("T-7")
    assert {**charged, "refunded": 0}.items() <= entry.items()


def test_a_key_is_charged_once_and_answered_alike_ever_after(gateway):
    first = gateway.charge("key-1")

    again = [gateway.charge("key-1") for _ in range(3)]

    assert [answer.data for answer in again] == [first.data] * 3
    assert [answer.headers[REPLAYED] for answer in again] == ["true"] * 3
    assert len(gateway.charges()) == 1


def test_a_key_is_the_callers_own_text_in_the_ledger(gateway):
    gateway.charge("checkout-5f0c")

    page = gateway.client.get("/").text

    assert "checkout-5f0c" in page


@pytest.mark.parametrize(
    ("card", "reason"), [("card_declined", "card_declined"), ("card_insufficient", "insufficient_funds")]
)
def test_a_declined_card_is_an_answer_that_is_kept(gateway, card, reason):
    first = gateway.charge("key-1", card=card)

    again = gateway.charge("key-1", card=card)

    assert (first.status_code, first.get_json()) == (402, {"declined": reason})
    assert (again.status_code, again.data, again.headers[REPLAYED]) == (402, first.data, "true")
    assert gateway.charges() == []


def test_a_key_with_another_amount_is_refused_and_charges_nothing(gateway):
    gateway.charge("key-1", amount=2400)

    other = gateway.charge("key-1", amount=2500)

    assert (other.status_code, other.get_json()["code"]) == (422, "key-reused")
    assert [charge["amount"] for charge in gateway.charges()] == [2400]


def test_a_request_without_a_key_charges_nothing(gateway):
    answer = gateway.charge(key=None)

    assert (answer.status_code, answer.get_json()["code"]) == (400, "key-missing")
    assert gateway.charges() == []


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer wrong"}, {"Authorization": API_KEY}, {"Authorization": "Bearer gatewäy-key"}],
    ids=["none", "wrong", "not a bearer", "not ASCII"],
)
@pytest.mark.parametrize("path", ["/charges", "/refunds", "/knobs"])
def test_who_has_not_the_api_key_gets_nothing(make_gateway, path, headers):
    gateway = make_gateway()

    answer = gateway.post(path, charge_for(), "key-1", headers)

    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert gateway.charges() == []


def test_a_replay_is_not_for_who_has_not_the_api_key(make_gateway):
    gateway = make_gateway()
    gateway.charge("key-1")

    answer = gateway.post("/charges", charge_for(), "key-1", {"Authorization": "Bearer stolen"})

    assert answer.status_code == 401
    assert "ch_" not in answer.text


@pytest.mark.parametrize(
    "wrong",
    [
        {"amount": 0},
        {"amount": -5},
        {"amount": 1.5},
        {"amount": "24"},
        {"amount": 10**12},
        {"order": ""},
        {"order": "T" * 65},
        {"card": "card_of_a_friend"},
        {"tip": 100},
    ],
    ids=str,
)
def test_a_charge_that_makes_no_sense_names_the_field(make_gateway, wrong):
    gateway = make_gateway()

    answer = gateway.post("/charges", charge_for() | wrong, "key-1")

    assert (answer.status_code, list(answer.get_json()["fields"])) == (400, list(wrong))
    assert gateway.charges() == []


@pytest.mark.parametrize("body", ["", "{", "[]", "null", '"text"'])
def test_a_body_that_is_not_an_object_is_refused_in_json(make_gateway, body):
    gateway = make_gateway()

    answer = gateway.client.post(
        "/charges",
        data=body,
        headers={**AUTHORIZATION, "Idempotency-Key": "key-1", "Content-Type": "application/json"},
    )

    assert (answer.status_code, answer.is_json) == (400, True)
    assert gateway.charges() == []


# -- refunds -----------------------------------------------------------------------------------------------------------


def test_a_refund_gives_back_once_for_a_key(gateway):
    charge = gateway.charge("key-1").get_json()["id"]
    asked = {"charge": charge, "amount": 1000}

    answers = [gateway.post("/refunds", asked, "refund-1") for _ in range(3)]

    assert [answer.status_code for answer in answers] == [201] * 3
    assert answers[0].get_json() == {**asked, "id": answers[2].get_json()["id"]}
    assert [entry["refunded"] for entry in gateway.charges()] == [1000]


def test_no_more_is_given_back_than_was_charged(gateway):
    charge = gateway.charge("key-1", amount=2400).get_json()["id"]
    gateway.post("/refunds", {"charge": charge, "amount": 2000}, "refund-1")

    too_much = gateway.post("/refunds", {"charge": charge, "amount": 401}, "refund-2")
    the_rest = gateway.post("/refunds", {"charge": charge, "amount": 400}, "refund-3")

    assert (too_much.status_code, too_much.get_json()["left"]) == (422, 400)
    assert the_rest.status_code == 201
    assert [entry["refunded"] for entry in gateway.charges()] == [2400]


def test_an_unknown_charge_is_not_given_back(gateway):
    answer = gateway.post("/refunds", {"charge": "ch_unknown", "amount": 1}, "refund-1")

    assert answer.status_code == 404


def test_refunds_at_one_instant_do_not_give_back_more_than_was_charged(gateway):
    charge = gateway.charge("key-1", amount=1000).get_json()["id"]

    def refund(number: int) -> int:
        client = gateway.app.test_client()
        headers = {**AUTHORIZATION, "Idempotency-Key": f"refund-{number}"}
        return client.post("/refunds", json={"charge": charge, "amount": 400}, headers=headers).status_code

    statuses = race(5, refund)

    assert sorted(statuses) == [201, 201, 422, 422, 422]
    assert [entry["refunded"] for entry in gateway.charges()] == [800]


# -- what can be read --------------------------------------------------------------------------------------------------


def test_the_newest_charges_come_first_with_totals(gateway):
    for number in (1, 2):
        gateway.charge(f"key-{number}", order=f"T-{number}", amount=1000 * number)
    gateway.charge("key-3", order="T-2", amount=2000)
    gateway.post("/refunds", {"charge": gateway.charges("T-1")[0]["id"], "amount": 300}, "refund-1")

    found = gateway.client.get("/charges", headers=AUTHORIZATION).get_json()

    assert [(entry["order"], entry["refunded"]) for entry in found["charges"]] == [("T-2", 0), ("T-2", 0), ("T-1", 300)]
    assert found["totals"] == {"charges": 3, "amount": 5000, "refunds": 1, "refunded": 300, "doubles": 1}


def test_the_time_of_a_charge_has_its_zone(gateway):
    gateway.charge()

    [entry] = gateway.charges()

    assert entry["at"].endswith("+00:00")


def test_who_has_not_the_api_key_reads_no_charges(make_gateway):
    gateway = make_gateway()

    assert gateway.client.get("/charges").status_code == 401
    assert gateway.client.get("/charges?order=T-1").status_code == 401


def test_health_says_that_it_is_well(gateway):
    answer = gateway.client.get("/health")

    assert (answer.status_code, answer.get_json()) == (200, {"status": "ok"})


# -- the ledger page ---------------------------------------------------------------------------------------------------


def rows(page: str) -> list[str]:
    """The rows of the ledger's table, as a reader sees them."""
    body = page.partition("<tbody>")[2].partition("</tbody>")[0]
    return [
        " ".join(unescape(re.sub(r"<[^>]*>", " ", row)).split()) for row in re.findall(r"<tr.*?</tr>", body, re.DOTALL)
    ]


def test_an_empty_ledger_says_so(make_gateway):
    page = make_gateway().client.get("/").text

    assert "Nothing has been charged yet" in page
    assert rows(page) == []


def test_two_keys_for_one_order_are_seen_as_a_double_charge(gateway):
    gateway.charge("key-1", order="T-1")
    gateway.charge("key-2", order="T-2")
    gateway.charge("key-3", order="T-2")

    page = gateway.client.get("/").text

    assert ["double" in row for row in rows(page)] == [True, True, False]
    assert page.count('<tr class="double">') == 2
    assert "Charged more than once" in page
    assert "<dt>Double charges</dt><dd>1</dd>" in page


def test_one_key_for_one_order_is_no_double_charge_however_often_it_is_sent(gateway):
    for _ in range(3):
        gateway.charge("key-1")

    page = gateway.client.get("/").text

    assert len(rows(page)) == 1
    assert "Charged more than once" not in page
    assert "<dt>Double charges</dt><dd>0</dd>" in page


def test_a_refund_stands_below_its_charge(gateway):
    charge = gateway.charge("key-1", amount=240000).get_json()["id"]
    gateway.post("/refunds", {"charge": charge, "amount": 1005}, "refund-1")

    first, second = rows(gateway.client.get("/").text)

    assert "€2,400.00" in first
    assert "Refund re_" in second
    assert "\N{MINUS SIGN}€10.05" in second


def test_what_a_shop_sends_is_shown_as_text(make_gateway):
    gateway = make_gateway()
    gateway.charge("<i>key</i>", order="<script>alert(1)</script>")
    gateway.charge("<b>key</b>", order="<script>alert(1)</script>")

    page = gateway.client.get("/").text

    assert "<script>alert" not in page
    assert "<i>key" not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 3


def test_the_page_loads_nothing_from_elsewhere_and_runs_nothing_inline(make_gateway):
    gateway = make_gateway()

    answer = gateway.client.get("/")

    assert answer.headers["Content-Security-Policy"].startswith("default-src 'self';")
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|https?://", answer.text)
    named = re.findall(r'(?:src|href)="([^"]+)"', answer.text)
    assert len(named) == 4
    for path in named:
        with gateway.client.get(path) as part:
            assert part.status_code == 200


# -- the knob ----------------------------------------------------------------------------------------------------------


def test_the_knob_can_be_read_and_is_cleared_by_nothing(make_gateway):
    gateway = make_gateway()

    turned = gateway.post("/knobs", {"behaviour": "error", "times": 3}).get_json()
    shown = gateway.client.get("/knobs", headers=AUTHORIZATION).get_json()
    gateway.post("/knobs", {"behaviour": ""})
    cleared = gateway.client.get("/knobs", headers=AUTHORIZATION).get_json()

    assert turned == shown == {"behaviour": "error", "times": 3}
    assert cleared == {"behaviour": "", "times": 0}
    assert gateway.charge().status_code == 201


@pytest.mark.parametrize("wrong", [{"behaviour": "explode"}, {"behaviour": "slow", "times": 0}, {}], ids=str)
def test_a_knob_that_is_not_there_cannot_be_turned(make_gateway, wrong):
    answer = make_gateway().post("/knobs", wrong)

    assert answer.status_code == 400


def test_without_the_lab_there_is_no_knob(make_gateway):
    gateway = make_gateway()
    gateway.post("/knobs", {"behaviour": "error", "times": 9})
    earnest = make_gateway(DEMO_LAB="0")

    assert earnest.post("/knobs", {"behaviour": "error"}).status_code == 404
    assert earnest.client.get("/knobs", headers=AUTHORIZATION).status_code == 404
    assert earnest.charge().status_code == 201


def test_an_error_comes_before_the_charge_and_so_many_times(gateway):
    gateway.post("/knobs", {"behaviour": "error", "times": 2})

    statuses = [gateway.charge("key-1").status_code for _ in range(4)]

    assert statuses == [500, 500, 201, 201]
    assert len(gateway.charges()) == 1


def test_a_request_without_a_key_does_not_use_the_knob_up(make_gateway):
    gateway = make_gateway()
    gateway.post("/knobs", {"behaviour": "error", "times": 1})

    gateway.charge(key=None)

    assert gateway.charge("key-1").status_code == 500


def test_the_knob_is_used_up_once_by_requests_at_one_instant(gateway):
    gateway.post("/knobs", {"behaviour": "error", "times": 2})

    def charge(number: int) -> int:
        headers = {**AUTHORIZATION, "Idempotency-Key": f"key-{number}"}
        return gateway.app.test_client().post("/charges", json=charge_for(), headers=headers).status_code

    statuses = race(6, charge)

    assert sorted(statuses) == [201, 201, 201, 201, 500, 500]


def test_a_reset_raises_where_there_is_no_socket_to_reset_and_the_charge_stands(gateway):
    gateway.post("/knobs", {"behaviour": "reset", "times": 1})

    with pytest.raises(ConnectionResetError, match="on purpose"):
        gateway.charge("key-1")

    assert len(gateway.charges()) == 1
    assert gateway.charge("key-1").headers[REPLAYED] == "true"


def test_a_charge_that_is_denied_was_made_and_is_told_at_the_next_try(gateway):
    gateway.post("/knobs", {"behaviour": "confused", "times": 1})

    denied, told = (gateway.charge("key-1") for _ in range(2))

    assert (denied.status_code, denied.json) == (422, {"error": "This key belongs to another order."})
    assert (told.status_code, told.headers[REPLAYED]) == (201, "true")
    assert [charge["id"] for charge in gateway.charges()] == [told.json["id"]]


# -- cards that bring trouble ------------------------------------------------------------------------------------------


def test_the_card_of_errors_fails_at_a_keys_first_try_only(gateway):
    statuses = [gateway.charge(key, card="card_error").status_code for key in ("key-1", "key-1", "key-2", "key-1")]

    assert statuses == [500, 201, 500, 201]
    assert len(gateway.charges()) == 1


# -- settings ----------------------------------------------------------------------------------------------------------


def test_a_gateway_without_an_api_key_does_not_start(tmp_path):
    with pytest.raises(BadSetting, match="GATEWAY_API_KEY is not set"):
        create_app({"DEMO_DATA": str(tmp_path)})


def test_a_database_that_is_no_url_is_one_sentence(tmp_path):
    with pytest.raises(BadSetting, match="GATEWAY_DATABASE_URL is not a URL"):
        create_app({"GATEWAY_API_KEY": API_KEY, "GATEWAY_DATABASE_URL": "my database"})


def test_making_the_tables_again_keeps_what_is_in_them(make_gateway):
    gateway = make_gateway()
    gateway.charge("key-1")

    again = make_gateway()

    assert len(again.charges()) == 1
    assert again.charge("key-1").headers[REPLAYED] == "true"
