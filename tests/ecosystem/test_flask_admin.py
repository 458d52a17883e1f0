"""Flask-Admin: the form that creates a row, with the hidden field in a template of the app's own."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from jinja2 import DictLoader

from tests.ecosystem.apps.flask_admin import Decorated, Header
from tests.ecosystem.shop import REPLAYED

TEMPLATE = """
{% extends "admin/model/create.html" %}
{% block create_form %}<form method="post">{{ idempotency_field() }}<input name="item"></form>{% endblock %}
"""


class Form(Decorated):
    """The field is rendered into the form."""

    create_template = "create_order.html"

    def build(self) -> None:
        self.app.jinja_loader = DictLoader({"create_order.html": TEMPLATE})
        super().build()


@pytest.fixture
def admin(make_shop: Callable[..., Any]) -> Any:
    return make_shop(Form)


def key_in(page: Any) -> str:
    return re.search(r'name="_idempotency_key" value="([^"]+)"', page.text)[1]


def test_a_form_that_is_sent_twice_creates_one_row(admin: Any) -> None:
    client = admin.client()
    key = key_in(client.get(admin.path))

    answers = [client.post(admin.path, data={"item": "tea", "_idempotency_key": key}) for _ in range(2)]

    assert [answer.status_code for answer in answers] == [302, 302]
    assert answers[0].location == answers[1].location
    assert answers[1].headers[REPLAYED] == "true"
    assert admin.orders == ["tea"]


def test_a_form_that_was_wrong_comes_back_with_a_new_key_and_can_be_corrected(admin: Any) -> None:
    client = admin.client()
    key = key_in(client.get(admin.path))

    again = client.post(admin.path, data={"item": "", "_idempotency_key": key})

    assert again.status_code == 200
    assert key_in(again) != key
    assert client.post(admin.path, data={"item": "tea", "_idempotency_key": key_in(again)}).status_code == 302
    assert admin.orders == ["tea"]


def test_whoever_may_not_come_in_gets_no_replay(make_shop: Callable[..., Any]) -> None:
    admin = make_shop(Decorated)
    first, retry = admin.send(), admin.send()

    stranger = admin.send(headers={"X-User": "mallory"})

    assert (first.status_code, retry.headers[REPLAYED]) == (302, "true")
    assert (stranger.status_code, REPLAYED in stranger.headers) == (403, False)
    assert admin.orders == ["tea"]


def test_a_view_that_is_not_decorated_is_named_in_a_warning(make_shop: Callable[..., Any], caplog: Any) -> None:
    make_shop(Header).send()

    assert [each for each in caplog.messages if "'order.create_view'" in each and "but not @idempotent" in each]
