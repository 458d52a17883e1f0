"""The promises, in the order in which they are shown: a name, a sentence, the probe and the judgement of each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from flask_idempotency.conformance import judging_others as others
from flask_idempotency.conformance import judging_races as races
from flask_idempotency.conformance import judging_retries as retries
from flask_idempotency.conformance.exchanges import Seen
from flask_idempotency.conformance.verdicts import Bench, Broken, NotShown, Verdict

Judge = Callable[[Seen, Bench], Verdict]

MALFORMED: Final = {
    "empty": "An empty key",
    "control": "A key with a control character",
    "non-ascii": "A key with a character that is not ASCII",
    "too-long": "A key of 256 characters",
    "comma": "A key with a comma",
    "twice": "A request with two keys",
    "unbalanced": "A key with an open quote",
}
REPLAYS: Final = ("retry-runs-once", "retry-status")
COMPARES: Final = (*REPLAYS, "other-value")


@dataclass(frozen=True, slots=True)
class Promise:
    """A promise. Where one that it follows from is broken, it cannot be judged by itself."""

    id: str
    group: str
    sentence: str
    judge: Judge
    probes: tuple[str, ...]
    follows: tuple[str, ...] = ()
    only_in: str | None = None  # the one dialect that makes it


def _promises(group: str, *rows: tuple[str, str, Judge, str | tuple[str, ...], tuple[str, ...]]) -> list[Promise]:
    return [
        Promise(name, group, sentence, judge, (probes,) if isinstance(probes, str) else probes, follows)
        for name, sentence, judge, probes, follows in rows
    ]


PROMISES: Final[tuple[Promise, ...]] = (
    *_promises(
        "A retry",
        ("retry-runs-once", "A retry does not run again.", retries.runs_once, "retry", ()),
        ("retry-status", "A retry gets the first answer's status.", retries.same_status, "retry", REPLAYS[:1]),
        ("retry-body", "A retry gets the first answer's body, byte for byte.", retries.same_body, "retry", REPLAYS),
        (
            "retry-headers",
            "A retry gets the headers that belong to the content, such as Location and ETag.",
            retries.same_headers,
            "retry",
            REPLAYS,
        ),
        (
            "retry-marked",
            "Replays, and nothing else, say Idempotent-Replayed: true.",
            retries.marked,
            "retry",
            REPLAYS,
        ),
        ("retry-cookies", "A replay does not set the first answer's cookies.", retries.no_cookies, "retry", REPLAYS),
    ),
    Promise(
        "stripe-headers",
        "A retry",
        "Answers have Request-Id, Original-Request and the key.",
        others.stripe_headers,
        ("retry",),
        REPLAYS,
        only_in="stripe",
    ),
    *_promises(
        "The same request",
        ("header-case", "The header's name may be in lower case.", retries.same_request, "header-case", REPLAYS),
        (
            "member-order",
            "The same members or fields in another order are the same request.",
            retries.same_request,
            "member-order",
            REPLAYS,
        ),
        (
            "media-type",
            "The default charset beside the media type changes nothing.",
            retries.same_request,
            "media-type",
            REPLAYS,
        ),
        ("other-headers", "A new trace id or user agent changes nothing.", retries.same_request, "noise", REPLAYS),
        ("chunked", "A body in chunks is the same as one with a length.", retries.chunked, "chunked", REPLAYS),
        ("large-body", "A large body is protected, or refused.", retries.large, "large", REPLAYS),
    ),
    *_promises(
        "Another request under a used key",
        ("other-value", "Another body is refused and does not run.", others.other_value, "other-value", REPLAYS),
        ("other-type", "A number and a text of its digits differ.", others.other_type, "other-type", COMPARES),
        ("big-integers", "Integers beyond a double's precision differ.", others.rounded, "rounded", COMPARES),
        (
            "repeated-members",
            "An object with a repeated member is not the same as one without.",
            others.repeated_member,
            "repeated-member",
            COMPARES,
        ),
        ("other-query", "Another query is another request.", others.other_query, "other-query", REPLAYS),
        ("other-path", "Another path is another request.", others.other_path, "other-path", REPLAYS),
        ("other-method", "Another method is another request.", others.other_method, "other-method", REPLAYS),
        ("safe-method", "GET does not get the answer of a write.", others.safe_method, "safe-method", REPLAYS),
        (
            "refusal-harmless",
            "After a refusal, the right request gets its answer as before.",
            others.after_refusal,
            "after-refusal",
            COMPARES,
        ),
    ),
    *_promises(
        "Several at once",
        ("burst-runs-once", "Of copies sent at once, one runs.", races.burst_runs_once, "burst", REPLAYS),
        (
            "burst-answers",
            "Of copies sent at once, the others get its answer or are told that it is running.",
            races.burst_answers,
            "burst",
            (*REPLAYS, "burst-runs-once"),
        ),
        (
            "burst-settles",
            "After copies were sent at once, a retry gets the answer.",
            races.burst_settles,
            "burst",
            (*REPLAYS, "burst-runs-once"),
        ),
        (
            "slow-runs-once",
            "However long a request takes, its copies do not run.",
            races.slow_runs_once,
            "slow",
            (*REPLAYS, "burst-runs-once"),
        ),
        (
            "slow-answers",
            "Copies of a running request are told so, or wait.",
            races.slow_answers,
            "slow",
            (*REPLAYS, "burst-runs-once", "burst-answers", "slow-runs-once"),
        ),
        (
            "slow-other-value",
            "Another body is refused as such, also while the first is running.",
            races.slow_other,
            "slow-other",
            COMPARES,
        ),
    ),
    *_promises(
        "Clients that fail",
        (
            "hang-up-runs-once",
            "A request whose client leaves and comes back takes effect once.",
            races.hang_up_runs_once,
            "hang-up",
            (*REPLAYS, "burst-runs-once"),
        ),
        (
            "hang-up-settles",
            "A client that leaves and comes back gets the answer.",
            races.hang_up_settles,
            "hang-up",
            (*REPLAYS, "burst-answers", "burst-settles"),
        ),
        (
            "slow-body",
            "Of a request that arrives slowly and its copy, one runs.",
            races.slow_body,
            "slow-body",
            (*REPLAYS, "burst-runs-once"),
        ),
        ("cut-body", "Half a body leaves nothing behind.", races.cut_body, "cut-body", REPLAYS),
        (
            "server-error",
            "A 5xx is not kept, and does not block the key; in the dialect stripe, it is replayed.",
            retries.server_error,
            "failing",
            REPLAYS[:1],
        ),
    ),
    *_promises(
        "The key",
        ("key-missing", "Without a key, a request is refused or runs each time.", others.missing, "missing", ()),
        *(
            (
                f"key-{fault}",
                f"{what} is refused.",
                others.malformed_unless_opaque if fault == "unbalanced" else others.malformed,
                f"malformed {fault}",
                REPLAYS[:1],
            )
            for fault, what in MALFORMED.items()
        ),
        (
            "key-quoted",
            "A key with and without quotes is one key; in the dialect stripe, two.",
            others.quoted,
            "quoted",
            REPLAYS,
        ),
        ("key-case", "Keys that differ by case are two keys.", others.distinct_keys, "key-case", REPLAYS),
    ),
    *_promises(
        "Callers",
        (
            "other-caller",
            "Another caller's same key is a key of its own.",
            others.other_caller,
            "other-caller",
            REPLAYS,
        ),
        (
            "authorised-replay",
            "A retry without credentials does not get the answer.",
            others.stranger,
            "stranger",
            REPLAYS,
        ),
        (
            "unauthorised",
            "A request without credentials does not use its key up.",
            others.unauthorised_claims_nothing,
            "stranger",
            (),
        ),
    ),
    *_promises(
        "Refusals",
        (
            "refusal-status",
            "Refusals have the statuses that clients go by: 400, 409 and 422; in the dialect stripe, 400 and 409.",
            others.right_status,
            ("missing", *(f"malformed {fault}" for fault in MALFORMED), "other-value", "burst", "slow"),
            (),
        ),
        (
            "explained",
            "A refusal is a problem document that leads to documentation; in the dialect stripe, its error object.",
            others.explained,
            ("missing", "malformed comma", "other-value", "burst", "slow"),
            (),
        ),
    ),
)


def of_dialect(name: str) -> tuple[Promise, ...]:
    """Give the promises that a dialect makes."""
    return tuple(promise for promise in PROMISES if promise.only_in in (None, name))


def judge_all(
    chosen: tuple[Promise, ...], seen: Mapping[str, Seen | NotShown], bench: Bench
) -> list[tuple[Promise, Verdict]]:
    """Judge promises by what their probes saw, or why those were not made."""
    verdicts: dict[str, Verdict] = {}
    for promise in chosen:
        verdicts[promise.id] = _judge(promise, seen, bench, verdicts)
    return [(promise, verdicts[promise.id]) for promise in chosen]


def _judge(
    promise: Promise, seen: Mapping[str, Seen | NotShown], bench: Bench, known: Mapping[str, Verdict]
) -> Verdict:
    for name in promise.follows:
        if isinstance(known.get(name), Broken):
            return NotShown(f"it depends on {name}, which is broken")
    found = [seen[name] for name in promise.probes]
    if len(found) == 1:
        (only,) = found
        return only if isinstance(only, NotShown) else promise.judge(only, bench)
    exchanges = [
        replace(exchange, label=f"{name}/{exchange.label}")
        for name, each in zip(promise.probes, found, strict=True)
        if isinstance(each, Seen)
        for exchange in each.exchanges
    ]
    return promise.judge(Seen(tuple(exchanges)), bench)
