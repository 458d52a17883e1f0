"""Names the place in the app's code that has led to a statement or a commit."""

import sys
from functools import lru_cache

_PASSED_OVER = ("sqlalchemy", "flask_sqlalchemy", "flask_idempotency", "contextlib")


def calling_place() -> str:
    """Name the nearest caller that is the app's own code."""
    frame = sys._getframe(1)
    while is_passed_over(module := frame.f_globals.get("__name__", "?")) and frame.f_back is not None:
        frame = frame.f_back
    return f"{module}, line {frame.f_lineno}, in {frame.f_code.co_name}"


@lru_cache(maxsize=512)  # behind a commit there are some twenty frames, mostly of the same few modules
def is_passed_over(module: str) -> bool:
    """Say whether a module is ours or SQLAlchemy's, and not the app's."""
    return module.partition(".")[0] in _PASSED_OVER
