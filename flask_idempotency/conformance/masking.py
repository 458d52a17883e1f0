"""Takes secrets out of what is shown: the credentials of requests, wherever they turn up, and those in answers."""

import re
from collections.abc import Iterable
from typing import Final

from flask_idempotency.conformance.exchanges import Answer, Header, Request

HIDDEN: Final = "***"
SHORTEST: Final = 6  # characters of a secret that is looked for in bodies: shorter ones turn up by chance
ANSWERED: Final = frozenset(
    {
        "authentication-info",
        "proxy-authenticate",
        "proxy-authentication-info",
        "set-cookie",
        "www-authenticate",
    }
)


class Mask:
    """Hides the values of some headers, and every other appearance of them."""

    def __init__(self, secrets: Iterable[Header], others: Iterable[Header] = ()) -> None:
        self._others = frozenset(others)
        pairs = [*secrets, *self._others]
        self._names = {name.lower() for name, _ in pairs} | {"authorization", "cookie", "proxy-authorization"}
        values = {part for _, value in pairs for part in (value, *re.split(r"[\s;,]+", value), *_after_equals(value))}
        found = sorted((value for value in values if len(value) >= SHORTEST), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, found))) if found else None

    def text(self, text: str) -> str:
        """Hide secrets in a text."""
        return text if self._pattern is None else self._pattern.sub(HIDDEN, text)

    def body(self, body: bytes, most: int) -> str:
        """Show a body as text, up to so many characters, without secrets."""
        text = self.text(body.decode("utf-8", "backslashreplace")).rstrip()
        return text if len(text) <= most else f"{text[:most]}… ({len(body)} bytes)"

    def sent(self, request: Request) -> tuple[Header, ...]:
        """Give the headers of a request, its keys among them."""
        headers = tuple((name, self._sent(name, value)) for name, value in request.headers)
        keys = tuple((request.key_header, key.decode("latin-1")) for key in request.keys)
        return (*keys, *headers)

    def _sent(self, name: str, value: str) -> str:
        if (name, value) in self._others:
            return f"{HIDDEN} (the other caller's)"
        return HIDDEN if name.lower() in self._names else self.text(value)

    def received(self, answer: Answer) -> tuple[Header, ...]:
        """Give the headers of an answer: of a cookie only its name."""
        return tuple(
            (name, _hide(name, value) if name.lower() in ANSWERED else self.text(value))
            for name, value in answer.headers
        )


def _after_equals(value: str) -> list[str]:
    return [part.partition("=")[2] for part in re.split(r"[\s;,]+", value)]


def _hide(name: str, value: str) -> str:
    cookie, equals, _ = value.partition("=")
    return f"{cookie}={HIDDEN}" if name.lower().startswith("set-cookie") and equals else HIDDEN
