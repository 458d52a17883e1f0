"""An app may render refusals itself, as pages for its forms; what keeps clients and caches right stays on them."""

import pytest
from flask import Blueprint, jsonify, render_template_string
from werkzeug.exceptions import HTTPException

from flask_idempotency import errors, idempotent
from flask_idempotency.settings import DOCS_URL


def page(error):
    return render_template_string("<h1>{{ e.title }}</h1>{{ e.description }} {{ e.reference }}", e=error), error.code


def assert_is_marked(answer, code, reference):
    assert answer.headers["Cache-Control"] == "no-store"
    assert f'<{DOCS_URL}#{code}>; rel="describedby"; type="text/html"' in answer.headers.getlist("Link")
    assert answer.headers["Idempotency-Reference"] == reference
    assert "Idempotent-Replayed" not in answer.headers


@pytest.mark.parametrize("handled", [errors.KeyReused, errors.RequestRefused, HTTPException])
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


def test_the_handler_that_flask_recommends_for_json_works(shop):
    def generic(error):
        response = error.get_response()
        response.data = jsonify(code=error.code, name=error.name, description=error.description).data
        response.content_type = "application/json"
        return response

    shop.app.register_error_handler(HTTPException, generic)

    answer = shop.send(key="a,b")

    assert (answer.status_code, answer.json["name"]) == (400, "Bad Request")
    assert answer.headers["Cache-Control"] == "no-store"


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


def test_trapped_http_exceptions_are_the_apps_own_choice(shop):
    shop.app.config.update(TRAP_HTTP_EXCEPTIONS=True, TESTING=True)

    with pytest.raises(errors.KeyInvalid):
        shop.send(key="a,b")


def test_trapped_http_exceptions_do_not_hide_an_unknown_outcome(shop):
    shop.app.config.update(TRAP_HTTP_EXCEPTIONS=True, TESTING=True)
    shop.store.fails("complete", errors.OutcomeUnknown(retry_after=2))

    assert shop.send().json["code"] == "outcome-unknown"


def test_a_handler_that_fails_is_the_apps_own_500(shop):
    shop.app.register_error_handler(errors.RequestRefused, lambda error: 1 / 0)

    answer = shop.send(key="a,b")

    assert (answer.status_code, shop.n) == (500, 0)
