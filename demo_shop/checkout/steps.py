"""What a checkout does, step by step. Each is a transaction that the phase commits; no step ever does.

What a step gives back is all that later steps and the gateway get: never read again from a table that may have changed.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select, update

from demo_shop.cart import no_more
from demo_shop.models import CartLine, Job, Order, OrderLine, Payment, Product, db, new_number
from demo_shop.pages import euro


class CannotOrder(Exception):
    """There is nothing to order, or not enough of it; the message is for the customer."""


class AlreadyPlaced(CannotOrder):
    """There is an order of this number already: an old page was sent again, with another key."""

    def __init__(self, order: Order) -> None:
        super().__init__(f"Order {order.number} was placed before; you find it among your orders.")
        self.order = {"id": order.id, "number": order.number, "amount": order.total_cents, "card": order.card}


def place_order(account: int, reference: str | None, number: str, card: str, shown: int | None) -> dict[str, Any]:
    """Turn the cart into an order and reserve its goods, unless the buyer was shown a different amount."""
    placed = db.session.scalar(select(Order).filter_by(number=number))
    if placed is not None:
        raise AlreadyPlaced(placed) if placed.account_id == account else CannotOrder("This number is taken.")
    lines = db.session.scalars(select(CartLine).filter_by(account_id=account).order_by(CartLine.id)).all()
    if not lines:
        raise CannotOrder("Your cart is empty.")
    total = sum(line.sum_cents for line in lines)
    if shown not in (None, total):
        raise CannotOrder(f"Your cart has changed, and costs {euro(total)} now. Nothing was charged.")
    order = Order(account_id=account, number=number, card=card, reference=reference)
    for line in lines:
        db.session.delete(line)
    return _place(order, [(line.product, line.quantity) for line in lines])


def place_purchase(account: int, reference: str | None, product: int, quantity: int, **order: Any) -> dict[str, Any]:
    """Order some of one product, without a cart. Each run places an order: nothing here prevents a second."""
    wanted = db.session.get_one(Product, product)
    return _place(Order(account_id=account, number=new_number(), reference=reference, **order), [(wanted, quantity)])


def mark_paid(placed: int, charge: dict[str, Any]) -> None:
    """Record the charge, and have a receipt sent: the job is a row of the same transaction."""
    order = db.session.get_one(Order, placed)
    order.state = "paid"
    db.session.add(Payment(order_id=order.id, charge=charge["id"], amount_cents=charge["amount"]))
    db.session.add(Job(kind="receipt", about={"order": order.id}))


def mark_declined(placed: int) -> None:
    """Put the goods back on the shelf, and into the cart: the customer may try another card."""
    order = db.session.get_one(Order, placed)
    order.state = "declined"
    in_cart = {each.product_id for each in db.session.scalars(select(CartLine).filter_by(account_id=order.account_id))}
    for line in sorted(order.lines, key=lambda line: line.product_id):
        _put_back(line.product_id, line.quantity)
        if line.product_id not in in_cart:
            db.session.add(CartLine(account_id=order.account_id, product_id=line.product_id, quantity=line.quantity))


def _place(order: Order, goods: Sequence[tuple[Product, int]]) -> dict[str, Any]:
    """Reserve the goods, and add the order."""
    for product, quantity in sorted(goods, key=lambda each: each[0].id):  # one order for all, so nobody deadlocks
        _set_aside(product, quantity)
    order.total_cents = sum(product.price_cents * quantity for product, quantity in goods)
    for product, quantity in goods:
        order.lines.append(
            OrderLine(product_id=product.id, name=product.name, price_cents=product.price_cents, quantity=quantity)
        )
    db.session.add(order)
    db.session.flush()
    return {"id": order.id, "number": order.number, "amount": order.total_cents, "card": order.card}


def _set_aside(product: Product, quantity: int) -> None:
    """Take goods off the shelf in one statement: what two buyers want at once is never sold twice."""
    enough = (Product.id == product.id, Product.stock >= quantity)
    taken = db.session.execute(update(Product).where(*enough).values(stock=Product.stock - quantity))
    if taken.rowcount != 1:  # type: ignore[attr-defined]  # the result of an UPDATE has it
        db.session.refresh(product)
        raise CannotOrder(f"{no_more(product)} Change your cart, then try again.")


def _put_back(product: int, quantity: int) -> None:
    db.session.execute(update(Product).where(Product.id == product).values(stock=Product.stock + quantity))
