"""The functions that a view has given to ``after_commit``: they are called once its work is committed, each once."""

import logging
from collections.abc import Callable

from flask import Flask

log = logging.getLogger("flask_idempotency")


def do_late(app: Flask, acts: list[Callable[[], object]]) -> None:
    """Call the functions given to ``after_commit`` when the answer is stored after its request has ended."""
    with app.app_context():
        while acts:
            try:
                do_afterwards(acts)
            except BaseException as error:  # noqa: BLE001  # the thread looks after other requests too
                log.error(
                    "a function given to after_commit raised %s, which does not end the process here; the request took"
                    " effect",
                    type(error).__name__,
                )


def do_afterwards(acts: list[Callable[[], object]]) -> None:
    """Call each once; one that fails is logged and keeps no other from running."""
    while acts:
        act = acts.pop(0)
        try:
            act()
        except Exception:
            log.exception("a function given to after_commit failed; the request took effect")
