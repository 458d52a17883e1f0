"""The public names as an app with strict types uses them. Where an error is expected, its absence is one."""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import assert_type

import httpx
from flask import Flask, Request

from flask_idempotency import Idempotency, after_commit, effect, exempt, idempotent, phase, reference, scopes, webhooks
from flask_idempotency.client import AsyncTransport, Outbox, Outcome, RetryPolicy, StoredAction, Transport, outcome_of
from flask_idempotency.stores import open_store

app = Flask(__name__)
idempotency = Idempotency(app, store=open_store("memory://"), scope=scopes.session_field("user_id"))


def pay(order: int, *, amount: Decimal) -> tuple[str, int]:
    """Be a view with parameters and a result of its own."""
    return f"{order} {amount}", 201


# A decorated view keeps its type, with and without options.
assert_type(idempotent(pay)(1, amount=Decimal(1)), tuple[str, int])
assert_type(idempotent(required=True)(pay)(1, amount=Decimal(1)), tuple[str, int])
assert_type(exempt(pay)(1, amount=Decimal(1)), tuple[str, int])
idempotent(required=True)(pay)("one")  # type: ignore[call-arg, arg-type]  # the parameters stay too

# Durations are a timedelta or a number of seconds, as the settings are.
idempotent(retention=60, lease=2.5)
idempotent(retention=timedelta(hours=72), lease=timedelta(seconds=5))
idempotent(retention="60")  # type: ignore[call-overload]  # text is no duration

# The other options.
idempotent(guard="lease", in_flight="wait", methods={"PUT"}, resumable=True, keep={200, 201})
idempotent(unavailable="run", mode="shadow")
idempotent(scope=lambda: "alice", fingerprint=lambda request: request.get_data(), keep=lambda response: True)
idempotent(guard="leese")  # type: ignore[call-overload]  # it is misspelt
idempotent(retentoin=60)  # type: ignore[call-overload]  # it is misspelt


def fingerprint(request: Request) -> str:
    """Be a view's own idea of what counts."""
    return request.path


idempotent(fingerprint=fingerprint)


# A phase takes its step's arguments and gives its step's result.
def place_order(cart: str, *, express: bool = False) -> int:
    """Be a step."""
    return len(cart) + express


assert_type(phase("order_placed", place_order, "cart"), int)
assert_type(phase("order_placed", place_order, "cart", express=True), int)
phase("order_placed", place_order)  # type: ignore[call-arg]  # the cart is missing
phase("order_placed", place_order, 7)  # type: ignore[arg-type]  # a cart is text


# So does a run outside of requests; its decorator keeps the function's type.
assert_type(idempotency.run("customer-7", 17, place_order, "cart", express=True), int)
assert_type(idempotency.once("customer-7", lambda cart: cart, guard="lease", lease=5)(place_order)("cart"), int)
idempotency.run("customer-7", 17, place_order)  # type: ignore[call-arg]  # the cart is missing
idempotency.once("customer-7", 17, guard="leese")  # type: ignore[arg-type]  # it is misspelt
idempotency.once("customer-7", 17, in_flight="accepted")  # type: ignore[arg-type]  # nobody comes back for it

# A webhook's view keeps its type too.
assert_type(webhooks.receive(webhooks.stripe(["whsec_1"]), guard="lease")(pay)(1, amount=Decimal(1)), tuple[str, int])
webhooks.github(7)  # type: ignore[arg-type]  # a secret is text


# An effect gives its call's result; whoever asks for it later gives the same, or None.
def charge(key: str) -> dict[str, str]:
    """Be a call to a gateway."""
    return {"key": key}


def find_charge(key: str) -> dict[str, str] | None:
    """Be a question to a gateway."""
    return None


assert_type(effect("charge", charge), dict[str, str])
assert_type(effect("charge", charge, policy="query", query=find_charge), dict[str, str])
effect("charge", charge, policy="sometimes")  # type: ignore[arg-type]  # there is no such policy

# What is shown to people, and what is done later.
shown: str | None = reference()
later: Callable[[], object] = dict
after_commit(later)

# The client: durations as everywhere.
client = httpx.Client(transport=Transport(policy=RetryPolicy(deadline=timedelta(minutes=1), base=0.2)))
async_client = httpx.AsyncClient(transport=AsyncTransport(httpx.AsyncHTTPTransport(http2=True)))
assert_type(outcome_of(client.post("https://api.test/orders")), Outcome | None)
assert_type(Outbox("actions.sqlite", resend_within=3600).put("POST", "https://api.test/orders", json={}), StoredAction)
RetryPolicy(attempts="three")  # type: ignore[arg-type]  # text is no number
