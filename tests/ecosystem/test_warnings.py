"""A view without decorators of its own is not warned about, whatever package calls it."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.ecosystem.apps import flask_login, flask_restful, flask_restx, flask_session, flask_sqlalchemy
from tests.ecosystem.shop import Shop

PLAIN = [
    flask_restful.Undecorated,
    flask_restx.Undecorated,
    flask_sqlalchemy.Plain,
    flask_session.Files,
    flask_login.InAHook,
]


@pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind.__module__.rpartition(".")[2])
def test_a_plain_view_is_not_warned_about(make_shop: Callable[..., Any], kind: type[Shop], caplog: Any) -> None:
    shop = make_shop(kind)
    caplog.clear()

    answer = shop.send()

    assert answer.status_code == 201
    assert caplog.messages == []
