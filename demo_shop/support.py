"""Idea: the reference. A customer reads out twelve characters, and support sees what happened to each attempt.

The record says how far the request has come; the shop's own notes say what happened, and outlive the record. An order
number will do as well as a reference.
"""

from dataclasses import dataclass
from threading import Event
from time import monotonic
from typing import Any

from flask import Blueprint, current_app, render_template, request
from sqlalchemy import func, select

from demo_shop import audit, bank
from demo_shop.accounts import current_account
from demo_shop.audit import TOLD
from demo_shop.models import Attempt, Order, db
from flask_idempotency.stores import Store, open_store

blueprint = Blueprint("support", __name__)

LAST_WORD = 1.0  # seconds: another worker may still have it in hand
REFUSED = "It was refused, and nothing was charged or changed. Look at the cart together, then start again."
NO_ANSWER = "nobody knew yet whether it was charged, and the client was told to ask again"
DECLINED = "The card was declined, and nothing was charged. The customer may try again."
UNPROTECTED = (
    "It was bought while protection was off. We check what the bank has charged, and refund what was too much."
)
ADVICE = {
    "finished": "It is done. Every retry gets the same answer; nothing has to be repeated.",
    "running": "It is running, or was interrupted. A retry resumes where it stopped, and never pays twice.",
    "quarantined": "We are checking it by hand. Please do not order it again.",
    None: "The record has expired, or there never was one. What the shop has recorded is shown below.",
}


@dataclass(frozen=True)
class Found:
    """All that is known about one reference."""

    reference: str | None  # an order that was bought without protection has none
    state: str | None
    point: str | None
    reason: str | None
    order: Order | None
    attempts: list[dict[str, Any]]
    charges: list[dict[str, Any]] | None
    status: int  # of the answer that is kept; 0 without one

    @property
    def advice(self) -> str:
        """What to tell the customer."""
        if self.reference is None:
            return UNPROTECTED
        if self.order is not None and self.order.state == "declined":
            return DECLINED
        return REFUSED if self.state == "finished" and self.status >= 400 else ADVICE[self.state]


def operator() -> str | None:
    """Name who may use the console. In a demo with the lab that is whoever is signed in; a real shop asks for more."""
    account = current_account()
    return account.name if account is not None and current_app.config["DEMO_LAB"] else None


@blueprint.get("/support")
def desk() -> str:
    """Look up a reference or an order, and list what waits for manual review."""
    wanted = request.args.get("reference", "").strip()
    found, error = None, None
    audit.settle(0.5)
    if wanted:
        try:
            found = look_up(read_aloud(wanted))
        except ValueError as trouble:
            error = str(trouble)
    return render_template(
        "support.html",
        page="support",
        wanted=wanted,
        error=error,
        found=found,
        quarantined=waiting_for_a_person(),
        has_console=operator() is not None,
    )


def waiting_for_a_person(most: int = 20) -> list[Found]:
    """Give what was quarantined and still is."""
    known = select(Attempt.reference).filter_by(event="quarantined").group_by(Attempt.reference)
    newest = db.session.scalars(known.order_by(func.max(Attempt.id).desc()).limit(most)).all()
    return [found for found in map(look_up, newest) if found.state == "quarantined"]


def look_up(said: str) -> Found:
    """Gather what the record, the shop and the gateway know about a reference or an order number."""
    by, reference = (Order.number, None) if said.startswith("T-") else (Order.reference, said)
    order = db.session.scalar(select(Order).where(by == said).order_by(Order.id).limit(1))
    if order is not None:
        reference = order.reference
    record, notes = None, list[Attempt]()
    if reference is not None:
        record = next(iter(records().browse(reference=reference)), None)  # type: ignore[arg-type]  # a text in its form
        notes = _notes_of(reference, is_finished=record is not None and str(record.state) == "finished")
    if record is None and order is None and not notes:
        raise ValueError(f"There is no record of {said}. Ask for it once more, character by character.")
    return Found(
        reference,
        str(record.state) if record else None,
        record.point if record else None,
        record.reason if record else None,
        order,
        [{"at": each.at, "event": each.event, "text": _told(each), "worker": each.worker} for each in notes],
        bank.charges_of(order.number) if order else [],
        next((each.facts["status"] for each in notes if each.event == "completed"), 0),
    )


def _notes_of(reference: str, *, is_finished: bool) -> list[Attempt]:
    """Read the notes, and wait a moment for the note of an attempt that has only just ended."""
    wanted = select(Attempt).filter_by(reference=reference).order_by(Attempt.at, Attempt.id)
    deadline, pause = monotonic() + LAST_WORD, Event()
    while True:
        notes = list(db.session.scalars(wanted))
        if not is_finished or any(note.event == "completed" for note in notes) or monotonic() > deadline:
            return notes
        db.session.rollback()
        pause.wait(0.05)


def read_aloud(text: str) -> str:
    """Read a reference or order number as people say it: any case, spaces, O for 0, I and L for 1."""
    letters = text.upper().replace("O", "0").replace("I", "1").replace("L", "1")
    digits = "".join(each for each in letters if each.isascii() and each.isalnum())
    if len(digits) == 11 and digits[0] == "T" and digits[1:].isdecimal():
        return f"T-{digits[1:6]}-{digits[6:]}"
    if len(digits) != 12 or "U" in digits:
        raise ValueError(
            "A reference has twelve letters and digits, never the letter U, such as 7D3F-92AB-1C4E;"
            " an order number is like T-48213-90517."
        )
    return f"{digits[:4]}-{digits[4:8]}-{digits[8:]}"


def records() -> Store:
    """Give the extension's store, for reading."""
    if "records" not in current_app.extensions:
        current_app.extensions["records"] = open_store(current_app.config["SQLALCHEMY_DATABASE_URI"])
    store: Store = current_app.extensions["records"]
    return store


def _told(note: Attempt) -> str:
    details = {"status": "answer {}", "problem": "because: {}", "attempt": "attempt {}"}
    more = ", ".join(details[name].format(value) for name, value in note.facts.items() if name in details)
    told = NO_ANSWER if note.facts.get("problem") == "outcome-unknown" else TOLD[note.event]
    return f"{told}{f' ({more})' if more else ''}"
