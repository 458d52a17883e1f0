"""An app may render refusals itself, as pages for its forms; what keeps clients and caches right stays on them."""

import pytest
from flask import Blueprint, Flask, got_request_exception, jsonify, render_template_string
from werkzeug.exceptions import HTTPException

from flask_idempotency import Idempotency, errors, exempt, idempotent, scopes
from flask_idempotency.settings import DOCS_URL


def page(error):
    return render_template_string("<h1>{{ e.title }}</h1>{{ e.description }} {{ e.reference }}", e=error), error.code


def assert_is_marked(answer, code, reference):
    assert answer.headers["Cache-Control"] == "no-store"
    assert f'<{DOCS_URL}#{code}>; rel="describedby"; type="text/html"' in answer.headers.getlist("Link")
    assert answer.headers["Idempotency-Reference"] == reference
    assert "Idempotent-Replayed" not in answer.headers


@pytest.mark.parametrize("handled", [errors.KeyReused, errors.RequestRefused, errors.IdempotencyError])
def test_a_page_of_the_apps_own_is_marked_as_every_refusal(shop, handled):
    shop.app.register_error_handler(handled, page)
    first = shop.send(json={"a": 1})

    answer = shop.send(json={"a": 2})

    reference = first.headers["Idempotency-Reference"]
    assert (answer.status_code, answer.mimetype) == (422, "text/html")
    assert answer.text == (
        "<h1>Idempotency-Key was used for another request</h1>"
        f"Make a new key for a new action; to retry the first one, send it unchanged. {reference}"
    )
    assert_is_marked(answer, "key-reused", reference)


def test_a_page_for_a_request_in_flight_says_when_to_come_back(shop):
    shop.app.register_error_handler(errors.RequestInFlight, page)
    answers = []
    shop.answer = lambda: (answers.append(shop.send()), "ok")[1]

    first = shop.send()

    assert answers[0].mimetype == "text/html"
    assert int(answers[0].headers["Retry-After"]) >= 1
    assert_is_marked(answers[0], "request-in-flight", first.headers["Idempotency-Reference"])


def test_a_page_for_an_unknown_outcome_is_asked_for_too(shop):
    shop.app.register_error_handler(errors.OutcomeUnknown, page)
    shop.store.fails("complete", errors.OutcomeUnknown(retry_after=2))

    answer = shop.send()

    assert (answer.status_code, answer.mimetype, answer.headers["Retry-After"]) == (503, "text/html", "2")
    assert_is_marked(answer, "outcome-unknown", shop.records() and answer.headers["Idempotency-Reference"])


# -- handlers for every error ------------------------------------------------------------------------------------------


def as_flask_recommends(error):
    response = error.get_response()
    response.data = jsonify(code=error.code, name=error.name, description=error.description).data
    response.content_type = "application/json"
    return response


def as_flask_smorest_does(error):
    return {"code": error.code, "status": error.name}, error.code


def as_an_api_has_one_envelope(error):
    return {"error": str(error)}, getattr(error, "code", 500)


def by_the_app(shop, handled, generic):
    shop.app.register_error_handler(handled, generic)


def by_the_blueprint(shop, handled, generic):
    blueprint = Blueprint("own", __name__)
    blueprint.register_error_handler(handled, generic)
    for path in ("/orders", "/plain"):
        blueprint.add_url_rule(path, path[1:], shop.app.view_functions[path[1:]], methods=["POST"])
    shop.app.register_blueprint(blueprint, url_prefix="/own")


def by_replacing_the_app_s_method(shop, handled, generic):
    """As Flask-RESTX does: errors of its resources are reported, and never come to Flask."""

    def handle(error):
        got_request_exception.send(shop.app, exception=error)
        return shop.app.make_response(generic(error))

    shop.app.handle_user_exception = handle


GENERIC = [as_flask_recommends, as_flask_smorest_does, as_an_api_has_one_envelope]
REGISTERING = [by_the_app, by_the_blueprint, by_replacing_the_app_s_method]


@pytest.mark.parametrize("path", ["/orders", "/plain"])
@pytest.mark.parametrize("handled", [HTTPException, Exception])
@pytest.mark.parametrize("register", REGISTERING, ids=lambda each: each.__name__)
@pytest.mark.parametrize("generic", GENERIC, ids=lambda each: each.__name__)
def test_a_handler_for_every_error_does_not_reduce_a_refusal_to_a_status(shop, generic, register, handled, path):
    register(shop, handled, generic)
    shop.app.after_request(lambda response: (response.headers.update({"X-Own": "hook"}), response)[1])
    path = f"/own{path}" if register is by_the_blueprint else path
    first = shop.send(path, json={"a": 1})

    answer = shop.send(path, json={"a": 2})

    reference = first.headers["Idempotency-Reference"]
    assert (answer.status_code, answer.mimetype) == (422, "application/problem+json")
    assert (answer.json["code"], answer.json["reference"]) == ("key-reused", reference)
    assert (answer.headers["X-Own"], answer.headers["Content-Length"]) == ("hook", str(len(answer.data)))
    assert_is_marked(answer, "key-reused", reference)


@pytest.mark.parametrize("register", REGISTERING, ids=lambda each: each.__name__)
def test_a_handler_for_every_error_does_not_reduce_a_refusal_that_comes_late(shop, register):
    register(shop, HTTPException, as_flask_smorest_does)
    shop.store.fails("complete", errors.OutcomeUnknown(retry_after=2))

    answer = shop.send("/own/orders" if register is by_the_blueprint else "/orders")

    assert (answer.status_code, answer.mimetype) == (503, "application/problem+json")
    assert (answer.json["code"], answer.headers["Retry-After"]) == ("outcome-unknown", "2")


def test_a_handler_of_the_app_s_own_may_be_registered_before_init_app():
    app = Flask("shop")
    app.config["IDEMPOTENCY_STORE"] = "memory://"
    app.register_error_handler(errors.RequestRefused, page)
    Idempotency(app, scope=scopes.everyone)
    app.add_url_rule("/", view_func=idempotent(lambda: "ok"), methods=["POST"])

    answer = app.test_client().post("/", headers={"Idempotency-Key": "a,b"})

    assert (answer.status_code, answer.mimetype) == (400, "text/html")


def test_a_handler_of_the_blueprint_s_own_wins_over_ours(shop):
    by_the_blueprint(shop, errors.RequestRefused, page)

    answer = shop.send("/own/orders", key="a,b")

    assert (answer.status_code, answer.mimetype) == (400, "text/html")


def test_an_async_handler_is_asked_too(shop):
    async def handle(error):
        return page(error)

    shop.app.register_error_handler(errors.IdempotencyError, handle)

    assert shop.send(key="a,b").mimetype == "text/html"


def test_a_decorator_that_catches_a_refusal_answers_in_its_own_way(shop):
    def catch():
        try:
            return idempotent(shop.run)()
        except errors.KeyInvalid:
            return "caught", 400

    shop.app.add_url_rule("/caught", "caught", exempt(catch), methods=["POST"])

    answer = shop.send("/caught", key="a,b")

    assert (answer.status_code, answer.text) == (400, "caught")


def test_a_blueprint_may_have_a_page_of_its_own(shop):
    blueprint = Blueprint("api", __name__)
    blueprint.register_error_handler(errors.KeyMissing, lambda error: ("the blueprint's page", 400))
    blueprint.add_url_rule("/api", "api", idempotent(required=True)(shop.run), methods=["POST"])
    shop.app.register_blueprint(blueprint)

    assert shop.send("/api", None).text == "the blueprint's page"


def test_a_page_may_have_links_of_its_own(shop):
    own = "</style.css>; rel=preload"
    shop.app.register_error_handler(errors.KeyInvalid, lambda error: ("page", 400, {"Link": own}))

    answer = shop.send(key="a,b")

    assert answer.headers.getlist("Link")[0] == own
    assert len(answer.headers.getlist("Link")) == 2


def test_a_page_cannot_pose_as_a_replay(shop):
    shop.app.register_error_handler(errors.KeyInvalid, lambda error: ("page", 400, {"Idempotent-Replayed": "true"}))

    assert "Idempotent-Replayed" not in shop.send(key="a,b").headers


def test_h26_a_hook_that_lets_everything_be_cached_does_not_reach_refusals(shop):
    def cache(response):
        response.headers["Cache-Control"] = "public, max-age=60"
        return response

    shop.app.after_request(cache)

    answer = shop.send(key="a,b")

    assert answer.headers["Cache-Control"] == "no-store"


def test_refusals_have_a_handler_and_are_not_trapped_as_mistakes(shop):
    shop.app.config.update(TRAP_HTTP_EXCEPTIONS=True, TESTING=True)

    assert shop.send(key="a,b").json["code"] == "key-invalid"


def test_trapped_http_exceptions_do_not_hide_an_unknown_outcome(shop):
    shop.app.config.update(TRAP_HTTP_EXCEPTIONS=True, TESTING=True)
    shop.store.fails("complete", errors.OutcomeUnknown(retry_after=2))

    assert shop.send().json["code"] == "outcome-unknown"


def test_a_handler_that_fails_is_the_apps_own_500(shop):
    shop.app.register_error_handler(errors.RequestRefused, lambda error: 1 / 0)

    answer = shop.send(key="a,b")

    assert (answer.status_code, shop.n) == (500, 0)
