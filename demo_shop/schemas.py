"""What the JSON API accepts and returns, checked by marshmallow."""

from datetime import UTC
from typing import Any

from marshmallow import RAISE, Schema, fields, validate

from demo_shop import bank
from demo_shop.cart import MOST


class Instant(fields.DateTime):
    """A time in UTC; the database keeps it without its zone."""

    def _serialize(self, value: Any, attr: str | None, obj: Any, **kwargs: Any) -> Any:
        return super()._serialize(value.replace(tzinfo=UTC), attr, obj, **kwargs)


class Strict(Schema):
    """A schema that rejects unknown fields."""

    class Meta:
        """The option of marshmallow that does so."""

        unknown = RAISE


class ProductSchema(Schema):
    """Something to buy."""

    slug = fields.String(required=True)
    name = fields.String(required=True)
    description = fields.String(required=True)
    price_cents = fields.Integer(required=True)
    stock = fields.Integer(required=True)


class CartLineSchema(Schema):
    """A line of the cart."""

    product = fields.Pluck(ProductSchema, "slug", required=True)
    quantity = fields.Integer(required=True)
    sum_cents = fields.Integer(required=True)


class CartSchema(Schema):
    """The cart."""

    lines = fields.List(fields.Nested(CartLineSchema), required=True)
    total_cents = fields.Integer(required=True)


class CartChangeSchema(Strict):
    """The new quantity of a product in the cart; 0 removes it."""

    product = fields.String(required=True, validate=validate.Length(1, 80))
    quantity = fields.Integer(required=True, strict=True, validate=validate.Range(0, MOST))


class CheckoutSchema(Strict):
    """The card to charge; perhaps the order number, and the amount: if the cart costs something else, it is refused."""

    card = fields.String(required=True, validate=validate.OneOf([card["value"] for card in bank.CARDS]))
    order = fields.String(validate=validate.Regexp(r"^T-\d{5}-\d{5}$"))
    total_cents = fields.Integer(strict=True, validate=validate.Range(0, 10**9))


class PurchaseSchema(Strict):
    """One product, bought at once, with the buyer's note; a form may add a picture for the lid."""

    product = fields.String(required=True, validate=validate.Length(1, 80))
    quantity = fields.Integer(load_default=1, strict=True, validate=validate.Range(1, MOST))
    card = fields.String(required=True, validate=validate.OneOf([card["value"] for card in bank.CARDS]))
    note = fields.String(load_default="", validate=validate.Length(0, 200))


class ReviewSchema(Strict):
    """A customer's review of a product."""

    product = fields.String(required=True, validate=validate.Length(1, 80))
    stars = fields.Integer(required=True, strict=True, validate=validate.Range(1, 5))
    text = fields.String(required=True, validate=validate.Length(1, 500))


class ReviewedSchema(Schema):
    """The answer to a review."""

    id = fields.Integer(required=True)
    reference = fields.String(required=True, allow_none=True)


class SignInSchema(Strict):
    """Which account signs in: this is a demonstration, and there is no password."""

    account = fields.String(required=True, validate=validate.Length(1, 40))


class TokenSchema(Schema):
    """The token for all later requests."""

    token = fields.String(required=True)


class RefundSchema(Strict):
    """The reason for a refund."""

    reason = fields.String(required=True, validate=validate.Length(1, 200))


class OrderLineSchema(Schema):
    """A line of an order."""

    name = fields.String(required=True)
    price_cents = fields.Integer(required=True)
    quantity = fields.Integer(required=True)


class OrderSchema(Schema):
    """An order."""

    number = fields.String(required=True)
    state = fields.String(required=True)
    total_cents = fields.Integer(required=True)
    reference = fields.String(required=True, allow_none=True)
    created_at = Instant(required=True)
    lines = fields.List(fields.Nested(OrderLineSchema), required=True)


class ConfirmationSchema(Schema):
    """The answer to a checkout."""

    order = fields.String(required=True)
    reference = fields.String(required=True, allow_none=True)
    url = fields.String(required=True)


class DeclineSchema(Schema):
    """The answer to a checkout whose card was declined."""

    order = fields.String(required=True)
    declined = fields.String(required=True)
    url = fields.String(required=True)


class ErrorSchema(Schema):
    """What went wrong."""

    title = fields.String(required=True)
    detail = fields.String(required=True)
    status = fields.Integer(required=True)
