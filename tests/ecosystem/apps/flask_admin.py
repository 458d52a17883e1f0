"""Flask-Admin: the form that creates a row, with the key in a header or in a hidden field."""

from typing import Any

from flask import request
from flask_admin import Admin, expose
from flask_admin.contrib.sqla import ModelView

from flask_idempotency import idempotent
from tests.ecosystem.shop import Shop

PACKAGE = "Flask-Admin"
STEP = (
    "Override `create_view` of your `ModelView` as below, so that `is_accessible` is asked before a replay too, and put"
    " `{{ idempotency_field() }}` into its `create_template`."
)


class Header(Shop):
    """The form as the package makes it, with the key in a header."""

    path = "/admin/order/new/"
    status = 302
    invalid = {"data": {"item": ""}}
    invalid_status = 200  # the form again, with what is wrong
    create_template = "admin/model/create.html"

    def build(self) -> None:
        self.protect()
        Admin(self.app, name="shop").add_view(self.make_view()(self.Order, self.db, endpoint="order"))

    def make_view(self) -> type[ModelView]:
        """Make the view of the table, which lets everybody in who is not Mallory."""
        shop = self

        class Orders(ModelView):
            create_template = shop.create_template

            def is_accessible(self) -> bool:
                return request.headers.get("X-User") != "mallory"

            def after_model_change(self, form: Any, model: Any, is_created: bool) -> None:
                shop.runs.append(model.item)
                shop.meanwhile()

        return Orders

    def encode(self, item: str) -> dict[str, Any]:
        return {"data": {"item": item}}


class Decorated(Header):
    """The view that creates a row is decorated, below the package's own check."""

    def make_view(self) -> type[ModelView]:
        class Orders(super().make_view()):  # type: ignore[misc]  # it is a class
            @expose("/new/", methods=("GET", "POST"))
            @idempotent
            def create_view(self) -> Any:
                return super().create_view()

        return Orders
