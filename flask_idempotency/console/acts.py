"""What an operator can do with a record: when it is possible, what will happen in one sentence, and doing it."""

import json
from typing import Protocol

from werkzeug.datastructures import MultiDict

from flask_idempotency import settling
from flask_idempotency.console.entrance import Choice
from flask_idempotency.core.checkpoint import REQUEST
from flask_idempotency.core.lifecycle import State
from flask_idempotency.core.record import Finished, Record, Running
from flask_idempotency.core.snapshot import Snapshot
from flask_idempotency.legible import ago, how_long
from flask_idempotency.stores import Store

JSON = "application/json"
LARGEST = 64 * 1024  # characters of an answer: one that a person has written is short


class BadChoice(ValueError):
    """What was filled in cannot be done; the message tells the operator what to change."""


class Act(Protocol):
    """One thing to do with a record."""

    name: str
    past: str  # as the record's history has it
    title: str  # on buttons and headings
    explains: str  # when to choose it
    done: str  # what is said afterwards

    def is_open_to(self, record: Record) -> bool:
        """Say whether it can be done with the record."""

    def asks(self, record: Record) -> bool:
        """Say whether something must be filled in first."""

    def choose(self, record: Record, form: MultiDict[str, str]) -> Choice:
        """Read what was filled in. Raises BadChoice."""

    def promise(self, record: Record, choice: Choice) -> str:
        """Say in one sentence what will happen."""

    def carry_out(self, store: Store, record: Record, choice: Choice, by: str) -> bool:
        """Do it; False if the record has changed meanwhile."""


class Reopen:
    """Let the next attempt resume a quarantined record."""

    name, past, title = "reopen", "reopened", "Let the next attempt run"
    explains = "The cause is fixed, or an effect certainly did not happen: a retry with the same key goes on."
    done = "Reopened. The next attempt with the same key runs."

    def is_open_to(self, record: Record) -> bool:
        """Say whether it is quarantined."""
        return record.state is State.QUARANTINED

    def asks(self, record: Record) -> bool:
        """Say whether an effect may have happened."""
        return bool(settling.sent_effects(record))

    def choose(self, record: Record, form: MultiDict[str, str]) -> Choice:
        """Read which effects did not happen; each that nobody else can find out about must be among them."""
        sent = settling.sent_effects(record)
        refuted = tuple(name for name in sent if name in form.getlist("refuted"))
        for name in sent:
            if name not in refuted and settling.is_in_doubt(record, name):
                raise BadChoice(
                    f"{name} was sent {ago(sent[name].age)} and may have happened. Find out: if it did, give"
                    " the record an answer instead; if it certainly did not, say so here."
                )
        return Choice(self.name, refuted=refuted)

    def promise(self, record: Record, choice: Choice) -> str:
        """Say where the next attempt begins, and what it sends again."""
        if choice.refuted:
            again = " and ".join(choice.refuted)
            return f"The next attempt with the same key resumes, and sends {again} again with a new key."
        if record.point in (None, REQUEST):
            return "The next attempt with the same key runs from the start."
        return "The next attempt with the same key resumes where the last one stopped; no finished step is repeated."

    def carry_out(self, store: Store, record: Record, choice: Choice, by: str) -> bool:
        """Reopen it."""
        return settling.reopen(store, record, by, choice.refuted)


class Answer:
    """Finish a quarantined record with an answer for its retries."""

    name, past, title = "answer", "answered", "Give it an answer"
    explains = "You have found out what took effect, and corrected the rest by hand: every retry gets your answer."
    done = "Answered. Every retry gets this answer, and nothing runs."

    def is_open_to(self, record: Record) -> bool:
        """Say whether it is quarantined."""
        return record.state is State.QUARANTINED

    def asks(self, record: Record) -> bool:
        """Yes: for the answer."""
        return True

    def choose(self, record: Record, form: MultiDict[str, str]) -> Choice:
        """Read the answer."""
        status = form.get("status", "").strip()
        kind, location, body = form.get("kind", "").strip(), form.get("location", "").strip(), form.get("body", "")
        number = int(status) if status.isdecimal() and len(status) == 3 else 0
        choice = Choice(self.name, status=number, kind=kind or JSON, location=location, body=body)
        if len(body) > LARGEST:
            raise BadChoice(f"The body has {len(body):,} characters; {LARGEST:,} is the most.")
        if choice.kind == JSON and body:
            try:
                json.loads(body)
            except ValueError as error:
                raise BadChoice(f"The body is not JSON: {error}. Correct it, or name another media type.") from None
        try:
            snapshot_of(choice)
        except ValueError:
            raise BadChoice(
                "The status must be a number from 200 to 599, and the media type and the address a single line of"
                " ordinary characters."
            ) from None
        return choice

    def promise(self, record: Record, choice: Choice) -> str:
        """Say what retries get, and for how long."""
        kept = how_long(settling.longest_kept())
        return f"Every retry gets this answer, {choice.status}, for the next {kept}, and nothing runs again."

    def carry_out(self, store: Store, record: Record, choice: Choice, by: str) -> bool:
        """Store the answer."""
        return settling.answer(store, record, snapshot_of(choice), by)


def snapshot_of(choice: Choice) -> Snapshot:
    """Make the answer that was filled in. Raises ValueError if it cannot be sent."""
    headers = {"Content-Type": choice.kind} | ({"Location": choice.location} if choice.location else {})
    return settling.make_answer(choice.status, headers, choice.body)


class Release:
    """End the lease of a running record."""

    name, past, title = "release", "released", "Release it"
    explains = "Its worker hangs or is gone, and its retries should not wait until the lease has expired."
    done = "Released. The next attempt with the same key runs at once."

    def is_open_to(self, record: Record) -> bool:
        """Say whether an attempt holds it, or held it until its lease expired."""
        return isinstance(record.condition, Running) and record.condition.token is not None

    def asks(self, record: Record) -> bool:
        """No."""
        return False

    def choose(self, record: Record, form: MultiDict[str, str]) -> Choice:
        """Nothing can be filled in."""
        return Choice(self.name)

    def promise(self, record: Record, choice: Choice) -> str:
        """Say what becomes of the attempt that holds it."""
        return (
            "The attempt that is running loses its claim: it can store nothing more, and the next attempt with the same"
            " key runs at once."
        )

    def carry_out(self, store: Store, record: Record, choice: Choice, by: str) -> bool:
        """End the lease."""
        return settling.release(store, record, by)


class Forget:
    """Blank the answer of a finished record."""

    name, past, title = "forget", "forgotten", "Forget its answer"
    explains = "What the customer was told must be erased: the answer, and the results of phases and effects."
    done = "Forgotten. A retry gets 410, and nothing runs."

    def is_open_to(self, record: Record) -> bool:
        """Say whether it has an answer, or results of steps, that were not forgotten yet."""
        match record.condition:
            case Finished(answer=Snapshot()):
                return True
            case Finished():
                return any(step.result is not None for step in settling.steps_of(record))
        return False

    def asks(self, record: Record) -> bool:
        """No."""
        return False

    def choose(self, record: Record, form: MultiDict[str, str]) -> Choice:
        """Nothing can be filled in."""
        return Choice(self.name)

    def promise(self, record: Record, choice: Choice) -> str:
        """Say what retries get."""
        return "The stored answer is erased for good: a retry gets 410 instead, and never runs again."

    def carry_out(self, store: Store, record: Record, choice: Choice, by: str) -> bool:
        """Erase it."""
        return settling.forget(store, record, by)


ACTS: dict[str, Act] = {each.name: each for each in (Reopen(), Answer(), Release(), Forget())}
