"""Charges and refunds: ordinary views that commit, made safe to retry by one decorator.

Idea: the caller has idempotency of its own and sends us a key. We protect ourselves all the same, with the same
extension and its transaction guard: the charge and its answer are one commit. So the shop can send its effect again
after any failure, and gets the first answer. A declined card is an answer too.
"""

from typing import Any

from flask import Blueprint, request
from marshmallow import Schema, ValidationError, fields, validate
from sqlalchemy import select

from demo_shop.gateway.access import needs_api_key
from demo_shop.gateway.events import announce
from demo_shop.gateway.knobs import CARDS, meets_trouble
from demo_shop.gateway.models import Charge, Refund, db
from flask_idempotency import idempotent

DECLINED = {"card_declined": "card_declined", "card_insufficient": "insufficient_funds"}
MOST = 10_000_000  # cents; a teapot for more is a typing error

charges = Blueprint("charges", __name__)

_amount = fields.Integer(required=True, strict=True, validate=validate.Range(1, MOST))


class ChargeSchema(Schema):
    """The body of a charge request."""

    order = fields.String(required=True, validate=validate.Length(1, 64))
    amount = _amount
    card = fields.String(required=True, validate=validate.OneOf(CARDS))


class RefundSchema(Schema):
    """The body of a refund request."""

    charge = fields.String(required=True)
    amount = _amount


@charges.post("/charges")
@needs_api_key
@meets_trouble
@idempotent(required=True)
def charge() -> Any:
    """Charge a card."""
    asked = ChargeSchema().load(request.get_json())
    if asked["card"] in DECLINED:
        return {"declined": DECLINED[asked["card"]]}, 402
    made = Charge(**asked, key=request.headers["Idempotency-Key"])
    db.session.add(made)
    announce(made)
    db.session.commit()
    return {"id": made.id, "order": made.order, "amount": made.amount, "card": made.card}, 201


@charges.post("/refunds")
@needs_api_key
@idempotent(required=True)
def refund() -> Any:
    """Refund a charge, never more than was taken."""
    asked = RefundSchema().load(request.get_json())
    charged = db.session.scalar(select(Charge).where(Charge.id == asked["charge"]).with_for_update())
    if charged is None:
        return {"error": "There is no such charge."}, 404
    if charged.refunded + asked["amount"] > charged.amount:
        return {"error": "That is more than was charged.", "left": charged.amount - charged.refunded}, 422
    made = Refund(charge=charged, amount=asked["amount"], key=request.headers["Idempotency-Key"])
    db.session.add(made)
    db.session.commit()
    return {"id": made.id, "charge": charged.id, "amount": made.amount}, 201


@charges.app_errorhandler(ValidationError)
def say_what_is_wrong(error: ValidationError) -> Any:
    """Answer with the errors of each field."""
    return {"error": "The request makes no sense.", "fields": error.messages}, 400
