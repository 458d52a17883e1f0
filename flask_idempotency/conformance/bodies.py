"""The body that the user gives, and others made from it: the same in another spelling, another, and traps."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import parse_qsl, urlencode

ADDED: Final = "conformance"  # the name of a member that is added where none can be changed
ROUNDED: Final = (9007199254740992, 9007199254740993)  # two integers that are one double

JSON: Final = "application/json"
FORM: Final = "application/x-www-form-urlencoded"

_Path = tuple[str | int, ...]


class BadBody(ValueError):
    """A body on the command line is not what its option says."""


@dataclass(frozen=True, slots=True)
class Body:
    """A body and its media type."""

    content_type: str
    text: str

    @classmethod
    def of_json(cls, text: str, option: str = "--json") -> Self:
        """Take a JSON document as it stands. Raises BadBody."""
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadBody(f"{option} is not JSON: {error}") from None
        return cls(JSON, text)

    @property
    def encoded(self) -> bytes:
        """The bytes to send."""
        return self.text.encode()


def _leaves(value: object, path: _Path = ()) -> list[tuple[_Path, object]]:
    if isinstance(value, dict):
        return [leaf for name, each in value.items() for leaf in _leaves(each, (*path, name))]
    if isinstance(value, list):
        return [leaf for index, each in enumerate(value) for leaf in _leaves(each, (*path, index))]
    return [(path, value)]


def _replaced(value: object, path: Sequence[str | int], new: object) -> object:
    if not path:
        return new
    if isinstance(value, dict):
        return {name: _replaced(each, path[1:], new) if name == path[0] else each for name, each in value.items()}
    assert isinstance(value, list)
    return [_replaced(each, path[1:], new) if index == path[0] else each for index, each in enumerate(value)]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _changeable(document: object) -> tuple[_Path, object] | None:
    """Find the value that is changed to make another request: the first number, else the first text."""
    leaves = _leaves(document)
    numbers = [leaf for leaf in leaves if _is_number(leaf[1])]
    texts = [leaf for leaf in leaves if isinstance(leaf[1], str)]
    return next(iter(numbers or texts), None)


def other_value(body: Body) -> Body | None:
    """Change one value: a number by one, a text by a letter, or add a member. None: there is nothing to change."""
    if body.content_type == FORM:
        pairs = parse_qsl(body.text, keep_blank_values=True)
        return Body(FORM, urlencode([(pairs[0][0], pairs[0][1] + "1"), *pairs[1:]])) if pairs else None
    document = json.loads(body.text)
    found = _changeable(document)
    if found is not None:
        path, value = found
        changed = value + 1 if isinstance(value, int | float) else f"{value}x"
        return Body(JSON, json.dumps(_replaced(document, path, changed)))
    return Body(JSON, json.dumps({**document, ADDED: 1})) if isinstance(document, dict) else None


def other_spelling(body: Body) -> Body | None:
    """Write the same differently: members in reverse order, other white space. None: it has only one spelling."""
    if body.content_type == FORM:
        pairs = parse_qsl(body.text, keep_blank_values=True)
        names = list(dict.fromkeys(name for name, _ in pairs))
        spelt = [pair for name in reversed(names) for pair in pairs if pair[0] == name]
        return Body(FORM, urlencode(spelt)) if len(names) > 1 else None
    pairs = json.loads(body.text, object_pairs_hook=lambda found: dict(reversed(found)))
    return Body(JSON, json.dumps(pairs, indent=3, ensure_ascii=False))


def repeated_member(body: Body) -> Body | None:
    """Put a member twice into the object, with another value before its own. None: there is no member to repeat."""
    document = json.loads(body.text) if body.content_type == JSON else None
    other = other_value(body)
    if not isinstance(document, dict) or not document or other is None:
        return None
    changed = json.loads(other.text)
    name = next((name for name in document if document[name] != changed[name]), None)
    if name is None:
        return None
    first = f"{json.dumps(name)}: {json.dumps(changed[name])}, "
    return Body(JSON, "{" + first + body.text.strip()[1:])


def rounded_numbers(body: Body) -> tuple[tuple[Body, Body], ...]:
    """Make pairs that differ by an integer beyond a double's precision: in the body's number, and in an added one."""
    document = json.loads(body.text) if body.content_type == JSON else None
    pairs = []
    found = _changeable(document)
    if found is not None and _is_number(found[1]):
        one, two = (Body(JSON, json.dumps(_replaced(document, found[0], number))) for number in ROUNDED)
        pairs.append((one, two))
    if isinstance(document, dict):
        one, two = (Body(JSON, json.dumps({**document, ADDED: number})) for number in ROUNDED)
        pairs.append((one, two))
    return tuple(pairs)


def other_type(body: Body) -> Body | None:
    """Turn the first number into a text of the same digits. None: there is no number."""
    document = json.loads(body.text) if body.content_type == JSON else None
    found = _changeable(document)
    if found is None or not _is_number(found[1]):
        return None
    return Body(JSON, json.dumps(_replaced(document, found[0], str(found[1]))))


def padded(body: Body, size: int) -> Body | None:
    """Make a JSON body large without changing what it says: with white space. None: it is no JSON."""
    return Body(JSON, body.text + " " * size) if body.content_type == JSON else None
