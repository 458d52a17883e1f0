"""Counts effects, where the user says how: by asking a URL or by running a command."""

import json
import shlex
import subprocess
from collections.abc import Callable, Sequence

from flask_idempotency.conformance.exchanges import Header, NoAnswer, Request
from flask_idempotency.conformance.wire import Wire

Count = Callable[[], int]


class CannotCount(Exception):
    """The number of effects is not available; says why."""


def read_number(text: str, path: Sequence[str] = ()) -> int:
    """Read a number: a plain one, or the one at a path in JSON, where a list counts by its length."""
    try:
        value = json.loads(text)
        for name in path:
            value = value[int(name)] if isinstance(value, list) else value[name]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        where = f" at {'.'.join(path)!r}" if path else ""
        raise CannotCount(f"there is no number{where} in {text.strip()[:200]!r}: {error!r}") from None
    if isinstance(value, list):
        return len(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise CannotCount(f"{json.dumps(value)[:200]} is not a whole number; name the member with --effects-path")
    return value


def of_url(wire: Wire, target: str, headers: tuple[Header, ...], path: Sequence[str]) -> Count:
    """Count by GET."""

    def count() -> int:
        answer = wire.ask(Request("GET", target, headers))
        if isinstance(answer, NoAnswer):
            raise CannotCount(f"--effects-url gave no answer: {answer.reason}")
        if answer.status != 200:
            raise CannotCount(f"--effects-url answered with {answer.status}")
        return read_number(answer.body.decode("utf-8", "replace"), path)

    return count


def of_command(command: str, timeout: float, path: Sequence[str]) -> Count:
    """Count by running a command, without a shell, that prints the number."""
    arguments = shlex.split(command)

    def count() -> int:
        try:
            # The command is the user's own, and no shell reads it.
            run = subprocess.run(arguments, capture_output=True, text=True, timeout=timeout, check=False)  # noqa: S603 - see above
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CannotCount(f"--effects-command could not be run: {error}") from None
        if run.returncode != 0:
            raise CannotCount(f"--effects-command ended with {run.returncode}: {run.stderr.strip()[-200:]}")
        return read_number(run.stdout, path)

    return count
