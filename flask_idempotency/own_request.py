"""Work without a client: it runs in a request context of our own, and is settled as a request is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from flask import Flask, Response, request

from flask_idempotency.http import exchange
from flask_idempotency.http.capture import is_kept
from flask_idempotency.http.exchange import Attempt, Exchange
from flask_idempotency.request import abandon, conclude
from flask_idempotency.sessions.current import CURRENT, CURRENT_RUN
from flask_idempotency.state import State

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment


@contextmanager
def own_request(app: Flask, environ: "WSGIEnvironment") -> Iterator[None]:
    """Push an app context, with a session of its own, and a request context in it."""
    outer, outer_run = CURRENT.get(), CURRENT_RUN.get()
    try:
        with app.app_context(), app.request_context(environ):
            exchange.prepare(environ)
            yield
    finally:
        CURRENT_RUN.set(outer_run)
        CURRENT.set(outer)


def carry_out(app: Flask, state: State, found: Exchange, attempt: Attempt, answer: Callable[[], Response]) -> Response:
    """Run the work under its claim, and keep its *answer*.

    Whatever *answer* raises ends the claim, and is raised again. Raises ClaimLost, and whatever else ``conclude`` does.
    """
    environ = request.environ
    exchange.put(environ, found)
    try:
        attempt.begin()
        if (opening := exchange.opening_in(environ)) is not None:
            opening.note_start()
        response = answer()
        attempt.note_return()
        attempt.note_end()
        found.note_answer(response, is_kept(found.policy, response, is_views_own=found.is_views_own))
    except BaseException:
        exchange.pop(environ, state)
        abandon(app, state, found, nullcontext())
        raise
    exchange.pop(environ, state)
    conclude(app, state, found, attempt, response)
    return response
