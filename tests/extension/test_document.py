"""`idempotency.document(spec)`: what protected operations have in common, in an app's own OpenAPI document."""

from copy import deepcopy

import pytest
from flask import Blueprint, Flask
from jsonschema import Draft202012Validator

from flask_idempotency import Idempotency, exempt, idempotent, receipts, scopes
from flask_idempotency.errors import ConfigError
from flask_idempotency.stores import open_store

OK = {"description": "Done", "content": {"application/json": {"schema": {"type": "object"}}}}


@pytest.fixture
def make():
    """`make(**settings)`: an app with one view of each kind."""

    def make(has_receipts=False, **settings):
        app = Flask(__name__)
        app.config["IDEMPOTENCY_HOUSEKEEPING"] = False
        app.config.update({f"IDEMPOTENCY_{name.upper()}": value for name, value in settings.items()})
        app.idempotency = Idempotency(app, scope=scopes.everyone, store=open_store("memory://"))
        if has_receipts:
            app.register_blueprint(receipts.blueprint())
        view = lambda **_: ("", 201)  # noqa: E731  # nobody calls it
        app.add_url_rule("/orders", "orders", view, methods=["GET", "POST", "PUT"])
        app.add_url_rule("/orders/<int:number>/pay", "pay", idempotent(required=True)(view), methods=["POST"])
        app.add_url_rule("/hooks", "hooks", idempotent(key="X-Event-Id")(view), methods=["POST"])
        app.add_url_rule("/events", "events", idempotent(key=lambda request: "1")(view), methods=["POST"])
        app.add_url_rule("/free", "free", exempt(lambda: ""), methods=["POST"])
        app.add_url_rule("/charges", "charges", idempotent(dialect="stripe")(view), methods=["POST"])
        api = Blueprint("api", __name__, url_prefix="/api/v1")
        api.add_url_rule("/things/<path:name>", "things", view, methods=["PATCH"])
        app.register_blueprint(api)
        return app

    return make


def spec_of(*paths, version="3.1.0", **more):
    found = {path: {method: {"responses": {"201": deepcopy(OK)}}} for method, path in paths}
    return {"openapi": version, "info": {"title": "Orders", "version": "1"}, "paths": found, **more}


def documented(app, spec):
    with app.app_context():
        return app.idempotency.document(spec)


def operation(app, method, path, *, spec_path=None, **more):
    spec = spec_of((method, spec_path or path), **more)
    return documented(app, spec)["paths"][spec_path or path][method]


def test_a_protected_operation_has_the_key_our_headers_and_every_refusal(make):
    found = operation(make(), "post", "/orders")

    (key,) = found["parameters"]
    assert (key["name"], key["in"], key["required"]) == ("Idempotency-Key", "header", False)
    assert set(found["responses"]) == {"201", "400", "409", "410", "413", "422", "503"}
    assert set(found["responses"]["201"]["headers"]) == {"Idempotency-Reference", "Idempotent-Replayed"}
    assert found["responses"]["201"]["content"] == OK["content"]
    for status in ("400", "409", "410", "413", "422", "503"):
        assert list(found["responses"][status]["content"]) == ["application/problem+json"]


def test_the_given_document_stays_as_it_was(make):
    spec = spec_of(("post", "/orders"))
    before = deepcopy(spec)

    documented(make(), spec)

    assert spec == before


@pytest.mark.parametrize(
    ("method", "path"), [("get", "/orders"), ("put", "/orders"), ("post", "/free"), ("post", "/no")]
)
def test_what_is_not_protected_stays_as_it_was(make, method, path):
    spec = spec_of((method, path))

    assert documented(make(), spec) == spec


def test_a_view_that_requires_a_key_says_so_and_a_path_may_have_variables(make):
    found = operation(make(), "post", "/orders/{id}/pay")

    assert found["parameters"][0]["required"] is True


def test_the_key_has_the_name_of_its_own_header_or_none_if_a_function_finds_it(make):
    app = make()

    assert [each["name"] for each in operation(app, "post", "/hooks")["parameters"]] == ["X-Event-Id"]
    assert "parameters" not in operation(app, "post", "/events")


@pytest.mark.parametrize(
    "more", [{"servers": [{"url": "https://shop.example/api/v1/"}]}, {"servers": [{"url": "/api/v1"}]}]
)
def test_paths_may_be_below_those_of_the_servers(make, more):
    assert "409" in operation(make(), "patch", "/things/{name}", **more)["responses"]


def test_a_parameter_that_is_there_already_stays_alone(make):
    mine = {"name": "idempotency-key", "in": "header", "schema": {"type": "string", "format": "uuid"}}
    spec = spec_of(("post", "/orders"))
    spec["components"] = {"parameters": {"Key": mine}}
    spec["paths"]["/orders"]["parameters"] = [{"$ref": "#/components/parameters/Key"}]

    assert "parameters" not in documented(make(), spec)["paths"]["/orders"]["post"]


def test_an_answer_of_the_view_with_the_status_of_a_refusal_stays_possible(make):
    spec = spec_of(("post", "/orders"))
    spec["components"] = {"responses": {"Invalid": {**deepcopy(OK), "description": "Invalid"}}}
    spec["paths"]["/orders"]["post"]["responses"]["422"] = {"$ref": "#/components/responses/Invalid"}

    found = documented(make(), spec)

    response = found["paths"]["/orders"]["post"]["responses"]["422"]
    assert set(response["content"]) == {"application/json", "application/problem+json"}
    assert response["description"].startswith("Invalid / ")
    assert found["components"]["responses"] == spec["components"]["responses"]


def test_in_one_media_type_either_answer_is_possible(make):
    spec = spec_of(("post", "/charges"))
    spec["paths"]["/charges"]["post"]["responses"][400] = deepcopy(OK)

    response = documented(make(), spec)["paths"]["/charges"]["post"]["responses"][400]

    either = response["content"]["application/json"]["schema"]["anyOf"]
    assert len(either) == 3  # the view's, a bad key, a reused key
    assert "422" not in documented(make(), spec)["paths"]["/charges"]["post"]["responses"]


def test_where_there_are_receipts_a_duplicate_may_get_one(make):
    app = make(has_receipts=True)

    found, stripes = operation(app, "post", "/orders"), operation(app, "post", "/charges")

    assert [each["name"] for each in found["parameters"]] == ["Idempotency-Key", "Prefer"]
    assert set(found["responses"]["202"]["headers"]) >= {"Location", "Retry-After"}
    assert "202" not in stripes["responses"]


def strings_of(value, name):
    if isinstance(value, dict):
        return [
            *([value[name]] if name in value else []),
            *(s for each in value.values() for s in strings_of(each, name)),
        ]
    return [s for each in value for s in strings_of(each, name)] if isinstance(value, list) else []


@pytest.mark.parametrize("version", ["3.0.3", "3.1.0"])
def test_version_3_0_has_no_const(make, version):
    found = documented(make(has_receipts=True), spec_of(("post", "/orders"), ("post", "/charges"), version=version))

    assert bool(strings_of(found, "const")) == (version == "3.1.0")


def test_swagger_2_has_its_own_places_for_all_of_it(make):
    spec = {
        "swagger": "2.0",
        "info": {"title": "Orders", "version": "1"},
        "basePath": "/api/v1",
        "paths": {"/things/{name}": {"patch": {"responses": {"201": {"description": "Done"}, "409": {
            "description": "Sold out", "schema": {"type": "object"}}}}}},
    }  # fmt: skip

    found = documented(make(has_receipts=True), spec)

    patch = found["paths"]["/things/{name}"]["patch"]
    assert patch["parameters"][0] == {
        "name": "Idempotency-Key", "in": "header", "required": False, "type": "string", "minLength": 1,
        "maxLength": 255, "description": "Made once for this action, and sent again with every retry.",
    }  # fmt: skip
    assert patch["responses"]["201"]["headers"]["Idempotent-Replayed"] == {"type": "string", "enum": ["true"]}
    assert patch["responses"]["503"]["headers"]["Retry-After"] == {"type": "integer", "minimum": 1}
    assert patch["responses"]["503"]["schema"]["allOf"][0] == {"$ref": "#/definitions/IdempotencyProblem"}
    assert patch["responses"]["409"]["schema"] == {}
    assert patch["produces"] == ["application/json", "application/problem+json"]
    assert {"IdempotencyProblem", "IdempotencyReceipt"} <= set(found["definitions"])
    assert "components" not in found


@pytest.mark.parametrize(
    "spec",
    [
        {},
        None,
        [],
        "openapi: 3.1.0",
        {"openapi": "3.1.0"},
        {"openapi": "3.1.0", "paths": None},
        {"openapi": "4.0", "paths": {}},
        {"swagger": 2, "paths": {}},
    ],
)
def test_what_is_no_openapi_document_is_refused_in_a_sentence(make, spec):
    with pytest.raises(ConfigError, match=r"document\(\) expects an OpenAPI document"):
        documented(make(), spec)


@pytest.mark.parametrize("path", ["/orders", "/charges"])
def test_refusals_are_as_documented(make, path):
    app = make()
    found = documented(app, spec_of(("post", path)))
    client = app.test_client()
    client.post(path, json={"a": 1}, headers={"Idempotency-Key": "1"})

    for refusal in (
        client.post(path, json={"a": 2}, headers={"Idempotency-Key": "1"}),
        client.post(path, headers={"Idempotency-Key": ""}),
    ):
        described = found["paths"][path]["post"]["responses"][str(refusal.status_code)]
        schema = described["content"][refusal.mimetype]["schema"]
        Draft202012Validator({**schema, "components": found["components"]}).validate(refusal.json)
        assert set(described["headers"]) - {"Retry-After"} <= set(refusal.headers.keys())
