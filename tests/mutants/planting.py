"""How a bug is planted: only where something is, so that no mutant fades away when the extension changes."""

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from flask_idempotency.stores import database

Loader = Callable[[str, str, str], str]


class NothingThere(Exception):
    """The place in which a bug was to be planted is gone; says which."""


class Bed:
    """The extension as this process has loaded it, and what was planted in it; all of it can be taken out again."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, object]] = []

    def replace(self, owner: Any, name: str, bug: object) -> Any:
        """Put *bug* in the place of what a module or class itself calls *name*; give what was there."""
        if name not in vars(owner):
            raise NothingThere(f"{owner.__name__} has no {name} any more: plant this bug where its work is done now.")
        before = vars(owner)[name]
        self._before.append((owner, name, before))
        setattr(owner, name, bug)
        return before

    def reword(self, technology: str, verb: str, said: str, says: str) -> None:
        """Have a statement say something else, in the words of its file."""
        load: Loader = vars(database)["load_statement"]
        if said not in load(technology, verb, ":NAME"):
            raise NothingThere(
                f"{technology}/{verb}.sql does not say {said!r} any more: plant this bug in its new words."
            )

        @cache
        def reworded(asked: str, for_verb: str, mark: str) -> str:
            text = load(asked, for_verb, mark)
            if (asked, for_verb) != (technology, verb):
                return text
            return text.replace(marked(said, mark), marked(says, mark))

        self.replace(database, "load_statement", reworded)

    def clear(self) -> None:
        """Take everything out again, the last first."""
        while self._before:
            setattr(*self._before.pop())

    def __len__(self) -> int:
        return len(self._before)


def marked(text: str, mark: str) -> str:
    """Write the parameters of a statement as its driver does."""
    return re.sub(r"(?<!:):([a-z]+)\b", lambda found: mark.replace("NAME", found[1]), text)
