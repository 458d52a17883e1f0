"""Idea: the transaction guard. An ordinary view that changes rows and commits is exactly-once without any change.

The key, the row and the answer are one transaction. A repeated click gets the same answer; a crash leaves nothing.
"""

from collections.abc import Sequence
from typing import Any

from flask import Blueprint, Request, abort, jsonify, redirect, render_template, request, url_for
from sqlalchemy import select

from demo_shop.accounts import my_account, signed_in
from demo_shop.models import Account, CartLine, Product, db
from demo_shop.pages import euro, find_product, wants_json
from flask_idempotency import idempotent

MOST = 20

blueprint = Blueprint("cart", __name__)


def cart_of(account: Account) -> tuple[Sequence[CartLine], int]:
    """Give an account's cart and its total."""
    lines = db.session.scalars(select(CartLine).filter_by(account_id=account.id).order_by(CartLine.id)).all()
    return lines, sum(line.sum_cents for line in lines)


def most_of(product: Product) -> int:
    """Give how many of a product a cart may hold. A cart reserves nothing: whoever pays first gets the goods."""
    return min(MOST, product.stock)


def no_more(product: Product) -> str:
    """Say why a cart cannot hold more of a product."""
    match product.stock:
        case 0:
            return f"“{product.name}” is sold out."
        case 1:
            return f"There is only one “{product.name}”."
        case few if few < MOST:
            return f"There are only {few} of “{product.name}”."
    return f"{MOST} is the most of one product."


def put(account: Account, product: Product, quantity: int, *, add: bool = False) -> bool:
    """Set the quantity of a product in the cart, or add to it; say whether there was enough."""
    line = db.session.scalar(select(CartLine).filter_by(account_id=account.id, product_id=product.id))
    asked = quantity + (line.quantity if add and line else 0)
    wanted = min(asked, most_of(product))
    if line is None and wanted:
        db.session.add(CartLine(account_id=account.id, product_id=product.id, quantity=wanted))
    elif line is not None and wanted:
        line.quantity = wanted
    elif line is not None:
        db.session.delete(line)
    db.session.commit()
    return asked == wanted


def what_was_asked(request: Request) -> str:
    """Give what makes two requests the same change, without the form's tokens."""
    given = request.get_json(silent=True) or request.form
    return "&".join(f"{name}={given.get(name)}" for name in ("product", "quantity", "add"))


@blueprint.get("/cart")
@signed_in
def show() -> str:
    """Show the cart."""
    lines, total = cart_of(my_account())
    full = find_product(request.args.get("full"))
    limits = {"most_of": most_of, "no_more": no_more, "notice": no_more(full) if full else ""}
    return render_template("cart.html", page="cart", lines=lines, total=total, **limits)


@blueprint.post("/cart")
@signed_in
@idempotent(fingerprint=what_was_asked)
def change() -> Any:
    """Add a product, change its quantity, or remove it."""
    product = find_product(request.form.get("product")) or abort(404)
    quantity = request.form.get("quantity", 1, type=int)
    if quantity < 0:
        abort(400, f"Choose a number from 0 to {MOST}.")
    fits = put(my_account(), product, quantity, add=request.form.get("add") == "1")
    if not wants_json():
        return redirect(url_for("cart.show", full=None if fits else product.slug), 303)
    lines, total = cart_of(my_account())
    return jsonify(
        cart_count=sum(line.quantity for line in lines),
        total=euro(total),
        lines=[
            {"product": line.product.slug, "quantity": line.quantity, "sum": euro(line.sum_cents)} for line in lines
        ],
        url=url_for("cart.show"),
        note=None if fits else no_more(product),
    )
