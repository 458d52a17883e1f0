"""What a client prefers (RFC 7240), and what a duplicate of a running request gets for it: decided purely."""

import re
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Literal

InFlight = Literal["conflict", "wait", "accepted"]

_LONGEST = 500  # characters: a longer field names nothing that we could honour
_WORD = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_VALUE = rf'(?:[ \t]*+=[ \t]*+({_WORD}|"(?:[^"\\]|\\.)*+")?)?'
# A preference, and its parameters, of which ours have none; then a comma, or the end. Nothing is read in two ways.
_PREFERENCE = re.compile(rf"[ \t]*+({_WORD}){_VALUE}(?:[ \t]*+;[ \t]*+(?:{_WORD}{_VALUE})?)*+[ \t]*+(?:,|\Z)")
_SECONDS = re.compile(r'"?([0-9]{1,9})"?')


@dataclass(frozen=True, slots=True)
class Treatment:
    """What a duplicate gets whose first request is still running."""

    patience: timedelta  # how long it waits for that
    is_accepted: bool  # whether it is told then where the answer will be, or that there is a conflict
    waits_as_asked: str = ""  # the preference that was honoured for it, as ``Preference-Applied`` names it
    responds_as_asked: str = ""


def treat(mode: InFlight, limit: timedelta, preferred: str, *, has_receipts: bool) -> Treatment:
    """Lay what a client prefers over what the view does. The client waits at most as long as the app lets it."""
    return _treat(mode, limit, preferred if len(preferred) <= _LONGEST else "", has_receipts)


@lru_cache(maxsize=256)  # an app has a handful
def _treat(mode: InFlight, limit: timedelta, preferred: str, has_receipts: bool) -> Treatment:
    wishes = _read(preferred)
    seconds = _SECONDS.fullmatch(wishes.get("wait", ""))
    is_async = has_receipts and wishes.get("respond-async") == ""
    patience = limit if mode == "wait" and not is_async else timedelta(0)
    waits_as_asked = ""
    if seconds is not None and limit:
        patience = min(timedelta(seconds=int(seconds[1])), limit)
        waits_as_asked = f"wait={int(patience.total_seconds())}"
    return Treatment(patience, is_async or mode == "accepted", waits_as_asked, "respond-async" if is_async else "")


def _read(text: str) -> dict[str, str]:
    """Read a Prefer header. The first of a name counts; from what is malformed on, nothing does."""
    found: dict[str, str] = {}
    place = 0
    while place < len(text) and (preference := _PREFERENCE.match(text, place)) is not None:
        found.setdefault(preference[1].lower(), preference[2] or "")
        place = preference.end()
    return found
