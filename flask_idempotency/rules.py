"""The rules of an API, as it must publish them: for people as a page, for programs as JSON, with an anchor per refusal.

Where the blueprint is registered, refusals link to it instead of to the documentation of this package.
"""

from typing import Any, cast

from flask import Blueprint, Flask, Response, jsonify, make_response, render_template, request
from flask.blueprints import BlueprintSetupState

from flask_idempotency import scopes
from flask_idempotency.errors import RequestRefused
from flask_idempotency.http.rules_links import note_rules
from flask_idempotency.publishing import describe
from flask_idempotency.state import State, current_state

__all__ = ["blueprint"]

HTML, JSON = "text/html", "application/json"
CALLERS = {
    scopes.credential: "A caller is whoever sends the same Authorization header.",
    scopes.flask_login: "A caller is the user who is signed in.",
    scopes.remote_addr: "A caller is an IP address.",
    scopes.everyone: "All callers share their keys.",
}


def blueprint(
    name: str = "idempotency_rules", *, url_prefix: str = "/idempotency", callers: str | None = None
) -> Blueprint:
    """Make a blueprint that serves the app's rules at *url_prefix*, as HTML or, to whoever accepts that, as JSON.

    *callers* is a sentence that tells people who shares keys, such as ``"A caller is an account."``; the ready-made
    scopes have one. The page is the template ``flask_idempotency/rules.html``, which an app can replace by its own.
    """
    rules = Blueprint(name, __name__, url_prefix=url_prefix, template_folder="templates")

    def note(setup: BlueprintSetupState) -> None:
        note_rules(cast(Flask, setup.app), f"{setup.name_prefix}.{setup.name}.show".lstrip("."))

    def show() -> Response:
        state = current_state()
        found = {**describe(state), "callers": callers or _callers(state), "refusals": _refusals(state)}
        if request.accept_mimetypes.best_match([HTML, JSON]) == JSON:
            response = jsonify(found)
        else:
            response = make_response(render_template("flask_idempotency/rules.html", rules=found))
        response.vary.add("Accept")
        return response

    rules.record(note)
    rules.add_url_rule("", "show", show)
    return rules


def _callers(state: State) -> str:
    """Say who shares keys, as well as it is known."""
    known = next((said for scope, said in CALLERS.items() if scope is state.scope), None)
    return known or f"A caller is identified by the server, by {describe(state)['scope']}."


def _refusals(state: State) -> list[dict[str, Any]]:
    """Describe every refusal, by status."""
    dialect = state.dialect
    found = [
        {
            "code": kind.problem,
            "status": dialect.status_of(kind),
            "title": kind.title,
            "detail": kind.detail,
            "retryable": kind.retryable,
            "safe_new_key": kind.safe_new_key,
            "url": f"{dialect.page}#{kind.problem}",
        }
        for kind in RequestRefused.__subclasses__()
    ]
    return sorted(found, key=lambda each: (each["status"], each["code"]))
