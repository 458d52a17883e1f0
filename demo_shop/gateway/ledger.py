"""The ledger: every charge and refund, as a page for people and as JSON for the shop. It changes nothing.

Idea: what counts is what the gateway has charged. An order with two charges is marked red.
"""

from typing import Any

from flask import Blueprint, render_template, request
from sqlalchemy import func, select

from demo_shop.gateway.access import needs_api_key
from demo_shop.gateway.models import Charge, Refund, db, in_utc

NEWEST = 100  # charges; after a flood there are too many to read

ledger = Blueprint("ledger", __name__)


@ledger.get("/")
def page() -> str:
    """Show the ledger."""
    doubles = double_charges()
    return render_template("ledger.html", charges=newest(), totals=totals(doubles), doubles=doubles)


@ledger.get("/charges")
@needs_api_key
def charges() -> Any:
    """Give the charges of one order, or the newest charges of all orders and the totals."""
    if (order := request.args.get("order")) is not None:
        found = db.session.scalars(select(Charge).where(Charge.order == order).order_by(Charge.number))
        return {"charges": [as_json(charge) for charge in found]}
    return {"charges": [as_json(charge) for charge in newest()], "totals": totals(double_charges())}


def newest() -> list[Charge]:
    """Find the newest charges, each with its refunds."""
    return list(db.session.scalars(select(Charge).order_by(Charge.number.desc()).limit(NEWEST)))


def double_charges() -> dict[str, int]:
    """Find the orders that were charged more than once, and how often."""
    times = func.count(Charge.number).label("times")
    found = db.session.execute(
        select(Charge.order, times).group_by(Charge.order).having(times > 1).order_by(Charge.order)
    )
    return {row.order: row.times for row in found}


def totals(doubles: dict[str, int]) -> dict[str, int]:
    """Count and sum up. Each charge of an order after its first counts as a double charge."""
    charged = db.session.execute(select(func.count(Charge.number), func.coalesce(func.sum(Charge.amount), 0))).one()
    refunded = db.session.execute(select(func.count(Refund.number), func.coalesce(func.sum(Refund.amount), 0))).one()
    return {
        "charges": charged[0],
        "amount": int(charged[1]),
        "refunds": refunded[0],
        "refunded": int(refunded[1]),
        "doubles": sum(doubles.values()) - len(doubles),
    }


def as_json(charge: Charge) -> dict[str, Any]:
    """Give a charge as JSON for the shop."""
    return {
        "id": charge.id,
        "order": charge.order,
        "amount": charge.amount,
        "card": charge.card,
        "at": in_utc(charge.at).isoformat(),
        "refunded": charge.refunded,
    }


@ledger.app_template_filter("euro")
def euro(cents: int) -> str:
    """Format cents as euros."""
    return f"€{cents // 100:,}.{cents % 100:02}"


ledger.add_app_template_filter(in_utc, "in_utc")
