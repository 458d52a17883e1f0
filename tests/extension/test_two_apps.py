"""Two apps in one process do not disturb each other, whatever they share and however they differ."""

import threading

import pytest
from flask import Flask, request

from flask_idempotency import Idempotency, idempotent, scopes, signals
from flask_idempotency.errors import ConfigError
from flask_idempotency.stores import open_store
from tests.apps.shop import REFERENCE, REPLAYED


def make_app(name, idempotency, **settings):
    """An app that says its name and how often it ran."""
    app, runs = Flask(name), []
    app.config.update({f"IDEMPOTENCY_{key.upper()}": value for key, value in settings.items()})
    app.config["IDEMPOTENCY_HOUSEKEEPING"] = False
    idempotency(app)

    @app.post("/")
    def view():
        runs.append(request.get_data())
        return {"app": name, "run": len(runs)}, 201

    return app


def send(app, key="abc", **options):
    return app.test_client().post("/", headers={"Idempotency-Key": key, **options.pop("headers", {})}, **options)


@pytest.fixture
def stores(shop_url, tmp_path):
    """The store under test, and another of another kind."""
    stores = [open_store(shop_url), open_store(f"sqlite:///{tmp_path / 'other.db'}")]
    for store in stores:
        store.create()
    yield stores
    for store in stores:
        store.close()


def test_each_has_its_own_store(stores):
    one = make_app("one", lambda app: Idempotency(app, store=stores[0], scope=scopes.everyone))
    two = make_app("two", lambda app: Idempotency(app, store=stores[1], scope=scopes.everyone))

    answers = [send(app).json for app in (one, two, one, two)]

    assert answers == [{"app": "one", "run": 1}, {"app": "two", "run": 1}] * 2


def test_one_object_serves_two_apps(stores):
    idempotency = Idempotency(scope=scopes.everyone)
    one = make_app("one", lambda app: idempotency.init_app(app, store=stores[0]))
    two = make_app("two", lambda app: idempotency.init_app(app, store=stores[1]))

    answers = [send(app).json for app in (one, two, one, two)]

    assert answers == [{"app": "one", "run": 1}, {"app": "two", "run": 1}] * 2
    assert not any(isinstance(value, Flask) for value in vars(idempotency).values())


def test_what_is_given_to_init_app_wins_and_stays_with_that_app(stores):
    idempotency = Idempotency(scope=scopes.everyone, store=stores[0])
    one = make_app("one", lambda app: idempotency.init_app(app, scope=lambda: request.headers.get("X-User")))
    two = make_app("two", idempotency.init_app)

    assert send(one).json["code"] == "scope-unknown"
    assert send(two).json == {"app": "two", "run": 1}


def test_settings_do_not_mix(stores):
    one = make_app(
        "one", lambda app: Idempotency(app, store=stores[0], scope=scopes.everyone),
        key_syntax="strict", max_body=100, docs_url="https://one.example/", required=True, methods=["POST"], lease=5,
    )  # fmt: skip
    two = make_app("two", lambda app: Idempotency(app, store=stores[1], scope=scopes.everyone), methods=["PUT"])
    apps = one, two

    assert [send(app).json.get("type") for app in apps] == ["https://one.example/#key-invalid", None]
    assert [send(app, '"k"', data=b"x" * 101).status_code for app in apps] == [413, 201]
    assert [app.test_client().post("/").status_code for app in apps] == [400, 201]
    assert [[REPLAYED in send(app, '"same"').headers for _ in range(2)] for app in apps] == [
        [False, True],
        [False, False],
    ]


def test_one_decorated_view_follows_the_settings_of_the_app_that_serves_it(stores):
    runs = []

    @idempotent(retention=60)
    def shared():
        runs.append(request.host)
        return "ok"

    apps = [
        make_app("one", lambda app: Idempotency(app, store=stores[0], scope=scopes.everyone), required=True),
        make_app("two", lambda app: Idempotency(app, store=stores[1], scope=scopes.everyone)),
    ]
    for app in apps:
        app.add_url_rule("/shared", "shared", shared, methods=["POST"])

    assert [app.test_client().post("/shared").status_code for app in apps] == [400, 200]


def test_two_apps_that_share_a_store_and_a_caller_share_a_record(stores):
    one, two = (
        make_app(name, lambda app: Idempotency(app, store=stores[0], scope=scopes.everyone)) for name in ("one", "two")
    )
    first = send(one)

    second = send(two)

    assert (second.json, second.headers[REPLAYED]) == (first.json, "true")
    assert second.headers[REFERENCE] == first.headers[REFERENCE]


def test_signals_name_the_app_they_are_from(stores):
    one, two = (
        make_app(name, lambda app, store=store: Idempotency(app, store=store, scope=scopes.everyone))
        for name, store in zip(("one", "two"), stores, strict=True)
    )
    heard = []

    def listen(sender, **facts):
        heard.append(sender)

    signals.claimed.connect(listen, one)
    send(two)
    send(one)

    assert heard == [one]


def test_waiters_of_one_app_are_not_woken_by_another(stores):
    one, two = (
        make_app(name, lambda app, store=store: Idempotency(app, store=store, scope=scopes.everyone))
        for name, store in zip(("one", "two"), stores, strict=True)
    )
    bells = [app.extensions["idempotency"].waiters for app in (one, two)]
    waiter = threading.Thread(target=bells[0].wait, args=(b"id", 60))
    waiter.start()
    while not bells[0]._waiting:
        waiter.join(0.01)

    bells[1].wake(b"id")

    assert waiter.is_alive()
    bells[0].wake(b"id")
    waiter.join(10)
    assert not waiter.is_alive()


def test_an_app_cannot_be_given_twice(stores):
    idempotency = Idempotency(scope=scopes.everyone, store=stores[0])
    app = make_app("one", idempotency.init_app)

    with pytest.raises(
        ConfigError, match=r"^Idempotency is already set up for this app: call init_app only once for each app\.$"
    ):
        idempotency.init_app(app)


def test_a_decorated_view_in_an_app_without_the_extension_says_so():
    app = Flask("bare")
    app.testing = True
    app.add_url_rule("/", "view", idempotent(lambda: "ok"), methods=["POST"])

    with pytest.raises(ConfigError, match="Idempotency is not set up for this app"):
        app.test_client().post("/")
