"""What stands above `@idempotent` has its say before a claim or a replay, even if it forgot `functools.wraps`."""

from functools import partial, update_wrapper, wraps
from itertools import count, product

import pytest
from flask import Blueprint, Flask, abort, make_response, request
from flask.views import MethodView, View

from flask_idempotency import Idempotency, exempt, idempotent, scopes
from flask_idempotency.errors import IdempotencyError
from flask_idempotency.stores.memory import MemoryStore
from flask_idempotency.views import has_decorators
from tests.apps.shop import REPLAYED


def check():
    if request.headers.get("X-User") != "alice":
        abort(401)


def with_wraps(view):
    @wraps(view)
    def checked(*args, **kwargs):
        check()
        return view(*args, **kwargs)

    return checked


def without_wraps(view):
    def checked(*args, **kwargs):
        check()
        return view(*args, **kwargs)

    return checked


def keywords_only(view):
    def checked(**kwargs):
        check()
        return view(**kwargs)

    return checked


def positions_only(view):
    def checked(*args):
        check()
        return view(*args)

    return checked


class Object:
    def __init__(self, view):
        self.view = view

    def __call__(self, *args, **kwargs):
        check()
        return self.view(*args, **kwargs)


def of_a_coroutine(view):
    async def checked(*args, **kwargs):
        check()
        return view(*args, **kwargs)

    return checked


def with_options(view):
    def decorate(inner):
        def checked(*args, **kwargs):
            check()
            return inner(*args, **kwargs)

        return checked

    return decorate(view)


ABOVE = [with_wraps, without_wraps, keywords_only, positions_only, of_a_coroutine, with_options, Object]
ALICE = {"X-User": "alice"}


@pytest.mark.parametrize("above", [*ABOVE, lambda view: keywords_only(without_wraps(with_wraps(view)))])
def test_a_replay_is_authorised_like_a_first_run_by_any_decorator(shop, above):
    shop.app.add_url_rule("/above", "above", above(idempotent(shop.run)), methods=["POST"])
    first, second = shop.send("/above", headers=ALICE), shop.send("/above", headers=ALICE)

    stranger = shop.send("/above")

    assert (first.status_code, second.headers.get(REPLAYED), shop.n) == (201, "true", 1)
    assert (stranger.status_code, REPLAYED in stranger.headers) == (401, False)


@pytest.mark.parametrize("above", ABOVE)
def test_a_malformed_key_of_a_stranger_is_not_looked_at(shop, above):
    shop.app.add_url_rule("/above", "above", above(idempotent(shop.run)), methods=["POST"])

    assert shop.send("/above", "mal,formed").status_code == 401


def test_a_decorator_that_hides_the_view_altogether_fails_loudly_and_replays_nothing(shop):
    class Hiding:
        def __init__(self, view):
            self.view = view

        def __call__(self):
            check()
            return self.view()

    shop.app.testing = True
    shop.app.add_url_rule("/hidden", "hidden", Hiding(idempotent(shop.run)), methods=["POST"])

    for _ in range(2):
        with pytest.raises(IdempotencyError, match=r"functools\.wraps"):
            shop.send("/hidden", headers=ALICE)

    assert shop.n == 0


def test_a_view_that_merely_knows_another_is_not_taken_for_it(shop):
    inner = idempotent(required=True)(shop.run)

    def outer():
        return shop.run() if request.args else inner()

    shop.app.add_url_rule("/outer", "outer", outer, methods=["POST"])

    first, second = (shop.send("/outer", query_string="a=1") for _ in range(2))

    assert (first.status_code, second.headers.get(REPLAYED), shop.n) == (201, "true", 1)


def test_what_a_decorator_above_does_to_the_answer_is_part_of_it(shop):
    def stamped(view):
        numbers = count(1)

        @wraps(view)
        def stamp():
            response = make_response(view())
            response.headers.add("X-Stamp", str(next(numbers)))
            return response

        return stamp

    shop.app.add_url_rule("/stamped", "stamped", stamped(idempotent(shop.run)), methods=["POST"])

    first, second = shop.send("/stamped"), shop.send("/stamped")

    assert second.headers[REPLAYED] == "true"
    assert (first.data, first.headers.getlist("X-Stamp")) == (second.data, second.headers.getlist("X-Stamp"))


def test_a_decorator_below_is_part_of_the_view(shop):
    seen = []

    def below(view):
        @wraps(view)
        def count():
            seen.append(request.path)
            return view()

        return count

    shop.app.add_url_rule("/below", "below", idempotent(below(shop.run)), methods=["POST"])

    shop.send("/below")
    shop.send("/below")

    assert seen == ["/below"]


# -- decorators above a view that has none of ours ---------------------------------------------------------------------


class OfAClass(MethodView):
    """With decorators for all its methods."""

    decorators = (with_wraps,)

    def post(self):
        return "made", 201


class OfAMethod(MethodView):
    """With a decorator on one."""

    @with_wraps
    def post(self):
        return "made", 201


class OfAResource(MethodView):
    """With decorators as Flask-RESTful and Flask-RESTX have them."""

    method_decorators = (with_wraps,)

    def post(self):
        return "made", 201


class OfADispatch(MethodView):
    """With a check around all its methods."""

    def dispatch_request(self, **kwargs):
        check()
        return super().dispatch_request(**kwargs)

    def post(self):
        return "made", 201


class WithADispatchOfItsOwn(MethodView):
    """With a check around all its methods, which it finds by itself."""

    def dispatch_request(self, **kwargs):
        check()
        return getattr(self, request.method.lower())(**kwargs)

    def post(self):
        return "made", 201


class Single(View):
    """With one function for all methods."""

    def dispatch_request(self):
        return "made", 201


class Checking:
    """Stands before another class."""

    def dispatch_request(self, **kwargs):
        check()
        return super().dispatch_request(**kwargs)


class OfAMixin(Checking, Single):
    """With a check in a class before its own."""


class OfAnotherMethod(View):
    """With a check around a method that it passes everything on to."""

    def dispatch_request(self, *args, **kwargs):
        check()
        return self.create(*args, **kwargs)

    def create(self):
        return "made", 201


class OfAMethodByName(View):
    """With a check around the method that is named like the request's."""

    def dispatch_request(self, **kwargs):
        check()
        return getattr(self, request.method.lower())(**kwargs)

    def post(self):
        return "made", 201


class OfAClassWithoutWraps(MethodView):
    """With decorators for all its methods that forgot `functools.wraps`."""

    decorators = (without_wraps,)

    def post(self):
        return "made", 201


class OfAMethodWithoutWraps(MethodView):
    """With a decorator on one that forgot `functools.wraps`."""

    @without_wraps
    def post(self):
        return "made", 201


def renamed(view):
    def checked():
        check()
        return view()

    checked.__name__ = view.__name__  # as was done before there was `functools.wraps`
    return checked


def without_arguments(view):
    def checked():
        check()
        return view()

    return checked


@without_arguments
def made_in_a_module():
    return "made", 201


def given_the_view(view, *args, **kwargs):
    check()
    return view(*args, **kwargs)


def replaced_in_its_class(class_):
    inner = class_.post

    def checked(*args, **kwargs):
        check()
        return inner(*args, **kwargs)

    setattr(class_, "post", checked)  # noqa: B010 # the shape that is tested
    return class_


@replaced_in_its_class
class OfAClassDecorator(MethodView):
    """With a method that a decorator of the class has replaced."""

    def post(self):
        return "made", 201


def registered_by_its_decorator(view):
    """Give what a decorator registers that makes its own route, and gives the view back as it was."""
    app = Flask("other")

    def secured(function):
        @app.post("/")
        def checked(*args, **kwargs):
            check()
            return function(*args, **kwargs)

        return function

    secured(view)
    return app.view_functions["checked"]


def make():
    return "made", 201


BARE = {
    "a function": with_wraps(make),
    "a class": OfAClass.as_view("bare"),
    "a method": OfAMethod.as_view("bare"),
    "a resource": OfAResource.as_view("bare"),
    "a dispatch_request": OfADispatch.as_view("bare"),
    "a dispatch_request of its own": WithADispatchOfItsOwn.as_view("bare"),
    "a mixin": OfAMixin.as_view("bare"),
    "a function, without wraps": without_wraps(make),
    "a function, of keywords only": keywords_only(make),
    "a function, of positions only": positions_only(make),
    "a function, with options": with_options(make),
    "a function, renamed by hand": renamed(make),
    "a function of a module, without arguments": made_in_a_module,
    "a coroutine": of_a_coroutine(make),
    "an object": Object(make),
    "a class's method, by a decorator of the class": OfAClassDecorator.as_view("bare"),
    "a function, by a decorator that makes the route": registered_by_its_decorator(make),
    "a function that is given the view": partial(given_the_view, make),
    "a function that is given the view by name": partial(given_the_view, view=make),
    "a function that is given the view and says so": update_wrapper(partial(lambda view: view(), make), make),
    "another method": OfAnotherMethod.as_view("bare"),
    "a method by its name": OfAMethodByName.as_view("bare"),
    "some of a function's arguments": partial(with_wraps(lambda kind: (kind, 201)), "made"),
    "a class, without wraps": OfAClassWithoutWraps.as_view("bare"),
    "a method, without wraps": OfAMethodWithoutWraps.as_view("bare"),
}
bare = pytest.mark.parametrize("view", BARE.values(), ids=BARE)


@bare
def test_a_view_behind_decorators_of_its_own_is_warned_about_once_by_name(shop, view, caplog):
    shop.app.add_url_rule("/bare", "bare", view, methods=["POST"])
    shop.send("/bare", None, headers=ALICE)
    before = caplog.messages[:]

    shop.send("/bare", headers=ALICE)
    shop.send("/bare", "another", headers=ALICE)

    assert before == []
    [message] = caplog.messages
    assert message == (
        "The view 'bare' (POST) has decorators or its own dispatch_request, but not @idempotent: a request with a key"
        " is claimed, and a replay is sent, before they run. Put @idempotent below whatever checks access, or @exempt"
        " on the view."
    )


class OfManyMethods(MethodView):
    """With decorators for all its methods, one of which is protected in its own way."""

    decorators = (with_wraps,)

    def post(self, **_):
        return "made", 201

    def patch(self, **_):
        return "changed"

    def put(self, **_):
        return "replaced"


def test_a_class_based_view_is_named_once_for_all_its_methods_rules_and_endpoints(shop, caplog):
    view, other = OfManyMethods.as_view("many"), OfManyMethods.as_view("other")
    shop.app.add_url_rule("/many", view_func=view)
    shop.app.add_url_rule("/many/<int:number>", view_func=view)
    shop.app.add_url_rule("/other", view_func=other)

    for number, (method, path) in enumerate(product(["POST", "PATCH"], ["/many", "/many/7", "/other"])):
        shop.send(path, f"k-{number}", method=method)

    [message] = caplog.messages
    assert message.startswith("The view 'many' (PATCH, POST) has decorators")


def test_a_method_that_is_decorated_is_not_named_beside_one_that_is_not(shop, caplog):
    class Orders(MethodView):
        @with_wraps
        def post(self):
            return "made", 201

        @with_wraps
        @idempotent
        def patch(self):
            return "changed"

    shop.app.add_url_rule("/bare", view_func=Orders.as_view("bare"))

    shop.send("/bare", headers=ALICE)

    [message] = caplog.messages
    assert message.startswith("The view 'bare' (POST) has decorators")


@pytest.mark.parametrize(
    "above", [lambda view: partial(given_the_view, view), lambda view: partial(given_the_view, view=view)]
)
def test_a_replay_is_authorised_by_a_function_that_was_given_the_view(shop, above):
    shop.app.add_url_rule("/above", "above", above(idempotent(shop.run)), methods=["POST"])
    first, second = shop.send("/above", headers=ALICE), shop.send("/above", headers=ALICE)

    stranger = shop.send("/above")

    assert (first.status_code, second.headers.get(REPLAYED), shop.n) == (201, "true", 1)
    assert (stranger.status_code, REPLAYED in stranger.headers) == (401, False)


def test_a_view_without_source_that_passes_everything_on_is_warned_about(shop, caplog):
    names = {"app": shop.app}
    source = """
def create_app(place_order):
    @app.post("/bare")
    def create_order(**arguments):
        return place_order(**arguments)

class Orders(View):
    def dispatch_request(self, **arguments):
        return self.create(**arguments)
"""
    exec(source, names | {"View": View, "__name__": __name__}, unsourced := {})
    unsourced["create_app"](make)

    shop.send("/bare")

    [message] = caplog.messages
    assert message.startswith("The view 'create_order' (POST) has decorators")
    assert not has_decorators(unsourced["Orders"].as_view("orders"), "POST")


@bare
def test_a_view_behind_decorators_of_its_own_is_shown_in_routes(shop, view):
    shop.app.add_url_rule("/bare", "bare", view, methods=["POST"])

    lines = shop.app.test_cli_runner().invoke(args=["idempotency", "routes"]).output.splitlines()

    assert [line for line in lines if "before its decorators" in line] == [line for line in lines if "/bare" in line]


def below(shop):
    return with_wraps(idempotent(shop.run))


def left_alone(shop):
    return exempt(with_wraps(shop.run))


def plain(shop):
    return lambda: shop.run()


def a_bound_method(shop):
    return shop.run


def part_of_a_function(shop):
    return partial(lambda kind: shop.run(), "tea")


def with_a_function_beside_it(shop):
    def place_order(**_):
        return shop.run()

    def create_order(**arguments):
        return place_order(**arguments)

    return create_order


def with_a_function_that_it_was_given(shop, place_order=make):
    def create_order():
        place_order()
        return shop.run()

    return create_order


def that_passes_everything_on(shop, place_order=make):
    """Register a view as `create_app` does, with a service that it was given."""

    @shop.app.post("/unused")
    def create_order(**arguments):
        return place_order(**arguments)

    return shop.app.view_functions.pop("create_order")


def that_passes_everything_on_below_its_rule(shop, place_order=make):
    def create_order(**arguments):
        return place_order(**arguments)

    shop.app.add_url_rule("/unused", view_func=create_order, methods=["POST"])
    return shop.app.view_functions.pop("create_order")


def that_passes_everything_on_in_a_lambda(shop, place_order=make):
    shop.app.add_url_rule("/unused", "unused", lambda **arguments: place_order(**arguments), methods=["POST"])
    return shop.app.view_functions.pop("unused")


def a_class_that_passes_everything_on(shop, place_order=make):
    class Orders(MethodView):
        def post(self, **arguments):
            return place_order(**arguments)

    return Orders.as_view("orders")


def part_of_a_function_with_a_service(shop, place_order=make):
    def create_order(place_order, kind=None):
        return place_order()

    return partial(create_order, place_order)


def a_class_that_renders(shop):
    class Orders(View):
        def dispatch_request(self, **arguments):
            order = dict(**arguments)
            return self.render(order)

        def render(self, order):
            return order, 201

    return Orders.as_view("orders")


def made_under_a_name(shop):
    def view():
        return shop.run()

    view.__name__ = "create_order"
    return view


def a_coroutine(shop):
    async def view():
        return shop.run()

    return view


def a_class(shop):
    class Orders(MethodView):
        def post(self):
            return shop.run()

    return Orders.as_view("orders")


def a_class_that_inherits(shop):
    class Base(MethodView):
        def post(self):
            return shop.run()

    class Orders(Base):
        def post(self):
            return super().post()

    return Orders.as_view("orders")


def a_class_with_one_function(shop):
    class Orders(View):
        def dispatch_request(self):
            return shop.run()

    return Orders.as_view("orders")


def a_class_with_one_function_that_it_replaces(shop):
    class Orders(Single):
        def dispatch_request(self):
            return shop.run()

    return Orders.as_view("orders")


def decorated_inside_a_dispatch(shop):
    class Orders(MethodView):
        def dispatch_request(self, **kwargs):
            check()
            return super().dispatch_request(**kwargs)

        @idempotent
        def post(self):
            return shop.run()

    return Orders.as_view("orders")


PLAIN = [
    below,
    left_alone,
    plain,
    a_bound_method,
    part_of_a_function,
    with_a_function_beside_it,
    with_a_function_that_it_was_given,
    that_passes_everything_on,
    that_passes_everything_on_below_its_rule,
    that_passes_everything_on_in_a_lambda,
    a_class_that_passes_everything_on,
    part_of_a_function_with_a_service,
    a_class_that_renders,
    made_under_a_name,
    a_coroutine,
    a_class,
    a_class_that_inherits,
    a_class_with_one_function,
    a_class_with_one_function_that_it_replaces,
    decorated_inside_a_dispatch,
]


@pytest.mark.parametrize("view", PLAIN, ids=lambda view: view.__name__)
def test_other_views_are_not_warned_about(shop, view, caplog):
    shop.app.add_url_rule("/other", "other", view(shop), methods=["POST"])

    shop.send("/other", headers=ALICE)
    lines = shop.app.test_cli_runner().invoke(args=["idempotency", "routes"]).output.splitlines()

    assert caplog.messages == []
    assert [line for line in lines if "before its decorators" in line] == []


def test_the_views_of_blueprints_and_of_flask_itself_are_not_taken_for_decorated(shop):
    blueprint = Blueprint("api", __name__, static_folder="static")
    blueprint.add_url_rule("/view", "view", lambda: shop.run(), methods=["POST"])
    shop.app.register_blueprint(blueprint, url_prefix="/api")

    assert {"static", "api.static", "api.view"} < shop.app.view_functions.keys()
    assert not any(
        has_decorators(shop.app.view_functions[each], "GET") for each in ("static", "api.static", "api.view")
    )


# -- an app whose dispatch_request was changed -------------------------------------------------------------------------


class CheckingApp(Flask):
    """Decides in its own `dispatch_request` who may come in."""

    def dispatch_request(self, *args, **kwargs):
        check()
        return super().dispatch_request(*args, **kwargs)


def of_a_class_of_its_own():
    return CheckingApp("shop")


def replaced():
    app = Flask("shop")
    dispatch = app.dispatch_request

    def checked(*args, **kwargs):
        check()
        return dispatch(*args, **kwargs)

    app.dispatch_request = checked
    return app


@pytest.mark.parametrize("make_app", [of_a_class_of_its_own, replaced])
def test_an_app_with_its_own_dispatch_request_is_warned_about_once(make_app, caplog):
    app = make_app()
    app.config["IDEMPOTENCY_HOUSEKEEPING"] = False
    Idempotency(app, store=MemoryStore(), scope=scopes.everyone)
    app.add_url_rule("/plain", "plain", make, methods=["POST"])
    app.add_url_rule("/other", "other", lambda: make(), methods=["POST"])
    app.add_url_rule("/decorated", "decorated", idempotent(make), methods=["POST"])
    client = app.test_client()
    for path in ("/decorated", "/plain", "/other"):
        client.post(path, headers={**ALICE, "Idempotency-Key": path})

    [message] = caplog.messages
    assert message == (
        "This app has its own dispatch_request: a request with a key to a view without @idempotent is claimed, and a"
        " replay is sent, before it runs. If it checks access, do that in a before_request hook, or put @idempotent on"
        " the views."
    )
    assert message in app.test_cli_runner().invoke(args=["idempotency", "routes"]).output
