"""``python -m flask_idempotency.client outbox list FILE``: look after the actions that were left to a person."""

import argparse
import json
import sys
from collections.abc import Sequence
from urllib.parse import urlsplit

from flask_idempotency.client.errors import OutboxError
from flask_idempotency.client.outbox import Outbox
from flask_idempotency.client.outbox_file import StoredAction

PROGRAM = "python -m flask_idempotency.client"


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says, and give the exit status."""
    given = _parser().parse_args(arguments)
    try:
        outbox = Outbox(given.file, create=False)
        if given.verb == "list":
            sys.stdout.write(_listed(outbox, everything=given.all, as_json=given.json))
            return 0
        for number in given.action:
            if given.verb == "retry":
                outbox.retry(number, anyway=given.anyway)
            else:
                outbox.drop(number)
        return 0
    except OutboxError as error:
        sys.stderr.write(f"{PROGRAM}: {error}\n")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Tools of the client.")
    outbox = parser.add_subparsers(required=True).add_parser("outbox", help="look after an outbox")
    verbs = outbox.add_subparsers(dest="verb", required=True)
    listing = verbs.add_parser("list", help="show what waits and what was given up")
    listing.add_argument("--all", action="store_true", help="also what is done")
    listing.add_argument("--json", action="store_true", help="one JSON object for each action")
    retrying = verbs.add_parser("retry", help="send actions that were given up again, with their keys")
    retrying.add_argument("--anyway", action="store_true", help="even if the server may have forgotten the key")
    dropping = verbs.add_parser("drop", help="remove actions that are not done")
    for verb in (listing, retrying, dropping):
        verb.add_argument("file", help="the outbox")
    for verb in (retrying, dropping):
        verb.add_argument("action", type=int, nargs="+", help="its number, as list shows it")
    return parser


def _listed(outbox: Outbox, *, everything: bool, as_json: bool) -> str:
    """Give a line for each action. Neither bodies nor queries are shown: they may be private."""
    actions = [action for action in outbox.browse() if everything or action.state != "done"]
    if as_json:
        return "".join(f"{json.dumps(_members(action))}\n" for action in actions)
    lines = [
        f"{action.id:>6}  {action.state:<8}  {action.subject or '-'}  {action.method} {_address(action)}  "
        f"{action.attempts} attempts  {action.reference or ''}  {action.reason}".rstrip()
        for action in actions
    ]
    progress = outbox.progress()
    lines.append(f"{progress.waiting} waiting, {progress.given_up} given up, {progress.done} done")
    return "".join(f"{line}\n" for line in lines)


def _members(action: StoredAction) -> dict[str, object]:
    names = ("id", "state", "subject", "method", "attempts", "stored_at", "sent_at", "status", "reference", "reason")
    return {**{name: getattr(action, name) for name in names}, "url": _address(action)}


def _address(action: StoredAction) -> str:
    parts = urlsplit(action.url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


if __name__ == "__main__":
    sys.exit(main())
