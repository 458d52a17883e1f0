"""What a person decides about records: their answer, the next attempt, the end of a lease, and what is forgotten."""

import getpass
import json
import logging
from collections.abc import Collection
from typing import IO

import click

from flask_idempotency import settling
from flask_idempotency.cli.finding import find, names_one, prepared_store, read_scope, read_wanted
from flask_idempotency.cli.group import commands
from flask_idempotency.core.lifecycle import State
from flask_idempotency.core.record import Record
from flask_idempotency.core.snapshot import Snapshot
from flask_idempotency.errors import StoreUnavailable
from flask_idempotency.legible import ago
from flask_idempotency.settling import Wanted, is_in_doubt, make_answer, sent_effects
from flask_idempotency.state import current_state

MOST_REPORTED = 1_000  # records of a caller that are still running or quarantined

log = logging.getLogger("flask_idempotency")

_by = click.option("--by", default=getpass.getuser, show_default="you", help="Your name; it is stored in the record.")


@commands.command("resolve")
@names_one
@click.option("--answer", type=click.File("rb"), help="A JSON file with the answer for retries: status, headers, body.")
@click.option("--rerun", is_flag=True, help="Let the next attempt resume where the last one stopped.")
@click.option(
    "--nothing-happened",
    "refuted",
    multiple=True,
    metavar="EFFECT",
    help="With --rerun: this effect certainly did not happen; send it again, with a new key.",
)
@_by
def resolve(wanted: Wanted, answer: IO[bytes] | None, rerun: bool, refuted: tuple[str, ...], by: str) -> None:
    """Settle the quarantined record with REFERENCE: set its answer, or let the next attempt resume it."""
    if (answer is None) == (not rerun):
        raise click.UsageError("Give either --answer FILE or --rerun.")
    if refuted and not rerun:
        raise click.UsageError("--nothing-happened needs --rerun.")
    found = [record for record in find(wanted) if record.state is State.QUARANTINED]
    if not found:
        raise click.ClickException("This record is not quarantined; there is nothing to resolve.")
    store, record = current_state().store, found[0]
    if answer is not None:
        done = settling.answer(store, record, _read_answer(answer), by)
    else:
        _check_refuted(record, refuted)
        done = settling.reopen(store, record, by, refuted)
    if not done:
        raise click.ClickException("Somebody else has resolved this record in the meantime.")
    click.echo(f"The next attempt {'resumes where the last one stopped' if rerun else 'gets this answer'}.")


@commands.command("release")
@names_one
@_by
def release(wanted: Wanted, by: str) -> None:
    """End the lease of the running record with REFERENCE, whoever holds it, so that the next attempt resumes at once.

    Its checkpoints stay. Whoever held it has lost its claim: if it is still running, its answer is discarded.
    """
    records = find(wanted)
    running = [record for record in records if record.state is State.RUNNING]
    if not running:
        raise click.ClickException(
            f"This record is {records[0].state}, so nobody holds it; there is nothing to release."
        )
    try:
        done = settling.release(current_state().store, running[0], by)
    except StoreUnavailable:
        raise click.ClickException(
            "The record did not answer in time, perhaps because a phase of its run is being committed: try again."
        ) from None
    if not done:
        raise click.ClickException("It is no longer running: look again with show.")
    click.echo("The lease has ended: the next attempt resumes where the last one stopped.")


@commands.command("forget")
@click.argument("reference", required=False)
@click.option("--scope", help="The caller, as your scope function names it; all that it has, unless there is a --key.")
@click.option("--key", help="The key that the caller has sent.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_by
def forget(reference: str | None, scope: str | None, key: str | None, yes: bool, by: str) -> None:
    """Erase the stored answer of the record with REFERENCE, or of every record of a caller.

    The record stays until it expires: a retry gets 410 with the original status, and never runs again.
    """
    if reference is None and scope is not None and key is None:
        _forget_caller(scope, f"forgotten by {by}", yes=yes)
        return
    records = find(read_wanted(reference, scope, key), all_of_key=True)
    finished = [record for record in records if record.state is State.FINISHED]
    if not finished:
        state = records[0].state
        until = "resolve it first" if state is State.QUARANTINED else "try again when it has finished"
        raise click.ClickException(f"This record is {state} and has no answer yet: {until}.")
    if not yes:
        click.confirm("Erase this answer? Its retries get 410 from now on.", abort=True)
    for record in finished:
        settling.forget(current_state().store, record, by)
    click.echo("The answer is erased: a retry gets 410, and never runs again.")


def _forget_caller(caller: str, remark: str, *, yes: bool) -> None:
    store, scope = prepared_store(), read_scope(caller)
    if not yes:
        click.confirm(f"Erase every answer stored for {caller}? Their retries get 410 from now on.", abort=True)
    count = store.forget_scope(scope, remark)
    log.warning("resolved: %d answers of one caller were %s", count, remark)
    click.echo(f"{count} {'answer is' if count == 1 else 'answers are'} erased: their retries get 410.")
    try:
        for state, until in ((State.RUNNING, "they have finished"), (State.QUARANTINED, "they are resolved")):
            if left := len(store.browse(scope=scope, state=state, limit=MOST_REPORTED)):
                shown = f"{left} or more" if left == MOST_REPORTED else left
                click.echo(f"Left as they are: {shown} {state}; run this again when {until}.")
    except StoreUnavailable:  # the table is too large to be read for them
        click.echo("What is running or quarantined was left as it is, and could not be counted: run this again later.")


def _read_answer(file: IO[bytes]) -> Snapshot:
    """Read an answer from a file. A body that is not a string is sent as JSON."""
    try:
        given = json.load(file)
        if given.keys() - {"status", "headers", "body"}:
            raise ValueError
        return make_answer(given["status"], given.get("headers", {}), given.get("body", ""))
    except (ValueError, TypeError, KeyError, AttributeError):
        raise click.ClickException(
            'The answer must be a JSON file like {"status": 201, "headers": {"Location": "/orders/7"}, "body":'
            ' {"id": 7}}.'
        ) from None


def _check_refuted(record: Record, refuted: Collection[str]) -> None:
    """Check that the options name every effect in doubt that nothing else can settle, and no other."""
    sent = sent_effects(record)
    for name in refuted:
        if name not in sent:
            raise click.ClickException(f"{name} is not in doubt; effects in doubt: {', '.join(sent) or 'none'}.")
    doubtful = [name for name in sent if name not in refuted and is_in_doubt(record, name)]
    if doubtful:
        raise click.ClickException(
            f"{doubtful[0]} was sent {ago(sent[doubtful[0]].age)} and may have happened. Find out: if it did, use"
            f" --answer; if it certainly did not, use --rerun --nothing-happened {doubtful[0]}."
        )
