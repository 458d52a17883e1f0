"""One request, one claim: it covers the protected views that the view calls, if they want the same."""

import pytest
from flask.views import MethodView

from flask_idempotency import exempt, idempotent
from flask_idempotency.errors import ConfigError, IdempotencyError, KeyReused
from tests.apps.shop import REPLAYED

OTHER_OPTIONS = r"^'/outer' called a protected view that has other options, but a request can hold only one claim: "
HIDDEN = r"^'/outer' called a view with @idempotent after its request had been claimed without it"


@pytest.fixture
def serve(shop):
    """`serve(view)`: add a view, at "/outer"."""
    return lambda view: shop.app.add_url_rule("/outer", "/outer", view, methods=["POST"])


def test_a_claim_covers_a_protected_view_that_the_view_calls(shop, serve):
    inner = idempotent(shop.run)
    serve(idempotent(lambda: [inner(), inner()][0]))

    first, second = shop.send("/outer"), shop.send("/outer")

    assert (first.status_code, second.status_code, second.headers[REPLAYED]) == (201, 201, "true")
    assert (shop.n, len(shop.records())) == (2, 1)


@pytest.mark.parametrize("options", [{}, {"required": True}, {"guard": "lease"}], ids=str)
def test_a_method_that_calls_the_one_it_overrides_is_protected_once(shop, options):
    class Orders(MethodView):
        @idempotent(**options)
        def post(self):
            return shop.run()

    class Heir(Orders):
        @idempotent(**options)
        def post(self):
            return super().post()

    shop.app.add_url_rule("/heir", view_func=Heir.as_view("heir"))

    first, second = shop.send("/heir"), shop.send("/heir")

    assert (first.status_code, second.headers[REPLAYED], shop.n) == (201, "true", 1)


def test_an_async_view_may_call_another(shop, serve):
    @idempotent
    async def inner():
        return shop.run()

    async def outer():
        return await inner()

    serve(idempotent(outer))

    first, second = shop.send("/outer"), shop.send("/outer")

    assert (first.status_code, second.headers[REPLAYED], shop.n) == (201, "true", 1)


def other_options(shop):
    inner = idempotent(retention=60)(shop.run)
    return idempotent(lambda: inner())


def none_outside(shop):
    inner = idempotent(shop.run)
    return lambda: inner()


WRONG = {"other options": (other_options, OTHER_OPTIONS), "no decorator outside": (none_outside, HIDDEN)}


@pytest.fixture(params=WRONG.values(), ids=WRONG)
def wrong(request, shop, serve):
    """A view that calls a protected one, which its claim cannot cover; gives the sentence."""
    make, sentence = request.param
    serve(make(shop))
    return sentence


def test_a_protected_view_that_wants_something_else_is_an_error(shop, wrong):
    shop.app.testing = True

    with pytest.raises(IdempotencyError, match=wrong):
        shop.send("/outer")

    assert shop.n == 0


def test_it_is_an_error_every_time_and_never_a_replay(shop, wrong):
    assert [shop.send("/outer").status_code for _ in range(2)] == [500, 500]
    assert shop.n == 0


def test_without_a_key_there_is_nothing_to_nest(shop, wrong):
    assert shop.send("/outer", None).status_code == 201


def test_an_error_handler_that_calls_a_protected_view_for_a_refusal_is_an_error(shop, serve):
    inner = idempotent(shop.run)
    serve(inner)
    shop.app.register_error_handler(KeyReused, lambda error: inner())
    shop.app.testing = True
    shop.send("/outer", json={"tea": 1})

    with pytest.raises(
        IdempotencyError, match=r"^A protected view called another one, but a request can hold only one claim: "
    ):
        shop.send("/outer", json={"tea": 2})

    assert shop.n == 1


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
    with pytest.raises(ConfigError, match=r"^A view can have only one @idempotent or @exempt: [^.]+\.$"):
        decorate(lambda: "view")
