"""Flask-WTF: a form with a CSRF token, which is checked before the request is claimed."""

from typing import Any

from flask import session
from flask.testing import FlaskClient
from flask_wtf import CSRFProtect, FlaskForm
from flask_wtf.csrf import generate_csrf
from wtforms import StringField
from wtforms.validators import Length

from flask_idempotency import idempotent, scopes
from tests.ecosystem.shop import Shop

PACKAGE = "Flask-WTF"
STEP = "Unchanged; put `{{ idempotency_field() }}` into the form beside `{{ form.csrf_token }}`."


class OrderForm(FlaskForm):
    """What is ordered."""

    item = StringField(validators=[Length(min=2)])


class CsrfBefore(Shop):
    """`CSRFProtect` is registered before us; the view is decorated."""

    @property
    def invalid(self) -> dict[str, Any]:  # type: ignore[override]  # the token is not known earlier
        return self.encode("t")

    def build(self) -> None:
        CSRFProtect(self.app)
        self.protect(scope=scopes.session_field("user"))
        self.add_views(idempotent)

    def add_views(self, decorator: Any) -> None:
        """Add the view of the form, and a page that gives a client its token."""
        self.token, self.cookie = "", ""

        @self.app.get("/form")
        def form() -> str:
            session["user"] = "ada"
            return generate_csrf()

        @decorator
        def create() -> Any:
            form = OrderForm()
            if not form.validate_on_submit():
                return {"errors": form.errors}, 400
            return self.place_order(form.item.data), 201

        self.app.post("/orders", endpoint="create")(create)

    def client(self) -> FlaskClient:
        """Give a client with the one session that the form was rendered in."""
        client = self.app.test_client()
        if not self.token:
            self.token = client.get("/form").text
            self.cookie = client.get_cookie("session").value
        client.set_cookie("session", self.cookie)
        return client

    def encode(self, item: str) -> dict[str, Any]:
        self.client()
        return {"data": {"item": item, "csrf_token": self.token}}


class CsrfAfter(CsrfBefore):
    """`CSRFProtect` is registered after us; the view is not decorated."""

    def build(self) -> None:
        self.protect(scope=scopes.session_field("user"))
        CSRFProtect(self.app)
        self.add_views(lambda view: view)
