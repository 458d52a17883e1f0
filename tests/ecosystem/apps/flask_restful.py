"""Flask-RESTful: resources whose errors the package handles itself."""

from typing import Any

from flask_restful import Api, Resource, reqparse

from flask_idempotency import idempotent
from tests.ecosystem.shop import Shop

PACKAGE = "Flask-RESTful"
STEP = "Unchanged; decorate the method, or put `idempotent` into `method_decorators`."


class Undecorated(Shop):
    """A resource that is not decorated with ours."""

    def build(self) -> None:
        self.protect()
        self.add_api(decorator=lambda method: method)

    def add_api(self, decorator: Any, decorators: Any = ()) -> None:
        """Register a resource."""
        parser = reqparse.RequestParser()
        parser.add_argument("item", required=True, location="json")
        place_order = self.place_order

        class Orders(Resource):
            method_decorators = list(decorators)

            @decorator
            def post(self) -> Any:
                return place_order(parser.parse_args()["item"]), 201

        Api(self.app).add_resource(Orders, "/orders")


class Decorated(Undecorated):
    """The method is decorated."""

    def build(self) -> None:
        self.protect()
        self.add_api(idempotent)


class MethodDecorators(Undecorated):
    """The class names us in its `method_decorators`."""

    def build(self) -> None:
        self.protect()
        self.add_api(lambda method: method, [idempotent])
