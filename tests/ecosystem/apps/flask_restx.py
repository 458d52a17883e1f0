"""Flask-RESTX: its handler for every exception leaves our problem documents alone."""

from typing import Any

from flask_restx import Api, Resource, fields

from flask_idempotency import idempotent
from tests.ecosystem.shop import Shop

PACKAGE = "flask-restx"
STEP = "Unchanged; decorate the method, or put `idempotent` into `method_decorators`."


class Undecorated(Shop):
    """A resource that is not decorated with ours."""

    def build(self) -> None:
        self.protect()
        self.add_api(decorator=lambda method: method)

    def add_api(self, decorator: Any, decorators: Any = ()) -> None:
        """Register a resource."""
        self.api = api = Api(self.app)
        order = api.model("Order", {"item": fields.String(required=True)})
        place_order = self.place_order

        @api.route("/orders")
        class Orders(Resource):
            method_decorators = list(decorators)

            @decorator
            @api.expect(order, validate=True)
            @api.response(201, "The order")
            def post(self) -> Any:
                return place_order(api.payload["item"]), 201


class Decorated(Undecorated):
    """The method is decorated; the package validates before it calls it."""

    invalid_is_kept = False

    def build(self) -> None:
        self.protect()
        self.add_api(idempotent)


class MethodDecorators(Undecorated):
    """The class names us in its `method_decorators`; the package validates before it calls the method."""

    invalid_is_kept = False

    def build(self) -> None:
        self.protect()
        self.add_api(lambda method: method, [idempotent])
