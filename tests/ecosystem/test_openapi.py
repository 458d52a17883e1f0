"""OpenAPI: the documents that packages generate, completed by ours, are valid, and the apps answer as they say."""

from collections.abc import Callable
from typing import Any

import pytest
import schemathesis
from flask import jsonify
from hypothesis import HealthCheck, given, settings
from openapi_spec_validator import validate
from schemathesis.specs.openapi.checks import positive_data_acceptance

from flask_idempotency import Idempotency, receipts
from tests.ecosystem.apps import apiflask, apispec, flask_restx, flask_smorest, spectree
from tests.ecosystem.shop import Shop

REFUSALS = {"400", "409", "410", "413", "422", "503"}


def smorest_spec(shop: Any) -> Any:
    return shop.app.extensions["flask-smorest"]["apis"][""]["ext_obj"].spec.to_dict()


def restx_spec(shop: Any) -> Any:
    with shop.app.test_request_context():
        return shop.api.__schema__


GENERATORS: list[tuple[type[Shop], Callable[[Any], Any]]] = [
    (flask_smorest.Decorated, smorest_spec),
    (apiflask.Decorated, lambda shop: shop.app.spec),
    (flask_restx.Decorated, restx_spec),
    (spectree.Decorated, lambda shop: shop.spec.spec),
    (apispec.Described, lambda shop: shop.spec.to_dict()),
]
every_generator = pytest.mark.parametrize(
    ("kind", "generate"),
    GENERATORS,
    ids=lambda each: each.__module__.rpartition(".")[2] if isinstance(each, type) else "",
)


@pytest.fixture
def make(make_shop: Callable[..., Any]) -> Callable[..., Any]:
    """`make(kind, generate)`: a shop that serves its completed document at /completed.json."""

    def make(kind: type[Shop], generate: Callable[[Any], Any]) -> Any:
        shop: Any = make_shop(kind)
        shop.app.register_blueprint(receipts.blueprint())
        with shop.app.app_context():
            shop.generated = generate(shop)
            shop.completed = Idempotency().document(shop.generated)
        shop.app.add_url_rule("/completed.json", "completed", lambda: jsonify(shop.completed))
        return shop

    return make


@every_generator
def test_a_completed_document_is_valid_and_names_key_and_refusals(make: Any, kind: Any, generate: Any) -> None:
    shop = make(kind, generate)

    validate(shop.generated)
    validate(shop.completed)
    (path,) = [path for path in shop.completed["paths"] if path.rstrip("/").endswith("/orders")]
    found = shop.completed["paths"][path]["post"]
    assert "Idempotency-Key" in [each.get("name") for each in found["parameters"]]
    assert REFUSALS | {"202", "201" if "201" in map(str, found["responses"]) else "200"} <= set(
        map(str, found["responses"])
    )


@every_generator
def test_an_app_answers_as_its_completed_document_says(make: Any, kind: Any, generate: Any) -> None:
    shop = make(kind, generate)
    schema = schemathesis.openapi.from_wsgi("/completed.json", shop.app)
    (operation,) = [found.ok() for found in schema.get_all_operations() if found.ok().path.endswith("/orders")]
    statuses = set()

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
    @given(case=operation.as_strategy())
    def send(case: Any) -> None:
        answer = case.call_and_validate(excluded_checks=[positive_data_acceptance])
        statuses.add(answer.status_code)

    send()

    assert statuses & {200, 201}, "no order was ever placed"
    assert statuses & {400, 422}, "no request was ever refused"
