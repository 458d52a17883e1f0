"""A decorator that protects nothing is named at the first request, and the view it should protect does not run."""

import gc
from functools import partial, wraps

import pytest
from flask import Blueprint, Flask
from flask.views import MethodView
from werkzeug.local import LocalProxy

from flask_idempotency import Idempotency, exempt, idempotent, scopes
from flask_idempotency.errors import ConfigError
from flask_idempotency.stores.memory import MemoryStore


def make_app(**settings):
    app = Flask("misplaced")
    app.config.update({"IDEMPOTENCY_HOUSEKEEPING": False, "TESTING": True, **settings})
    Idempotency(app, store=MemoryStore(), scope=scopes.everyone)
    app.add_url_rule("/fine", "fine", lambda: "ok", methods=["POST"])
    return app


def logged(view):
    @wraps(view)
    def call(*args, **kwargs):
        return view(*args, **kwargs)

    return call


def errors_of(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "flask_idempotency"]


def above_a_route(app, runs):
    @idempotent(required=True)
    @app.post("/orders")
    def create_order():
        runs.append(1)
        return "ok"


def above_a_route_without_options(app, runs):
    @idempotent
    @app.route("/orders", methods=["POST"])
    def create_order():
        runs.append(1)
        return "ok"


def above_a_route_of_a_blueprint(app, runs):
    blueprint = Blueprint("shop", __name__)

    @idempotent(required=True)
    @blueprint.post("/orders")
    def create_order():
        runs.append(1)
        return "ok"

    app.register_blueprint(blueprint)


def above_a_route_with_a_decorator_between(app, runs):
    @idempotent(required=True)
    @logged
    @app.post("/orders")
    def create_order():
        runs.append(1)
        return "ok"


def above_a_route_with_a_decorator_below(app, runs):
    @idempotent(required=True)
    @app.post("/orders")
    @logged
    def create_order():
        runs.append(1)
        return "ok"


ABOVE = [
    above_a_route,
    above_a_route_without_options,
    above_a_route_of_a_blueprint,
    above_a_route_with_a_decorator_between,
    above_a_route_with_a_decorator_below,
]


@pytest.mark.parametrize("key", [None, "k"], ids=["without a key", "with a key"])
@pytest.mark.parametrize("place", ABOVE)
def test_a_view_whose_decorator_stands_above_its_route_does_not_run_unprotected(place, key):
    app, runs = make_app(), []
    place(app, runs)
    gc.collect()  # what the decorator made is nobody's

    with pytest.raises(
        ConfigError, match=r"@idempotent is above the route decorator of '(shop\.)?create_order'.* move "
    ):
        app.test_client().post("/orders", headers={} if key is None else {"Idempotency-Key": key})

    assert runs == []


def test_the_mistake_is_in_the_log_at_the_first_request_to_any_view(caplog):
    app = make_app()
    above_a_route(app, [])

    answers = [app.test_client().post("/fine") for _ in range(2)]

    assert [answer.status_code for answer in answers] == [200, 200]
    assert len(errors_of(caplog)) == 1
    assert "is above the route decorator of 'create_order'" in errors_of(caplog)[0]


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_a_required_key_that_no_method_of_the_view_looks_at_is_refused(method, caplog):
    app, runs = make_app(), []
    view = idempotent(required=True)(lambda: runs.append(1) or "ok")
    app.add_url_rule("/orders", "replace", view, methods=[method])

    with pytest.raises(
        ConfigError,
        match=rf"has no effect on 'replace', which serves only {method}: add methods=\{{\"{method}\"\}} to it, or rem",
    ):
        app.test_client().open("/orders", method=method)

    assert runs == []
    assert len(errors_of(caplog)) == 1


def test_a_required_key_on_a_view_that_only_reads_is_refused():
    app = make_app()
    app.add_url_rule("/orders", "list", idempotent(required=True)(lambda: "ok"))

    with pytest.raises(ConfigError, match="serves only GET: remove it, because reading needs no key"):
        app.test_client().get("/orders")


def test_a_required_key_on_one_method_of_a_class_is_refused_there_alone():
    class Orders(MethodView):
        def post(self):
            return "ok"

        @idempotent(required=True)
        def put(self):
            return "ok"

    app = make_app()
    app.add_url_rule("/orders", view_func=Orders.as_view("orders"))

    assert app.test_client().post("/orders").status_code == 200
    with pytest.raises(ConfigError, match="serves only PUT"):
        app.test_client().put("/orders")


# -- one decorator, several methods ------------------------------------------------------------------------------------


def one_policy_for_two_views(app, runs):
    policy = idempotent(required=True)
    app.post("/orders")(policy(lambda: "ok"))
    app.add_url_rule("/orders/1", "replace", policy(lambda: runs.append(1) or "ok"), methods=["PUT"])


def one_policy_for_two_views_that_names_a_method(app, runs):
    policy = idempotent(required=True, methods={"POST"})
    app.post("/orders")(policy(lambda: "ok"))
    app.add_url_rule("/orders/1", "replace", policy(lambda: runs.append(1) or "ok"), methods=["PUT"])


def one_view_for_two_routes(app, runs):
    view = idempotent(required=True)(lambda: runs.append(1) or "ok")
    app.add_url_rule("/orders", "replace", view, methods=["POST"])
    app.add_url_rule("/orders/1", "replace", view, methods=["PUT"])


def one_view_for_two_endpoints(app, runs):
    view = idempotent(required=True)(lambda: runs.append(1) or "ok")
    app.add_url_rule("/orders", "create", view, methods=["POST"])
    app.add_url_rule("/orders/1", "replace", view, methods=["PUT"])


def one_route_for_two_methods(app, runs):
    view = idempotent(required=True)(lambda: runs.append(1) or "ok")
    app.add_url_rule("/orders/1", "replace", view, methods=["GET", "POST", "PUT"])


def one_class_for_two_methods(app, runs):
    class Orders(MethodView):
        decorators = [idempotent(required=True)]  # noqa: RUF012  # as Flask's own documentation writes it

        def post(self):
            return "ok"

        def put(self):
            return runs.append(1) or "ok"

    app.add_url_rule("/orders/1", view_func=Orders.as_view("replace"))


def required_by_the_settings(app, runs):
    view = idempotent(lambda: runs.append(1) or "ok")
    app.add_url_rule("/orders/1", "replace", view, methods=["POST", "PUT"])


TWO_VIEWS = [one_policy_for_two_views, one_policy_for_two_views_that_names_a_method]
ONE_VIEW = [
    one_view_for_two_routes,
    one_view_for_two_endpoints,
    one_route_for_two_methods,
    one_class_for_two_methods,
    required_by_the_settings,
]


def make_shared(place):
    app, runs = make_app(IDEMPOTENCY_REQUIRED=place is required_by_the_settings), []
    place(app, runs)
    return app, runs


@pytest.mark.parametrize("place", TWO_VIEWS)
def test_a_required_key_that_one_of_two_views_looks_at_is_refused_on_the_other(place, caplog):
    app, runs = make_shared(place)

    with pytest.raises(ConfigError, match="has no effect on 'replace', which serves only PUT"):
        app.test_client().put("/orders/1")

    assert (len(errors_of(caplog)), runs) == (1, [])


@pytest.mark.parametrize("place", ONE_VIEW)
def test_a_method_of_a_view_that_needs_no_key_though_others_do_is_named_once(place, caplog):
    app, _ = make_shared(place)

    answers = [app.test_client().put("/orders/1") for _ in range(2)]

    assert [answer.status_code for answer in answers] == [200, 200]  # as the contract of the wire has it
    [warning] = errors_of(caplog)
    assert warning.startswith("PUT requests to 'replace' run without a key, although its @idempotent requires one: ")
    assert warning in app.test_cli_runner().invoke(args=["idempotency", "routes"]).output


@pytest.mark.parametrize("place", [*TWO_VIEWS, *ONE_VIEW])
def test_the_methods_that_the_decorator_covers_need_a_key_all_the_same(place):
    app, _ = make_shared(place)
    path = next(rule.rule for rule in app.url_map.iter_rules() if "POST" in rule.methods and rule.rule != "/fine")

    answers = [app.test_client().post(path, headers=headers) for headers in ({}, {"Idempotency-Key": "k"})]

    assert [answer.status_code for answer in answers] == [400, 200]


def test_the_sentence_says_how_to_cover_a_method_and_how_to_leave_it_out(caplog):
    app, _ = make_shared(one_route_for_two_methods)

    app.test_client().put("/orders/1")

    assert errors_of(caplog) == [
        (
            "PUT requests to 'replace' run without a key, although its @idempotent requires one: add"
            ' methods={"POST", "PUT"} to the decorator, or methods={"POST"} if they need no key.'
        )
    ]


def test_options_that_make_no_sense_together_are_named_at_the_first_request_to_any_view(caplog):
    app = make_app()
    app.add_url_rule("/orders", "orders", idempotent(guard="transaction")(lambda: "ok"), methods=["POST"])

    answer = app.test_client().post("/fine")
    with pytest.raises(ConfigError, match="needs the app's own database"):
        app.test_client().post("/orders")
    result = app.test_cli_runner().invoke(args=["idempotency", "routes"])

    assert answer.status_code == 200
    assert [each for each in errors_of(caplog) if "needs the app's own database" in each and "'orders'" in each]
    assert (result.exit_code, "refused: see below" in result.output) == (0, True)


# -- what is no mistake ------------------------------------------------------------------------------------------------


def module_level():
    return "ok"


def both_ways(app):
    def create():
        return "ok"

    app.add_url_rule("/orders", "orders", logged(idempotent(create)), methods=["POST"])
    app.add_url_rule("/internal", "internal", create, methods=["POST"])


def unprotected_here(app):
    idempotent(module_level)  # for another app
    app.add_url_rule("/orders", "orders", module_level, methods=["POST"])


def covered_by_its_own_methods(app):
    app.put("/orders")(idempotent(required=True, methods={"PUT"})(lambda: "ok"))


def one_of_several_methods_that_it_names(app):
    app.route("/orders", methods=["GET", "PUT", "POST"])(idempotent(required=True, methods={"POST"})(lambda: "ok"))


def a_method_that_reads(app):
    app.route("/orders", methods=["GET", "POST"])(idempotent(required=True)(lambda: "ok"))


def one_view_for_two_endpoints_that_names_its_methods(app):
    view = idempotent(required=True, methods={"POST"})(lambda: "ok")
    app.add_url_rule("/orders", "create", view, methods=["POST"])
    app.add_url_rule("/internal", "replace", view, methods=["PUT"])


def not_required(app):
    app.put("/orders")(idempotent(lambda: "ok"))


def exempt_above_its_route(app):
    exempt(app.post("/orders")(lambda: "ok"))


def below_its_route(app):
    @app.post("/orders")
    @logged
    @idempotent
    @logged
    def create_order():
        return "ok"


@pytest.mark.parametrize(
    "place",
    [
        both_ways,
        unprotected_here,
        covered_by_its_own_methods,
        one_of_several_methods_that_it_names,
        a_method_that_reads,
        one_view_for_two_endpoints_that_names_its_methods,
        not_required,
        exempt_above_its_route,
        below_its_route,
    ],
)
def test_a_decorator_that_does_what_it_says_is_no_mistake(place, caplog):
    app = make_app()
    place(app)
    methods = {rule.rule: rule.methods - {"HEAD", "OPTIONS"} for rule in app.url_map.iter_rules()}

    for path in ("/orders", "/internal"):
        for method in methods.get(path, ()):
            answer = app.test_client().open(path, method=method, headers={"Idempotency-Key": method + path})
            assert answer.status_code == 200

    assert errors_of(caplog) == []


def test_an_app_says_it_with_a_500_and_the_sentence_in_its_log(caplog):
    app = make_app(TESTING=False)
    above_a_route(app, [])

    answer = app.test_client().post("/orders")

    assert answer.status_code == 500
    assert "is above the route decorator" in caplog.text


def test_routes_shows_it_without_a_request():
    app = make_app()
    above_a_route(app, [])

    result = app.test_cli_runner().invoke(args=["idempotency", "routes"])

    assert result.exit_code == 0
    assert [line.split()[3] for line in result.output.splitlines() if line.startswith("create_order")] == ["refused:"]
    assert "@idempotent is above the route decorator of 'create_order'" in result.output


# -- apps that are all right -------------------------------------------------------------------------------------------


def test_a_view_with_a_variable_that_was_never_bound_disturbs_nobody():
    app, tracing = make_app(), False
    if tracing:
        tracer = print

    @app.get("/files/<path:name>")
    def files(**arguments):
        if tracing:
            tracer(arguments)
        return arguments

    assert app.test_client().get("/files/a").status_code == 200


def test_a_proxy_in_a_view_is_not_asked_before_there_is_anybody_to_ask_for():
    app = make_app()
    user = LocalProxy(lambda: {}["nobody is signed in yet"])

    @app.get("/files/<path:name>")
    def files(**arguments):
        return {"user": str(type(user)), **arguments}

    assert app.test_client().get("/files/a").status_code == 200


def test_one_view_may_serve_a_form_and_what_it_posts_under_two_endpoints():
    app = make_app()
    pay = idempotent(required=True)(lambda: "ok")
    app.add_url_rule("/pay", "pay_form", pay, methods=["GET"])
    app.add_url_rule("/pay", "pay", pay, methods=["POST"])

    assert app.test_client().get("/pay").status_code == 200
    assert app.test_client().post("/pay").get_json()["code"] == "key-missing"


def test_a_decorator_that_two_classes_share_may_have_no_effect_on_the_one_that_reads():
    app, shared = make_app(), [idempotent(required=True)]

    class Reads(MethodView):
        decorators = shared

        def get(self):
            return "ok"

    class Writes(MethodView):
        decorators = shared

        def post(self):
            return "ok"

    app.add_url_rule("/reads", view_func=Reads.as_view("reads"))
    app.add_url_rule("/writes", view_func=Writes.as_view("writes"))

    assert app.test_client().get("/reads").status_code == 200
    assert app.test_client().post("/writes").get_json()["code"] == "key-missing"


def test_a_protected_view_may_be_registered_with_some_of_its_arguments_given():
    app = make_app()
    view = idempotent(required=True)(lambda kind: (kind, 201))
    app.add_url_rule("/tea", "tea", partial(view, "tea"), methods=["POST"])

    answers = [app.test_client().post("/tea", headers={"Idempotency-Key": "k"}) for _ in range(2)]

    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[1].headers["Idempotent-Replayed"] == "true"


def hidden(view):
    def call(*args, **kwargs):
        return view(*args, **kwargs)

    return call


def test_a_route_below_its_decorator_is_found_through_one_without_wraps():
    app, runs = make_app(), []

    @idempotent(required=True)
    @hidden
    @app.post("/orders")
    def create_order():
        runs.append(1)

    with pytest.raises(ConfigError, match="@idempotent is above the route decorator of 'create_order'"):
        app.test_client().post("/orders")

    assert runs == []


def test_a_route_that_calls_a_view_without_the_key_that_another_route_requires_is_named_once(caplog):
    app = make_app()

    @app.post("/orders", endpoint="orders")
    @idempotent(required=True)
    @app.post("/internal", endpoint="internal")
    def create_order():
        return "ok"

    client = app.test_client()
    answers = [client.post("/orders"), client.post("/internal"), client.post("/internal")]

    assert [answer.status_code for answer in answers] == [400, 200, 200]
    [warning] = errors_of(caplog)
    assert warning.startswith("'internal' calls the view of 'orders' without its @idempotent: ")


def test_the_advice_names_every_method_so_that_following_it_leaves_none_out(caplog):
    app = make_app()

    @app.route("/orders/1", methods=["POST", "PUT", "DELETE"])
    @idempotent(required=True)
    def order():
        return "ok"

    app.test_client().put("/orders/1")

    [warning] = errors_of(caplog)
    assert warning.startswith("DELETE and PUT requests to 'order' run without a key")
    assert 'add methods={"DELETE", "POST", "PUT"} to the decorator' in warning


def test_the_advice_for_a_shared_decorator_keeps_its_effect_on_the_other_view():
    app = make_app()
    required = idempotent(required=True)
    app.add_url_rule("/a", "a", required(lambda: "ok"), methods=["POST"])
    app.add_url_rule("/b", "b", required(lambda: "ok"), methods=["PUT"])

    with pytest.raises(ConfigError, match=r'add methods=\{"POST", "PUT"\} to it'):
        app.test_client().put("/b")
