"""The live ledger: orders, and how often each was charged. It shows a double charge as it happens."""

from collections import Counter
from typing import Any

from flask import Blueprint
from sqlalchemy import func, select

from demo_shop import audit, bank
from demo_shop.lab import only_in_the_lab, switches_left
from demo_shop.models import Attempt, Order, db

blueprint = Blueprint("ledger", __name__)
blueprint.before_request(only_in_the_lab)  # everybody's orders are shown
NEWEST = 20


@blueprint.get("/ledger.json")
def ledger() -> dict[str, Any]:
    """Give the data that the lab draws every second."""
    audit.settle(0.5)
    orders = db.session.scalars(select(Order).order_by(Order.id.desc()).limit(NEWEST)).unique().all()
    books = bank.newest_books() or {}
    charged = Counter(charge["order"] for charge in books.get("charges", ()))
    totals = books.get("totals", {})
    told = db.session.execute(select(Attempt.event, func.count()).group_by(Attempt.event))
    counts = {event: int(times) for event, times in told}
    conflicts = db.session.scalars(select(Attempt.facts).filter_by(event="refused").limit(1000)).all()
    placed = Counter(order.number for order in orders)
    rows = [
        {
            "number": order.number,
            "times": placed[order.number],  # without protection one click may place two of the same number
            "account": order.account.name,
            "total": order.total_cents,
            "state": order.state,
            "charges": charged[order.number],
            "reference": order.reference,
        }
        for order in {each.number: each for each in orders}.values()
    ]
    return {
        "orders": rows,
        "totals": {
            "orders": db.session.scalar(select(func.count(Order.id))),
            "charges": totals.get("charges", 0),
            "doubles": totals.get("doubles", 0),  # by the gateway's own count, over all that it ever charged
            "replays": counts.get("replayed", 0),
            "conflicts": sum(facts.get("problem") == "request-in-flight" for facts in conflicts),
            "takeovers": counts.get("taken_over", 0),
        },
        "switches": switches_left(),
        "gateway": bool(books),
    }
