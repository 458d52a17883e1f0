"""The views of the console. Whoever comes here was let in."""

import logging
import os
from datetime import UTC, datetime
from typing import Any

from flask import Response, abort, current_app, g, make_response, redirect, render_template, request, url_for

from flask_idempotency import settling
from flask_idempotency.console import plots
from flask_idempotency.console.acts import ACTS, Act, BadChoice, snapshot_of
from flask_idempotency.console.entrance import Choice, operator, read, sign
from flask_idempotency.console.showing import show, show_answer, show_result, soonest_first
from flask_idempotency.console.tally import tally_of
from flask_idempotency.core.lifecycle import State
from flask_idempotency.core.record import Record
from flask_idempotency.core.reference import reference_of
from flask_idempotency.errors import ConfigError, KeyInvalid, ScopeUnknown
from flask_idempotency.legible import ago, how_long, how_much, when
from flask_idempotency.settling import NotFound
from flask_idempotency.state import current_state

MOST = 50  # records on a page: those that are finished are read with their answers
FEW = 10  # on the overview
KINDS = {
    "first": "first answers",
    "replayed": "replays",
    "refused": "refused",
    "not kept": "not kept",
    "handed over": "handed over to a job",
    "accepted": "answered with a receipt",
    "unprotected": "unprotected",
}
ALWAYS = 3  # of these are in the legend, whether or not there were any
SPANS = {"1h": ("the last hour", 60), "6h": ("the last 6 hours", 360), "24h": ("the last 24 hours", 1440)}
COLUMNS = 60
UNREACHABLE = (
    "The store cannot be reached, or has not answered in time. Try again in a moment; if you were settling a record,"
    " look at it first."
)
CHANGED = "Nothing was done: the record has changed since you opened the page. Read it again."
LISTED = {"running": State.RUNNING, "quarantined": State.QUARANTINED, "finished": State.FINISHED}

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none';"
        " frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex",
    "Referrer-Policy": "same-origin",  # with no-referrer, a browser sends Origin: null with our own forms
}

log = logging.getLogger("flask_idempotency")


def on_every_page(show_answers: bool) -> dict[str, Any]:
    """Give templates what all of them need."""
    return {
        "operator": g.get("idempotency_operator"),
        "show_answers": show_answers,
        "show_result": show_result,
        "ago": ago,
        "how_long": how_long,
        "how_much": how_much,
        "when": when,
        "app_name": current_app.name,
    }


def overview() -> Response:
    """Show what runs, what waits for a person, and what this process has seen."""
    store = current_state().ready_store()
    span = request.args.get("span", "1h") if request.args.get("span") in SPANS else "1h"
    title, minutes = SPANS[span]
    tally = tally_of(current_app)
    columns = tally.columns(minutes, COLUMNS)
    plot = plots.stack([counts for _, counts in columns], list(KINDS))
    return _page(
        "overview",
        figures=store.figures(),
        quarantined=[show(each) for each in store.browse(state=State.QUARANTINED, limit=FEW + 1)],
        running=[show(each) for each in store.browse(state=State.RUNNING, limit=FEW + 1)],
        few=FEW,
        tally=tally,
        spans=SPANS,
        span=span,
        span_title=title,
        minutes=minutes // COLUMNS,
        plot=plot,
        axis=[_at(columns[each][0]) for each in (0, COLUMNS // 2, -1)],
        legend=[
            (kind, plot.totals[kind], name)
            for number, (kind, name) in enumerate(KINDS.items())
            if plot.totals[kind] or number < ALWAYS
        ],
        since=_at(tally.since),
        pid=os.getpid(),
    )


def records() -> Response:
    """List the records in one state."""
    wanted = request.args.get("state", "")
    state = LISTED.get(wanted) or abort(404)
    found = [show(each) for each in current_state().ready_store().browse(state=state, limit=MOST)]
    by_expiry = state is State.FINISHED and request.args.get("order") == "expiry"
    return _page(
        "records",
        state=wanted,
        records=soonest_first(found) if by_expiry else found,
        by_expiry=by_expiry,
        is_cut=len(found) == MOST,
        most=MOST,
    )


def look_up() -> Response:
    """Find a record by its reference, as it is read over the phone."""
    said = request.args.get("reference", "").strip()
    if not said:
        return _page("search")
    try:
        return _to(_find(said))
    except (ValueError, NotFound) as error:
        return _page("search", 404, said=said[:60], trouble=str(error))


def look_up_key() -> Response:
    """Find a record by its caller and key, which are never repeated: not in an address, a log or a page."""
    scope, key = request.form.get("scope", "").strip(), request.form.get("key", "")
    try:
        return _to(settling.by_key(scope, key).find(current_state().ready_store())[0])
    except NotFound as error:
        return _page("search", 404, key_trouble=str(error))
    except (ScopeUnknown, KeyInvalid) as error:
        return _page("search", 404, key_trouble=str(error.description))


def record(reference: str) -> Response:
    """Show a record, its history, and what can be done with it."""
    try:
        found = _find(reference)
    except (ValueError, NotFound) as error:
        return _page("search", 404, said=reference[:60], trouble=str(error))
    act = ACTS.get(request.args.get("done", ""))
    is_true = act is not None and f"{act.past} by {operator()} on " in (found.reason or "")  # anybody can make a link
    return _record(found, notice=act.done if act and is_true else None)


def settle(reference: str, act: str) -> Response:
    """Ask what there is to ask, or say at once what will happen."""
    chosen, found = _chosen(reference, act)
    if not chosen.is_open_to(found):
        return _changed(found)
    if chosen.asks(found):
        return _ask(found, act)
    return _confirm(found, Choice(act))


def carry_out(reference: str, act: str) -> Response:
    """Say what will happen; or, with the token of the page that has said so, do it."""
    chosen, found = _chosen(reference, act)
    token = request.form.get("token")
    if token is None:
        if not chosen.is_open_to(found):
            return _changed(found)
        try:
            return _confirm(found, chosen.choose(found, request.form))
        except BadChoice as error:
            return _ask(found, act, str(error))
    choice = read(token, found)
    if choice is None or choice.act != act or not chosen.is_open_to(found):
        return _changed(found)
    if not chosen.carry_out(current_state().ready_store(), found, choice, operator()):
        return _changed(_find(reference))
    return _to(found, done=act)


def trouble(error: Exception) -> Response:
    """Say why there is nothing to be seen, to an operator: the store is down, or something is set up wrongly."""
    cause = error.__cause__ if isinstance(error.__cause__, ConfigError) else error
    if isinstance(cause, ConfigError):
        log.error("%s", cause)
        return _page("trouble", 500, text=str(cause))
    return _page("trouble", 503, text=UNREACHABLE)


def _chosen(reference: str, act: str) -> tuple[Act, Record]:
    chosen = ACTS.get(act) or abort(404)
    try:
        return chosen, _find(reference)
    except (ValueError, NotFound) as error:
        abort(404, str(error))


def _find(reference: str) -> Record:
    """Give the newest record with a reference. Raises ValueError if it is none, NotFound if there is no record."""
    return settling.by_reference(reference).find(current_state().ready_store())[0]


def _record(found: Record, status: int = 200, **said: Any) -> Response:
    return _page(
        "record",
        status,
        one=show(found),
        steps=settling.steps_of(found),
        acts=[act for act in ACTS.values() if act.is_open_to(found)],
        **said,
    )


def _changed(found: Record) -> Response:
    """Say that it was too late: somebody or something else has settled the record, or it has run again."""
    return _record(found, 409, warning=CHANGED)


def _ask(found: Record, act: str, trouble: str | None = None) -> Response:
    return _page(
        "ask",
        422 if trouble else 200,
        one=show(found),
        act=ACTS[act],
        sent=settling.sent_effects(found).values(),
        trouble=trouble,
        form=request.form,
    )


def _confirm(found: Record, choice: Choice) -> Response:
    act = ACTS[choice.act]
    return _page(
        "confirm",
        one=show(found),
        act=act,
        promise=act.promise(found, choice),
        answer=show_answer(snapshot_of(choice)) if choice.status else None,
        token=sign(found, choice),
    )


def _to(found: Record, done: str | None = None) -> Response:
    return make_response(redirect(url_for(".record", reference=reference_of(found.asked.id), done=done), 303))


def _page(name: str, status: int = 200, **shown: Any) -> Response:
    page = render_template(f"flask_idempotency/console/{name}.html", page=name, **shown)
    return make_response(page, status, HEADERS)


def _at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
