"""The auditor: turns diaries and books into broken promises with evidence. Pure, and linear in the attempts.

It shares no code with the extension or the shop, and trusts neither: an effect counts where it happened, an answer
where it was heard. It reports what it cannot judge.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from loadtests.auditing.books import Books, Effects, Record
from loadtests.auditing.cases import PURCHASE, REVIEW, Case, Cases, Sale, Try, gather, tell_charge
from loadtests.auditing.figures import Figures, Latency, count, is_differing
from loadtests.auditing.findings import PROMISES, Finding, NotJudged, Quarantine, Verdict
from loadtests.diary import History

__all__ = ["PROMISES", "Figures", "Finding", "Latency", "NotJudged", "Quarantine", "Verdict", "audit"]

MOST_EVIDENCE = 8  # lines; more would not convince anybody


def audit(history: History, books: Books | Effects | None, *, crashes: bool) -> Verdict:
    """Judge a run.

    *books* is what the shop and its gateway have recorded; or, for your own endpoints, how often each intent took
    effect; or None, to judge only the answers. With *crashes*, a note of the shop may have been lost.
    """
    cases = gather(history, books)
    read = books if isinstance(books, Books) else None
    quarantines = _quarantines(cases, read)
    excused = {each.reference for each in quarantines}
    found = [finding for case in cases for finding in (*_effects(case, read), *_answers(case, cases.since))]
    found += _astray(cases)
    if read is not None:
        found += [*_money(cases, read, excused), *_records(cases, read), *_notes(cases, read, crashes=crashes)]
    found.sort(key=lambda finding: int(finding.rule[1:]))
    return Verdict(
        count(cases, read, len(history.faults)),
        tuple(found),
        tuple(_not_judged(cases, books, crashes=crashes)),
        quarantines,
    )


# -- effects -----------------------------------------------------------------------------------------------------------


def _effects(case: Case, books: Books | None) -> Iterator[Finding]:
    if case.effects is None:
        return
    is_purchase = case.intent.kind == PURCHASE and books is not None
    if is_purchase and books is not None and books.charges is not None:
        yield from _once(case, "K1", "charged", case.charges)
    if is_purchase:
        yield from _once(case, "K2", "paid", case.payments)
    if case.effects > 1:
        yield _finding(case, "K3", f"happened {case.effects} times", case.tell_rows())
    elif case.is_told_yes and not case.effects:
        yield _finding(case, "K3", "told yes, but it did not happen", _told(case))
    elif not is_purchase and case.is_told_no and case.effects:
        yield _finding(case, "K3", "told no for good, but it happened", (*case.tell_rows(), *_told(case)))


def _once(case: Case, rule: str, done: str, times: int) -> Iterator[Finding]:
    """Check that *done* happened once if the client was told yes, never if it was told no, and never twice."""
    if times > 1:
        yield _finding(case, rule, f"{done} {times} times", case.tell_rows())
    elif case.is_told_yes and not times:
        yield _finding(case, rule, f"told yes, but not {done}", (*case.tell_rows(), *_told(case)))
    elif case.is_told_no and times:
        yield _finding(case, rule, f"told no for good, but {done}", (*case.tell_rows(), *_told(case)))


# -- answers -----------------------------------------------------------------------------------------------------------


def _answers(case: Case, since: float) -> Iterator[Finding]:
    definitive = case.definitive

    def lines(tries: Iterable[Try]) -> tuple[str, ...]:
        return tuple(one.tell(since) for one in tries)

    if is_differing(case):
        yield _finding(case, "K4", "got answers that differ", lines(definitive))
    if first := _first(case):
        late = [one for one in case.tries if _is_after(one, first) and _ignores_the_answer(one)]
        if late:
            yield _finding(case, "K5", f"had its answer, then got {_what(late[0])}", lines((first, *late)))
    runs = [one for one in definitive if not one.is_repetition]
    if len(runs) > 1:
        yield _finding(case, "K6", f"{len(runs)} answers are not marked as replays", lines(runs))
    if definitive:
        # Only then is the record surely this body's: if no answer was kept, the other body may have come first.
        accepted = [one for one in case.others if one.heard.outcome not in ("reused", "transient")]
        if accepted:
            yield _finding(case, "K7", f"another body got {_what(accepted[0])}", lines(accepted))
    poisoned = [one for one in (*case.tries, *case.others) if one.heard.outcome == "transient" and one.heard.is_replay]
    if poisoned:
        yield _finding(case, "K9", f"a failure was kept: {_what(poisoned[0])}", lines(poisoned))
    if case.is_unresolved:
        yield _finding(case, "K9", f"has no answer after {case.attempts} attempts", lines(case.tries[-3:]))


def _first(case: Case) -> Try | None:
    """Give the definitive answer that a client heard first."""
    return min(case.definitive, key=lambda one: one.heard.at, default=None)


def _is_after(one: Try, answer: Try) -> bool:
    return one.sent is not None and one.sent.at > answer.heard.at


def _ignores_the_answer(one: Try) -> bool:
    """Say whether an answer must not follow a definitive one. An answer that differs from it belongs to K4."""
    return one.heard.outcome in ("conflict", "reused") or (one.is_definitive and not one.is_repetition)


def _what(one: Try) -> str:
    run = ", not marked as a replay" if one.is_definitive and not one.is_repetition else ""
    return f"{one.heard.status}{run}"


def _finding(case: Case, rule: str, says: str, evidence: Iterable[str]) -> Finding:
    return Finding(rule, case.intent.id, says, _some(tuple(evidence)))


def _some(lines: Sequence[str]) -> tuple[str, ...]:
    """Give the first lines, and say how many more there are."""
    left = len(lines) - MOST_EVIDENCE
    return (*lines[:MOST_EVIDENCE], *([f"… and {left} more"] if left > 0 else []))


def _told(case: Case) -> tuple[str, ...]:
    statuses = Counter(one.heard.status for one in case.definitive)
    return tuple(f"{times} × heard {status}" for status, times in sorted(statuses.items()))


def _astray(cases: Cases) -> Iterator[Finding]:
    for intent in cases.intents_astray:
        yield Finding("K9", intent, "was attempted, but is in no diary")
    if not len(cases):
        yield Finding("K9", "", "the diary is empty: the run shows nothing")


# -- money -------------------------------------------------------------------------------------------------------------


def _money(cases: Cases, books: Books, excused: set[str]) -> Iterator[Finding]:
    """Judge every order in the books, whoever wanted it. A quarantined one waits for manual review."""
    judged = [sale for sale in cases.sales if sale.order.reference not in excused]
    has_ledger = books.charges is not None
    charge_ids = {charge.id: charge for charge in books.charges or ()}
    for sale in judged:
        intent = sale.order.note if sale.order.note in cases.by_intent else ""
        for says in _imbalance(sale, has_ledger):
            yield Finding("K8", intent, says, _some(sale.tell()))
        for payment in sale.payments if has_ledger else ():
            charge = charge_ids.get(payment.charge)
            if sale.charges and (charge is None or charge.order != sale.order.number):
                yield Finding("K8", intent, "a payment names a charge that is not its own", _some(sale.tell()))
    for charge in cases.charges_astray:
        yield Finding("K8", "", "a charge without order", (tell_charge(charge),))
    for payment in cases.payments_astray:
        yield Finding("K8", "", "a payment without order", (f"payment of {payment.amount_cents}: {payment.charge}",))
    yield from _sums(cases, judged, has_ledger)


def _imbalance(sale: Sale, has_ledger: bool) -> Iterator[str]:
    if has_ledger and sale.charges and not sale.payments:
        yield "a charge without payment"
    if has_ledger and sale.payments and not sale.charges:
        yield "a payment without charge"
    if sale.order.is_paid and not sale.payments:
        yield "a paid order without payment"
    if sale.payments and not sale.order.is_paid:
        yield f"a payment, but the order is {sale.order.state}"


def _sums(cases: Cases, judged: list[Sale], has_ledger: bool) -> Iterator[Finding]:
    unequal: list[str] = []
    total: Counter[str] = Counter()
    for sale in judged:
        sums = {
            "paid orders": sale.order.total_cents if sale.order.is_paid else 0,
            "payments": sum(payment.amount_cents for payment in sale.payments),
        }
        if has_ledger:
            sums["charges"] = sum(charge.amount for charge in sale.charges)
        total.update(sums)
        if len(set(sums.values())) > 1:
            unequal.append(f"order {sale.order.number}: {_sum_line(sums)}")
    total["payments"] += sum(payment.amount_cents for payment in cases.payments_astray)
    if has_ledger:
        total["charges"] += sum(charge.amount for charge in cases.charges_astray)
    if unequal or len(set(total.values())) > 1:
        evidence = (f"in all: {_sum_line(total)}", *_some(unequal))
        yield Finding("K10", "", f"the sums differ, in {len(unequal)} orders", evidence)


def _sum_line(sums: Mapping[str, int]) -> str:
    return ", ".join(f"{what} {cents} cents" for what, cents in sums.items())


# -- records and notes -------------------------------------------------------------------------------------------------


def _quarantines(cases: Cases, books: Books | None) -> tuple[Quarantine, ...]:
    if books is None:
        return ()
    known = {case.reference: case.intent.id for case in cases if case.reference}
    return tuple(
        Quarantine(record.reference, record.reason, known.get(record.reference, ""))
        for record in books.records
        if record.state == "quarantined"
    )


def _records(cases: Cases, books: Books) -> Iterator[Finding]:
    known = {case.reference: case for case in cases if case.reference}
    for record in books.records:
        case = known.get(record.reference)
        intent = case.intent.id if case else ""
        if record.state == "running":
            heard = tuple(one.tell(cases.since) for one in case.tries[-3:]) if case else ()
            yield Finding("K9", intent, "its record is still running", (_record_line(record), *heard))
        elif not record.reason.strip():
            yield Finding("K11", intent, "is quarantined without a reason", (_record_line(record),))


def _record_line(record: Record) -> str:
    return f"record {record.reference}: {record.state}"


def _notes(cases: Cases, books: Books, *, crashes: bool) -> Iterator[Finding]:
    """Compare notes with what clients heard. A key used again after its retention has several records."""
    of_record: defaultdict[str, list[Case]] = defaultdict(list)
    for case in cases:
        if case.reference:
            of_record[case.reference].append(case)
    for (event, reference), times in books.notes.items():
        if event == "completed" and times > max(1, len(of_record.get(reference, ()))):
            intents = of_record.get(reference, ())
            says = f"completed {times} times"
            yield Finding("K12", intents[0].intent.id if intents else "", says, (f"notes on {reference}",))
    if crashes:
        return
    for reference, intents in of_record.items():
        heard = sum(one.heard.is_replay for case in intents for one in (*case.tries, *case.others))
        noted = books.notes.get(("replayed", reference), 0)
        if heard > noted:
            says = f"{heard} replays heard, {noted} noted"
            yield Finding("K12", intents[0].intent.id, says, (f"notes on {reference}",))


# -- what stays open ---------------------------------------------------------------------------------------------------


def _not_judged(cases: Cases, books: Books | Effects | None, *, crashes: bool) -> Iterator[NotJudged]:
    if not any(_is_after(one, first) for case in cases if (first := _first(case)) for one in case.tries):
        yield NotJudged("K5", "no client asked again after an answer")
    if not any(case.others for case in cases):
        yield NotJudged("K7", "no client sent another body")
    if books is None:
        yield NotJudged("K3", "effects were not counted")
    if not isinstance(books, Books):
        for rule in ("K1", "K2", "K8", "K10", "K11", "K12"):
            yield NotJudged(rule, "the books were not read")
        yield NotJudged("K9", "whether a record is still running: the books were not read")
        return
    if books.charges is None:
        yield NotJudged("K1", "the gateway's ledger was not read")
        yield NotJudged("K8", "charges: the gateway's ledger was not read")
        yield NotJudged("K10", "charges: the gateway's ledger was not read")
    if strange := sorted({case.intent.kind for case in cases} - {PURCHASE, REVIEW}):
        yield NotJudged("K3", f"the books do not cover {', '.join(strange)}")
    if not any(case.intent.kind == PURCHASE for case in cases):
        yield NotJudged("K1", "nobody bought anything")
        yield NotJudged("K2", "nobody bought anything")
    if crashes:
        yield NotJudged("K12", "whether each replay was noted: a crash may have lost a note")
    elif nameless := sum(one.heard.is_replay for case in cases if not case.reference for one in case.tries):
        yield NotJudged("K12", f"{nameless} replays of records whose reference no answer had")
