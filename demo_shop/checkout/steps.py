"""What a checkout does, step by step. Each is a transaction that the phase commits; no step ever does.

What a step gives back is all that later steps and the gateway get: never read again from a table that may have changed.
"""

from typing import Any

from sqlalchemy import select, update

from demo_shop.models import CartLine, Job, Order, OrderLine, Payment, Product, db


class CannotOrder(Exception):
    """There is nothing to order, or not enough of it; the message is for the customer."""


class AlreadyPlaced(CannotOrder):
    """There is an order of this number: somebody sent an old page again, with another key."""

    def __init__(self, order: Order) -> None:
        super().__init__(f"Order {order.number} was placed before; you find it among your orders.")
        self.order = {"number": order.number, "amount": order.total_cents, "card": order.card}


def place_order(account: int, number: str, card: str, reference: str | None) -> dict[str, Any]:
    """Turn the cart into an order, and set its goods aside."""
    placed = db.session.scalar(select(Order).filter_by(number=number))
    if placed is not None:
        raise AlreadyPlaced(placed) if placed.account_id == account else CannotOrder("This number is taken.")
    lines = db.session.scalars(select(CartLine).filter_by(account_id=account).order_by(CartLine.id)).all()
    if not lines:
        raise CannotOrder("Your cart is empty.")
    for line in sorted(lines, key=lambda line: line.product_id):  # in one order, so that two buyers never deadlock
        _set_aside(line.product, line.quantity)
    total = sum(line.sum_cents for line in lines)
    order = Order(account_id=account, number=number, card=card, reference=reference, total_cents=total)
    for line in lines:
        product = line.product
        order.lines.append(
            OrderLine(product_id=product.id, name=product.name, price_cents=product.price_cents, quantity=line.quantity)
        )
        db.session.delete(line)
    db.session.add(order)
    db.session.flush()
    return {"number": order.number, "amount": order.total_cents, "card": card}


def mark_paid(number: str, charge: dict[str, Any]) -> None:
    """Note the charge, and have a receipt sent: the letter is a row of the same transaction."""
    order = _order(number)
    order.state = "paid"
    db.session.add(Payment(order_id=order.id, charge=charge["id"], amount_cents=charge["amount"]))
    db.session.add(Job(kind="receipt", about={"order": number}))


def mark_declined(number: str) -> None:
    """Put the goods back on the shelf, and into the cart: the customer may try another card."""
    order = _order(number)
    order.state = "declined"
    in_cart = {each.product_id for each in db.session.scalars(select(CartLine).filter_by(account_id=order.account_id))}
    for line in sorted(order.lines, key=lambda line: line.product_id):
        _put_back(line.product_id, line.quantity)
        if line.product_id not in in_cart:
            db.session.add(CartLine(account_id=order.account_id, product_id=line.product_id, quantity=line.quantity))


def _order(number: str) -> Order:
    return db.session.scalars(select(Order).filter_by(number=number)).one()


def _set_aside(product: Product, quantity: int) -> None:
    """Take goods off the shelf in one statement: what two buyers want at once is never sold twice."""
    enough = (Product.id == product.id, Product.stock >= quantity)
    taken = db.session.execute(update(Product).where(*enough).values(stock=Product.stock - quantity))
    if taken.rowcount != 1:  # type: ignore[attr-defined]  # the result of an UPDATE has it
        raise CannotOrder(f"There are not {quantity} of “{product.name}” left.")


def _put_back(product: int, quantity: int) -> None:
    db.session.execute(update(Product).where(Product.id == product).values(stock=Product.stock + quantity))
