"""What the JSON API accepts and returns, checked by marshmallow."""

from datetime import UTC
from typing import Any

from marshmallow import RAISE, Schema, fields, validate

from demo_shop import bank
from demo_shop.cart import MOST


class Instant(fields.DateTime):
    """A time with its zone, which the database keeps without: it is UTC."""

    def _serialize(self, value: Any, attr: str | None, obj: Any, **kwargs: Any) -> Any:
        return super()._serialize(value.replace(tzinfo=UTC), attr, obj, **kwargs)


class Strict(Schema):
    """What is given must be known."""

    class Meta:
        """Marshmallow's way to say so."""

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
    """How many of a product shall be in the cart; 0 takes it out."""

    product = fields.String(required=True, validate=validate.Length(1, 80))
    quantity = fields.Integer(required=True, strict=True, validate=validate.Range(0, MOST))


class CheckoutSchema(Strict):
    """Which card to charge; perhaps under which order number, and how much: a cart of another price is refused."""

    card = fields.String(required=True, validate=validate.OneOf([card["value"] for card in bank.CARDS]))
    order = fields.String(validate=validate.Regexp(r"^T-\d{5}-\d{5}$"))
    total_cents = fields.Integer(strict=True, validate=validate.Range(0, 10**9))


class PurchaseSchema(Strict):
    """One product, bought at once. The note is the buyer's own; a form may bring a picture for the lid too."""

    product = fields.String(required=True, validate=validate.Length(1, 80))
    quantity = fields.Integer(load_default=1, strict=True, validate=validate.Range(1, MOST))
    card = fields.String(required=True, validate=validate.OneOf([card["value"] for card in bank.CARDS]))
    note = fields.String(load_default="", validate=validate.Length(0, 200))


class ReviewSchema(Strict):
    """What a customer says of a product."""

    product = fields.String(required=True, validate=validate.Length(1, 80))
    stars = fields.Integer(required=True, strict=True, validate=validate.Range(1, 5))
    text = fields.String(required=True, validate=validate.Length(1, 500))


class ReviewedSchema(Schema):
    """What a review answers."""

    id = fields.Integer(required=True)
    reference = fields.String(required=True, allow_none=True)


class SignInSchema(Strict):
    """Who signs in: this is a demonstration, and there is no password."""

    account = fields.String(required=True, validate=validate.Length(1, 40))


class TokenSchema(Schema):
    """What a program shows from now on."""

    token = fields.String(required=True)


class RefundSchema(Strict):
    """Why the money is wanted back."""

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
    """What a checkout answers."""

    order = fields.String(required=True)
    reference = fields.String(required=True, allow_none=True)
    url = fields.String(required=True)


class DeclineSchema(Schema):
    """What a checkout answers whose card was declined."""

    order = fields.String(required=True)
    declined = fields.String(required=True)
    url = fields.String(required=True)


class ErrorSchema(Schema):
    """What went wrong."""

    title = fields.String(required=True)
    detail = fields.String(required=True)
    status = fields.Integer(required=True)
