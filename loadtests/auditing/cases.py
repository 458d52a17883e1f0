"""The cases: each intent with all of its attempts and effects. Pure; one pass over diaries and books."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from loadtests.auditing.books import Books, Charge, Effects, Order, Payment, Review
from loadtests.diary import Heard, History, Intent, Sent

PURCHASE, REVIEW = "purchase", "review"


@dataclass(frozen=True, slots=True)
class Try:
    """One attempt that has ended, with or without an answer."""

    sent: Sent | None  # None: the diary does not say when it was sent
    heard: Heard

    @property
    def is_definitive(self) -> bool:
        """Whether it ends its intent."""
        return self.heard.outcome == "definitive"

    @property
    def is_kept_no_more(self) -> bool:
        """Whether it says: done, but the answer was not kept. It repeats an answer, but cannot be compared with it."""
        return self.heard.status == 410 and self.heard.problem.endswith("body-not-kept")

    @property
    def is_repetition(self) -> bool:
        """Whether it says that nothing was run for it."""
        return self.heard.is_replay or self.is_kept_no_more

    def tell(self, since: float) -> str:
        """Say it in a line, with times in seconds after *since*."""
        heard = self.heard
        sent = "?" if self.sent is None else f"{self.sent.at - since:.3f}"
        answer = f"{heard.status} {heard.answer[:8]}" if heard.status else "no answer"
        marked = " replay" if heard.is_replay else ""
        why = f" ({heard.problem})" if heard.problem else ""
        return (
            f"attempt {heard.attempt[:8]}: sent at {sent} s, heard at {heard.at - since:.3f} s: {answer}{marked}{why}"
        )


@dataclass(slots=True)
class Sale:
    """An order with the money taken for it, as the shop and the gateway each see it."""

    order: Order
    payments: list[Payment] = field(default_factory=list)
    charges: list[Charge] = field(default_factory=list)

    def tell(self) -> tuple[str, ...]:
        """Say it in lines."""
        order = self.order
        return (
            f"order {order.number}: {order.state}, {order.total_cents} cents",
            *(f"payment of {each.amount_cents} cents for {order.number}: {each.charge}" for each in self.payments),
            *(tell_charge(each) for each in self.charges),
        )


def tell_charge(charge: Charge) -> str:
    """Describe in a line what the gateway knows about a charge."""
    return f"charge {charge.id} of {charge.amount} cents for {charge.order}, key {charge.key[:16]}"


@dataclass(slots=True)
class Case:
    """An intent, the attempts at it, and its effects."""

    intent: Intent
    attempts: int = 0
    tries: list[Try] = field(default_factory=list)  # with the intent's own body
    others: list[Try] = field(default_factory=list)  # with another body under the same key
    sales: list[Sale] = field(default_factory=list)
    reviews: list[Review] = field(default_factory=list)
    effects: int | None = None  # None: not counted
    reference: str = ""  # of its record, if any answer had one
    is_quarantined: bool = False  # it waits for manual review

    @property
    def definitive(self) -> list[Try]:
        """The answers that end it. They should all be equal."""
        return [each for each in self.tries if each.is_definitive]

    @property
    def is_told_yes(self) -> bool:
        """Whether its client was told that it succeeded."""
        return any(each.is_definitive and each.heard.status < 400 for each in self.tries)

    @property
    def is_told_no(self) -> bool:
        """Whether its client was told that it failed for good."""
        return any(each.is_definitive and each.heard.status >= 400 and not each.is_kept_no_more for each in self.tries)

    @property
    def is_unresolved(self) -> bool:
        """Whether its outcome is still unknown."""
        return not self.is_quarantined and not any(each.is_definitive for each in self.tries)

    @property
    def charges(self) -> int:
        """How often the gateway charged for it."""
        return sum(len(sale.charges) for sale in self.sales)

    @property
    def payments(self) -> int:
        """How often the shop recorded a charge for it."""
        return sum(len(sale.payments) for sale in self.sales)

    @property
    def has_taken_effect(self) -> bool:
        """Whether anything happened that would surprise a client who was told no."""
        if self.intent.kind == PURCHASE and self.sales:
            return any(sale.charges or sale.payments or sale.order.is_paid for sale in self.sales)
        return bool(self.effects)

    def tell_rows(self) -> tuple[str, ...]:
        """Describe its effects in lines."""
        reviews = (f"review {review.id}: {review.text[:24]}" for review in self.reviews)
        return (*(line for sale in self.sales for line in sale.tell()), *reviews)


@dataclass(slots=True)
class Cases:
    """All cases of a run, and what belongs to none."""

    by_intent: dict[str, Case]
    since: float  # when it began
    sales: list[Sale] = field(default_factory=list)
    charges_astray: list[Charge] = field(default_factory=list)  # for an order that is not there
    payments_astray: list[Payment] = field(default_factory=list)
    intents_astray: list[str] = field(default_factory=list)  # attempted, but never recorded as an intent

    def __iter__(self) -> Iterator[Case]:
        return iter(self.by_intent.values())

    def __len__(self) -> int:
        return len(self.by_intent)


def gather(history: History, books: Books | Effects | None) -> Cases:
    """Collect the attempts and effects of each intent. No intent is left out."""
    begun = min((intent.at for intent in history.intents.values()), default=0.0)
    cases = Cases({intent.id: Case(intent) for intent in history.intents.values()}, begun)
    _lay_words(cases, history)
    if isinstance(books, Books):
        _lay_sales(cases, books)
        _lay_reviews(cases, books)
        quarantined = {record.reference for record in books.records if record.state == "quarantined"}
        for case in cases:
            case.is_quarantined = case.reference in quarantined
        return cases
    for case in cases:  # without books, only what the client was told counts
        case.is_quarantined = any(each.heard.problem.endswith("quarantined") for each in case.tries)
    if isinstance(books, Effects):
        for case in cases:
            case.effects = books.per_intent.get(case.intent.id, 0)
    return cases


def _lay_words(cases: Cases, history: History) -> None:
    cases.intents_astray = sorted((history.sent.keys() | history.heard.keys()) - history.intents.keys())
    for case in cases:
        sent = {each.attempt: each for each in history.sent.get(case.intent.id, ())}
        case.attempts = len(sent)
        for heard in history.heard.get(case.intent.id, ()):
            one = Try(sent.get(heard.attempt), heard)
            is_other = one.sent is not None and one.sent.asks == "other body"
            (case.others if is_other else case.tries).append(one)
            case.reference = case.reference or heard.reference


def _lay_sales(cases: Cases, books: Books) -> None:
    """Assign payments and charges to their orders, and orders to their intents.

    A charge belongs to the order whose payment names it, else to the order with its number, so that two orders with the
    same number are told apart.
    """
    sales = {order.id: Sale(order) for order in books.orders}
    cases.sales = list(sales.values())
    by_number = {sale.order.number: sale for sale in reversed(cases.sales)}
    by_charge: dict[str, Sale] = {}
    for payment in books.payments:
        if sale := sales.get(payment.order):
            sale.payments.append(payment)
            by_charge.setdefault(payment.charge, sale)
        else:
            cases.payments_astray.append(payment)
    for charge in books.charges or ():
        named = by_charge.get(charge.id)
        if named is None or named.order.number != charge.order:
            named = by_number.get(charge.order)
        if named is not None:
            named.charges.append(charge)
        else:
            cases.charges_astray.append(charge)
    for case in cases:
        if case.intent.kind == PURCHASE:
            case.effects = 0
    for sale in cases.sales:
        case_of = cases.by_intent.get(sale.order.note)
        if case_of is not None and case_of.effects is not None:
            case_of.sales.append(sale)
            case_of.effects += 1
            case_of.reference = case_of.reference or sale.order.reference


def _lay_reviews(cases: Cases, books: Books) -> None:
    for case in cases:
        if case.intent.kind == REVIEW:
            case.effects = 0
    for review in books.reviews:
        case_of = cases.by_intent.get(review.text)
        if case_of is not None and case_of.effects is not None:
            case_of.reviews.append(review)
            case_of.effects += 1
            case_of.reference = case_of.reference or review.reference
