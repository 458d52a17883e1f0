"""``python -m flask_idempotency.conformance URL --json '{…}'``: test a server from the outside."""

import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from flask_idempotency.conformance import effects
from flask_idempotency.conformance.effects import CannotCount, Count
from flask_idempotency.conformance.machine import to_json, to_junit
from flask_idempotency.conformance.masking import Mask
from flask_idempotency.conformance.options import PROGRAM, BadOption, Options, make_parser, read_options
from flask_idempotency.conformance.running import CannotTest, Report, plan, run, spell_keys
from flask_idempotency.conformance.sending import Sender
from flask_idempotency.conformance.table import list_promises, table
from flask_idempotency.conformance.verdicts import Broken, Holds
from flask_idempotency.conformance.wire import Wire

HOLDS, BROKEN, NOTHING_SHOWN = 0, 1, 2  # exit statuses


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the options, test, report, and give the exit status."""
    parser = make_parser()
    given = parser.parse_args(arguments)
    if given.list:
        sys.stdout.write(list_promises())
        return HOLDS
    try:
        return test(read_options(given), sys.stdout, sys.stderr)
    except (BadOption, CannotTest, CannotCount, OSError) as error:
        sys.stderr.write(f"{PROGRAM}: {error}\n")
        return NOTHING_SHOWN
    except KeyboardInterrupt:
        sys.stderr.write(f"\n{PROGRAM}: stopped\n")
        return NOTHING_SHOWN
    except Exception:  # noqa: BLE001  # a fault of this program must not look like a broken promise: Python exits with 1
        traceback.print_exc()
        return NOTHING_SHOWN


def test(options: Options, out: TextIO, progress: TextIO) -> int:
    """Test an endpoint and write the reports. Raises CannotTest, CannotCount and OSError."""
    sender = Sender(Wire(options.place, options.timeout), options.subject.pace)
    try:
        report = _run(options, sender, progress)
    finally:
        sender.stop()
    mask = Mask(options.subject.credentials, options.subject.other_headers or ())
    reports = {options.json_report: to_json, options.junit: to_junit}
    for name, write in reports.items():
        if name is not None:
            text = write(report, options.url, mask)
            out.write(text) if name == "-" else Path(name).write_text(text, "utf-8")
    if "-" not in reports:
        is_coloured = out.isatty() and "NO_COLOR" not in os.environ
        out.write(table(report, mask, is_coloured=is_coloured))
    if report.count(Broken):
        return BROKEN
    return HOLDS if report.count(Holds) else NOTHING_SHOWN


def _run(options: Options, sender: Sender, progress: TextIO) -> Report:
    count = _count_of(options)
    if count is not None:
        count()  # one that cannot count is told before anything is sent
    guesses = options.dialect is None
    made = plan(options.subject, options.promises, options.max_requests, guesses_dialect=guesses)
    progress.write(f"At most {made.requests} requests to {options.place.authority}.\n")
    subject = spell_keys(options.subject, sender)
    if subject.keys.is_quoted:
        made = plan(subject, options.promises, options.max_requests, guesses_dialect=guesses)

    def tell(number: int, total: int, name: str) -> None:
        if progress.isatty():
            progress.write(f"\r\x1b[K{number}/{total} {name}")
            progress.flush()

    try:
        return run(
            subject, options.promises, made, sender, options.dialect, count, within=options.time_limit, tell=tell
        )
    finally:
        if progress.isatty():
            progress.write("\r\x1b[K")


def _count_of(options: Options) -> Count | None:
    if options.effects_command is not None:
        return effects.of_command(options.effects_command, options.timeout, options.effects_path)
    if options.effects_place is None:
        return None
    # Credentials go to the place they are for, and to no other.
    headers = options.subject.headers if options.effects_place == options.place else ()
    return effects.of_url(
        Wire(options.effects_place, options.timeout), options.effects_target, headers, options.effects_path
    )


if __name__ == "__main__":
    sys.exit(main())
