"""Options that all views of a blueprint begin with: they win over the settings, and a view's own win over them."""

import gc
import weakref
from datetime import timedelta

import pytest
from flask import Blueprint, Flask

from flask_idempotency import Idempotency, exempt, idempotent, scopes
from flask_idempotency.errors import ConfigError
from flask_idempotency.stores import open_store

STRIPE, IETF = "application/json", "application/problem+json"
MALFORMED = "a,b"


class Api:
    """An app whose store counts nothing: what a view answers with a malformed key tells its dialect."""

    def __init__(self, **settings):
        self.idempotency = Idempotency(scope=scopes.everyone, store=open_store("memory://"))
        self.app = Flask("api")
        self.app.config["IDEMPOTENCY_HOUSEKEEPING"] = False
        self.app.config.update({f"IDEMPOTENCY_{name.upper()}": value for name, value in settings.items()})
        self.n = 0

    def begin(self):
        self.idempotency.init_app(self.app)
        return self

    def view(self):
        self.n += 1
        return {"n": self.n}, 201

    def serve(self, blueprint, path="/", **options):
        """Add a view, decorated if there are options, to a blueprint or the app."""
        plain = lambda: self.view()  # noqa: E731  # each endpoint a function of its own
        view = idempotent(**options)(plain) if options else plain
        blueprint.add_url_rule(path, path.replace("/", "_"), view, methods=["POST", "PUT"])

    def send(self, path="/", key=MALFORMED, **options):
        headers = {} if key is None else {"Idempotency-Key": key}
        return self.app.test_client().open(path, **{"method": "POST", "headers": headers, **options})


@pytest.fixture
def api():
    return Api()


@pytest.fixture
def blueprint():
    return Blueprint("stripe", __name__)


@pytest.mark.parametrize("options", [{}, {"required": True}], ids=["undecorated", "decorated"])
def test_the_views_of_a_blueprint_speak_its_dialect_and_no_others(api, blueprint, options):
    api.idempotency.defaults(blueprint, dialect="stripe")
    api.serve(blueprint, "/in", **options)
    api.serve(api.app, "/out", **options)
    api.app.register_blueprint(blueprint)
    api.begin()

    assert [api.send(path).mimetype for path in ("/in", "/out")] == [STRIPE, IETF]


ORDERS = {
    "defaults, views, registration, init_app": "dvri",
    "init_app before the rest": "idvr",
    "defaults at the end": "vrid",
    "views at the end": "dirv",
    "init_app at the end": "rvdi",
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_the_order_in_which_an_app_is_put_together_does_not_matter(api, blueprint, order):
    steps = {
        "d": lambda: api.idempotency.defaults(blueprint, dialect="stripe", required=True),
        "v": lambda: (api.serve(blueprint, "/plain"), api.serve(blueprint, "/marked", methods=["POST"])),
        "r": lambda: api.app.register_blueprint(blueprint),
        "i": api.begin,
    }
    if order.index("r") < order.index("v"):  # Flask wants views before that
        steps["v"], steps["r"] = (lambda: None), (lambda views=steps["v"], then=steps["r"]: (views(), then()))
    for step in order:
        steps[step]()

    answers = [api.send(path, key=None) for path in ("/plain", "/marked")]

    assert [answer.status_code for answer in answers] == [400, 400]
    assert [answer.json["error"]["code"] for answer in answers] == ["idempotency_key_missing"] * 2
    assert api.n == 0


def test_a_views_own_options_win_over_its_blueprints_and_these_over_the_settings(blueprint):
    api = Api(dialect="stripe", required=True, key_syntax="opaque")
    api.idempotency.defaults(blueprint, dialect="ietf", required=False)
    api.serve(blueprint, "/own", required=True)
    api.serve(blueprint, "/blueprint")
    api.serve(api.app, "/settings")
    api.app.register_blueprint(blueprint)
    api.begin()

    own, of_blueprint, of_app = (api.send(path, key=None) for path in ("/own", "/blueprint", "/settings"))

    assert (own.status_code, own.mimetype) == (400, IETF)
    assert of_blueprint.status_code == 201
    assert (of_app.status_code, of_app.mimetype) == (400, STRIPE)


def test_a_nested_blueprint_wins_over_its_parent_and_takes_what_it_leaves_open(api):
    parent, child = Blueprint("v1", __name__), Blueprint("charges", __name__)
    api.idempotency.defaults(parent, dialect="stripe", required=True)
    api.idempotency.defaults(child, required=False)
    api.serve(parent, "/parent")
    api.serve(child, "/child")
    parent.register_blueprint(child, url_prefix="/nested")
    api.app.register_blueprint(parent)
    api.begin()

    assert api.send("/parent", key=None).json["error"]["code"] == "idempotency_key_missing"
    assert api.send("/nested/child", key=None).status_code == 201
    assert api.send("/nested/child").mimetype == STRIPE


def test_a_blueprint_may_be_registered_twice_and_under_another_name(api, blueprint):
    api.idempotency.defaults(blueprint, dialect="stripe")
    api.serve(blueprint, "/in", required=True)
    for number in "12":
        api.app.register_blueprint(blueprint, name=f"copy{number}", url_prefix=f"/{number}")
    api.begin()

    assert [api.send(path).mimetype for path in ("/1/in", "/2/in")] == [STRIPE, STRIPE]


def test_one_view_may_be_in_two_blueprints_with_different_options(api):
    shared = idempotent(lambda: api.view())
    for name, dialect in (("one", "stripe"), ("two", "ietf")):
        each = Blueprint(name, __name__)
        each.add_url_rule(f"/{name}", "shared", shared, methods=["POST"])
        api.idempotency.defaults(each, dialect=dialect, required=True)
        api.app.register_blueprint(each)
    api.begin()

    assert [api.send(path).mimetype for path in ("/one", "/two", "/one")] == [STRIPE, IETF, STRIPE]


def test_a_second_call_adds_to_the_first_and_replaces_what_both_name(api, blueprint):
    api.idempotency.defaults(blueprint, dialect="stripe", required=True)
    api.idempotency.defaults(blueprint, required=False)
    api.serve(blueprint, "/in")
    api.app.register_blueprint(blueprint)
    api.begin()

    assert api.send("/in", key=None).status_code == 201
    assert api.send("/in").mimetype == STRIPE


def test_other_options_count_for_undecorated_views_too(api, blueprint):
    api.idempotency.defaults(blueprint, methods={"PUT"}, keep={201}, scope=lambda: "whoever")
    api.serve(blueprint, "/in")
    api.app.register_blueprint(blueprint)
    api.begin()

    replayed = {
        method: [api.send("/in", key="k", method=method) for _ in range(2)][1].headers.get("Idempotent-Replayed")
        for method in ("PUT", "POST")
    }

    assert replayed == {"PUT": "true", "POST": None}


def test_an_exempt_view_is_left_alone(api, blueprint):
    api.idempotency.defaults(blueprint, required=True)
    blueprint.add_url_rule("/in", "in", exempt(lambda: "ok"), methods=["POST"])
    api.app.register_blueprint(blueprint)
    api.begin()

    assert api.send("/in", key=None).text == "ok"


def test_a_key_that_a_blueprint_requires_of_a_view_that_serves_no_such_method_is_named(api, blueprint):
    api.idempotency.defaults(blueprint, required=True)
    blueprint.add_url_rule("/in", "put_it", idempotent(lambda: "ok"), methods=["PUT"])
    api.app.register_blueprint(blueprint)
    api.begin()
    api.app.testing = True

    with pytest.raises(ConfigError, match=r"has no effect on 'stripe\.put_it'"):
        api.send("/in", method="PUT")


def test_options_of_a_blueprint_that_contradict_each_other_are_named(api, blueprint):
    api.idempotency.defaults(blueprint, guard="transaction")
    api.serve(blueprint, "/in", required=True)
    api.app.register_blueprint(blueprint)
    api.begin()
    api.app.testing = True

    with pytest.raises(ConfigError, match=r'guard="transaction" needs the app\'s own database'):
        api.send("/in", key="k")


def test_the_store_keeps_as_long_as_the_longest_retention_of_any_blueprint(api, blueprint):
    api.idempotency.defaults(blueprint, retention=timedelta(days=7))
    api.serve(blueprint, "/in")
    api.app.register_blueprint(blueprint)
    api.begin()

    assert api.app.extensions["idempotency"].housekeeper._retention() == timedelta(days=7)


def test_the_table_of_routes_shows_the_blueprints_options(api, blueprint):
    api.idempotency.defaults(blueprint, required=True, in_flight="wait")
    api.serve(blueprint, "/in")
    api.app.register_blueprint(blueprint)
    api.begin()

    table = api.app.test_cli_runner().invoke(args=["idempotency", "routes"]).output

    (line,) = [line for line in table.splitlines() if "POST" in line and "/in" in line]
    assert "required" in line
    assert line.endswith("wait")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"dialekt": "stripe"}, "dialekt= is not an option of @idempotent; did you mean dialect=?"),
        ({"dialect": "paypal"}, "dialect= must be 'ietf' or 'stripe', not 'paypal'."),
        ({"required": 1}, "required= must be True or False, not 1."),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_in_one_sentence(api, blueprint, options, sentence):
    with pytest.raises(ConfigError) as caught:
        api.idempotency.defaults(blueprint, **options)

    assert str(caught.value) == sentence


@pytest.mark.parametrize("thing", ["stripe", None, Flask("app")], ids=["a name", "nothing", "an app"])
def test_only_a_blueprint_has_defaults(api, thing):
    with pytest.raises(ConfigError, match=r"^defaults\(\) expects a Blueprint, not \w+\.$"):
        api.idempotency.defaults(thing, required=True)


def test_defaults_of_one_extension_are_not_anothers(blueprint):
    one, two = Api(), Api()
    one.idempotency.defaults(blueprint, dialect="stripe")
    one.serve(blueprint, "/in", required=True)
    for each in (one, two):
        each.app.register_blueprint(blueprint)
        each.begin()

    assert [each.send("/in").mimetype for each in (one, two)] == [STRIPE, IETF]


def test_a_blueprint_is_not_kept_alive(api):
    blueprint = Blueprint("short-lived", __name__)
    api.idempotency.defaults(blueprint, required=True)
    left = weakref.ref(blueprint)

    del blueprint
    gc.collect()

    assert left() is None
