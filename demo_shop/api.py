"""The same shop for programs: JSON under /api, with a bearer token, and an OpenAPI document that lists the refusals."""

from typing import Any

from flask import Blueprint, abort, jsonify, render_template, request
from sqlalchemy import select

from demo_shop.accounts import current_account, my_account, signed_in, token_of
from demo_shop.cart import cart_of, most_of, no_more, put
from demo_shop.cart import what_was_asked as what_was_put
from demo_shop.checkout.views import buy, pay
from demo_shop.exports import start_export
from demo_shop.models import Account, Product, db
from demo_shop.openapi import document
from demo_shop.orders import ask_for_refund, my_order, my_orders, why_not
from demo_shop.orders import what_was_asked as why_it_was_asked
from demo_shop.pages import find_product, problem, read
from demo_shop.schemas import (
    CartChangeSchema,
    CartSchema,
    CheckoutSchema,
    OrderSchema,
    ProductSchema,
    PurchaseSchema,
    RefundSchema,
    SignInSchema,
)
from flask_idempotency import exempt, idempotent

blueprint = Blueprint("api", __name__)


@blueprint.get("/api")
@signed_in
def page() -> str:
    """Explain the API to a person, and show the token."""
    account = my_account()
    return render_template("api.html", page="api", token=token_of(account))


@blueprint.before_request
def only_with_a_token() -> None:
    """Require a token for everything but the catalogue and the document."""
    is_open = request.endpoint in ("api.page", "api.openapi", "api.token", "api.products", "api.product")
    if not is_open and current_account() is None:
        abort(401)


@blueprint.get("/api/openapi.json")
def openapi() -> Any:
    """Describe the API."""
    return jsonify(document())


@blueprint.post("/api/tokens")
@exempt  # there is no caller yet, and a second token is harmless
def token() -> Any:
    """Sign a program in."""
    handle = read(SignInSchema())["account"]
    account = db.session.scalar(select(Account).filter_by(handle=handle)) or abort(404)
    return jsonify(token=token_of(account)), 201


@blueprint.get("/api/products")
def products() -> Any:
    """List the products."""
    found = db.session.scalars(select(Product).order_by(Product.id)).all()
    return jsonify(ProductSchema(many=True).dump(found))


@blueprint.get("/api/products/<slug>")
def product(slug: str) -> Any:
    """Show one product."""
    return jsonify(ProductSchema().dump(find_product(slug) or abort(404)))


@blueprint.get("/api/cart")
def cart() -> Any:
    """Show the cart."""
    return jsonify(_cart())


@blueprint.post("/api/cart")
@idempotent(fingerprint=what_was_put)
def change_cart() -> Any:
    """Change the cart: the transaction guard, as on the page."""
    wanted = read(CartChangeSchema())
    product = find_product(wanted["product"]) or abort(404)
    if wanted["quantity"] > most_of(product):
        return problem(409, "There are not that many", no_more(product))
    put(my_account(), product, wanted["quantity"])
    return jsonify(_cart())


@blueprint.post("/api/checkout")
@exempt  # as on the page: the lab chooses
def checkout() -> Any:
    """Buy the cart: the lease guard, phases and an effect, as on the page."""
    wanted = read(CheckoutSchema())
    return pay(wanted.get("order"), wanted["card"], wanted.get("total_cents"))


@blueprint.post("/api/buy")
@exempt  # as on the page: the lab chooses
def buy_now() -> Any:
    """Buy one product with one request: lease guard, and the extension's default fingerprint."""
    wanted = read(PurchaseSchema())
    product = find_product(wanted.pop("product")) or abort(404)
    picture = request.files.get("picture")
    return buy(product=product.id, picture=picture.read() if picture else None, **wanted)


@blueprint.get("/api/orders")
def orders() -> Any:
    """List the caller's orders."""
    return jsonify(OrderSchema(many=True).dump(my_orders()))


@blueprint.post("/api/exports")
@idempotent(required=True, guard="lease", in_flight="accepted")
def export() -> Any:
    """Export the caller's orders: a job, whose receipt leads to the file."""
    return start_export()


@blueprint.get("/api/orders/<number>")
def order(number: str) -> Any:
    """Show one of the caller's orders."""
    return jsonify(OrderSchema().dump(my_order(number)))


@blueprint.post("/api/orders/<number>/refund")
@idempotent(fingerprint=why_it_was_asked)
def refund(number: str) -> Any:
    """Ask for a refund: the transaction guard, as on the page."""
    found, wanted = my_order(number), read(RefundSchema())
    if found.state != "paid":
        return problem(409, "This order cannot be refunded", why_not(found))
    ask_for_refund(found, wanted["reason"])
    return jsonify(OrderSchema().dump(found)), 202


def _cart() -> Any:
    lines, total = cart_of(my_account())
    return CartSchema().dump({"lines": lines, "total_cents": total})
