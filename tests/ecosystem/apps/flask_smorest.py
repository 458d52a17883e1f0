"""flask-smorest: its handler for every HTTPException leaves our problem documents alone."""

from typing import Any

import marshmallow
from flask.views import MethodView
from flask_smorest import Api, Blueprint

from flask_idempotency import idempotent
from tests.ecosystem.shop import Shop

PACKAGE = "flask-smorest"
STEP = "Unchanged; `@idempotent` goes above `@blueprint.arguments`, or below it to not keep validation errors."


class OrderSchema(marshmallow.Schema):
    """What is ordered."""

    item = marshmallow.fields.String(required=True)


class AnswerSchema(OrderSchema):
    """What is answered."""

    id = marshmallow.fields.Integer()


class Undecorated(Shop):
    """A `MethodView` with arguments and response; the view is not decorated with ours."""

    invalid_status = 422

    def build(self) -> None:
        self.protect()
        self.add_api(lambda method: method)

    def add_api(self, decorator: Any) -> None:
        """Register a blueprint with one resource."""
        self.app.config.update(API_TITLE="Orders", API_VERSION="1", OPENAPI_VERSION="3.1.0")
        blueprint = Blueprint("orders", __name__)
        place_order = self.place_order

        @blueprint.route("/orders")
        class Orders(MethodView):
            @decorator
            @blueprint.arguments(OrderSchema)
            @blueprint.response(201, AnswerSchema)
            def post(self, order: dict[str, str]) -> Any:
                return place_order(order["item"])

        Api(self.app).register_blueprint(blueprint)


class Decorated(Undecorated):
    """The method is decorated, above its arguments."""

    databases = ("sqlite", "postgresql")  # on PostgreSQL a duplicate is refused, and the refusal passes the package

    def build(self) -> None:
        self.protect()
        self.add_api(idempotent)


class Below(Undecorated):
    """The method is decorated below its arguments: an invalid request does not reach us."""

    invalid_is_kept = False

    def build(self) -> None:
        self.protect()
        self.app.config.update(API_TITLE="Orders", API_VERSION="1", OPENAPI_VERSION="3.1.0")
        blueprint = Blueprint("orders", __name__)
        place_order = self.place_order

        @blueprint.post("/orders")
        @blueprint.arguments(OrderSchema)
        @blueprint.response(201, AnswerSchema)
        @idempotent
        def create(order: dict[str, str]) -> Any:
            return place_order(order["item"])

        Api(self.app).register_blueprint(blueprint)
