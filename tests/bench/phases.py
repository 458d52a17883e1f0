"""What phases and effects cost: a checkout of two local steps and a charge, divided into more and more pieces."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from flask import Flask, request

from flask_idempotency import Idempotency, effect, idempotent, phase, scopes
from tests.bench.apps import Case, closing, create_table, make_shop, post
from tests.bench.counting import COUNTABLE, count_postgres
from tests.bench.table import counted, rows_of
from tests.bench.timing import measure
from tests.fixtures.postgres import PostgresServer

PHASE_COMMITS, EFFECT_COMMITS = 1, 2


def show_phases(rounds: int) -> None:
    """Print what each cut adds, as a ratio to the same work without protection, and in commits."""
    with PostgresServer() as server, PostgresServer(settings=COUNTABLE) as counting:
        with company(server.url(server.create_database())) as cases:
            times = measure("phases", cases, rounds)
        database = counting.create_database()
        with company(counting.url(database)) as cases:
            counts = [counted(case, count_postgres(counting, database)) for case in cases]
        rows = rows_of(cases, times, counts)
    print("A checkout: an order, a charge by a gateway that answers at once, and the order marked as paid. PostgreSQL")
    print(f"  {'':42}{'wall':>6}{'CPU':>7}{'commits':>9}")
    for row in rows:
        print(f"  {row.case.name:42}{row.wall:6.2f}{row.cpu:7.2f}{row.count.commits:9.1f}")
    _, leased, in_phases, with_effect = rows
    own = (in_phases.count.commits - leased.count.commits) / 2 + 1  # a phase's commit stands for the view's own
    sent = with_effect.count.commits - in_phases.count.commits
    show_piece("a phase", (in_phases.wall - leased.wall) / 2, own, PHASE_COMMITS)
    show_piece("an effect", with_effect.wall - in_phases.wall, sent, EFFECT_COMMITS)
    print(f"  (load {os.getloadavg()[0]:.1f})\n", flush=True)


def show_piece(name: str, wall: float, commits: float, target: int) -> None:
    """Print what one phase or effect adds."""
    over = "  over" if commits > target else ""
    print(f"  {name} adds {wall:+.2f} in wall time and has {commits:.1f} commits  (target: {target}){over}")


@contextmanager
def company(url: str) -> Iterator[Sequence[Case]]:
    """The unprotected checkout first; then the lease guard alone, with phases, and with an effect."""
    apps = [make_checkout(url, guarded, phases, effects) for guarded, phases, effects in CUTS]
    plain, leased, in_phases, with_effect = apps
    with closing(*apps):
        yield [
            Case("unprotected, two commits", lambda: post(plain)),
            Case("lease guard", lambda: post(leased, str(uuid4()))),
            Case("lease guard, two phases", lambda: post(in_phases, str(uuid4()))),
            Case("lease guard, two phases and an effect", lambda: post(with_effect, str(uuid4()))),
        ]


CUTS = [(False, False, False), (True, False, False), (True, True, False), (True, True, True)]


def make_checkout(url: str, guarded: bool, phases: bool, effects: bool) -> Flask:
    """One checkout, at "/orders" like the others; the cuts are the only difference."""
    app, db, order_class = make_shop(url)

    def place_order(cart: dict[str, Any]) -> int:
        order = order_class(**cart)
        db.session.add(order)
        db.session.flush()
        return int(order.id)

    def mark_paid(number: int, charge: str) -> None:
        db.session.get_one(order_class, number).note = charge

    def commit(_: str, step: Any, *args: Any) -> Any:
        result = step(*args)
        db.session.commit()
        return result

    step = phase if phases else commit
    change = effect if effects else lambda _, call: call("")

    def checkout() -> tuple[dict[str, int], int]:
        number = step("order_placed", place_order, request.get_json())
        charge = change("charge", lambda key: {"id": f"charge {key}"})
        step("order_paid", mark_paid, number, charge["id"])
        return {"id": number}, 201

    with app.app_context():
        db.create_all()
    if guarded:
        create_table(url)
        Idempotency(app, db=db, scope=scopes.everyone)
        checkout = idempotent(guard="lease")(checkout)
    app.add_url_rule("/orders", "checkout", checkout, methods=["POST"])
    return app
