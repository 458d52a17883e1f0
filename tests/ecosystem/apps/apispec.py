"""apispec: it writes a document from docstrings and schemas, and ours completes it."""

from typing import Any

import marshmallow
from apispec import APISpec
from apispec.ext.marshmallow import MarshmallowPlugin
from apispec_webframeworks.flask import FlaskPlugin
from flask import abort, request

from flask_idempotency import idempotent
from tests.ecosystem.shop import Shop

PACKAGE = "apispec"
STEP = "Unchanged; `document()` [completes its specification](guide/publishing.md)."


class WantedSchema(marshmallow.Schema):
    """What is ordered."""

    item = marshmallow.fields.String(required=True)


class PlacedSchema(WantedSchema):
    """What is answered."""

    id = marshmallow.fields.Integer()


class Described(Shop):
    """A view with a docstring for apispec."""

    def build(self) -> None:
        self.protect()

        @self.app.post("/orders")
        @idempotent
        def create() -> Any:
            """Place an order.
            ---
            post:
              requestBody:
                required: true
                content:
                  application/json:
                    schema: WantedSchema
              responses:
                201:
                  description: The order
                  content:
                    application/json:
                      schema: PlacedSchema
                400:
                  description: It cannot be understood
                415:
                  description: It is not JSON
            """
            try:
                order = WantedSchema().load(request.get_json())
            except marshmallow.ValidationError as error:
                abort(400, str(error))
            return self.place_order(order["item"]), 201

        plugins = [FlaskPlugin(), MarshmallowPlugin()]
        self.spec = APISpec(title="Orders", version="1", openapi_version="3.0.3", plugins=plugins)
        with self.app.test_request_context():
            self.spec.path(view=create)
