"""What a resource publishes about its keys is true, and fits into an OpenAPI document."""

import json
from datetime import timedelta

import pytest
from flask import Flask

from flask_idempotency import Idempotency, errors, scopes
from flask_idempotency.stores import open_store


@pytest.fixture
def published():
    app = Flask(__name__)
    app.config.update(IDEMPOTENCY_RETENTION=timedelta(hours=2), IDEMPOTENCY_REQUIRED=True, IDEMPOTENCY_METHODS={"PUT"})
    idempotency = Idempotency(app, scope=scopes.session_field("user_id"), store=open_store("memory://"))
    with app.app_context():
        return idempotency.describe()


def test_an_apps_own_settings_are_published(published):
    assert published["retention"] == 7200
    assert published["methods"] == ["PUT"]
    assert published["required"] is True
    assert published["scope"] == "session_field('user_id')"


def test_it_names_what_the_draft_wants_published(published):
    assert set(published) == {
        "header", "form_field", "key_syntax", "max_length", "scope", "methods", "required", "retention", "kept",
        "in_flight", "wait", "max_body", "quota", "dialect", "mode", "docs_url", "openapi",
    }  # fmt: skip
    assert json.loads(json.dumps(published)) == published


def test_the_fragment_is_an_openapi_components_object(published):
    components = published["openapi"]

    assert components["parameters"]["IdempotencyKey"]["schema"] == {"type": "string", "minLength": 1, "maxLength": 255}
    assert components["parameters"]["IdempotencyKey"]["required"] is True
    assert components["headers"]["IdempotentReplayed"]["schema"]["enum"] == ["true"]
    assert set(components["schemas"]["IdempotencyProblem"]["required"]) == {
        "type", "title", "status", "detail", "code", "retryable", "safe_new_key",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "refusal"),
    [
        ("IdempotencyBadKey", errors.KeyInvalid),
        ("IdempotencyInFlight", errors.RequestInFlight),
        ("IdempotencyBodyNotKept", errors.BodyNotKept),
        ("IdempotencyKeyReused", errors.KeyReused),
        ("IdempotencyUnavailable", errors.StoreUnavailable),
    ],
)
def test_each_refusal_is_described_with_its_status_and_headers(published, name, refusal):
    response = published["openapi"]["responses"][name]

    assert {"properties": {"status": {"const": refusal.code}}} in response["content"]["application/problem+json"][
        "schema"
    ]["allOf"]
    assert "Link" in response["headers"]
    assert ("Retry-After" in response["headers"]) is refusal.retryable


@pytest.fixture
def published_by_stripes():
    app = Flask(__name__)
    app.config["IDEMPOTENCY_DIALECT"] = "stripe"
    idempotency = Idempotency(app, scope=scopes.everyone, store=open_store("memory://"))
    with app.app_context():
        return idempotency.describe()


def test_stripes_dialect_publishes_its_own_rules(published_by_stripes):
    assert published_by_stripes["dialect"] == "stripe"
    assert published_by_stripes["key_syntax"] == "opaque"
    assert published_by_stripes["kept"] == {"from": 200, "to": 599, "except": [401, 403, 408, 409, 425, 429]}
    assert json.loads(json.dumps(published_by_stripes)) == published_by_stripes


@pytest.mark.parametrize(
    ("name", "status", "names"),
    [
        (
            "IdempotencyBadKey",
            400,
            {
                "type": "invalid_request_error",
                "code": ["idempotency_key_invalid", "idempotency_key_missing", "idempotency_scope_unknown"],
            },
        ),
        (
            "IdempotencyInFlight",
            409,
            {
                "type": ["invalid_request_error", "api_error"],
                "code": ["idempotency_key_in_use", "idempotency_quarantined"],
            },
        ),
        ("IdempotencyBodyNotKept", 410, {"type": "invalid_request_error", "code": "idempotency_body_not_kept"}),
        ("IdempotencyKeyReused", 400, {"type": "idempotency_error"}),
        (
            "IdempotencyUnavailable",
            503,
            {
                "type": "api_error",
                "code": [
                    "idempotency_store_unavailable",
                    "idempotency_outcome_unknown",
                    "idempotency_checkpoint_unknown",
                ],
            },
        ),
    ],
)
def test_stripes_dialect_describes_its_own_envelope(published_by_stripes, name, status, names):
    components = published_by_stripes["openapi"]

    response = components["responses"][name]
    reference, error = response["content"]["application/json"]["schema"]["allOf"]
    assert reference == {"$ref": "#/components/schemas/IdempotencyError"}
    assert list(components["schemas"]) == ["IdempotencyError"]
    allowed = {key: {"enum" if isinstance(each, list) else "const": each} for key, each in names.items()}
    assert error == {"properties": {"error": {"properties": allowed}}}
    assert response["description"].startswith(f"{status}: ")
    retry = response["headers"]["Stripe-Should-Retry"]["schema"]
    assert set(retry.get("enum", [retry.get("const")])) <= {"true", "false"}
