"""What retries show: the same request again, in other spellings, or after a failure."""

from typing import Final

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
    replays,
    times,
)

# What belongs to an answer's content or place, and so to its replay. Others may be those of the exchange.
KEPT: Final = (
    "Content-Type",
    "Content-Language",
    "Content-Disposition",
    "Content-Location",
    "Location",
    "Link",
    "ETag",
    "Last-Modified",
)


def runs_once(seen: Seen, bench: Bench) -> Verdict:
    """Judge two actions, the first of which was retried. What a refusal says is another promise's matter."""
    first = begun(seen)
    if isinstance(first, NotShown):
        return first
    if seen.effects is not None:
        if seen.effects > 2:
            return Broken(f"2 requests, one of them retried twice, had {times(seen.effects)}", seen.exchanges)
        return Holds("retries had no effect")
    for exchange in (*seen.all("retry"), *seen.all("again")):
        match course_of(first, exchange.answer, bench):
            case Course.RAN:
                return Broken("a retry ran again", (*seen.all("first"), exchange))
            case Course.UNCLEAR:
                return NotShown(ALIKE)
            case Course.UNANSWERED:
                return NotShown("a retry got no answer")
    return Holds("no retry ran")


def same_status(seen: Seen, bench: Bench) -> Verdict:
    """Compare the status of retries with the first."""
    first = begun(seen)
    if isinstance(first, NotShown):
        return first
    for exchange in (*seen.all("retry"), *seen.all("again")):
        answer = exchange.answer
        if isinstance(answer, NoAnswer):
            return NotShown(f"a retry got no answer: {answer.reason}")
        if answer.status != first.status:
            reason = f"a retry was answered with {answer.status}, the first request with {first.status}"
            return Broken(reason, (*seen.all("first"), exchange))
    return Holds(f"retries were answered with {first.status} too")


def same_body(seen: Seen, bench: Bench) -> Verdict:
    """Compare the bytes of retries with the first."""
    first = begun(seen)
    if isinstance(first, NotShown):
        return first
    retries = [each for each in (*seen.all("retry"), *seen.all("again")) if isinstance(each.answer, Answer)]
    for exchange in retries:
        answer = exchange.answer
        assert isinstance(answer, Answer)
        if answer.is_success and answer.body != first.body:
            how = "the same JSON in other bytes" if answer.says_the_same_as(first) else "another body"
            return Broken(f"a retry got {how}", (*seen.all("first"), exchange))
    if not any(answer.is_success for answer in seen.answers("retry", "again")):
        return NotShown("no retry was answered like the first request")
    return Holds("retries got the same bytes")


def same_headers(seen: Seen, bench: Bench) -> Verdict:
    """Compare the headers that belong to the content."""
    first = begun(seen)
    if isinstance(first, NotShown):
        return first
    present = [name for name in KEPT if first.values(name)]
    for exchange in (*seen.all("retry"), *seen.all("again")):
        answer = exchange.answer
        if isinstance(answer, Answer) and answer.is_success:
            wrong = [name for name in present if answer.values(name) != first.values(name)]
            if wrong:
                return Broken(f"a retry lacks or changes {', '.join(wrong)}", (*seen.all("first"), exchange))
    if not any(answer.is_success for answer in seen.answers("retry", "again")):
        return NotShown("no retry was answered like the first request")
    return Holds(f"retries have the same {', '.join(present)}") if present else NotShown("there was none of them")


def marked(seen: Seen, bench: Bench) -> Verdict:
    """Look for Idempotent-Replayed: on all replays, and on nothing else."""
    first = begun(seen)
    if isinstance(first, NotShown):
        return first
    for label in ("first", "second"):
        answer = seen[label]
        if isinstance(answer, Answer) and answer.is_marked:
            return Broken("a first answer calls itself a replay", seen.all(label))
    marks = {answer.is_marked for answer in seen.answers("retry", "again") if answer.is_success}
    if marks == {True}:
        return Holds("replays have Idempotent-Replayed: true, first answers do not")
    if marks == {False} and bench.dialect.name != "stripe":
        return NotShown("no answer has Idempotent-Replayed, and the draft does not ask for it")
    return Broken("a replay has no Idempotent-Replayed: true", seen.exchanges) if marks else NotShown("no replay")


def no_cookies(seen: Seen, bench: Bench) -> Verdict:
    """Look for cookies of the first answer on its replay."""
    first, second = begun(seen), begun(seen, "second")
    if isinstance(first, NotShown):
        return first
    if isinstance(second, NotShown):
        return second
    cookies = set(first.values("Set-Cookie"))
    if not cookies:
        return NotShown("the first answer sets no cookie")
    own = cookies - set(second.values("Set-Cookie"))
    if not own:
        return NotShown("every answer sets the same cookie")
    for exchange in (*seen.all("retry"), *seen.all("again")):
        if isinstance(exchange.answer, Answer) and own & set(exchange.answer.values("Set-Cookie")):
            return Broken("a replay sets the cookie of the first answer", (*seen.all("first"), exchange))
    return Holds("no replay sets the cookie of the first answer")


def same_request(seen: Seen, bench: Bench) -> Verdict:
    """Judge the same request in another spelling."""
    return replays(seen, bench, "other", what="the same request")


def chunked(seen: Seen, bench: Bench) -> Verdict:
    """Judge the same request in chunks, which not every server reads."""
    other = seen["other"]
    if isinstance(other, Answer) and other.status in (400, 411, 501):
        return NotShown(f"the server does not read a body in chunks: it answered with {other.status}")
    return same_request(seen, bench)


def large(seen: Seen, bench: Bench) -> Verdict:
    """Judge a large request sent twice: it may be refused, but not run without protection."""
    first = seen["first"]
    if isinstance(first, Answer) and 400 <= first.status < 500:
        if seen.effects:
            return Broken(f"a large body was refused with {first.status}, but took effect", seen.exchanges)
        return Holds(f"a large body is refused with {first.status}")
    return replays(seen, bench, "other", what="a large request")


def server_error(seen: Seen, bench: Bench) -> Verdict:
    """Judge the retry of a request that failed with a 5xx."""
    failed, again, other = seen["failed"], seen["again"], seen["other"]
    if not isinstance(failed, Answer) or failed.status < 500:
        said = failed.reason if isinstance(failed, NoAnswer) else str(failed.status)
        return NotShown(f"the request of --failing-json did not fail with a 5xx: {said}")
    if isinstance(again, NoAnswer):
        return NotShown(f"the retry got no answer: {again.reason}")
    is_same = again.status == failed.status and again.body == failed.body
    tells = isinstance(other, Answer) and other.body != failed.body
    is_kept = again.status >= 500 and ((again.is_marked and not failed.is_marked) or (is_same and tells))
    if bench.dialect.keeps_server_errors:
        if is_kept:
            return Holds(f"a {failed.status} is replayed, as Stripe does")
        return NotShown(f"a retry of a {failed.status} ran again: Stripe replays those that the view returned")
    if is_kept:
        return Broken(f"the {failed.status} is replayed: the failure outlives its cause", seen.exchanges)
    if 400 <= again.status < 500:
        return Broken(f"after a {failed.status}, the retry is refused with {again.status}", seen.exchanges)
    if is_same:
        return NotShown("every failure gives the same answer, which does not tell whether the retry ran")
    return Holds(f"after a {failed.status}, the retry ran")
