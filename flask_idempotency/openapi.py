"""Adds what protected operations have in common to an app's OpenAPI document: the key, the refusals, our headers.

The document may come from any generator, or be written by hand: OpenAPI 3.0 and 3.1, and Swagger 2.0, as plain data.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from flask import Flask, current_app

from flask_idempotency.core.reference import PATTERN
from flask_idempotency.errors import BodyTooLarge, ConfigError
from flask_idempotency.http.dialects import REFERENCE, REPLAYED
from flask_idempotency.policy import DEFAULT, Exempt, Policy
from flask_idempotency.publishing import describe, documented
from flask_idempotency.state import State

Json = dict[str, Any]

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
RECEIPT = {
    "type": "object",
    "required": ["reference", "state", "receipt"],
    "properties": {
        "reference": {"type": "string", "pattern": PATTERN},
        "state": {"type": "string", "enum": ["running"]},
        "receipt": {"type": "string", "format": "uri-reference"},
    },
}
PREFER = {
    "name": "Prefer",
    "in": "header",
    "required": False,
    "description": "While the first request is running: wait=5 waits for its answer, respond-async gives a receipt.",
    "schema": {"type": "string"},
}


def document(state: State, spec: Any) -> Json:
    """Give a copy of an OpenAPI document in which the current app's protected operations are described as such.

    Raises ConfigError for what is no such document.
    """
    version = str(spec.get("openapi") or spec.get("swagger")) if isinstance(spec, Mapping) else ""
    if not re.match(r"(3\.[01]|2\.0)\b", version) or not isinstance(spec.get("paths"), Mapping):
        raise ConfigError("document() expects an OpenAPI document of version 3.0 or 3.1, or Swagger 2.0, as a dict.")
    made: Json = deepcopy(dict(spec))
    protected = list(_protected(state, current_app, made))
    if protected:
        write = _Writer(state, made, version)
        for path, method, policy in protected:
            write.operation(made["paths"][path], method, policy)
    return made


def _protected(state: State, app: Flask, spec: Json) -> Iterator[tuple[str, str, Policy]]:
    """Find the operations of a document whose view is protected: path, method, and the view's policy."""
    rules = [(_shape(rule.rule), rule) for rule in app.url_map.iter_rules()]
    prefixes = {"", *_prefixes(spec)}
    for path, item in spec["paths"].items():
        shapes = {_shape(prefix.rstrip("/") + path) for prefix in prefixes}
        for method in [each for each in METHODS if each in item]:
            found = [
                rule.endpoint for shape, rule in rules if shape in shapes and method.upper() in (rule.methods or ())
            ]
            policy = next(filter(None, (_policy_of(state, endpoint, method.upper()) for endpoint in found)), None)
            if policy is not None:
                yield path, method, policy


def _shape(path: str) -> str:
    """Give a path without the names of its variables, as Flask or OpenAPI writes them."""
    return re.sub(r"<[^>]*>|\{[^}]*\}", "{}", path)


def _prefixes(spec: Json) -> Iterator[str]:
    """Give the paths below which a document says that its own are."""
    yield str(spec.get("basePath", ""))
    for server in spec.get("servers", ()):
        yield urlsplit(str(server.get("url", ""))).path


def _policy_of(state: State, endpoint: str, method: str) -> Policy | None:
    options = state.options_of(endpoint, method, loads=True)
    if isinstance(options, Exempt):
        return None
    policy = state.policy_at(options or DEFAULT, endpoint)
    return policy if method in policy.methods and policy.mode == "enforce" else None


class _Writer:
    """Writes into one document, in the words of its version."""

    def __init__(self, state: State, spec: Json, version: str) -> None:
        self._state, self._spec = state, spec
        self._is_swagger, self._is_3_0 = version.startswith("2"), version.startswith("3.0")
        self._max_length = describe(state)["max_length"]
        self._schemas: Json = (
            spec.setdefault("definitions", {})
            if self._is_swagger
            else spec.setdefault("components", {}).setdefault("schemas", {})
        )

    def operation(self, item: Json, method: str, policy: Policy) -> None:
        """Describe one operation."""
        operation = item[method]
        given = [self._resolved(each) for each in (*item.get("parameters", ()), *operation.get("parameters", ()))]
        names = {str(each.get("name", "")).lower() for each in given if each.get("in") == "header"}
        wanted = [self._key(policy)] if not callable(policy.key) else []
        if self._state.receipts_of(policy) is not None:
            wanted.append(PREFER)
        added = [self._parameter(each) for each in wanted if each["name"].lower() not in names]
        if added:
            operation["parameters"] = [*operation.get("parameters", ()), *added]
        if self._is_swagger:
            kinds = operation.get("produces") or self._spec.get("produces") or ["application/json"]
            ours = policy.dialect.describe(BodyTooLarge)["content"]
            operation["produces"] = list(dict.fromkeys([*kinds, *ours]))
        responses = operation.setdefault("responses", {})
        for status in [each for each in responses if str(each).isdigit() and 200 <= int(each) < 500]:
            self._mark(responses, status)
        for status, response in self._refusals(policy):
            self._add(responses, str(status), response)
        if self._state.receipts_of(policy) is not None:
            self._add(responses, str(HTTPStatus.ACCEPTED.value), self._accepted())

    def _key(self, policy: Policy) -> Json:
        name = policy.key if isinstance(policy.key, str) else "Idempotency-Key"
        return {
            "name": name,
            "in": "header",
            "required": policy.required,
            "description": "Made once for this action, and sent again with every retry.",
            "schema": {"type": "string", "minLength": 1, "maxLength": self._max_length},
        }

    def _refusals(self, policy: Policy) -> Iterator[tuple[int, Json]]:
        dialect = policy.dialect
        self._schemas.update(self._translated(dialect.schemas))
        for kind in [*documented(self._state.settings), BodyTooLarge]:
            yield dialect.status_of(kind), self._translated(dialect.describe(kind))

    def _accepted(self) -> Json:
        self._schemas["IdempotencyReceipt"] = self._translated(RECEIPT)
        return self._translated(
            {
                "description": "The first request is still running; the answer will be where Location points.",
                "headers": {
                    "Location": {"schema": {"type": "string"}},
                    "Retry-After": {"schema": {"type": "integer", "minimum": 1}},
                },
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/IdempotencyReceipt"}}},
            }
        )

    # -- into what is there already ------------------------------------------------------------------------------------

    def _mark(self, responses: Json, status: Any) -> None:
        """Add our headers to an answer of the view."""
        response = responses[status] = deepcopy(self._resolved(responses[status]))
        headers = response.setdefault("headers", {})
        for name, schema in ((REFERENCE, {"type": "string", "pattern": PATTERN}), (REPLAYED, {"const": "true"})):
            headers.setdefault(name, self._translated_header({"schema": {"type": "string", **schema}}))

    def _add(self, responses: Json, status: str, ours: Json) -> None:
        """Add a response; one that the view itself gives with this status stays possible."""
        known = next((each for each in responses if str(each) == status), None)
        if known is None:
            responses[status] = ours
            return
        theirs = responses[known] = deepcopy(self._resolved(responses[known]))
        if theirs["description"] != ours["description"]:
            theirs["description"] = f"{theirs['description']} / {ours['description']}"
        theirs["headers"] = {**ours.get("headers", {}), **theirs.get("headers", {})}
        if self._is_swagger:
            if "schema" in theirs and theirs["schema"] != ours.get("schema"):
                theirs["schema"] = {}  # Swagger 2.0 has no word for "one or the other"
            return
        content = theirs.setdefault("content", {})
        for kind, media in ours.get("content", {}).items():
            if kind not in content:
                content[kind] = media
            elif (schema := content[kind].get("schema")) is not None and schema != media["schema"]:
                either = schema["anyOf"] if set(schema) == {"anyOf"} else [schema]
                content[kind]["schema"] = {"anyOf": [*either, media["schema"]]}

    def _resolved(self, value: Json) -> Json:
        """Follow a reference into the document itself."""
        found: Any = value
        for _ in range(10):  # a reference may lead to another, but not in circles
            if not isinstance(found, dict) or "$ref" not in found:
                break
            reference = str(found["$ref"])
            found = self._spec
            for step in reference.removeprefix("#/").split("/"):
                found = found[step.replace("~1", "/").replace("~0", "~")]
        assert isinstance(found, dict), "a reference leads to an object"
        return found

    # -- in the words of older versions --------------------------------------------------------------------------------

    def _translated(self, value: Json) -> Json:
        """Write a schema, or a response, in the words of this version."""
        if self._is_swagger or self._is_3_0:
            value = _walk(value, _without_const)
        if self._is_swagger:
            value = _walk(value, _at_home_in_swagger)
        return value

    def _translated_header(self, header: Json) -> Json:
        translated = self._translated({"headers": {"": header}})["headers"][""]
        assert isinstance(translated, dict), "a header is an object"
        return translated

    def _parameter(self, parameter: Json) -> Json:
        if not self._is_swagger:
            return deepcopy(parameter)
        return {**{name: value for name, value in parameter.items() if name != "schema"}, **parameter["schema"]}


def _walk(value: Any, change: Callable[[Json], Json]) -> Any:
    """Change every object of a document, the inner ones first."""
    if isinstance(value, list):
        return [_walk(each, change) for each in value]
    if isinstance(value, dict):
        return change({name: _walk(each, change) for name, each in value.items()})
    return value


def _without_const(found: Json) -> Json:
    """Write ``enum`` for ``const``, which version 3.1 brought."""
    return {"enum" if name == "const" else name: [each] if name == "const" else each for name, each in found.items()}


def _at_home_in_swagger(found: Json) -> Json:
    """Write what changed between Swagger 2.0 and OpenAPI 3: where schemas are, and that a response has one."""
    if "$ref" in found:
        return {**found, "$ref": found["$ref"].replace("#/components/schemas/", "#/definitions/")}
    if "content" in found:
        (schema,) = found["content"].values()  # taken out of its media type already, see below
        return {**{name: each for name, each in found.items() if name != "content"}, "schema": schema}
    if set(found) == {"schema"}:
        return dict(found["schema"])
    return found
