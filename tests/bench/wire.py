"""What Stripe's dialect, receipts, rules and Prefer cost a request that does not use them."""

import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

from flask import Blueprint, Flask

from flask_idempotency import idempotent, receipts, rules
from tests.bench.apps import Case, closing, make_app, post
from tests.bench.timing import measure, warm_up

UNUSED = 1.01


def show_wire(rounds: int) -> None:
    """Print each as a ratio to the same request to an app that has none of it.

    The clock is off by more than what is to be shown, so the function calls of a request are counted too: they are the
    same each time.
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        bare, equipped, stripes = (_app(Path(folder) / name) for name in ("bare", "equipped", "stripes"))
        _equip(equipped)
        stack.enter_context(closing(bare, equipped, stripes))
        again = {app: str(uuid4()) for app in (bare, equipped, stripes)}
        for app, key in again.items():
            post(app, key)
        first = [_case("none of it", bare), _case("all of it, not used", equipped), _case("Stripe's dialect", stripes)]
        first.insert(2, Case("Prefer: wait=5, respond-async", lambda: post(equipped, str(uuid4()), PREFER)))
        replay = [
            Case("none of it", lambda: post(bare, again[bare])),
            Case("all of it, not used", lambda: post(equipped, again[equipped])),
            Case("Prefer: wait=5, respond-async", lambda: post(equipped, again[equipped], PREFER)),
            Case("Stripe's dialect", lambda: post(stripes, again[stripes])),
        ]
        print(f"What is not used, SQLite, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        for title, cases in (("first run", first), ("replay", replay)):
            times, calls = measure(title, cases, rounds), [_calls(case) for case in cases]
            print(f"  {title:32}{'wall':>6}{'CPU':>7}{'calls':>7}{'target':>9}")
            for case, time, count in zip(cases, times, calls, strict=True):
                is_unused = case.name == "all of it, not used"
                target = f"≤ {UNUSED:.2f}" if is_unused else ""
                over = "  over" if is_unused and count / calls[0] > UNUSED else ""
                ratios = f"{time.wall / times[0].wall:6.2f}{time.cpu / times[0].cpu:7.2f}{count / calls[0]:7.3f}"
                print(f"    {case.name:30}{ratios}{target:>9}{over}")
        print(flush=True)


PREFER = {"HTTP_PREFER": "wait=5, respond-async"}


def _case(name: str, app: Flask) -> Case:
    return Case(name, lambda: post(app, str(uuid4())))


def _app(path: Path) -> Flask:
    return make_app(f"sqlite:///{path}.sqlite", "transaction", dialect="stripe" if path.name == "stripes" else "ietf")


def _equip(app: Flask) -> None:
    """Add what the measured request does not use: its view is in the default dialect, and nobody asks for a receipt."""
    app.register_blueprint(receipts.blueprint())
    app.register_blueprint(rules.blueprint())
    other = Blueprint("other", __name__, url_prefix="/other")
    other.post("/charges")(idempotent(dialect="stripe", key="X-Event-Id")(lambda: ""))
    app.register_blueprint(other)


def _calls(case: Case) -> int:
    """Count the calls of one request, of Python's functions and of C's."""
    warm_up(case)
    counts: list[int] = []
    for _ in range(5):
        count = 0

        def note(_: Any, event: str, __: Any) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(note)
        try:
            case.call()
        finally:
            sys.setprofile(None)
        counts.append(count)
    return min(counts)
