"""Idea: work that takes longer than its request. The answer is 202 and a receipt; a job makes the file, once.

The worker is a thread of this process. Should the process die, a retry starts another job after a while. A queue with
processes of its own is used alike: it passes the ticket on.
"""

import csv
from functools import partial
from io import StringIO
from threading import Thread

from flask import Flask, Response, current_app
from sqlalchemy import select

from demo_shop.accounts import my_account
from demo_shop.models import Order, db
from flask_idempotency import jobs

COLUMNS = ("number", "state", "total_cents", "reference")


def start_export() -> Response:
    """Start the export of the caller's orders, and answer with its receipt. To be called by a protected view."""
    app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]  # the documented way
    return jobs.hand_over(partial(_enqueue, app, my_account().id))


def _enqueue(app: Flask, account: int, ticket: str) -> None:
    Thread(target=_work, args=(app, account, ticket), name="export", daemon=True).start()


def _work(app: Flask, account: int, ticket: str) -> None:
    with app.app_context():
        jobs.run(ticket, _orders_of, account)


def _orders_of(account: int) -> Response:
    """Give the orders as a file: this is the answer that the receipt has, and every retry gets."""
    found = db.session.scalars(select(Order).filter_by(account_id=account).order_by(Order.id))
    text = StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    writer.writerows([getattr(order, column) for column in COLUMNS] for order in found)
    return Response(text.getvalue(), mimetype="text/csv")
