"""Faults at every line and at every message of one request, in the same way for both guards."""

import gc
import os
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from werkzeug.test import TestResponse

from tests.apps.inside import Books, Shop, is_first, is_replay
from tests.fixtures.lines import LIVED, Lines, contents, in_child, stretches
from tests.fixtures.proxy import Moment, Proxy

IS_LONG = os.environ.get("TEST_LONG") == "1"


def sample(positions: int, every: int, salt: str = "") -> list[int]:
    """Every n-th position from one that the seed chooses, the first and the last; on a long run, all."""
    step = 1 if IS_LONG else every
    first = 1 + random.Random(os.environ.get("TEST_SEED", "0") + salt).randrange(step)
    return sorted({1, *range(first, positions + 1, step), positions})


class Trial:
    """A database, an app that is only ever used in forked children, and another that retries after them."""

    def __init__(self, view: str, books: Books[Any], mortal: Shop, survivor: Shop) -> None:
        self.view, self.books, self._mortal, self._survivor = view, books, mortal, survivor
        for number, shop in enumerate([mortal, survivor]):
            assert is_first(shop.order(f"warm-{number}"))  # what is loaded once is loaded here: children inherit it
            shop.close()
        code, seen = in_child(self._trace)
        assert code == LIVED, seen
        self.seen: list[tuple[str, int]] = [(path, line) for path, line in seen]  # in order, repetitions included

    def _trace(self) -> list[tuple[str, int]]:
        with Lines(self.view) as lines:
            answer = self._mortal.order("traced")
        assert is_first(answer), answer.data
        return lines.seen

    def stretches(self, folder: Path) -> list[range]:
        """Join the lines between which no byte of any file in the folder changes: a death leaves nothing but files."""
        return stretches(self.view, lambda: self._mortal.order("watched"), lambda: contents(folder))

    def at_each(self, positions: Iterable[int], check: Callable[..., Any], *details: Any) -> list[Any]:
        """Do something at one position after the other; give what each brought."""
        return [self._named(position, check, *details) for position in positions]

    def _named(self, position: int, check: Callable[..., Any], *details: Any) -> Any:
        try:
            return check(position, *details)
        except AssertionError as error:
            path, line = self.seen[position - 1]
            error.add_note(f"at position {position} of {len(self.seen)}: {path}:{line}")
            raise

    def raise_in_child(
        self, key: str, position: int, error: type[BaseException], look: Callable[[], list[Any]]
    ) -> list[Any]:
        """Raise at a line in a forked copy, look at what is left, and retry in the same copy.

        Gives the status that was answered, what the look saw, the retry's status, and whether that was a replay.
        """

        def fail() -> None:
            raise error

        def act() -> list[Any]:
            answered = None
            try:
                with Lines(self.view, position, fail) as lines:
                    answered = self._mortal.order(key).status_code
            except error:
                pass
            assert len(lines.seen) >= position
            gc.collect()  # a traceback may hold the connection; in a server the next requests make it go away
            seen, again = look(), self._mortal.order(key)
            return [answered, *seen, again.status_code, is_replay(again)]

        code, told = in_child(act)
        assert code == LIVED, told
        assert isinstance(told, list)
        return told


@contextmanager
def untraced() -> Iterator[None]:
    """Fork cheaply, and leave whatever traces this process to itself."""
    before = sys.gettrace()
    gc.freeze()  # or each child would copy the memory that its first collection walks through
    gc.disable()  # what a collection lets go of may run lines of ours: another time, at another position
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
        sys.settrace(before)


class Wire:
    """One shop behind the proxy. Before each request that is cut, its connections are made anew and used once."""

    def __init__(self, shop: Shop, proxy: Proxy, books: Books[Any], let_pass: Callable[[str], object] = lambda _: None):
        self.shop, self.proxy, self.books, self._let_pass = shop, proxy, books, let_pass

    def warm_up(self, key: str) -> None:
        """Begin as any other request does: on connections that are open, and nothing prepared on them."""
        self.proxy.pass_through()
        self.shop.close()
        assert is_first(self.shop.order(f"warm-{key}"))

    def messages(self) -> list[bytes]:
        """What one request sends."""
        self.warm_up("count")
        messages = self.proxy.listen()
        assert is_first(self.shop.order("count"))
        return messages

    def cut(self, number: int, moment: Moment, one: object, check_left: Callable[[Any], None]) -> list[TestResponse]:
        """Cut there, check what is left, and retry as a client would, until there is *one*; give every answer."""
        key = f"{moment}-{number}"
        self.warm_up(key)
        happened = self.proxy.cut_at(number, moment)

        first = self.shop.order(key)
        left = self.books.of(key)
        answers = [first, *self.shop.order_until_definitive(key, let_pass=self._let_pass), self.shop.order(key)]

        assert happened.wait(5), "the request ended before it could be cut"
        # A claim that is asked for again may meet the locks of its own lost connection: 409.
        assert first.status_code in (201, 409, 503), first.data
        assert left == one or first.status_code != 201
        check_left(left)
        assert self.books.of(key) == one
        definitive = [answer for answer in answers if answer.status_code == 201]
        assert len({answer.data for answer in definitive}) == 1
        assert sum(map(is_first, definitive)) <= 1
        assert is_replay(answers[-1])
        return answers

    def cut_at_each(
        self, messages: list[bytes], numbers: Iterable[int], moment: Moment, one: object, check: Callable[[Any], None]
    ) -> list[int]:
        """Cut at one message after the other; give the status of each first answer."""
        statuses = []
        for number in numbers:
            try:
                statuses.append(self.cut(number, moment, one, check)[0].status_code)
            except AssertionError as error:
                error.add_note(f"cut {moment} message {number} of {b''.join(messages)!r}")
                raise
        return statuses
