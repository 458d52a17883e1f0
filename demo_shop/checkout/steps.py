"""The steps of a checkout. Each runs in a transaction that the phase commits; a step never commits.

Later steps and the gateway get only what a step returned; nothing is read again from a table that may have changed.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select, update

from demo_shop.cart import no_more
from demo_shop.models import CartLine, ChargeEvent, Job, Order, OrderLine, Payment, Product, db, new_number
from demo_shop.pages import euro


class CannotOrder(Exception):
    """The order cannot be placed; the message tells the customer why."""


class AlreadyPlaced(CannotOrder):
    """An order with this number exists: an old page was sent again with another key."""

    def __init__(self, order: Order) -> None:
        super().__init__(f"Order {order.number} was placed before; see your orders.")
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
    """Order one product without a cart. Each run places an order: nothing here prevents a second."""
    wanted = db.session.get_one(Product, product)
    return _place(Order(account_id=account, number=new_number(), reference=reference, **order), [(wanted, quantity)])


def mark_paid(placed: int, charge: dict[str, Any]) -> None:
    """Record the charge that the gateway has answered with, unless its event came first.

    This step does not check whether an earlier attempt has recorded it: its phase knows that.
    """
    order = _locked(placed)
    told = select(ChargeEvent.id).filter_by(order_id=order.id, charge=charge["id"])
    if db.session.scalar(told.with_for_update()) is None:  # a locking read sees what is committed now, on MariaDB too
        _record(order, charge)


def mark_paid_by_event(placed: int, charge: dict[str, Any]) -> None:
    """Record the charge of an event, unless it is recorded already: the gateway sends each event more than once."""
    order = _locked(placed)
    known = select(Payment.id).filter_by(order_id=order.id, charge=charge["id"])
    if db.session.scalar(known.with_for_update()) is None:
        db.session.add(ChargeEvent(order_id=order.id, charge=charge["id"]))
        _record(order, charge)


def _locked(placed: int) -> Order:
    """Lock an order, so that the gateway's answer and its event wait for each other."""
    return db.session.get_one(Order, placed, with_for_update={"of": Order}, populate_existing=True)


def _record(order: Order, charge: dict[str, Any]) -> None:
    """Record a payment and queue the receipt: the job is a row of the same transaction."""
    if order.state != "refunded":  # an event may come after that
        order.state = "paid"
    db.session.add(Payment(order_id=order.id, charge=charge["id"], amount_cents=charge["amount"]))
    db.session.add(Job(kind="receipt", about={"order": order.id}))


def mark_declined(placed: int) -> None:
    """Return the goods to the stock and to the cart, so that the customer can try another card."""
    order = db.session.get_one(Order, placed)
    order.state = "declined"
    in_cart = {each.product_id for each in db.session.scalars(select(CartLine).filter_by(account_id=order.account_id))}
    for line in sorted(order.lines, key=lambda line: line.product_id):
        _put_back(line.product_id, line.quantity)
        if line.product_id not in in_cart:
            db.session.add(CartLine(account_id=order.account_id, product_id=line.product_id, quantity=line.quantity))


def _place(order: Order, goods: Sequence[tuple[Product, int]]) -> dict[str, Any]:
    """Reserve the goods, and add the order."""
    for product, quantity in sorted(goods, key=lambda each: each[0].id):  # in one order: no deadlocks
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
    """Take goods out of the stock in one statement, so that two buyers cannot get the same item."""
    enough = (Product.id == product.id, Product.stock >= quantity)
    taken = db.session.execute(update(Product).where(*enough).values(stock=Product.stock - quantity))
    if taken.rowcount != 1:  # type: ignore[attr-defined]  # the result of an UPDATE has it
        db.session.refresh(product)
        raise CannotOrder(f"{no_more(product)} Change your cart, then try again.")


def _put_back(product: int, quantity: int) -> None:
    db.session.execute(update(Product).where(Product.id == product).values(stock=Product.stock + quantity))
