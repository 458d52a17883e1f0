"""The shop for programs: tokens, JSON, keys, and an OpenAPI document that tells the truth."""

from collections.abc import Iterator
from io import BytesIO
from typing import Any
from uuid import uuid4

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from demo_shop.accounts import token_of
from demo_shop.models import Account, Order, Payment, Review, db
from tests.demo_shop.shopping import Shop, open_shop
from tests.fixtures.processes import eventually


@pytest.fixture
def shop(store_url: str, gateway_url: str) -> Iterator[Shop]:
    """A shop, once on SQLite and once on PostgreSQL."""
    with open_shop(store_url, gateway_url) as shop:
        yield shop


class Program:
    """A client with a token."""

    def __init__(self, shop: Shop, handle: str = "ada") -> None:
        self.client = shop.app.test_client(use_cookies=False)
        with shop.app.app_context():
            account = db.session.query(Account).filter_by(handle=handle).one()
            self.token = token_of(account)

    def get(self, path: str) -> Any:
        return self.client.get(path, headers={"Authorization": f"Bearer {self.token}"})

    def post(self, path: str, body: Any, key: str | None = None, **headers: str) -> Any:
        given = {"Authorization": f"Bearer {self.token}", **({"Idempotency-Key": key} if key else {}), **headers}
        return self.client.post(path, json=body, headers=given)


@pytest.fixture
def program(shop: Shop) -> Program:
    return Program(shop)


def test_a_program_buys_once_however_often_it_asks(shop, program):
    key = uuid4().hex
    program.post("/api/cart", {"product": "assam", "quantity": 3})

    answers = [program.post("/api/checkout", {"card": "card_ok"}, key) for _ in range(3)]

    assert [answer.status_code for answer in answers] == [201, 201, 201]
    assert len({answer.data for answer in answers}) == 1
    assert answers[0].json["reference"] == answers[0].headers["Idempotency-Reference"]
    assert (shop.count(Order), shop.count(Payment)) == (1, 1)
    (order,) = program.get("/api/orders").json
    assert (order["state"], order["total_cents"]) == ("paid", 3 * 1290)
    assert program.get(f"/api/orders/{order['number']}").json == order


def test_more_than_there_is_does_not_go_into_the_cart(program):
    answer = program.post("/api/cart", {"product": "kettle", "quantity": 2}, "c-1")

    assert (answer.status_code, answer.json["detail"]) == (409, "There is only one “Slow Kettle”.")
    assert program.get("/api/cart").json["lines"] == []


def test_a_cart_that_costs_another_sum_is_not_bought(program):
    program.post("/api/cart", {"product": "assam", "quantity": 2})

    answer = program.post("/api/checkout", {"card": "card_ok", "total_cents": 1290}, "s-1")

    assert (answer.status_code, answer.json["detail"][:36]) == (409, "Your cart has changed, and costs €25")


def test_what_is_no_json_is_told_so(program):
    headers = {"Authorization": f"Bearer {program.token}", "Content-Type": "application/json"}

    answer = program.client.post("/api/cart", data="{", headers=headers)

    assert (answer.status_code, answer.json["detail"]) == (400, "body: Send a JSON object.")


def test_a_refund_can_be_asked_for(program):
    program.post("/api/cart", {"product": "assam", "quantity": 1})
    number = program.post("/api/checkout", {"card": "card_ok"}, uuid4().hex).json["order"]

    answer = program.post(f"/api/orders/{number}/refund", {"reason": "too strong"}, "r-1")

    assert (answer.status_code, answer.json["state"]) == (202, "refund requested")
    assert program.post(f"/api/orders/{number}/refund", {"reason": "again"}, "r-2").status_code == 409


def test_one_request_buys_one_product_once_however_often_it_is_sent(shop, program):
    wanted, key = {"product": "assam", "quantity": 2, "card": "card_ok", "note": "for Aunt Ada"}, uuid4().hex

    answers = [program.post("/api/buy", wanted, key) for _ in range(3)]

    assert [answer.status_code for answer in answers] == [201, 201, 201]
    assert len({answer.data for answer in answers}) == 1
    assert (shop.count(Order), shop.count(Payment)) == (1, 1)
    with shop.app.app_context():
        order = db.session.query(Order).one()
        assert (order.state, order.total_cents, order.note) == ("paid", 2 * 1290, "for Aunt Ada")


def test_a_purchase_under_another_key_is_another_purchase(shop, program):
    wanted = {"product": "assam", "card": "card_ok", "note": "the same"}

    answers = [program.post("/api/buy", wanted, key) for key in (uuid4().hex, uuid4().hex)]

    assert [answer.status_code for answer in answers] == [201, 201]
    assert shop.count(Order) == 2


def test_a_picture_that_is_sent_again_is_the_same_purchase_and_another_picture_is_not(shop, program):
    key = uuid4().hex

    def upload(picture: bytes) -> Any:
        form = {"product": "assam", "quantity": "2", "card": "card_ok", "picture": (BytesIO(picture), "lid.png")}
        headers = {"Authorization": f"Bearer {program.token}", "Idempotency-Key": key}
        return program.client.post("/api/buy", data=form, headers=headers)

    first, again, other = upload(b"a cat"), upload(b"a cat"), upload(b"a dog")

    assert [answer.status_code for answer in (first, again, other)] == [201, 201, 422]
    assert again.data == first.data
    with shop.app.app_context():
        assert db.session.query(Order).one().picture == b"a cat"


def test_what_is_sold_out_is_refused_and_nothing_is_charged(shop, program):
    wanted, key = {"product": "kettle", "card": "card_ok"}, uuid4().hex
    bought = program.post("/api/buy", wanted, uuid4().hex)

    refused = [program.post("/api/buy", wanted, key) for _ in range(2)]

    assert bought.status_code == 201
    assert [answer.status_code for answer in refused] == [409, 409]
    assert shop.count(Payment) == 1


def test_an_export_is_started_once_and_polled_to_its_file(shop, program):
    program.post("/api/buy", {"product": "assam", "quantity": 2, "card": "card_ok"}, uuid4().hex)
    accepted = program.post("/api/exports", {}, "e-1")
    address = accepted.headers["Location"]

    eventually(lambda: program.get(address).json["state"] == "finished", what="the export")

    assert (accepted.status_code, accepted.json["state"]) == (202, "running")
    first, again = program.get(f"{address}?answer=1"), program.post("/api/exports", {}, "e-1")
    assert first.mimetype == "text/csv"
    assert [line.split(",")[1:3] for line in first.text.splitlines()] == [["state", "total_cents"], ["paid", "2580"]]
    assert (again.status_code, again.data, again.headers["Idempotent-Replayed"]) == (200, first.data, "true")
    assert Program(shop, "grace").get(address).status_code == 404
    assert program.post("/api/exports", {}).json["code"] == "key-missing"


def test_refusals_link_to_the_shops_own_rules(shop, program):
    url = program.post("/api/exports", {}).json["type"]

    page = shop.app.test_client().get(url.partition("#")[0].removeprefix("http://localhost"))

    assert f'id="{url.partition("#")[2]}"' in page.text
    assert "A caller is an account of the shop." in page.text


@pytest.mark.parametrize("path", ["/api/reviews", "/api/ratings"])
def test_a_review_is_given_once_and_shown_with_its_product(shop, program, path):
    said = {"product": "assam", "stars": 4, "text": "Strong <b>and</b> malty"}

    answers = [program.post(path, said, "r-1") for _ in range(2)]

    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json == answers[1].json
    assert shop.count(Review) == 1
    page = shop.app.test_client().get("/products/assam").text
    assert "Strong &lt;b&gt;and&lt;/b&gt; malty" in page
    assert "4 of 5 stars" in page


def test_a_program_that_signs_in_again_is_the_same_customer(shop, program):
    given = [program.client.post("/api/tokens", json={"account": "ada"}).json["token"] for _ in range(2)]
    wanted, key = {"product": "assam", "card": "card_ok"}, uuid4().hex

    answers = []
    for program.token in given:
        answers.append(program.post("/api/buy", wanted, key))

    assert given[0] != given[1]
    assert answers[1].headers["Idempotent-Replayed"] == "true"
    assert answers[0].data == answers[1].data
    assert program.client.post("/api/tokens", json={"account": "nobody"}).status_code == 404


@pytest.mark.parametrize(
    ("path", "body", "detail"),
    [
        ("/api/cart", {}, "Missing data"),
        ("/api/cart", {"product": "assam", "quantity": 21}, "Must be greater than or equal to 0 and less than"),
        ("/api/cart", {"product": "assam", "quantity": "1"}, "Not a valid integer"),
        ("/api/cart", {"product": "assam", "quantity": 1, "price": 0}, "Unknown field"),
        ("/api/checkout", {"card": "gold"}, "Must be one of"),
        ("/api/checkout", {"card": "card_ok", "order": "7"}, "String does not match"),
        ("/api/buy", {"product": "assam"}, "Missing data"),
        ("/api/buy", {"product": "assam", "card": "card_ok", "quantity": 0}, "Must be greater than or equal to 1"),
        ("/api/reviews", {"product": "assam", "stars": 6, "text": "!"}, "Must be greater than or equal to 1"),
    ],
)
def test_what_is_not_understood_is_said_by_name(program, path, body, detail):
    answer = program.post(path, body, uuid4().hex)

    assert (answer.status_code, answer.json["title"]) == (400, "Not understood")
    assert detail in answer.json["detail"]


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer forged", "Basic YTph"])
def test_without_a_token_there_is_no_cart(shop, header):
    answer = shop.app.test_client().get("/api/cart", headers={"Authorization": header} if header else {})

    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, 'Bearer realm="shop"')


@pytest.mark.parametrize("path", ["/api/reviews", "/api/checkout", "/api/exports"])
@pytest.mark.parametrize("key", [{}, {"Idempotency-Key": "k"}], ids=["without a key", "with a key"])
def test_without_a_token_nothing_is_written(shop, path, key):
    answer = shop.app.test_client().post(path, json={"product": "sencha", "stars": 5}, headers=key)

    assert answer.status_code == 401


def test_a_cookie_is_no_token(shop):
    assert shop.customer().client.get("/api/cart").status_code == 401


def test_the_document_names_the_key_and_every_refusal_of_a_checkout(shop):
    document = shop.app.test_client().get("/api/openapi.json").json

    checkout = document["paths"]["/api/checkout"]["post"]

    assert [(each["name"], each.get("required")) for each in checkout["parameters"]] == [
        ("Idempotency-Key", True),
        ("Prefer", None),
    ]
    assert {"201", "202", "400", "401", "402", "409", "410", "413", "422", "503"} <= checkout["responses"].keys()


# Every request that the document allows

OPERATIONS = [
    ("GET", "/api/products"),
    ("GET", "/api/products/{slug}"),
    ("GET", "/api/cart"),
    ("POST", "/api/cart"),
    ("POST", "/api/checkout"),
    ("POST", "/api/buy"),
    ("POST", "/api/reviews"),
    ("POST", "/api/ratings"),
    ("POST", "/api/tokens"),
    ("POST", "/api/exports"),
    ("GET", "/receipts/{reference}"),
    ("GET", "/api/orders"),
    ("GET", "/api/orders/{number}"),
    ("POST", "/api/orders/{number}/refund"),
]


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory, gateway_url: str) -> Iterator[tuple[Any, str]]:
    """The document of a running shop, and a token."""
    folder = tmp_path_factory.mktemp("described")
    with open_shop(f"sqlite:///{folder / 'shop.sqlite'}", gateway_url) as shop:
        program = Program(shop)
        program.post("/api/cart", {"product": "whisk", "quantity": 1})
        bought = program.post("/api/checkout", {"card": "card_ok"}, "k")  # and a thread for notes has begun
        assert bought.status_code == 201
        yield schemathesis.openapi.from_wsgi("/api/openapi.json", shop.app), program.token


def test_every_operation_is_tried(described):
    schema, _ = described

    assert {(found.ok().method.upper(), found.ok().path) for found in schema.get_all_operations()} == set(OPERATIONS)


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_every_answer_is_as_the_document_says(described, method, path):
    """That a valid request is accepted is not asked for: an empty cart or a used key is refused all the same."""
    schema, token = described

    @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
    @given(case=schema[path][method].as_strategy())
    def send(case: Any) -> None:
        case.call_and_validate(headers={"Authorization": f"Bearer {token}"}, excluded_checks=[positive_data_acceptance])

    send()
