"""How the shop calls its payment gateway: a foreign system that may be slow, silent or gone."""

import json
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, Request, build_opener

from flask import current_app

from flask_idempotency.errors import NeedsPerson

CARDS = [
    {"value": "card_ok", "label": "A good card", "hint": "is charged"},
    {"value": "card_declined", "label": "A refused card", "hint": "is declined, for good"},
    {"value": "card_insufficient", "label": "An empty card", "hint": "has not enough money on it"},
    {"value": "card_slow", "label": "A slow card", "hint": "is charged after six seconds: longer than we wait"},
    {"value": "card_timeout", "label": "A silent card", "hint": "is charged, but the gateway never says so"},
    {"value": "card_reset", "label": "A cut card", "hint": "is charged, and then the line breaks"},
    {"value": "card_error", "label": "A stumbling card", "hint": "fails once with an error 500, then works"},
    {"value": "card_confused", "label": "A confused card", "hint": "is charged, then denied: only a person can tell"},
]
_open = build_opener(ProxyHandler({})).open  # the gateway is local: use no proxy


@dataclass(frozen=True)
class Said:
    """An answer of the gateway."""

    status: int
    body: Any


class GatewayTrouble(Exception):
    """The gateway gave no definitive answer."""


def charge(order: str, amount: int, card: str, key: str) -> dict[str, Any]:
    """Charge a card once for each key. A decline is an answer; any other failure is raised."""
    said = _ask("/charges", {"order": order, "amount": amount, "card": card}, key)
    if said.status == 422:
        raise NeedsPerson("the gateway knows this key with another order or amount")
    if said.status not in (201, 402):
        raise GatewayTrouble(f"the gateway answered {said.status}")
    return dict(said.body)


def refund(charge: str, amount: int, key: str) -> dict[str, Any]:
    """Refund a charge once for each key."""
    said = _ask("/refunds", {"charge": charge, "amount": amount}, key)
    if said.status != 201:
        raise GatewayTrouble(f"the gateway answered {said.status}")
    return dict(said.body)


def charges_of(order: str) -> list[dict[str, Any]] | None:
    """Give the charges of an order, or None if the gateway cannot be asked."""
    books = _books(f"?{urlencode({'order': order})}")
    return None if books is None else list(books["charges"])


def newest_books() -> dict[str, Any] | None:
    """Give the newest charges and the totals, or None if the gateway cannot be asked."""
    return _books("")


def turn_knob(behaviour: str, times: int) -> None:
    """Make the gateway misbehave on its next charges; 0 switches this off."""
    said = _ask("/knobs", {"behaviour": behaviour if times else "", "times": times or 1})
    if said.status != 200:
        raise GatewayTrouble(f"the gateway answered {said.status}")


def knob() -> dict[str, Any]:
    """Say how the gateway misbehaves, and on how many more charges."""
    try:
        said = _ask("/knobs", timeout=1.0)
    except OSError:
        return {}
    return dict(said.body) if said.status == 200 else {}


def _books(query: str) -> dict[str, Any] | None:
    try:
        said = _ask(f"/charges{query}", timeout=1.0)
    except OSError:
        return None
    return dict(said.body) if said.status == 200 else None


def _ask(path: str, body: Any = None, key: str | None = None, timeout: float | None = None) -> Said:
    """Send one request. Raises OSError if there is no answer."""
    config = current_app.config
    headers = {"Authorization": f"Bearer {config['GATEWAY_API_KEY']}", "Content-Type": "application/json"}
    if key is not None:
        headers["Idempotency-Key"] = key
    content = None if body is None else json.dumps(body).encode()
    asked = Request(f"{config['GATEWAY_URL']}{path}", content, headers)  # noqa: S310  # http, by the settings
    try:
        answer = _open(asked, timeout=timeout or config["GATEWAY_TIMEOUT"])
    except HTTPError as error:
        answer = error
    with answer:
        text = answer.read()
    return Said(answer.status, json.loads(text) if "json" in answer.headers.get("Content-Type", "") else None)
