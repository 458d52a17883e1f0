"""A run on paper: diaries and books that agree, into which a test can plant a contradiction."""

from collections import Counter
from dataclasses import replace
from itertools import count
from typing import Any

from loadtests.auditing.audit import Verdict, audit
from loadtests.auditing.books import Books, Charge, Order, Payment, Record, Review
from loadtests.diary import Entry, Fault, Heard, History, Intent, Sent, collect

PROBLEM = "https://example.org/errors#"
PRICE = 1290


class Paper:
    """What clients and the shop have written down. Times are seconds, and pass by one with every line."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.orders: list[Order] = []
        self.payments: list[Payment] = []
        self.charges: list[Charge] = []
        self.reviews: list[Review] = []
        self.notes: Counter[tuple[str, str]] = Counter()
        self.records: list[Record] = []
        self._seconds = count(1000)
        self._numbers = count(1)

    def tick(self) -> float:
        """Let a second pass."""
        return float(next(self._seconds))

    def number(self) -> int:
        """A new number."""
        return next(self._numbers)

    # -- what clients write

    def want(self, kind: str = "purchase", key: str = "", user: str = "impatient") -> Intent:
        """An intent."""
        number = self.number()
        path = {"purchase": "/api/buy", "review": "/api/reviews"}.get(kind, "/orders")
        wanted = Intent(
            f"intent-{number}", kind, user, "ada", key or f"key-{number}", path, "application/json", "", self.tick()
        )
        self.entries.append(wanted)
        return wanted

    def send(self, intent: Intent, asks: Any = "same") -> Sent:
        """An attempt goes out."""
        sent = Sent(intent.id, f"attempt-{self.number()}", self.tick(), asks)
        self.entries.append(sent)
        return sent

    def hear(self, sent: Sent, status: int, outcome: Any = "definitive", **more: Any) -> Heard:
        """An answer comes in. Definitive ones are equal unless told otherwise."""
        if outcome == "definitive":
            more = {"answer": f"answer-{sent.intent}", "reference": reference_of(sent.intent), **more}
        heard = Heard(sent.intent, sent.attempt, self.tick(), outcome, status, **more)
        self.entries.append(heard)
        return heard

    def ask(self, intent: Intent, status: int, outcome: Any = "definitive", asks: Any = "same", **more: Any) -> Heard:
        """An attempt goes out, and its answer comes in."""
        return self.hear(self.send(intent, asks), status, outcome, **more)

    def replay(self, intent: Intent, status: int = 201) -> Heard:
        """A retry gets the answer again, and the shop notes it."""
        self.notes["replayed", reference_of(intent.id)] += 1
        return self.ask(intent, status, is_replay=True)

    # -- what the shop and the gateway write

    def place(self, intent: Intent, state: str = "paid") -> Order:
        """An order."""
        number = self.number()
        order = Order(number, f"T-{number:05}", intent.id, state, PRICE, reference_of(intent.id), self.tick())
        self.orders.append(order)
        return order

    def charge(self, order: Order) -> Charge:
        """The gateway takes the money for an order."""
        charge = Charge(f"ch_{self.number()}", order.number, order.total_cents, f"key for {order.number}", self.tick())
        self.charges.append(charge)
        return charge

    def pay(self, order: Order, charge: Charge) -> Payment:
        """The shop writes down that it has the money."""
        payment = Payment(order.id, charge.id, charge.amount)
        self.payments.append(payment)
        return payment

    def write_review(self, intent: Intent) -> Review:
        """A review."""
        review = Review(self.number(), intent.id, reference_of(intent.id), self.tick())
        self.reviews.append(review)
        return review

    # -- whole stories

    def sell(self, intent: Intent | None = None) -> Intent:
        """A purchase as it should be: one run, and a replay."""
        intent = intent or self.want()
        order = self.place(intent)
        self.pay(order, self.charge(order))
        self.notes["completed", reference_of(intent.id)] += 1
        self.ask(intent, 201)
        self.replay(intent)
        return intent

    def decline(self) -> Intent:
        """A purchase that the bank does not want."""
        intent = self.want()
        self.place(intent, "declined")
        self.notes["completed", reference_of(intent.id)] += 1
        self.ask(intent, 402)
        self.replay(intent, 402)
        return intent

    def review(self, **wanted: Any) -> Intent:
        """A review as it should be."""
        intent = self.want("review", **wanted)
        self.write_review(intent)
        self.notes["completed", reference_of(intent.id)] += 1
        self.ask(intent, 201)
        self.replay(intent)
        return intent

    def break_something(self) -> None:
        """A fault."""
        self.entries.append(Fault(self.tick(), self.tick(), "kill", "worker"))

    # -- all of it

    def history(self) -> History:
        """The diaries."""
        return collect(self.entries)

    def books(self, **other: Any) -> Books:
        """The books."""
        books = Books(
            tuple(self.orders),
            tuple(self.payments),
            tuple(self.reviews),
            tuple(self.charges),
            dict(self.notes),
            tuple(self.records),
        )
        return replace(books, **other)

    def judge(self, *, crashes: bool = False, **other: Any) -> Verdict:
        """What the auditor says of it."""
        return audit(self.history(), self.books(**other), crashes=crashes)


def reference_of(intent: str) -> str:
    """The reference of an intent's record, on paper."""
    return f"REF-{intent}"


def rules(verdict: Verdict) -> set[str]:
    """The broken promises, by name."""
    return {finding.rule for finding in verdict.findings}


def found(verdict: Verdict, rule: str) -> tuple[str, str, str]:
    """The intent of the only finding under a rule, what it says, and its evidence as one text."""
    (finding,) = [each for each in verdict.findings if each.rule == rule]
    return finding.intent, finding.says, "\n".join(finding.evidence)
