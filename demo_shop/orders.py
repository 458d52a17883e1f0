"""A customer's orders. Idea of the refund: the transaction guard together with an outbox.

The refund request and the job that sends it to the gateway are rows of one transaction; see outbox.py.
"""

from typing import Any

from flask import Blueprint, Request, abort, redirect, render_template, request, url_for
from sqlalchemy import select

from demo_shop.accounts import my_account, signed_in
from demo_shop.models import Job, Order, Refund, db
from demo_shop.pages import problem
from flask_idempotency import idempotent

blueprint = Blueprint("orders", __name__)


def my_order(number: str) -> Order:
    """Give one of the caller's orders."""
    return db.session.scalar(select(Order).filter_by(number=number, account_id=my_account().id)) or abort(404)


def same_number(order: Order) -> list[Order]:
    """Give all orders with this number: with protection off there may be two."""
    same = {"number": order.number, "account_id": order.account_id}
    return list(db.session.scalars(select(Order).filter_by(**same).order_by(Order.id)))


def my_orders() -> list[Order]:
    """Give the caller's orders, newest first."""
    return list(db.session.scalars(select(Order).filter_by(account_id=my_account().id).order_by(Order.id.desc())))


def ask_for_refund(order: Order, reason: str) -> None:
    """Record the refund request, and the job that carries it out."""
    same = same_number(order)
    paid = sum(payment.amount_cents for each in same for payment in each.payments)
    refund = Refund(order_id=order.id, amount_cents=paid, reason=reason)
    for each in same:
        each.state = "refund requested"
    db.session.add(refund)
    db.session.flush()
    db.session.add(Job(kind="refund", about={"refund": refund.id}))
    db.session.commit()


def what_was_asked(request: Request) -> str:
    """Give what makes two requests the same refund, without the form's tokens."""
    return str((request.get_json(silent=True) or request.form).get("reason"))


@blueprint.get("/orders")
@signed_in
def history() -> str:
    """Show the caller's orders."""
    return render_template("orders.html", page="orders", orders=my_orders())


@blueprint.get("/orders/<number>")
@signed_in
def show(number: str) -> str:
    """Show one order and its reference number."""
    order = my_order(number)
    same = same_number(order)
    payments = [payment for each in same for payment in each.payments]
    refunds = [refund for each in same for refund in each.refunds]
    return render_template("order.html", page="orders", order=order, payments=payments, refunds=refunds)


@blueprint.post("/orders/<number>/refund")
@signed_in
@idempotent(fingerprint=what_was_asked)
def refund(number: str) -> Any:
    """Ask for a refund."""
    order, reason = my_order(number), request.form.get("reason", "").strip()[:200]
    if order.state != "paid":
        return problem(409, "This order cannot be refunded", why_not(order))
    ask_for_refund(order, reason or "no reason given")
    return redirect(url_for("orders.show", number=number), 303)


def why_not(order: Order) -> str:
    """Say why an order cannot be refunded."""
    if order.state in ("refunded", "refund requested"):
        return "You asked for it before; the money goes back once."
    if order.state == "placed":
        return "Its payment is not finished yet. Look again in a moment; if it stays so, ask the support desk."
    return f"It is {order.state}: there is nothing to give back."
