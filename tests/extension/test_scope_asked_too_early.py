"""A scope function that is asked before anybody is signed in: the sentence says what to do, and no client is blamed."""

from contextvars import ContextVar
from functools import wraps

import pytest
from flask import abort, g, request
from flask.views import MethodView

from flask_idempotency import exempt, idempotent
from flask_idempotency.errors import IdempotencyError

SIGNED_IN = {"X-Token": "alice"}


def sign_in_required(view):
    """Authenticate as a decorator of Flask-JWT-Extended or Flask-HTTPAuth does."""

    @wraps(view)
    def checked(*args, **kwargs):
        if "X-Token" not in request.headers:
            abort(401)
        g.caller = request.headers["X-Token"]
        return view(*args, **kwargs)

    return checked


def logged(view):
    """Stand around a view, and turn nobody away."""
    return wraps(view)(lambda: view())


def identity():
    """As `get_jwt_identity`: an error, unless the decorator has run."""
    if "caller" not in g:
        raise RuntimeError("You must call @jwt_required() before using this method")
    return g.caller


def current_user():
    """As `auth.current_user` of Flask-HTTPAuth: nobody, unless the decorator has run."""
    return g.get("caller")


def messages(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "flask_idempotency"]


def nobody_found(caplog):
    return [each for each in messages(caplog) if each.startswith("The scope function returned no caller")]


def add(shop, view, path="/view"):
    shop.app.add_url_rule(path, "view", view, methods=["POST"])


# -- a function that raises --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "scope",
    [identity, lambda: g.caller, lambda: ContextVar("caller").get(), lambda: g.get("caller")["id"]],
    ids=["RuntimeError", "AttributeError", "LookupError", "TypeError"],
)
def test_a_scope_function_that_fails_before_the_view_says_where_to_put_the_decorator(make_shop, scope):
    shop = make_shop(scope=scope)
    shop.app.testing = True
    add(shop, sign_in_required(lambda: shop.run()))

    with pytest.raises(IdempotencyError) as caught:
        shop.send("/view", headers=SIGNED_IN)

    assert "for 'view'. It is called before the view and its decorators" in str(caught.value)
    assert "put @idempotent on the view, below the decorator that authenticates" in str(caught.value)
    assert isinstance(caught.value.__cause__, Exception)
    assert (shop.n, shop.store.calls) == (0, [])


def test_a_scope_function_that_fails_above_the_authentication_is_told_to_change_places(make_shop):
    shop = make_shop(scope=identity)
    shop.app.testing = True
    add(shop, idempotent(required=True)(sign_in_required(lambda: shop.run())))

    with pytest.raises(IdempotencyError, match=r"It is called where @idempotent is: .* put @idempotent below that"):
        shop.send("/view", headers=SIGNED_IN)


def test_what_the_sentence_says_works(make_shop):
    shop = make_shop(scope=identity)
    add(shop, sign_in_required(idempotent(required=True)(lambda: shop.run())))

    answers = [shop.send("/view", headers=SIGNED_IN) for _ in range(2)]

    assert ([answer.status_code for answer in answers], shop.n) == ([201, 201], 1)
    assert shop.send("/view").status_code == 401


@pytest.mark.parametrize("scope", [identity, current_user])
def test_a_view_that_has_no_caller_is_told_to_be_exempt_and_then_runs(make_shop, scope, caplog):
    shop = make_shop(scope=scope)
    add(shop, logged(lambda: shop.run()))
    shop.app.add_url_rule("/exempt", "exempt", exempt(lambda: shop.run()), methods=["POST"])

    refused, served = shop.send("/view"), shop.send("/exempt")

    assert (refused.status_code in (400, 500), served.status_code, shop.n) == (True, 201, 1)
    assert "If the view has no caller, like a sign-in, put @exempt on it." in caplog.text


def test_the_log_of_the_500_holds_the_sentence_and_the_cause(make_shop, caplog):
    shop = make_shop(scope=identity)
    add(shop, sign_in_required(lambda: shop.run()))

    answer = shop.send("/view", headers=SIGNED_IN)

    assert answer.status_code == 500
    assert "You must call @jwt_required()" in caplog.text
    assert "put @idempotent on the view" in caplog.text


@pytest.mark.parametrize("path", ["/orders", "/plain"])
def test_a_scope_function_may_turn_a_caller_away_by_an_http_exception(make_shop, path):
    shop = make_shop(scope=lambda: abort(401))

    assert (shop.send(path).status_code, shop.n, shop.store.calls) == (401, 0, [])


@pytest.mark.parametrize("path", ["/orders", "/plain"])
def test_an_exception_that_the_app_has_a_handler_for_is_left_to_it(make_shop, path):
    class NotSignedIn(Exception):
        pass

    def scope():
        raise NotSignedIn

    shop = make_shop(scope=scope)
    shop.app.register_error_handler(NotSignedIn, lambda _: ("sign in", 401))

    assert (shop.send(path).status_code, shop.n) == (401, 0)


# -- a function that finds nobody --------------------------------------------------------------------------------------


class Resource(MethodView):
    """Its method is decorated; a shop is set before it is used."""

    def __init__(self, shop):
        self.shop = shop

    @sign_in_required
    def post(self):
        return self.shop.run()


class Above(Resource):
    decorators = [idempotent]  # noqa: RUF012  # as Flask's own documentation writes it


EARLY = {
    "undecorated": lambda shop: sign_in_required(lambda: shop.run()),
    "decorated above": lambda shop: idempotent(sign_in_required(lambda: shop.run())),
    "a method": lambda shop: Resource.as_view("view", shop),
    "a class decorated above": lambda shop: Above.as_view("view", shop),
}


@pytest.mark.parametrize("make", EARLY.values(), ids=EARLY)
def test_a_signed_in_caller_whom_nobody_could_know_yet_is_not_blamed(make_shop, make, caplog):
    shop = make_shop(scope=current_user)
    add(shop, make(shop))

    answers = [shop.send("/view", headers=SIGNED_IN) for _ in range(3)]

    assert {answer.json["code"] for answer in answers} == {"scope-unknown"}
    assert "Authenticate" not in answers[0].json["detail"]
    assert (shop.n, shop.store.calls) == (0, [])
    (said,) = nobody_found(caplog)
    assert "for 'view'" in said
    assert "put @idempotent" in said


IN_TIME = {
    "no decorators": lambda shop: lambda: shop.run(),
    "decorated below": lambda shop: idempotent(lambda: shop.run()),
    "decorated below another": lambda shop: sign_in_optional(idempotent(lambda: shop.run())),
}


def sign_in_optional(view):
    @wraps(view)
    def call(*args, **kwargs):
        return view(*args, **kwargs)

    return call


@pytest.mark.parametrize("make", IN_TIME.values(), ids=IN_TIME)
def test_a_caller_who_is_not_signed_in_is_told_to(make_shop, make, caplog):
    shop = make_shop(scope=current_user)
    add(shop, make(shop))

    answer = shop.send("/view")

    assert answer.json["code"] == "scope-unknown"
    assert answer.json["detail"].startswith("Authenticate")
    assert nobody_found(caplog) == []


@pytest.mark.parametrize(
    ("decorators", "is_early"),
    [([idempotent], False), ([idempotent, sign_in_required], False), ([sign_in_required, idempotent], True)],
    ids=["alone", "below", "above"],
)
def test_method_decorators_are_looked_at_in_their_order(make_shop, decorators, is_early, caplog):
    class Listed(MethodView):
        method_decorators = decorators

        def dispatch_request(self):
            method = self.post
            for decorator in self.method_decorators:
                method = decorator(method)
            return method()

        def post(self):
            return shop.run()

    shop = make_shop(scope=current_user)
    add(shop, Listed.as_view("view"))

    answer = shop.send("/view", headers=SIGNED_IN)

    assert answer.status_code == (201 if sign_in_required in decorators and not is_early else 400)
    assert len(nobody_found(caplog)) == is_early


@pytest.mark.parametrize("kind", [PermissionError, type("NotAllowed", (Exception,), {})])
def test_an_exception_that_the_app_has_a_handler_for_turns_a_caller_away_and_any_other_is_explained(make_shop, kind):
    def turn_away():
        raise kind("no")

    handled, unhandled = make_shop(scope=turn_away), make_shop(scope=turn_away)
    handled.app.register_error_handler(kind, lambda error: ("denied", 403))
    unhandled.app.config["PROPAGATE_EXCEPTIONS"] = True

    answer = handled.send()
    with pytest.raises(IdempotencyError, match=f"The scope function raised {kind.__name__} for "):
        unhandled.send()

    assert (answer.status_code, answer.get_data(as_text=True)) == (403, "denied")
