"""One line on a terminal that says how far a long part has come; elsewhere nothing."""

import sys


def progress(what: str, done: int, total: int) -> None:
    """Say how far it is, over what was said before; at the end leave the line empty."""
    if sys.stderr.isatty():
        line = f"{what}: {done:,} of {total:,}" if done < total else ""
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
