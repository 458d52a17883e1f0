"""Idea: the gateway's webhook. It tells of a charge twice, late, before it answers, or never; the rows are the same.

The answer to our own request and the event say the same, and whichever comes first is recorded. The signature is
checked before anything else, and an event that was received before gets the first answer again.
"""

from typing import Any

from flask import Blueprint, abort, current_app, request
from sqlalchemy import select

from demo_shop.checkout.steps import mark_paid_by_event
from demo_shop.models import Order, db
from flask_idempotency import webhooks

blueprint = Blueprint("events", __name__)
gateway = webhooks.timestamped(
    "gateway", "Gateway-Signature", lambda: str(current_app.config["GATEWAY_WEBHOOK_SECRET"])
)


@blueprint.post("/webhooks/gateway")
@webhooks.receive(gateway)
def charged() -> Any:
    """Record a charge, unless our own request has."""
    event = request.get_json()
    if event.get("type") != "charge.succeeded":
        return "", 204
    charge = event["charge"]
    order = db.session.scalar(select(Order).filter_by(number=charge["order"]).order_by(Order.id))
    if order is None:
        abort(409, "This order is not known yet; send the event again later.")  # 409 is not kept
    mark_paid_by_event(order.id, charge)
    db.session.commit()
    return "", 204
