"""The OpenAPI document of the JSON API: made from the schemas, and from what the extension says of itself."""

from typing import Any

from marshmallow import Schema, fields, validate

from demo_shop import schemas
from flask_idempotency import Idempotency

SECURED: list[dict[str, list[str]]] = [{"token": []}]
NUMBER = {"name": "number", "in": "path", "required": True, "schema": {"type": "string"}}
SLUG = {"name": "slug", "in": "path", "required": True, "schema": {"type": "string"}}


def document() -> dict[str, Any]:
    """Describe every operation under /api."""
    components = Idempotency().describe()["openapi"]
    components["schemas"] |= {
        name.removesuffix("Schema"): _object(schema)
        for name, schema in vars(schemas).items()
        if isinstance(schema, type) and issubclass(schema, Schema) and name.endswith("Schema")
    }
    components["schemas"] |= {"Started": RUNNING, "Receipt": RECEIPT}
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Once Upon a Teapot", "version": "1.0.0", "description": "A shop in which a retry is safe."},
        "paths": {
            "/api/products": {"get": _safe("List what there is", _array("Product"))},
            "/api/products/{slug}": {"get": _safe("Show one product", _ref("Product"), SLUG)},
            "/api/cart": {
                "get": _secured(_safe("Show the cart", _ref("Cart"))),
                "post": _write("Change the cart", "CartChange", {"200": _ref("Cart")}, required=False),
            },
            "/api/checkout": {
                "post": _write("Buy the cart", "Checkout", {"201": _ref("Confirmation"), "402": _ref("Decline")})
            },
            "/api/buy": {
                "post": _write("Buy one product", "Purchase", {"201": _ref("Confirmation"), "402": _ref("Decline")})
            },
            "/api/reviews": {
                "post": _write("Review a product", "Review", {"201": _ref("Reviewed")}, required=False),
            },
            "/api/ratings": {
                "post": _write("Rate a product in passing", "Review", {"201": _ref("Reviewed")}, required=False),
            },
            "/api/tokens": {"post": _signs_in()},
            "/api/exports": {"post": _starts_an_export()},
            "/receipts/{reference}": {"get": _receipt()},
            "/api/orders": {"get": _secured(_safe("List your orders", _array("Order")))},
            "/api/orders/{number}": {"get": _secured(_safe("Show an order", _ref("Order"), NUMBER))},
            "/api/orders/{number}/refund": {
                "parameters": [NUMBER],
                "post": _write("Ask for a refund", "Refund", {"202": _ref("Order")}, required=False),
            },
        },
        "components": components,
    }


def _safe(summary: str, schema: dict[str, Any], *parameters: Any) -> dict[str, Any]:
    errors = {"404": _json("There is none", _ref("Error"))} if parameters else {}
    return {"summary": summary, "parameters": list(parameters), "responses": {"200": _json("It", schema), **errors}}


def _secured(operation: dict[str, Any]) -> dict[str, Any]:
    refused = {"401": {"description": "Send a bearer token"}}
    return {**operation, "security": SECURED, "responses": {**operation["responses"], **refused}}


def _write(summary: str, body: str, answers: dict[str, Any], *, required: bool = True) -> dict[str, Any]:
    """Describe a POST: its key, its answers, and every way in which the key can be refused."""
    refusals = {
        status: {
            "description": "Refused because of the key, or of the shop's own reasons",
            "content": {
                "application/problem+json": {"schema": _ref("IdempotencyProblem")},
                "application/json": {"schema": _ref("Error")},
            },
        }
        for status in ("400", "404", "409", "410", "413", "415", "422", "503")
    }
    return _secured(
        {
            "summary": summary,
            "parameters": [{**KEY_PARAMETER, "required": required}, PREFER_PARAMETER],
            "requestBody": {"required": True, "content": {"application/json": {"schema": _ref(body)}}},
            "responses": {
                **{status: _json("Done", schema) for status, schema in answers.items()},
                "202": _json("Done, or still under way: see the receipt", _either(answers.get("202"), _ref("Started"))),
                **refusals,
            },
        }
    )


def _starts_an_export() -> dict[str, Any]:
    """Describe the POST that only starts a job: there is no body, and a retry gets the file when it is made."""
    file = {"description": "The file, once it is made", "content": {"text/csv": {"schema": {"type": "string"}}}}
    operation = _write("Export your orders", "Export", {})
    operation["responses"]["200"] = file
    del operation["requestBody"]
    return operation


def _receipt() -> dict[str, Any]:
    """Describe a receipt, and the stored answer that ?answer=1 gives: of whatever status and kind that was."""
    shown = {"Retry-After": {"description": "While it runs: seconds", "schema": {"type": "integer", "minimum": 1}}}
    anything = {"description": "With ?answer=1: the stored answer itself, or why there is none"}
    return _secured(
        {
            "summary": "Ask what became of a request",
            "parameters": [
                {"name": "reference", "in": "path", "required": True, "schema": {"type": "string"}},
                {"name": "answer", "in": "query", "schema": {"type": "string", "enum": ["1"]}},
            ],
            "responses": {
                "200": {**_json("The receipt", _ref("Receipt")), "headers": shown},
                "404": {"description": "There is none for you"},
                "default": anything,
            },
        }
    )


RUNNING: dict[str, Any] = {
    "type": "object",
    "required": ["reference", "state", "receipt"],
    "properties": {
        "reference": {"type": "string"},
        "state": {"const": "running"},
        "receipt": {"type": "string", "format": "uri-reference"},
    },
}
RECEIPT: dict[str, Any] = {
    "type": "object",
    "required": ["reference", "state"],
    "properties": {
        "reference": {"type": "string"},
        "state": {"enum": ["running", "finished", "quarantined", "expired"]},
        "created_at": {"type": "string", "format": "date-time"},
        "status": {"type": "integer"},
        "expires_at": {"type": "string", "format": "date-time"},
        "answer": {"type": "string", "format": "uri-reference"},
        "detail": {"type": "string"},
    },
}


def _signs_in() -> dict[str, Any]:
    """Describe the one POST that needs neither a key nor a token."""
    refused = {"description": "Not understood, or nobody of that name", "content": _json("", _ref("Error"))["content"]}
    return {
        "summary": "Sign a program in",
        "requestBody": {"required": True, "content": {"application/json": {"schema": _ref("SignIn")}}},
        "responses": {"201": _json("Done", _ref("Token")), "400": refused, "404": refused},
    }


KEY_PARAMETER: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "Made once for this action, and sent again with every retry.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"^[!-+\--~]+$"},
}


PREFER_PARAMETER: dict[str, Any] = {
    "name": "Prefer",
    "in": "header",
    "description": "While the first request is running: wait=5 waits for its answer, respond-async gives a receipt.",
    "schema": {"type": "string", "enum": ["wait=1", "respond-async", "respond-async, wait=1"]},
}


def _either(one: dict[str, Any] | None, other: dict[str, Any]) -> dict[str, Any]:
    return other if one is None else {"anyOf": [one, other]}


def _json(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _array(name: str) -> dict[str, Any]:
    return {"type": "array", "items": _ref(name)}


def _object(schema: type[Schema]) -> dict[str, Any]:
    made = schema()
    return {
        "type": "object",
        "properties": {name: _property(field) for name, field in made.fields.items()},
        "required": [name for name, field in made.fields.items() if field.required],
        **({"additionalProperties": False} if issubclass(schema, schemas.Strict) else {}),
    }


def _property(field: fields.Field[Any]) -> dict[str, Any]:
    """Write a marshmallow field as JSON Schema; only the kinds that this shop has."""
    kind: dict[str, Any] = {"type": "string"}
    if isinstance(field, fields.List):
        return {"type": "array", "items": _property(field.inner)}
    if isinstance(field, fields.Nested) and not isinstance(field, fields.Pluck):
        return _ref(type(field.schema).__name__.removesuffix("Schema"))
    if isinstance(field, fields.Integer):
        kind = {"type": "integer"}
    if isinstance(field, fields.DateTime):
        kind["format"] = "date-time"
    for check in field.validators:
        match check:
            case validate.OneOf():
                kind["enum"] = list(check.choices)
            case validate.Range():
                kind |= {"minimum": check.min, "maximum": check.max}
            case validate.Length():
                kind |= {"minLength": check.min, "maxLength": check.max}
            case validate.Regexp():
                kind["pattern"] = check.regex.pattern
    return {**kind, "type": [kind["type"], "null"]} if field.allow_none else kind
