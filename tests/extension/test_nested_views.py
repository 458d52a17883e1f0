"""One request, one claim: a protected view that calls another is an error, said at once."""

import pytest

from flask_idempotency import exempt, idempotent
from flask_idempotency.errors import ConfigError, IdempotencyError


@pytest.fixture
def nested(shop):
    inner = idempotent(shop.run)
    shop.app.add_url_rule("/outer", "outer", idempotent(lambda: inner()), methods=["POST"])
    shop.app.add_url_rule("/undecorated", "undecorated", lambda: inner(), methods=["POST"])
    return shop


@pytest.mark.parametrize("path", ["/outer", "/undecorated"])
def test_a_protected_view_inside_another_is_an_error(nested, path):
    nested.app.testing = True

    with pytest.raises(IdempotencyError, match="One request, one claim"):
        nested.send(path)

    assert nested.n == 0


@pytest.mark.parametrize("path", ["/outer", "/undecorated"])
def test_it_is_an_error_every_time_and_never_a_replay(nested, path):
    assert [nested.send(path).status_code for _ in range(2)] == [500, 500]
    assert nested.n == 0


@pytest.mark.parametrize("path", ["/outer", "/undecorated"])
def test_without_a_key_there_is_nothing_to_nest(nested, path):
    assert nested.send(path, None).status_code == 201


def test_a_view_may_send_a_protected_request_of_its_own(shop):
    shop.answer = lambda: shop.create() if shop.n > 1 else {"inner": shop.send(key="another").json}

    assert shop.send().json == {"inner": {"id": 2}}


@pytest.mark.parametrize(
    "decorate",
    [
        lambda view: idempotent(idempotent(view)),
        lambda view: idempotent(required=True)(idempotent(view)),
        lambda view: exempt(idempotent(view)),
        lambda view: idempotent(exempt(view)),
    ],
    ids=["twice", "twice with options", "exempt above", "exempt below"],
)
def test_a_view_cannot_be_decorated_twice(decorate):
    with pytest.raises(ConfigError, match=r"^A view has one decorator of ours, @idempotent or @exempt: [^.]+\.$"):
        decorate(lambda: "view")
