"""Whatever kind a view is, its first answer and its replay are equal: row M07."""

import sys
from types import ModuleType

import pytest
from flask import Blueprint, abort, make_response
from flask.views import MethodView, View
from werkzeug.utils import cached_property, import_string

from flask_idempotency import exempt, idempotent
from tests.apps.shop import REPLAYED


def is_protected(shop, path, method="POST", **options):
    """Send a request twice; say whether the second was answered from the first."""
    before = shop.n
    first, second = (shop.send(path, method=method, **options) for _ in range(2))
    assert first.status_code == second.status_code, second.text
    assert (second.headers.get(REPLAYED) == "true") == (shop.n == before + 1)
    assert REPLAYED not in second.headers or first.data == second.data
    return shop.n == before + 1


@pytest.mark.parametrize("decorated", [True, False], ids=["decorated", "undecorated"])
@pytest.mark.parametrize("nested", [0, 1, 2])
def test_m07_blueprints(shop, decorated, nested):
    blueprint, prefix = Blueprint("inner", __name__), ""
    view = idempotent(shop.run) if decorated else (lambda: shop.run())
    blueprint.add_url_rule("/view", "view", view, methods=["POST"])
    for number in range(nested):
        outer = Blueprint(f"outer{number}", __name__)
        outer.register_blueprint(blueprint, url_prefix=f"/nested{number}")
        blueprint, prefix = outer, f"/nested{number}{prefix}"
    shop.app.register_blueprint(blueprint, url_prefix="/api")

    assert is_protected(shop, f"/api{prefix}/view")


@pytest.mark.parametrize("decorated", [True, False], ids=["decorated", "undecorated"])
def test_m07_async_views(shop, decorated):
    async def view():
        return shop.run()

    shop.app.add_url_rule("/async", "async", idempotent(view) if decorated else view, methods=["POST"])

    assert is_protected(shop, "/async")


def test_an_async_view_that_raises_frees_the_key(shop):
    async def view():
        if shop.run() and shop.n == 1:
            raise ValueError
        return shop.create()

    shop.app.testing = True  # not logged: the log would keep the traceback, and that the thread of the loop
    shop.app.add_url_rule("/async", "async", idempotent(view), methods=["POST"])
    with pytest.raises(ValueError):  # noqa: PT011  # it has no words
        shop.send("/async")

    assert (shop.send("/async").status_code, shop.n) == (201, 2)


def test_an_async_view_that_requires_a_key_refuses(shop):
    async def view():
        return shop.run()

    shop.app.add_url_rule("/async", "async", idempotent(required=True)(view), methods=["POST"])

    assert shop.send("/async", None).json["code"] == "key-missing"


def test_m07_async_error_handlers_and_hooks(shop):
    async def hook(response):
        response.headers["X-Hook"] = "1"
        return response

    async def handler(error):
        return "handled", 404

    shop.app.after_request_funcs[None].append(hook)
    shop.app.register_error_handler(404, handler)
    shop.answer = lambda: abort(404)

    assert is_protected(shop, "/orders")


class Orders(MethodView):
    """Decorated method by method; a shop is set before it is used."""

    init_every_request = False

    def __init__(self, shop):
        self.shop = shop

    @idempotent(required=True)
    def post(self):
        return self.shop.run()

    def patch(self):
        return self.shop.run()

    @exempt
    def put(self):
        return self.shop.run()

    @idempotent(methods={"DELETE"})
    async def delete(self):
        return self.shop.run()


@pytest.mark.parametrize(("method", "expected"), [("POST", True), ("PATCH", True), ("PUT", False), ("DELETE", True)])
def test_m07_the_methods_of_a_class(make_shop, method, expected):
    shop = make_shop(methods={"POST", "PATCH", "PUT"})
    shop.app.add_url_rule("/class", view_func=Orders.as_view("class", shop))

    assert is_protected(shop, "/class", method) == expected


def test_a_method_that_requires_a_key_does_so_alone(shop):
    shop.app.add_url_rule("/class", view_func=Orders.as_view("class", shop))

    assert shop.send("/class", None).json["code"] == "key-missing"
    assert shop.send("/class", None, method="PATCH").status_code == 201


@pytest.mark.parametrize("every", [True, False])
@pytest.mark.parametrize("base", [View, MethodView])
def test_m07_the_decorators_of_a_class(shop, every, base):
    class Decorated(base):
        methods = ["POST"]  # noqa: RUF012  # as Flask's own documentation writes it
        decorators = [idempotent(required=True)]  # noqa: RUF012  # as Flask's own documentation writes it
        init_every_request = every

        def post(self):
            return shop.run()

        def dispatch_request(self):
            return self.post()

    shop.app.add_url_rule("/class", view_func=Decorated.as_view("class"))

    assert is_protected(shop, "/class")
    assert shop.send("/class", None).json["code"] == "key-missing"


def test_a_class_whose_dispatch_is_decorated(shop):
    class Dispatching(View):
        methods = ["POST"]  # noqa: RUF012  # as Flask's own documentation writes it

        @idempotent
        def dispatch_request(self):
            return shop.run()

    shop.app.add_url_rule("/class", view_func=Dispatching.as_view("class"))

    assert is_protected(shop, "/class")


def test_a_class_without_decorators_is_protected_like_any_view(shop):
    class Plain(View):
        methods = ["POST"]  # noqa: RUF012  # as Flask's own documentation writes it

        def dispatch_request(self):
            return shop.run()

    shop.app.add_url_rule("/class", view_func=Plain.as_view("class"))

    assert is_protected(shop, "/class")


def test_a_class_may_be_exempt(shop):
    @exempt
    class Exempt(MethodView):
        def post(self):
            return shop.run()

    shop.app.add_url_rule("/class", view_func=Exempt.as_view("class"))

    assert not is_protected(shop, "/class")


def test_a_method_inherited_from_another_class_is_decorated_still(shop):
    class Heir(Orders):
        pass

    shop.app.add_url_rule("/heir", view_func=Heir.as_view("heir", shop))

    assert is_protected(shop, "/heir")


# -- objects that are called like functions ----------------------------------------------------------------------------


class LazyView:
    """As in Flask's documentation, *Lazily Loading Views*."""

    def __init__(self, import_name):
        self.__module__, self.__name__ = import_name.rsplit(".", 1)
        self.import_name = import_name

    @cached_property
    def view(self):
        return import_string(self.import_name)

    def __call__(self, *args, **kwargs):
        return self.view(*args, **kwargs)


@pytest.fixture
def lazy(shop, monkeypatch):
    """`lazy(view)`: a view at "/lazy" that loads this one when it is first called."""
    module = ModuleType("tests_lazy_views")
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def serve(view):
        module.view = view
        shop.app.add_url_rule("/lazy", view_func=LazyView(f"{module.__name__}.view"), methods=["POST"])

    return serve


@pytest.mark.parametrize(
    "decorate",
    [idempotent(required=True), idempotent(guard="lease", retention=60), lambda view: view],
    ids=["decorated", "with options", "undecorated"],
)
def test_a_view_that_is_loaded_lazily_is_protected_as_it_says(shop, lazy, decorate):
    shop.app.add_url_rule("/other", "other", lambda: "other")
    lazy(decorate(lambda: shop.run()))
    shop.app.test_client().get("/other")  # the first request, at which every decorator is looked at

    assert is_protected(shop, "/lazy")


def test_a_view_that_is_loaded_lazily_may_require_a_key(shop, lazy):
    lazy(idempotent(required=True)(shop.run))

    assert shop.send("/lazy", None).json["code"] == "key-missing"


def test_a_view_that_is_loaded_lazily_may_be_exempt(shop, lazy):
    lazy(exempt(lambda: shop.run()))

    assert not is_protected(shop, "/lazy")


def test_lazy_views_are_loaded_for_no_request_but_their_own(shop, lazy):
    lazy(lambda: shop.run())
    view = shop.app.view_functions["view"]

    shop.send()
    before = "view" in vars(view)
    shop.send("/lazy", "another")

    assert (before, "view" in vars(view)) == (False, True)


def test_a_lazy_view_that_cannot_be_loaded_fails_in_its_own_words_until_it_can(shop, monkeypatch):
    shop.app.testing = True
    shop.app.add_url_rule("/missing", view_func=LazyView("tests_missing_module.view"), methods=["POST"])
    with pytest.raises(ImportError, match="tests_missing_module"):
        shop.send("/missing")
    module = ModuleType("tests_missing_module")
    module.view = idempotent(retention=60)(shop.run)
    monkeypatch.setitem(sys.modules, module.__name__, module)

    assert is_protected(shop, "/missing")


@pytest.mark.parametrize(
    "answer",
    [lambda: abort(404), lambda: make_response("made", 201), lambda: ("", 204)],
    ids=["abort", "made", "empty"],
)
def test_m07_answers_of_every_kind(shop, answer):
    shop.answer = answer

    assert is_protected(shop, "/orders")


def test_one_view_may_serve_two_routes_under_two_policies(shop):
    shop.app.add_url_rule("/strict", "strict", idempotent(required=True)(shop.run), methods=["POST"])
    shop.app.add_url_rule("/free", "free", exempt(lambda: shop.run()), methods=["POST"])

    assert shop.send("/strict", None).status_code == 400
    assert not is_protected(shop, "/free")


def test_view_arguments_reach_the_view(shop):
    @idempotent
    def view(name, *, number):
        shop.run()
        return f"{name} {number}"

    shop.app.add_url_rule("/<name>/<int:number>", "arguments", view, methods=["POST"])

    assert shop.send("/tea/2").text == "tea 2"
