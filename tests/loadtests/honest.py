"""An honest shop: attempts overlap, answers get lost, workers die, and it keeps its promises all the same."""

from dataclasses import dataclass, field
from random import Random

from loadtests.auditing.books import Record
from loadtests.diary import Intent, Sent
from tests.loadtests.ledgers import PROBLEM, Paper, reference_of

FATES = ("yes", "yes", "yes", "no", "quarantined")


@dataclass
class Line:
    """One intent: where its record stands, and which attempts are on their way to the shop."""

    intent: Intent
    fate: str
    state: str = "absent"
    owner: str | None = None
    under_way: list[Sent] = field(default_factory=list)
    has_heard: bool = False

    @property
    def status(self) -> int:
        """The status of its answer."""
        if self.fate == "yes":
            return 201
        return 402 if self.intent.kind == "purchase" else 404


class HonestShop:
    """Serves attempts in any order, with accidents, and writes diaries and books about it."""

    def __init__(self, chance: Random, *, crashes: bool) -> None:
        self.paper = Paper()
        self._chance = chance
        self._crashes = crashes

    def open_for(self, intents: int, steps: int) -> Paper:
        """Allow attempts at this many intents for a while, then until each has its end."""
        lines = [self._begin() for _ in range(intents)]
        for _ in range(steps):
            self._step(self._chance.choice(lines))
        for line in lines:
            while line.under_way or not line.has_heard:
                self._serve(line, calm=True)
        return self.paper

    def _begin(self) -> Line:
        kind = self._chance.choice(["purchase", "review"])
        fate = self._chance.choice(FATES if kind == "purchase" else FATES[:-1])
        return Line(self.paper.want(kind), fate)

    def _step(self, line: Line) -> None:
        if self._chance.random() < 0.5:
            is_other = line.state != "absent" and self._chance.random() < 0.2
            line.under_way.append(self.paper.send(line.intent, "other body" if is_other else "same"))
        else:
            self._serve(line)

    def _serve(self, line: Line, *, calm: bool = False) -> None:
        """Let one attempt take one step; in calm times nothing gets lost."""
        if not line.under_way:
            line.under_way.append(self.paper.send(line.intent))
        sent = self._chance.choice(line.under_way)
        if line.owner == sent.attempt:
            self._finish(line, sent, calm)
        elif line.state in ("finished", "quarantined") or line.owner is not None:
            self._refuse_or_replay(line, sent, calm)
        elif sent.asks == "other body":
            self._hear(line, sent, calm, 422, "reused")
        elif not calm and self._chance.random() < 0.2:
            self._hear(line, sent, calm, 503, "transient")
        else:
            line.state, line.owner = "running", sent.attempt

    def _finish(self, line: Line, sent: Sent, calm: bool) -> None:
        line.owner = None
        if not calm and self._chance.random() < 0.3:  # its worker dies: the record runs on, and another takes over
            self._note("taken_over", line)
            self._lose(line, sent)
        elif line.fate == "quarantined":
            line.state = "quarantined"
            known = reference_of(line.intent.id)
            self.paper.records.append(Record(known, "quarantined", "too many takeovers"))
            if self._chance.random() < 0.5:
                self.paper.charge(self.paper.place(line.intent, "placed"))
            self._quarantined(line, sent, calm)
        else:
            line.state = "finished"
            self._take_effect(line)
            self._note("completed", line)
            self._hear(line, sent, calm, line.status, "definitive")

    def _take_effect(self, line: Line) -> None:
        if line.intent.kind == "purchase":
            order = self.paper.place(line.intent, "paid" if line.fate == "yes" else "declined")
            if line.fate == "yes":
                self.paper.pay(order, self.paper.charge(order))
        elif line.fate == "yes":
            self.paper.write_review(line.intent)

    def _refuse_or_replay(self, line: Line, sent: Sent, calm: bool) -> None:
        if not calm and self._chance.random() < 0.2:
            self._hear(line, sent, calm, self._chance.choice([503, 429]), "transient")
        elif sent.asks == "other body":
            self._hear(line, sent, calm, 422, "reused")
        elif line.state == "finished":
            self._note("replayed", line)
            self._hear(line, sent, calm, line.status, "definitive", is_replay=True)
        elif line.state == "quarantined":
            self._quarantined(line, sent, calm)
        else:
            self._hear(line, sent, calm, 409, "conflict", problem=f"{PROBLEM}request-in-flight")

    def _quarantined(self, line: Line, sent: Sent, calm: bool) -> None:
        more = {"reference": reference_of(line.intent.id), "problem": f"{PROBLEM}quarantined"}
        self._hear(line, sent, calm, 409, "conflict", **more)

    def _hear(self, line: Line, sent: Sent, calm: bool, status: int, outcome: str, **more: object) -> None:
        """Bring an answer to its client, or lose it on the way."""
        if not calm and self._chance.random() < 0.2:
            self._lose(line, sent)
            return
        line.under_way.remove(sent)
        self.paper.hear(sent, status, outcome, **more)
        line.has_heard |= outcome == "definitive" or (outcome == "conflict" and line.state == "quarantined")

    def _lose(self, line: Line, sent: Sent) -> None:
        """Let a client get no answer. One that is killed meanwhile writes nothing at all."""
        line.under_way.remove(sent)
        if self._chance.random() < 0.8:
            self.paper.hear(sent, 0, "transient", problem="connection reset")

    def _note(self, event: str, line: Line) -> None:
        """Write a note; a crash may lose it."""
        if not (self._crashes and self._chance.random() < 0.3):
            self.paper.notes[event, reference_of(line.intent.id)] += 1
