"""Webhooks: nothing happens without a valid signature, and an event takes effect once however it is delivered."""

import gc
import hmac
import json
from collections.abc import Callable
from datetime import timedelta
from hashlib import sha256
from io import BytesIO
from typing import Any

import pytest
from flask import Flask, request

from flask_idempotency import Idempotency, idempotent, scopes, webhooks
from flask_idempotency.errors import ConfigError
from tests.apps.shop import REPLAYED

SECRET, OLD, STRANGERS = "whsec_new", "whsec_old", "whsec_of_a_stranger"
NOW = 1_700_000_000
EVENT = {"id": "evt_1", "type": "charge.succeeded"}


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flask_idempotency.webhooks.time", lambda: NOW)


class Receiver:
    """An app that takes the events of one sender."""

    def __init__(self, sender: webhooks.Sender, *, quota: dict[str, int] | None = None, **options: Any) -> None:
        self.app = Flask("receiver")
        self.app.config.update(IDEMPOTENCY_STORE="memory://", IDEMPOTENCY_MAX_BODY=1000, IDEMPOTENCY_HOUSEKEEPING=False)
        self.app.config["IDEMPOTENCY_QUOTA"] = quota
        self.idempotency = Idempotency(self.app, scope=scopes.everyone)
        self.seen: list[str] = []
        self.app.post("/events")(webhooks.receive(sender, **options)(self.view))

    def view(self) -> Any:
        self.seen.append(request.get_json(force=True)["type"])
        return "", 204

    def post(self, body: bytes | dict[str, Any] = EVENT, **headers: str) -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.app.test_client().post("/events", data=content, headers=named, content_type="application/json")


def mac(secret: str, signed: bytes) -> str:
    return hmac.new(secret.encode(), signed, sha256).hexdigest()


def stripes(body: bytes | dict[str, Any] = EVENT, *secrets: str, at: int = NOW) -> str:
    """Sign as Stripe does."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    made = [mac(secret, f"{at}.".encode() + content) for secret in secrets or [SECRET]]
    return ",".join([f"t={at}", *(f"v1={each}" for each in made), "v0=" + "0" * 64])


def githubs(secret: str = SECRET, body: dict[str, Any] = EVENT) -> str:
    """Sign as GitHub does."""
    return f"sha256={mac(secret, json.dumps(body).encode())}"


@pytest.fixture
def stripe() -> Receiver:
    return Receiver(webhooks.stripe([SECRET, OLD]))


@pytest.fixture
def github() -> Receiver:
    return Receiver(webhooks.github([SECRET, OLD]))


def test_an_event_of_stripe_takes_effect_once_also_with_another_signature_and_body(stripe):
    again = {**EVENT, "pending_webhooks": 3}

    answers = [
        stripe.post(Stripe_Signature=stripes()),
        stripe.post(Stripe_Signature=stripes(at=NOW - 60)),
        stripe.post(again, Stripe_Signature=stripes(again)),
    ]

    assert [answer.status_code for answer in answers] == [204, 204, 204]
    assert [REPLAYED in answer.headers for answer in answers] == [False, True, True]
    assert stripe.seen == ["charge.succeeded"]


def test_the_same_event_takes_effect_at_each_endpoint_that_receives_it(stripe):
    stripe.app.post("/accounting")(
        webhooks.receive(webhooks.stripe(SECRET))(lambda: (stripe.seen.append("booked"), "")[1])
    )
    headers = {"Stripe-Signature": stripes()}
    client = stripe.app.test_client()

    answers = [client.post(path, json=EVENT, headers=headers) for path in ("/events", "/accounting") * 2]

    assert [answer.status_code for answer in answers] == [204, 200, 204, 200]
    assert stripe.seen == ["charge.succeeded", "booked"]


def test_a_user_who_is_called_like_a_sender_can_take_no_event_away():
    receiver = Receiver(webhooks.stripe(SECRET))
    receiver.app.post("/orders")(idempotent(scope=lambda: "stripe")(lambda: ("", 201)))
    order = receiver.app.test_client().post("/orders", headers={"Idempotency-Key": EVENT["id"]})

    assert (order.status_code, receiver.post(Stripe_Signature=stripes()).status_code) == (201, 204)
    assert receiver.seen == ["charge.succeeded"]


def test_no_quota_refuses_an_event_or_a_run_for_their_scope_is_no_client():
    receiver = Receiver(webhooks.stripe(SECRET), quota={"records": 1})
    events = [{**EVENT, "id": f"evt_{number}"} for number in range(3)]

    answers = [receiver.post(event, Stripe_Signature=stripes(event)) for event in events]
    with receiver.app.app_context():
        runs = [receiver.idempotency.run("billing", f"invoice-{number}", int) for number in range(3)]

    assert [answer.status_code for answer in answers] == [204] * 3
    assert runs == [0, 0, 0]


def test_an_event_of_github_takes_effect_once(github):
    headers = {"X_Hub_Signature_256": githubs(), "X_GitHub_Delivery": "7c2f-41"}

    assert [github.post(**headers).status_code for _ in range(2)] == [204, 204]
    assert github.post(**{**headers, "X_GitHub_Delivery": "7c2f-42"}).status_code == 204

    assert github.seen == ["charge.succeeded"] * 2


@pytest.mark.parametrize(
    "signature",
    [
        None,
        "",
        "v1=" + mac(SECRET, b"." + json.dumps(EVENT).encode()),
        stripes(EVENT, STRANGERS),
        stripes({**EVENT, "id": "evt_2"}),
        stripes(at=NOW - 301),
        stripes().replace("v1=", "v0="),
        stripes().replace(f"t={NOW}", f"t={NOW - 1}"),
        stripes().replace(f"t={NOW}", "t=now"),
        stripes().replace(f"t={NOW}", f"t={NOW}{'0' * 5000}"),
        "t=1,v1=\xe9",
    ],
    ids="none empty no-time stranger other-body old v0-only other-time no-number huge-time no-ascii".split(),
)
def test_without_a_valid_signature_of_stripe_nothing_happens(stripe, signature):
    headers = {} if signature is None else {"Stripe_Signature": signature}

    assert stripe.post(**headers).status_code == 401

    assert stripe.seen == []
    assert stripe.app.extensions["idempotency"].store.browse() == []
    assert stripe.post(Stripe_Signature=stripes()).status_code == 204  # its id was not used up


@pytest.mark.parametrize(
    "signature",
    [None, "", "sha256=", githubs(STRANGERS), githubs().replace("sha256", "sha1")],
    ids="none empty nothing stranger weaker".split(),
)
def test_without_a_valid_signature_of_github_nothing_happens(github, signature):
    headers = {} if signature is None else {"X_Hub_Signature_256": signature}

    assert github.post(X_GitHub_Delivery="7c2f-41", **headers).status_code == 401

    assert github.seen == []


def test_a_replay_needs_a_valid_signature_too(stripe):
    stripe.post(Stripe_Signature=stripes())

    assert stripe.post(Stripe_Signature=stripes(EVENT, STRANGERS)).status_code == 401


def test_while_a_secret_is_changed_both_are_valid(stripe):
    events = [{**EVENT, "id": f"evt_{number}"} for number in range(4)]
    signers = [[OLD], [SECRET], [STRANGERS, OLD], [SECRET, OLD]]

    answers = [
        stripe.post(event, Stripe_Signature=stripes(event, *secrets))
        for event, secrets in zip(events, signers, strict=True)
    ]

    assert [answer.status_code for answer in answers] == [204] * 4


def test_secrets_may_be_read_when_they_are_needed():
    valid = [OLD]
    receiver = Receiver(webhooks.stripe(lambda: valid))
    assert receiver.post(Stripe_Signature=stripes()).status_code == 401
    valid[:] = [SECRET]

    assert receiver.post(Stripe_Signature=stripes()).status_code == 204


@pytest.mark.parametrize("secrets", ["", [], [""], [None]], ids=str)
@pytest.mark.parametrize("scheme", [webhooks.stripe, webhooks.github])
def test_a_webhook_without_a_secret_is_refused_at_start(scheme, secrets):
    with pytest.raises(ConfigError, match="A webhook needs a secret"):
        scheme(secrets)


def test_a_body_over_the_limit_is_refused_before_it_is_read_or_signed(stripe):
    body, read = b"x" * 1001, list[int]()

    class Counting(BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            read.append(size or 0)
            return super().read(size)

    answer = stripe.app.test_client().post(
        "/events", headers={"Stripe-Signature": stripes(body)}, input_stream=Counting(body)
    )

    assert (answer.status_code, answer.json["code"], read) == (413, "body-too-large", [])


def test_an_event_without_an_id_is_refused(stripe):
    for body in (b"[]", b"{", b'{"id": 7}', b"{}"):
        assert stripe.post(body, Stripe_Signature=stripes(body)).json["code"] == "key-missing"

    assert stripe.seen == []


def test_a_form_that_a_hook_has_parsed_is_not_trusted(github):
    github.app.before_request(lambda: request.form and None)
    body = "payload=%7B%7D"
    signature = f"sha256={mac(SECRET, body.encode())}"

    answer = github.app.test_client().post(
        "/events", data=body, headers={"X-Hub-Signature-256": signature, "X-GitHub-Delivery": "1"},
        content_type="application/x-www-form-urlencoded",
    )  # fmt: skip

    assert (answer.status_code, github.seen) == (500, [])


def test_two_senders_may_use_the_same_id(stripe):
    def view() -> Any:
        stripe.seen.append("the other's")
        return "", 204

    stripe.app.post("/others", endpoint="others")(
        webhooks.receive(webhooks.timestamped("other", "Signature", SECRET))(view)
    )

    stripe.post(Stripe_Signature=stripes())
    stripe.app.test_client().post("/others", data=json.dumps(EVENT), headers={"Signature": stripes()})

    assert stripe.seen == ["charge.succeeded", "the other's"]


def test_a_sender_of_ones_own_is_two_functions():
    def is_signed(request: Any, body: bytes) -> bool:
        return request.headers.get("X-Sum") == str(len(body))

    receiver = Receiver(webhooks.Sender("ours", is_signed, lambda request: request.headers.get("X-Event")))
    size = str(len(json.dumps(EVENT)))

    answers = [receiver.post(X_Sum=each, X_Event="1") for each in ("0", size, size)]

    assert [(answer.status_code, REPLAYED in answer.headers) for answer in answers] == [
        (401, False),
        (204, False),
        (204, True),
    ]


def test_an_event_is_remembered_as_long_as_its_sender_may_send_it_again(stripe, github):
    sent = [
        (stripe, {"Stripe_Signature": stripes()}, timedelta(days=30)),
        (github, {"X_Hub_Signature_256": githubs(), "X_GitHub_Delivery": "1"}, timedelta(days=4)),
    ]

    for receiver, headers, days in sent:
        receiver.post(**headers)
        (record,) = receiver.app.extensions["idempotency"].store.browse()
        assert record.condition.expires_at - record.created_at >= days


def test_an_async_view_receives_events_too():
    receiver = Receiver(webhooks.stripe(SECRET))

    async def view() -> Any:
        return {"is": "async"}

    receiver.app.add_url_rule("/async", "async", webhooks.receive(webhooks.stripe(SECRET))(view), methods=["POST"])

    client: Callable[..., Any] = receiver.app.test_client().post
    body = json.dumps(EVENT)
    assert client("/async", data=body, headers={"Stripe-Signature": "t=1"}).status_code == 401
    assert client("/async", data=body, headers={"Stripe-Signature": stripes()}).json == {"is": "async"}
    gc.collect()  # the refusal's traceback holds the thread of the loop
