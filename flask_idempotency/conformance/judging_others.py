"""What other requests under a used key show: other bodies, paths, callers and keys. And what refusals look like."""

from collections.abc import Iterator

from flask_idempotency.conformance.dialects import Refusal
from flask_idempotency.conformance.exchanges import Answer, Exchange, NoAnswer, Seen
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
    refuses_reuse,
    replays,
    times,
)


def other_value(seen: Seen, bench: Bench) -> Verdict:
    """Judge another body under a used key."""
    return refuses_reuse(seen, bench, what="another body")


def other_type(seen: Seen, bench: Bench) -> Verdict:
    """Judge the same body with a number as a text."""
    return refuses_reuse(seen, bench, what="a text instead of a number")


def repeated_member(seen: Seen, bench: Bench) -> Verdict:
    """Judge an object with a member twice, followed by one with its last value."""
    first = seen["first"]
    if isinstance(first, Answer) and 400 <= first.status < 500:
        return Holds(f"an object with a repeated member is refused with {first.status}")
    return refuses_reuse(seen, bench, what="the object without the repeated member")


def rounded(seen: Seen, bench: Bench) -> Verdict:
    """Judge two integers that one double stands for, in the first place that the server takes one."""
    for number in ("0", "1"):
        one, two = seen.all(f"one {number}"), seen.all(f"two {number}")
        if one and isinstance(one[-1].answer, Answer) and one[-1].answer.is_success:
            pair = (
                Exchange("first", one[-1].request, one[-1].answer),
                Exchange("other", two[-1].request, two[-1].answer),
            )
            return refuses_reuse(Seen(pair), bench, what="another integer of 16 digits")
    return NotShown("the server takes no integer of 16 digits in this body")


def after_refusal(seen: Seen, bench: Bench) -> Verdict:
    """Judge the right request after another one was refused."""
    refused = seen["refused"]
    if isinstance(refused, NoAnswer) or refused.is_success:
        return NotShown("the other request was not refused")
    return replays(seen, bench, "other", what="the right request after a refused one")


def other_query(seen: Seen, bench: Bench) -> Verdict:
    """Judge the same body with another query."""
    return refuses_reuse(seen, bench, or_runs=True, what="the request with another query")


def other_path(seen: Seen, bench: Bench) -> Verdict:
    """Judge the same body to another path."""
    other = seen["other"]
    if isinstance(other, Answer) and other.status == 404:
        return NotShown("the path of --other-path is not there: 404")
    return refuses_reuse(seen, bench, or_runs=True, what="the request to another path")


def other_method(seen: Seen, bench: Bench) -> Verdict:
    """Judge the same request with another method, if the endpoint has it."""
    other = seen["other"]
    if isinstance(other, Answer) and other.status in (404, 405, 501):
        return NotShown(f"the endpoint does not have that method: {other.status}")
    return refuses_reuse(seen, bench, or_runs=True, what="the request with another method")


def safe_method(seen: Seen, bench: Bench) -> Verdict:
    """Judge GET under the key of a write: it is another request, and no retry."""
    first = begun(seen)
    if isinstance(first, NotShown):
        return first
    other = seen["other"]
    if isinstance(other, NoAnswer):
        return NotShown(f"GET got no answer: {other.reason}")
    if other.is_marked or (other.status == first.status and course_of(first, other, bench) is Course.REPLAYED):
        return Broken("GET got the answer of the write", seen.exchanges)
    return Holds(f"GET was answered with {other.status}, as without a key")


def missing(seen: Seen, bench: Bench) -> Verdict:
    """Judge requests without a key: refused, or run each time."""
    one, two = seen["one"], seen["two"]
    if isinstance(one, NoAnswer) or isinstance(two, NoAnswer):
        return NotShown("a request without a key got no answer")
    if 400 <= one.status < 500:
        return Holds(f"a request without a key is refused with {one.status}")
    if not (one.is_success and two.is_success):
        return NotShown(f"a request without a key was answered with {one.status}")
    if seen.effects is not None and seen.effects != 2:
        return Broken(f"2 requests without a key had {times(seen.effects)}", seen.exchanges)
    if seen.effects is None and one.says_the_same_as(two):
        return (
            Broken("2 requests without a key got one answer", seen.exchanges) if bench.is_telling else NotShown(ALIKE)
        )
    return Holds("a request without a key runs each time")


def malformed(seen: Seen, bench: Bench) -> Verdict:
    """Judge a malformed key: refused, neither ignored nor taken for a key."""
    one, two = seen["one"], seen["two"]
    if isinstance(one, NoAnswer):
        if seen.effects == 0:
            return Holds(f"the server hangs up, and nothing runs: {one.reason}")
        return NotShown(f"no answer: {one.reason}")
    if 400 <= one.status < 500:
        if seen.effects:
            return Broken(f"refused with {one.status}, but had {times(seen.effects)}", seen.exchanges)
        return Holds(f"refused with {one.status}")
    if one.status >= 500:
        return Broken(f"failed with {one.status}", seen.exchanges)
    if seen.effects == 2 or (seen.effects is None and course_of(one, two, bench) is Course.RAN):
        return Broken("ignored: the request ran without protection, twice", seen.exchanges)
    return Broken("accepted as a key", seen.exchanges)


def malformed_unless_opaque(seen: Seen, bench: Bench) -> Verdict:
    """Judge a key with an open quote; where keys are opaque, a quote is a character like others."""
    if bench.dialect.has_opaque_keys:
        return NotShown(f"in the dialect {bench.dialect.name}, a quote is a part of the key")
    return malformed(seen, bench)


def quoted(seen: Seen, bench: Bench) -> Verdict:
    """Judge one key in both spellings; where keys are opaque, two keys."""
    bare, quoted = seen["first"], seen["other"]
    if bench.dialect.has_opaque_keys:
        return distinct_keys(seen, bench)
    if isinstance(bare, NoAnswer) or isinstance(quoted, NoAnswer):
        return NotShown("a request got no answer")
    if quoted.status == 400:
        return Broken("a key in double quotes, as the draft writes it, is refused", seen.exchanges)
    if bare.status == 400 and quoted.is_success:
        return Holds("only keys in double quotes are accepted")
    return replays(seen, bench, "other", what="the same key in double quotes")


def distinct_keys(seen: Seen, bench: Bench) -> Verdict:
    """Judge two keys that look alike: each has an action of its own."""
    first = begun(seen)
    if isinstance(first, NotShown):
        return first
    other = seen["other"]
    match course_of(first, other, bench), other:
        case Course.RAN, _:
            return Holds("they are two keys")
        case Course.UNCLEAR, _ if seen.effects is None:
            return NotShown(ALIKE)
        case Course.UNCLEAR, _ if seen.effects == 2:
            return Holds("they are two keys")
        case Course.REFUSED, Answer(status=400):
            return NotShown("one of the keys is refused")
        case Course.UNANSWERED, NoAnswer(reason):
            return NotShown(reason)
        case course, _:
            return Broken(f"they are treated as one key: the second request {course}", seen.exchanges)


def other_caller(seen: Seen, bench: Bench) -> Verdict:
    """Judge the same key of another caller, who must not see anything of the first."""
    first = begun(seen)
    if isinstance(first, NotShown):
        return first
    other = seen["other"]
    match course_of(first, other, bench), other:
        case Course.RAN, _:
            return Holds("the other caller's request ran by itself")
        case Course.UNCLEAR, _ if seen.effects is None:
            return NotShown(ALIKE)
        case Course.UNCLEAR, _ if seen.effects == 2:
            return Holds("the other caller's request ran by itself")
        case Course.REFUSED, Answer(status=(401 | 403) as status):
            return NotShown(f"the other caller is not let in: {status}")
        case (Course.REFUSED | Course.FAILED) as course, Answer(status=status):
            return Broken(f"the other caller's request {course} with {status}", seen.exchanges)
        case Course.UNANSWERED, NoAnswer(reason):
            return NotShown(reason)
        case course, _:
            return Broken("the other caller got the first caller's answer", seen.exchanges)


def _lets_strangers_in(seen: Seen) -> NotShown | None:
    fresh = seen["fresh"]
    if isinstance(fresh, NoAnswer):
        return NotShown(f"a request without credentials got no answer: {fresh.reason}")
    if fresh.status < 400:
        return NotShown("the endpoint needs no credentials")
    return None


def stranger(seen: Seen, bench: Bench) -> Verdict:
    """Judge a retry without credentials: it is authorised like a first request."""
    first = begun(seen)
    if isinstance(first, NotShown):
        return first
    if (unneeded := _lets_strangers_in(seen)) is not None:
        return unneeded
    answer = seen["stranger"]
    if isinstance(answer, NoAnswer):
        return NotShown(f"the retry got no answer: {answer.reason}")
    if answer.is_success:
        return Broken(f"a retry without credentials got the answer: {answer.status}", seen.exchanges)
    return Holds(f"a retry without credentials is refused with {answer.status}")


def unauthorised_claims_nothing(seen: Seen, bench: Bench) -> Verdict:
    """Judge the authorised request after the same without credentials."""
    if (unneeded := _lets_strangers_in(seen)) is not None:
        return unneeded
    fresh, allowed = seen["fresh"], seen["allowed"]
    assert isinstance(fresh, Answer)
    if isinstance(allowed, NoAnswer):
        return NotShown(f"the authorised request got no answer: {allowed.reason}")
    if allowed.is_success:
        return Holds(f"after a {fresh.status}, the authorised request ran")
    shown = (*seen.all("fresh"), *seen.all("allowed"))
    return Broken(f"after a {fresh.status}, the authorised request is answered with {allowed.status}", shown)


def _refusals(seen: Seen) -> Iterator[tuple[Exchange, Refusal, Answer]]:
    """Give the answers that refuse, and what they refuse."""
    for exchange in seen.exchanges:
        answer = exchange.answer
        if isinstance(answer, NoAnswer) or not 400 <= answer.status < 500:
            continue
        match exchange.label.split("/"):
            case "missing", "one":
                yield exchange, "missing", answer
            case probe, "one" if probe.startswith("malformed"):
                yield exchange, "malformed", answer
            case "other-value", "other":
                yield exchange, "reused", answer
            case ("slow", "copy") | ("burst", _):
                yield exchange, "in flight", answer


def right_status(seen: Seen, bench: Bench) -> Verdict:
    """Judge the statuses of refusals by which clients know what to do next."""
    found: dict[Refusal, int] = {}
    for exchange, refusal, answer in _refusals(seen):
        right = bench.dialect.status_of(refusal)
        if answer.status != right and answer.status != 431:  # 431: the server in front refuses long headers itself
            return Broken(f"a request is refused with {answer.status} instead of {right} ({refusal})", (exchange,))
        found[refusal] = right
    if not found:
        return NotShown("nothing was refused")
    return Holds(", ".join(f"{refusal}: {status}" for refusal, status in found.items()))


def explained(seen: Seen, bench: Bench) -> Verdict:
    """Judge the documents of refusals, of those that have the right status: others may be the server's in front."""
    judged = []
    for exchange, refusal, answer in _refusals(seen):
        if answer.status != bench.dialect.status_of(refusal) or (
            refusal == "malformed" and "comma" not in exchange.label
        ):
            continue
        fault = bench.dialect.find_fault(refusal, answer)
        if fault is not None:
            return Broken(f"the {answer.status} ({refusal}) {fault}", (exchange,))
        judged.append(refusal)
    if not judged:
        return NotShown("nothing was refused in the dialect's way")
    return Holds(f"refusals explain themselves: {', '.join(dict.fromkeys(judged))}")


def stripe_headers(seen: Seen, bench: Bench) -> Verdict:
    """Judge the headers by which Stripe's libraries and users follow a request."""
    first, retry = begun(seen), begun(seen, "retry")
    if isinstance(first, NotShown):
        return first
    if isinstance(retry, NotShown):
        return retry
    sent = seen.all("first")[-1].request.keys[0].decode("latin-1")
    number = first.header("Request-Id")
    faults = (
        (not number, "the first answer has no Request-Id"),
        (first.header("Original-Request") != number, "the first answer's Original-Request is not its Request-Id"),
        (retry.header("Original-Request") != number, "the replay's Original-Request is not the first Request-Id"),
        (retry.header("Request-Id") in ("", number), "the replay has no Request-Id of its own"),
        (first.header("Idempotency-Key") != sent, "the first answer does not repeat the Idempotency-Key"),
        (retry.header("Idempotency-Key") != sent, "the replay does not repeat the Idempotency-Key"),
    )
    for is_wrong, fault in faults:
        if is_wrong:
            return Broken(fault, (*seen.all("first"), *seen.all("retry")))
    return Holds("Request-Id, Original-Request and Idempotency-Key are there")
