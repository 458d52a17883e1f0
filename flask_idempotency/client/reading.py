"""What a server says about retrying, in headers and documents. Pure; what is not well-formed counts as not said."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Final

LONGEST_RETRY_AFTER: Final = 3600.0  # seconds: a server that asks for more is asked once an hour
MOST_READ: Final = 64 * 1024  # bytes of a document; refusals have less than a kilobyte
_REFERENCE: Final = re.compile(r"[0-9A-HJKMNP-TV-Z]{4}(-[0-9A-HJKMNP-TV-Z]{4}){2}")
_CODE: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_SECONDS: Final = re.compile(r"[0-9]{1,12}")
_IN_FLIGHT: Final = {"request-in-flight", "idempotency_key_in_use"}
_NEEDS_PERSON: Final = {"quarantined", "idempotency_quarantined"}


@dataclass(frozen=True, slots=True)
class Reply:
    """What an answer says about its action. None: the server did not say."""

    status: int
    retryable: bool | None = None
    safe_new_key: bool | None = None
    code: str | None = None
    detail: str = ""
    retry_after: float | None = None  # seconds
    reference: str | None = None
    is_replay: bool = False
    is_in_flight: bool = False  # the first request is still running
    is_refusal: bool = False  # about the key, and not the server's answer to the action
    receipt: str | None = None  # where to look, as the server wrote it


def read_reply(status: int, headers: Iterable[tuple[str, str]], body: bytes, now: float) -> Reply:
    """Read an answer. *now* is the time in seconds since 1970, for a server that does not say what time it is there."""
    given = {name.lower(): value.strip() for name, value in reversed(list(headers))}  # of two, the first counts
    reference = given.get("idempotency-reference", "")
    retry_after = read_retry_after(given.get("retry-after"), given.get("date"), now)
    told: dict[str, Any] = {
        "status": status,
        "reference": reference if _REFERENCE.fullmatch(reference) else None,
        "retry_after": retry_after,
        "is_replay": given.get("idempotent-replayed", "").lower() == "true",
    }
    document = _document(given.get("content-type", ""), body) if status == 202 or status >= 400 else {}
    if status == 202:
        return Reply(**told, receipt=_receipt(given.get("location"), document))
    if status < 400 or told["is_replay"]:
        return Reply(**told)  # a stored answer is an answer, whatever it says
    should_retry = {"true": True, "false": False}.get(given.get("stripe-should-retry", "").lower())
    told |= _problem(status, given.get("content-type", ""), document) or _stripe_error(document)
    if should_retry is not None:
        told["retryable"] = should_retry
    return Reply(**told)


def read_retry_after(value: str | None, date: str | None, now: float) -> float | None:
    """Give the seconds to wait, at most an hour; None for nonsense. A date is compared with the server's own clock."""
    if value is None:
        return None
    if _SECONDS.fullmatch(value):
        return min(float(value), LONGEST_RETRY_AFTER)
    until = _moment(value)
    if until is None:
        return None
    here = _moment(date or "")
    return min(max(0.0, until - (now if here is None else here)), LONGEST_RETRY_AFTER)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a receipt says: whether an attempt is running, and where the answer is if there is one."""

    is_running: bool = False
    answer: str | None = None
    retry_after: float | None = None


def read_receipt(status: int, headers: Iterable[tuple[str, str]], body: bytes, now: float) -> Receipt:
    """Read a receipt; an empty one if this is none: then only the request itself can tell."""
    given = {name.lower(): value.strip() for name, value in reversed(list(headers))}
    document = _document(given.get("content-type", ""), body) if status == 200 else {}
    match document:
        case {"state": "finished", "answer": str(answer)}:
            return Receipt(answer=answer)
        case {"state": "running"} if "retry-after" in given:  # without it, no attempt is running
            return Receipt(True, None, read_retry_after(given["retry-after"], given.get("date"), now))
    return Receipt()


def _moment(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _document(content_type: str, body: bytes) -> dict[str, Any]:
    """Give a JSON object, or an empty one."""
    media_type = content_type.partition(";")[0].strip().lower()
    if len(body) > MOST_READ or not (media_type == "application/json" or media_type.endswith("+json")):
        return {}
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _receipt(location: str | None, document: dict[str, Any]) -> str | None:
    """Give the receipt of a 202 that says so; another 202 is an answer of the app's own."""
    if document.get("state") != "running" or not isinstance(document.get("reference"), str):
        return None
    named = document.get("receipt")
    return location or (named if isinstance(named, str) else None)


def _problem(status: int, content_type: str, document: dict[str, Any]) -> dict[str, Any]:
    """Read a problem document (RFC 9457); nothing if it is about another status, or is none."""
    if not content_type.lower().startswith("application/problem+json") or document.get("status", status) != status:
        return {}
    code, detail = document.get("code"), document.get("detail")
    told: dict[str, Any] = {"detail": _sentence(detail)}
    for name in ("retryable", "safe_new_key"):
        if isinstance(document.get(name), bool):
            told[name] = document[name]
    if isinstance(code, str) and _CODE.fullmatch(code):
        told["code"] = code
        told["is_refusal"] = "retryable" in told and "safe_new_key" in told
        told["is_in_flight"] = code in _IN_FLIGHT
    reference = document.get("reference")
    if isinstance(reference, str) and _REFERENCE.fullmatch(reference):
        told["reference"] = reference
    if status == 409 and "retryable" not in told and "code" not in told:
        # Another server's: the draft has a 409 for this and no other purpose, but apps have conflicts of their own.
        words = f"{document.get('type')} {document.get('title')} {detail}".lower()
        told["is_in_flight"] = told["is_refusal"] = "idempoten" in words
    if told.get("code") in _NEEDS_PERSON:
        told["retryable"] = False
    return told


def _stripe_error(document: dict[str, Any]) -> dict[str, Any]:
    """Read the envelope of Stripe's API."""
    error = document.get("error")
    if not isinstance(error, dict):
        return {}
    code, kind = error.get("code"), error.get("type")
    code = code if isinstance(code, str) and _CODE.fullmatch(code) else None
    is_about_key = kind == "idempotency_error" or (code or "").startswith("idempotency_")
    told: dict[str, Any] = {"detail": _sentence(error.get("message")), "code": code, "is_refusal": is_about_key}
    if kind == "idempotency_error" or code in _NEEDS_PERSON:
        told["retryable"] = False
    told["is_in_flight"] = code in _IN_FLIGHT
    return told


def _sentence(text: object) -> str:
    """Give a server's words for people: one printable line, and not a long one."""
    if not isinstance(text, str):
        return ""
    return "".join(character if character.isprintable() else " " for character in text[:300]).strip()
