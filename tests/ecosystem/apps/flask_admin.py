"""Flask-Admin: the form that creates a row, with the key in a header or in a hidden field."""

from typing import Any

from flask_admin import Admin
from flask_admin.contrib.sqla import ModelView

from tests.ecosystem.shop import Shop

PACKAGE = "Flask-Admin"
STEP = "Put `{{ idempotency_field() }}` into the `create_template` of your `ModelView`."


class Header(Shop):
    """The form as the package makes it, with the key in a header."""

    path = "/admin/order/new/"
    status = 302
    invalid = {"data": {"item": ""}}
    invalid_status = 200  # the form again, with what is wrong
    create_template = "admin/model/create.html"

    def build(self) -> None:
        self.protect()
        shop = self

        class Orders(ModelView):
            create_template = shop.create_template

            def after_model_change(self, form: Any, model: Any, is_created: bool) -> None:
                shop.runs.append(model.item)
                shop.meanwhile()

        Admin(self.app, name="shop").add_view(Orders(self.Order, self.db, endpoint="order"))

    def encode(self, item: str) -> dict[str, Any]:
        return {"data": {"item": item}}
