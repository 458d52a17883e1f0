"""The probes: for each, the requests it sends, or why it cannot be made. Nothing here sends or judges."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from flask_idempotency.conformance import bodies
from flask_idempotency.conformance.exchanges import Request
from flask_idempotency.conformance.steps import Burst, Copy, Leave, Overlap, Persist, Script, Send, Unavailable
from flask_idempotency.conformance.subject import Subject

Probe = Callable[[Subject], Script | Unavailable]

SLOWLY: Final = 1.5  # seconds for which a slow client takes to send its body
NOT_SLOW: Final = "give a body that takes a second or more with --slow-json"
MOMENT: Final = 0.3  # seconds after which a copy meets a request that takes a second


def retry(subject: Subject) -> Script:
    """Send two actions, then the first again, twice."""
    first = subject.request("retry")
    second = subject.request("retry/second")
    return Send("first", first), Send("second", second), Send("retry", first), Send("again", first)


def _pair(name: str, change: Callable[[Request], Request]) -> Probe:
    """Send a request and the same with a change that does not matter, or does."""

    def probe(subject: Subject) -> Script:
        first = subject.request(name)
        return Send("first", first), Send("other", change(first))

    return probe


def _other_body(name: str, make: Callable[[bodies.Body], bodies.Body | None], lacking: str) -> Probe:
    """Send a request and the same with a body that is made from its own."""

    def probe(subject: Subject) -> Script | Unavailable:
        made = make(subject.body)
        if made is None:
            return Unavailable(lacking)
        return Send("first", subject.request(name)), Send("other", subject.request(name, made))

    return probe


def _with_charset(request: Request) -> Request:
    types = [value for name, value in request.headers if name == "Content-Type"]
    return request.with_header("Content-Type", f"{types[0]}; charset=utf-8")


def _with_noise(request: Request) -> Request:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    return request.with_header("traceparent", trace).with_header("User-Agent", "another-client/2")


def _with_query(request: Request) -> Request:
    joint = "&" if "?" in request.target else "?"
    return replace(request, target=f"{request.target}{joint}conformance=1")


member_order = _other_body("member-order", bodies.other_spelling, "the body has only one spelling")
header_case = _pair("header-case", lambda request: replace(request, key_header="idempotency-key"))
media_type = _pair("media-type", _with_charset)
noise = _pair("noise", _with_noise)
chunked = _pair("chunked", lambda request: replace(request, is_chunked=True))
other_query = _pair("other-query", _with_query)
safe_method = _pair("safe-method", lambda request: replace(request, method="GET", body=b""))
other_type = _other_body("other-type", bodies.other_type, "the body has no number")


def other_value(subject: Subject) -> Script | Unavailable:
    """Send another body under a used key."""
    other = subject.other_body or bodies.other_value(subject.body)
    if other is None:
        return Unavailable("no other body could be made: give one with --other-json")
    return Send("first", subject.request("other-value")), Send("other", subject.request("other-value", other))


def after_refusal(subject: Subject) -> Script | Unavailable:
    """Send another body under a used key, then the right one again."""
    other = subject.other_body or bodies.other_value(subject.body)
    if other is None:
        return Unavailable("no other body could be made: give one with --other-json")
    first = subject.request("after-refusal")
    return Send("first", first), Send("refused", subject.request("after-refusal", other)), Send("other", first)


def repeated_member(subject: Subject) -> Script | Unavailable:
    """Send an object with a member twice, then with its last value only."""
    repeated = bodies.repeated_member(subject.body)
    if repeated is None:
        return Unavailable("the body is no JSON object with members")
    return Send("first", subject.request("repeated", repeated)), Send("other", subject.request("repeated"))


def rounded(subject: Subject) -> Script | Unavailable:
    """Send two integers that are one double; in a number of the body, and in a member of its own."""
    pairs = bodies.rounded_numbers(subject.body)
    if not pairs:
        return Unavailable("the body is no JSON object")
    return tuple(
        step
        for number, (one, two) in enumerate(pairs)
        for step in (
            Send(f"one {number}", subject.request(f"rounded/{number}", one)),
            Send(f"two {number}", subject.request(f"rounded/{number}", two)),
        )
    )


def other_method(subject: Subject) -> Script:
    """Send with another method."""
    first = subject.request("other-method")
    return Send("first", first), Send("other", replace(first, method=subject.other_method))


def other_path(subject: Subject) -> Script | Unavailable:
    """Send to another path."""
    if subject.other_target is None:
        return Unavailable("name a second path that takes this body with --other-path")
    first = subject.request("other-path")
    return Send("first", first), Send("other", replace(first, target=subject.other_target))


def large(subject: Subject) -> Script | Unavailable:
    """Send a large body, twice."""
    body = bodies.padded(subject.body, subject.large)
    if body is None:
        return Unavailable("only JSON can be made large without changing what it says")
    request = subject.request("large", body)
    return Send("first", request), Send("other", request)


def burst(subject: Subject) -> Script:
    """Send copies at one instant and once more after them, several times."""
    steps: list[Burst | Persist] = []
    for number in range(subject.rounds):
        request = subject.request(f"burst/{number}")
        steps += [Burst(f"copies {number}", request, subject.copies), Persist(f"after {number}", request)]
    return tuple(steps)


def slow(subject: Subject) -> Script | Unavailable:
    """Send what takes long, copies meanwhile, one each second, and once more afterwards."""
    if subject.slow_body is None:
        return Unavailable(NOT_SLOW)
    request = subject.request("slow", subject.slow_body)
    copies = tuple(Copy("copy", request, (MOMENT + number) * subject.pace) for number in range(8))
    return Overlap("first", request, copies), Persist("after", request)


def slow_other(subject: Subject) -> Script | Unavailable:
    """Send what takes long, and another body under its key meanwhile."""
    other = None if subject.slow_body is None else bodies.other_value(subject.slow_body)
    if other is None:
        return Unavailable(NOT_SLOW)
    copy = Copy("other", subject.request("slow-other", other), MOMENT * subject.pace)
    return (Overlap("first", subject.request("slow-other", subject.slow_body), (copy,)),)


def slow_body(subject: Subject) -> Script:
    """Send a body slowly, a copy meanwhile, and once more afterwards."""
    request = subject.request("slow-body")
    slowly = SLOWLY * subject.pace
    copies = (Copy("copy", request, slowly / 3),)
    return Overlap("slow", request, copies, trickle=slowly), Persist("after", request)


def missing(subject: Subject) -> Script:
    """Send without a key, twice."""
    return Send("one", subject.request(None)), Send("two", subject.request(None))


def malformed(fault: str) -> Probe:
    """Send one malformed key, twice."""

    def probe(subject: Subject) -> Script:
        request = subject.request(None).under(*subject.keys.malformed(fault))
        return Send("one", request), Send("two", request)

    return probe


def quoted(subject: Subject) -> Script:
    """Send one key in both spellings."""
    request = subject.request(None)
    return (
        Send("first", request.under(subject.keys.text("quoted").encode())),
        Send("other", request.under(subject.keys.quoted("quoted"))),
    )


def key_case(subject: Subject) -> Script:
    """Send two keys that differ by the case of a letter."""
    request, text = subject.request(None), subject.keys.text("case")
    lower, upper = f"k-{text}".encode(), f"K-{text}".encode()
    if subject.keys.is_quoted:
        lower, upper = b'"%b"' % lower, b'"%b"' % upper
    return Send("first", request.under(lower)), Send("other", request.under(upper))


def other_caller(subject: Subject) -> Script | Unavailable:
    """Send one key as two callers."""
    first = subject.request("other-caller")
    other = subject.as_other_caller(first)
    if other is None:
        return Unavailable("give the credential of a second caller with --other-header")
    return Send("first", first), Send("other", other)


def stranger(subject: Subject) -> Script | Unavailable:
    """Retry without credentials, and try the same with a key of one's own."""
    if not subject.credentials:
        return Unavailable("give a credential with --header")
    first = subject.request("stranger")
    fresh = subject.as_stranger(subject.request("stranger/own"))
    return (
        Send("first", first),
        Send("stranger", subject.as_stranger(first)),
        Send("fresh", fresh),
        Send("allowed", subject.request("stranger/own")),
    )


def hang_up(subject: Subject) -> Script:
    """Leave without waiting for the answer, at once and a moment later, then come back."""
    steps: list[Leave | Persist | Send] = []
    for number, after in enumerate((0.0, MOMENT / 2 * subject.pace)):
        request = subject.request(f"hang-up/{number}")
        steps += [
            Leave(f"left {number}", request, after=after),
            Persist(f"back {number}", request),
            Send(f"again {number}", request),
        ]
    return tuple(steps)


def cut_body(subject: Subject) -> Script:
    """Leave in the middle of the body, then send the whole request."""
    request = subject.request("cut-body")
    return Leave("cut", request, share=0.5), Persist("whole", request)


def failing(subject: Subject) -> Script | Unavailable:
    """Send what fails, again, and under another key."""
    if subject.failing_body is None:
        return Unavailable("give a body that is answered with a 5xx with --failing-json")
    request = subject.request("failing", subject.failing_body)
    return (
        Send("failed", request),
        Send("again", request),
        Send("other", subject.request("failing/other", subject.failing_body)),
    )


PROBES: Final[dict[str, Probe]] = {
    "retry": retry,
    "header-case": header_case,
    "member-order": member_order,
    "media-type": media_type,
    "noise": noise,
    "chunked": chunked,
    "other-value": other_value,
    "after-refusal": after_refusal,
    "other-type": other_type,
    "rounded": rounded,
    "repeated-member": repeated_member,
    "large": large,
    "other-query": other_query,
    "other-path": other_path,
    "other-method": other_method,
    "safe-method": safe_method,
    "burst": burst,
    "slow": slow,
    "slow-other": slow_other,
    "slow-body": slow_body,
    "hang-up": hang_up,
    "cut-body": cut_body,
    "missing": missing,
    **{
        f"malformed {fault}": malformed(fault)
        for fault in ("empty", "control", "non-ascii", "too-long", "comma", "twice", "unbalanced")
    },
    "quoted": quoted,
    "key-case": key_case,
    "other-caller": other_caller,
    "stranger": stranger,
    "failing": failing,
}
