"""The console: pages for operators, mounted by an app behind its own authorisation. Nothing is public about them.

Here is the door alone: who comes in, and what each path leads to. What the pages show is made in ``pages``.
"""

from functools import partial

from flask import Blueprint, Flask, Response, request
from flask.blueprints import BlueprintSetupState

from flask_idempotency.console import pages
from flask_idempotency.console.entrance import AllowFunction, check_allow, let_in
from flask_idempotency.console.tally import start_counting
from flask_idempotency.decorators import exempt
from flask_idempotency.errors import ConfigError, StoreUnavailable

__all__ = ["blueprint"]


def blueprint(
    allow: AllowFunction | None = None,
    *,
    name: str = "idempotency_console",
    url_prefix: str = "/idempotency/console",
    show_answers: bool = False,
) -> Blueprint:
    """Make a blueprint with pages on which operators look records up and settle them.

    *allow* is a function without arguments that says whether the current user may come in: it returns the user's name,
    which is stored with what that user settles, or True, or something false for whoever may not. They get 403, and
    nothing is read for them. *show_answers* adds what may be personal: the caller, the whole path, the stored answer
    and the results of steps.

    Needs the app's ``SECRET_KEY``. Raises ConfigError, in one sentence, without a function that can be called.
    """
    allow = check_allow(allow)
    console = Blueprint(name, __name__, url_prefix=url_prefix, template_folder="templates", static_folder="static")
    console.record(_count)
    console.before_request(partial(let_in, allow))
    console.after_request(_keep_out_of_caches)
    console.context_processor(partial(pages.on_every_page, show_answers))
    for error in (StoreUnavailable, ConfigError):
        console.register_error_handler(error, pages.trouble)
    for rule, view in (
        ("/", pages.overview),
        ("/records", pages.records),
        ("/record", pages.look_up),
        ("/records/<reference>", pages.record),
        ("/records/<reference>/<act>", pages.settle),
    ):
        console.add_url_rule(rule, view_func=view)
    # Neither is protected by a key of ours: a look changes nothing, and what was settled once is not settled again.
    console.add_url_rule("/record", "look_up_key", exempt(pages.look_up_key), methods=["POST"])
    console.add_url_rule("/records/<reference>/<act>", "carry_out", exempt(pages.carry_out), methods=["POST"])
    return console


def _count(setup: BlueprintSetupState) -> None:
    assert isinstance(setup.app, Flask), "the extension supports no other"
    start_counting(setup.app)


def _keep_out_of_caches(response: Response) -> Response:
    """Whoever is refused, or looks for what does not exist, gets a page of the app's own; it is not kept either."""
    if response.status_code >= 400 or not str(request.endpoint).endswith(".static"):
        response.headers["Cache-Control"] = "no-store"
    return response
