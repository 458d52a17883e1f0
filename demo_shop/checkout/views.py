"""Idea: a view that charges a card in a foreign system, and survives a crash at any point.

Two phases and an effect under the lease guard. No step is done twice: after a crash, a lost answer or a timeout, the
retry resumes after the last completed step, and the gateway gets the same key.
"""

import re
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

from flask import Blueprint, Request, abort, jsonify, redirect, render_template, request, url_for

from demo_shop import bank
from demo_shop.accounts import my_account, signed_in
from demo_shop.cart import cart_of
from demo_shop.checkout.steps import (
    AlreadyPlaced,
    CannotOrder,
    mark_declined,
    mark_paid,
    place_order,
    place_purchase,
)
from demo_shop.lab import die_if_told, lab_state
from demo_shop.models import db, new_number
from demo_shop.pages import problem, wants_json
from flask_idempotency import effect, exempt, idempotent, phase, reference

blueprint = Blueprint("checkout", __name__)
NUMBER = re.compile(r"T-\d{5}-\d{5}")
Runs = Callable[..., Any]


def check_out(phase: Runs, effect: Runs, place: Runs, **asked: Any) -> Any:
    """Place the order, charge the card, mark the order paid; each once, if *phase* and *effect* are the extension's."""
    order = phase("order_placed", partial(place, **asked), my_account().id, reference())
    charge = effect("charge", lambda key: bank.charge(order["number"], order["amount"], order["card"], key))
    die_if_told()
    if "declined" in charge:
        phase("order_declined", mark_declined, order["id"])
        return _declined(order["number"], charge["declined"])
    phase("order_paid", mark_paid, order["id"], charge)
    return _confirmed(order["number"])


def what_was_asked(request: Request) -> str:
    """Give what makes two requests the same checkout: order, card and amount, without the form's tokens."""
    given = request.get_json(silent=True) or request.form
    return f"{given.get('order')} {given.get('card')} {given.get('total_cents')}"


# All final answers of a checkout, including "not enough left": a request that stayed open would be resumed later, by
# the completer too, and buy whatever is in the cart by then.
ANSWERS = (201, 303, 402, 409)


@idempotent(
    required=True,
    guard="lease",
    retention=timedelta(hours=72),
    fingerprint=what_was_asked,
    keep=ANSWERS,
    resumable=True,
)
def pay_once(**asked: Any) -> Any:
    """Check out under a key."""
    return _unless_impossible(check_out, phase, effect, place_order, **asked)


@idempotent(required=True, guard="lease", retention=timedelta(hours=72), keep=ANSWERS)
def buy_once(**asked: Any) -> Any:
    """Buy one product under a key."""
    return _unless_impossible(check_out, phase, effect, place_purchase, **asked)


def check_out_unprotected(place: Runs, **asked: Any) -> Any:
    """Check out as many shops do: it seems to work until an answer is lost."""

    def commit(_: str, step: Runs, *args: Any) -> Any:
        try:
            result = step(*args)
        except AlreadyPlaced as error:
            return error.order  # so that the payment follows
        db.session.commit()
        return result

    return check_out(commit, lambda _, call: call(uuid4().hex), place, **asked)


def pay(number: object, card: object, total: object) -> Any:
    """Check out with protection, unless the lab has switched it off. *total* is the amount that the buyer saw."""
    if card not in [each["value"] for each in bank.CARDS]:
        abort(400, "Choose one of the cards.")
    if number is not None and not NUMBER.fullmatch(str(number)):
        abort(400, "An order number looks like T-48213-90517.")
    if total is not None and not str(total).isdecimal():
        abort(400, "An amount is a number of cents.")
    shown = None if total is None else int(str(total))
    asked = {"number": str(number or new_number()), "card": str(card), "shown": shown}
    if lab_state().protection:
        return pay_once(**asked)
    return _unless_impossible(check_out_unprotected, place_order, **asked)


def buy(**asked: Any) -> Any:
    """Buy one product without a cart; with protection, unless the lab has switched it off."""
    if lab_state().protection:
        return buy_once(**asked)
    return _unless_impossible(check_out_unprotected, place_purchase, **asked)


@blueprint.get("/checkout")
@signed_in
def form() -> Any:
    """Show the order and the cards."""
    lines, total = cart_of(my_account())
    if not lines:
        return redirect(url_for("cart.show"))
    return render_template(
        "checkout.html", page="checkout", lines=lines, total=total, cards=bank.CARDS, number=new_number()
    )


@blueprint.post("/checkout")
@signed_in
@exempt  # the lab chooses below whether this view is protected
def submit() -> Any:
    """Buy the cart."""
    return pay(request.form.get("order"), request.form.get("card"), request.form.get("total_cents"))


def _unless_impossible(run: Runs, *args: Any, **asked: Any) -> Any:
    try:
        return run(*args, **asked)
    except CannotOrder as error:
        return problem(409, "This cannot be ordered", str(error))


def _confirmed(number: str) -> Any:
    url = url_for("orders.show", number=number)
    if wants_json():
        return jsonify(order=number, reference=reference(), url=url), 201
    return redirect(url, 303)


def _declined(number: str, reason: str) -> Any:
    if wants_json():
        return jsonify(order=number, declined=reason, url=url_for("orders.show", number=number)), 402
    return render_template("declined.html", page="checkout", number=number, reason=reason), 402
