"""What copies show that meet each other or come after a client that left: in bursts, while the first is running."""

from flask_idempotency.conformance.exchanges import Answer, NoAnswer, Seen
from flask_idempotency.conformance.verdicts import (
    ALIKE,
    Bench,
    Broken,
    Course,
    Holds,
    NotShown,
    Verdict,
    begun,
    course_of,
    times,
)


def _rounds(seen: Seen) -> list[str]:
    return [each.label.removeprefix("after ") for each in seen.exchanges if each.label.startswith("after ")]


def _distinct(answers: tuple[Answer, ...]) -> list[Answer]:
    """Give one of each kind of answer that a run may have made."""
    found: list[Answer] = []
    for answer in answers:
        if answer.is_success and not answer.is_pending and not any(answer.says_the_same_as(each) for each in found):
            found.append(answer)
    return found


def burst_runs_once(seen: Seen, bench: Bench) -> Verdict:
    """Count the runs of copies that were sent at one instant."""
    rounds = _rounds(seen)
    if not any(answer.is_success for answer in seen.answers(*(f"after {each}" for each in rounds))):
        return NotShown("no copy was answered like a first request")
    for each in rounds:
        count = len(_distinct(seen.answers(f"copies {each}", f"after {each}")))
        if count > 1 and bench.is_telling:
            shown = (*seen.all(f"copies {each}"), *seen.all(f"after {each}"))
            if seen.effects is None:
                return Broken(f"copies of one request got {count} different answers", shown)
    if seen.effects is not None and seen.effects != len(rounds):
        return Broken(f"{len(rounds)} bursts had {times(seen.effects)}", seen.exchanges)
    if seen.effects is None and not bench.is_telling:
        return NotShown(ALIKE)
    return Holds("of each burst, one ran")


def burst_answers(seen: Seen, bench: Bench) -> Verdict:
    """Judge what the copies that did not run were told."""
    for exchange in seen.exchanges:
        answer = exchange.answer
        if isinstance(answer, NoAnswer):
            return Broken(f"a copy got no answer: {answer.reason}", (exchange,))
        if answer.status >= 500 and not answer.asks_for_patience:
            return Broken(f"a copy failed with {answer.status}", (exchange,))
        if 400 <= answer.status < 500 and answer.status != bench.dialect.in_flight:
            return Broken(f"a copy was refused with {answer.status}, not with {bench.dialect.in_flight}", (exchange,))
    return Holds(f"every copy got the answer or {bench.dialect.in_flight}")


def burst_settles(seen: Seen, bench: Bench) -> Verdict:
    """Judge the request that came after each burst."""
    for each in _rounds(seen):
        answer = seen[f"after {each}"]
        if isinstance(answer, NoAnswer):
            return NotShown(f"the request after a burst got no answer: {answer.reason}")
        if not answer.is_success:
            shown = (*seen.all(f"copies {each}"), *seen.all(f"after {each}"))
            return Broken(f"after a burst, a retry is answered with {answer.status}", shown)
    return Holds("after each burst, a retry got the answer")


def slow_runs_once(seen: Seen, bench: Bench) -> Verdict:
    """Count the runs of a slow request and its copies."""
    first = begun(seen)
    if isinstance(first, NotShown):
        return first
    answers = seen.answers("first", "copy", "after")
    if seen.effects is not None and seen.effects != 1:
        return Broken(f"a slow request with copies had {times(seen.effects)}", seen.exchanges)
    if seen.effects is None and not bench.is_telling:
        return NotShown(ALIKE)
    if seen.effects is None and len(_distinct(answers)) > 1:
        return Broken("copies of a slow request got different answers", seen.exchanges)
    if not seen.all("copy"):
        return NotShown(f"the request was answered after {first.seconds:.1f} s, before a copy could be sent")
    return Holds(f"of a request of {first.seconds:.1f} s and its copies, one ran")


def slow_answers(seen: Seen, bench: Bench) -> Verdict:
    """Judge what copies are told while the first is running."""
    copies = seen.all("copy")
    if not copies:
        return NotShown("no copy met the first request while it was running")
    for exchange in copies:
        answer = exchange.answer
        if isinstance(answer, NoAnswer):
            return Broken(f"a copy got no answer: {answer.reason}", (exchange,))
        if not (answer.is_success or answer.asks_for_patience or answer.status == bench.dialect.in_flight):
            return Broken(f"a copy was answered with {answer.status}, not {bench.dialect.in_flight}", (exchange,))
    statuses = sorted({answer.status for answer in seen.answers("copy")})
    return Holds(f"copies got {' or '.join(map(str, statuses))}")


def slow_other(seen: Seen, bench: Bench) -> Verdict:
    """Judge another body under the key of a running request."""
    found = seen.all("other")
    if not found:
        return NotShown("no other body could be sent while the first request was running")
    answer = found[-1].answer
    if isinstance(answer, NoAnswer):
        return NotShown(f"the other body got no answer: {answer.reason}")
    if answer.asks_for_patience:
        return NotShown(f"the server could not tell while the first was running: {answer.status}")
    if answer.status == bench.dialect.in_flight:
        return Broken(
            f"another body gets {answer.status}, which tells the client to retry what can never succeed", found
        )
    if not 400 <= answer.status < 500:
        return Broken(f"another body is answered with {answer.status}", found)
    return Holds(f"another body is refused with {answer.status}, also while the first is running")


def slow_body(seen: Seen, bench: Bench) -> Verdict:
    """Count the runs of a request that arrives slowly, and of its copy."""
    after = seen["after"]
    if isinstance(after, NoAnswer) or not after.is_success:
        said = after.reason if isinstance(after, NoAnswer) else after.status
        return NotShown(f"the retry afterwards was not answered like a first request: {said}")
    if seen.effects is not None and seen.effects > 1:
        return Broken(f"a slow body and its copy had {times(seen.effects)}", seen.exchanges)
    if seen.effects is None and not bench.is_telling:
        return NotShown(ALIKE)
    if seen.effects is None and len(_distinct(seen.answers("slow", "copy", "after"))) > 1:
        return Broken("a slow body and its copy got different answers", seen.exchanges)
    if not seen.answers("copy"):
        return NotShown("no copy was answered while the body was under way")
    return Holds("of a request that arrives slowly and its copy, one ran")


def _unsent(seen: Seen, label: str) -> NotShown | None:
    """Say so if nobody knows that the server saw a request, and its end, before the one that followed."""
    left = seen[label]
    if isinstance(left, NoAnswer) and not left.is_closed:
        return NotShown(f"the request that its client was to leave did not get to its end: {left.reason}")
    return None


def hang_up_runs_once(seen: Seen, bench: Bench) -> Verdict:
    """Count the runs of requests whose client left before the answer."""
    for number in ("0", "1"):
        if isinstance(unsent := _unsent(seen, f"left {number}"), NotShown):
            return unsent
        back, again = seen[f"back {number}"], seen[f"again {number}"]
        if not isinstance(back, Answer) or not back.is_success:
            return NotShown("the client that came back was not answered like a first one")
        if seen.effects is None and course_of(back, again, bench) is Course.RAN:
            return Broken("after a hang-up, two retries got different answers", seen.exchanges)
    if seen.effects is None:
        return NotShown("answers do not tell whether a request ran before its client left: count effects")
    if seen.effects != 2:
        return Broken(f"2 requests whose clients left and came back had {times(seen.effects)}", seen.exchanges)
    return Holds("each request took effect once")


def hang_up_settles(seen: Seen, bench: Bench) -> Verdict:
    """Judge whether a client that left gets an answer when it comes back."""
    for number in ("0", "1"):
        if isinstance(unsent := _unsent(seen, f"left {number}"), NotShown):
            return unsent
        back = seen[f"back {number}"]
        shown = (*seen.all(f"left {number}"), *seen.all(f"back {number}"))
        if isinstance(back, NoAnswer):
            return NotShown(f"the client that came back got no answer: {back.reason}")
        if not back.is_success:
            return Broken(f"a client that left and comes back is answered with {back.status}", shown)
    return Holds("a client that left and comes back gets the answer")


def cut_body(seen: Seen, bench: Bench) -> Verdict:
    """Judge a request that was cut short, and the whole one after it."""
    half, whole = seen["cut"], seen["whole"]
    if isinstance(half, Answer) and half.is_success:
        return Broken(f"half a body is answered with {half.status}, like a whole one", seen.exchanges)
    if isinstance(whole, NoAnswer):
        return NotShown(f"the whole request got no answer: {whole.reason}")
    if not whole.is_success:
        return Broken(f"after half a body, the whole request is answered with {whole.status}", seen.exchanges)
    if seen.effects is not None and seen.effects != 1:
        return Broken(f"half a body and the whole request had {times(seen.effects)}", seen.exchanges)
    if isinstance(unsent := _unsent(seen, "cut"), NotShown):
        return unsent
    return Holds("half a body leaves nothing behind: the whole request ran")
