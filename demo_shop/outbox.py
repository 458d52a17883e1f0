"""Idea: a transactional outbox. What must happen after a commit is a row of that commit, and is done later, once.

A receipt is a letter in the local mailbox, written in the transaction that deletes its job, so there is only one. A
refund happens at the gateway: the job has a key of its own for each charge, so that each is refunded once, however
often the job is repeated.
"""

import logging
import signal
from queue import Empty, SimpleQueue

import click
from flask import Blueprint
from sqlalchemy import select

from demo_shop import bank
from demo_shop.models import Job, Letter, Order, Refund, db
from demo_shop.orders import same_number
from demo_shop.pages import euro

blueprint = Blueprint("outbox", __name__, cli_group=None)
log = logging.getLogger("demo_shop.outbox")


@blueprint.cli.command("outbox")
@click.option("--watch", is_flag=True, help="Go on until stopped.")
@click.option("--every", default=1.0, show_default=True, help="Seconds between two looks.")
def run(watch: bool, every: float) -> None:
    """Do the jobs as they are committed."""
    calls: SimpleQueue[int] = SimpleQueue()  # to stop; an Event is not safe to set in a signal's handler
    if watch:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, lambda number, _: calls.put(number))
    while True:
        done = do_jobs()
        if done:
            click.echo(f"{done} jobs done.")
        if not watch or _is_called(calls, every):
            break


def _is_called(calls: "SimpleQueue[int]", within: float) -> bool:
    """Wait for a call to stop."""
    try:
        calls.get(timeout=within)
    except Empty:
        return False
    return True


def do_jobs(most: int = 50) -> int:
    """Do the waiting jobs; give how many were done. A job that fails stays and does not stop the others."""
    done = 0
    for number in db.session.scalars(select(Job.id).order_by(Job.tries, Job.id).limit(most)).all():
        try:
            done += _do(number)
        except Exception as error:  # noqa: BLE001  # the next round tries again
            db.session.rollback()
            log.warning("job %d waits: %s", number, error)
            _count_try(number)
    db.session.rollback()
    return done


def _do(number: int) -> bool:
    job = db.session.scalar(select(Job).filter_by(id=number).with_for_update(skip_locked=True))
    if job is None:
        return False  # another process has taken it
    if job.kind == "receipt":
        _write_receipt(job)
    else:
        _refund(job)
    db.session.delete(job)
    db.session.commit()
    return True


def _count_try(number: int) -> None:
    job = db.session.get(Job, number)
    if job is not None:
        job.tries += 1
        db.session.commit()


def _write_receipt(job: Job) -> None:
    order = db.session.get_one(Order, job.about["order"])
    goods = "\n".join(f"{line.quantity} × {line.name}, {euro(line.sum_cents)}" for line in order.lines)
    thanks, total = f"Thank you, {order.account.name}.", f"Total {euro(order.total_cents)}"
    text = "\n\n".join([thanks, goods, total, f"Reference {order.reference or '–'}"])
    db.session.add(Letter(to=order.account.email, subject=f"Your order {order.number}", body=text))


def _refund(job: Job) -> None:
    refund = db.session.get_one(Refund, job.about["refund"])
    order = db.session.get_one(Order, refund.order_id)
    charges = bank.charges_of(order.number)
    if charges is None:
        raise bank.GatewayTrouble("the gateway cannot be asked what it has charged")
    for charge in charges:  # of which the shop may know only one, if protection was off
        if rest := charge["amount"] - charge["refunded"]:
            refund.gateway_id = bank.refund(charge["id"], rest, f"{job.key}-{charge['id']}")["id"]
    refund.state, refund.amount_cents = "done", sum(charge["amount"] for charge in charges)
    for each in same_number(order):
        each.state = "refunded"
    text = f"{euro(refund.amount_cents)} are on their way back to you."
    db.session.add(Letter(to=order.account.email, subject=f"Refund of order {order.number}", body=text))
