"""IDEMPOTENCY_QUOTA over HTTP: a caller who has used it up gets 429 for new keys, and nothing else changes."""

import json
from contextlib import closing

import pytest
from flask import Flask, request
from flask_sqlalchemy import SQLAlchemy

from flask_idempotency import Idempotency, idempotent, rules, scopes, signals
from flask_idempotency.errors import ConfigError
from flask_idempotency.stores import open_store
from tests.apps.shop import REFERENCE, REPLAYED


@pytest.fixture(params=["lease", "transaction"])
def make(request, store_url):
    """`make(quota, **settings)`: an app under either guard, whose view answers with what it was sent."""
    made = []

    def make(quota, **settings):
        app = Flask("quota")
        app.config["IDEMPOTENCY_HOUSEKEEPING"] = False
        app.config.update(settings, IDEMPOTENCY_QUOTA=quota)
        if request.param == "lease":
            app.config["IDEMPOTENCY_STORE"] = store_url
            Idempotency(app, scope=caller)
        else:
            app.config["SQLALCHEMY_DATABASE_URI"] = store_url
            db = SQLAlchemy(app)
            Idempotency(app, db=db, scope=caller)
            made.append((app, db))
        app.ran = []
        app.add_url_rule("/", "echo", idempotent()(lambda: echo(app)), methods=["POST"])
        made.append((app, None))
        assert app.test_cli_runner().invoke(args=["idempotency", "init"]).exit_code == 0
        return app

    yield make
    for app, db in made:
        app.extensions["idempotency"].store.close()
        if db is not None:
            with app.app_context():
                db.engine.dispose()


def caller():
    return request.headers.get("X-User", "alice")


def echo(app):
    app.ran.append(request.headers["Idempotency-Key"])
    return request.get_data(), int(request.headers.get("X-Status", "201"))


def send(app, key, body=b"{}", **headers):
    headers = {"Idempotency-Key": key, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return app.test_client(use_cookies=False).post("/", data=body, headers=headers)


def test_a_caller_who_has_used_up_the_quota_is_refused_before_the_view(make):
    app = make({"records": 2})

    answers = [send(app, f"key-{number}") for number in range(3)]

    assert [answer.status_code for answer in answers] == [201, 201, 429]
    assert answers[2].json["code"] == "quota-exceeded"
    assert int(answers[2].headers["Retry-After"]) >= 1
    assert answers[2].headers[REFERENCE] == answers[2].json["reference"]
    assert app.ran == ["key-0", "key-1"]


def test_a_refusal_leaves_no_record(make):
    app = make({"records": 1})
    send(app, "key-0")

    send(app, "key-1")

    assert len(app.extensions["idempotency"].store.browse()) == 1


def test_earlier_keys_work_as_before(make):
    app = make({"records": 1})
    send(app, "key-0")
    send(app, "key-1")

    replay, reused = send(app, "key-0"), send(app, "key-0", b"another body")

    assert (replay.status_code, replay.headers[REPLAYED]) == (201, "true")
    assert (reused.status_code, reused.json["code"]) == (422, "key-reused")


def test_other_callers_are_not_affected(make):
    app = make({"records": 1})
    send(app, "key-0")

    assert send(app, "key-1").status_code == 429
    assert send(app, "key-1", X_User="bob").status_code == 201


def test_an_answer_that_is_not_kept_can_be_retried_whatever_the_quota(make):
    app = make({"records": 1})
    failed = send(app, "key-0", X_Status="503")

    again = send(app, "key-0")

    assert (failed.status_code, again.status_code) == (503, 201)


def test_bytes_of_answers_are_limited_too(make):
    app = make({"bytes": 20_000})

    statuses = [send(app, f"key-{number}", b"x" * 15_000).status_code for number in range(3)]

    assert statuses == [201, 201, 429]


def test_without_a_quota_a_caller_may_have_any_number_of_keys(make):
    app = make(None)

    assert {send(app, f"key-{number}").status_code for number in range(5)} == {201}


def test_a_refusal_is_signalled_like_every_other(make):
    app = make({"records": 1})
    send(app, "key-0")
    problems = []

    with signals.refused.connected_to(lambda _, **facts: problems.append((facts["problem"], facts["status"]))):
        send(app, "key-1")

    assert problems == [("quota-exceeded", 429)]


def test_stripes_sdks_are_told_that_trying_again_does_not_help(make):
    app = make({"records": 1}, IDEMPOTENCY_DIALECT="stripe")
    send(app, "key-0")

    answer = send(app, "key-1")

    error = json.loads(answer.data)["error"]
    assert (answer.status_code, error["type"], error["code"]) == (429, "invalid_request_error", "rate_limit")
    assert answer.headers["Stripe-Should-Retry"] == "false"


def test_the_rules_say_how_much_a_caller_may_have(make):
    app = make({"records": 10, "bytes": 5000})
    app.register_blueprint(rules.blueprint(callers="A caller is an account."))

    page = app.test_client().get("/idempotency").text
    published = app.test_client().get("/idempotency", headers={"Accept": "application/json"}).json

    assert "10 live keys and 5000 bytes of stored answers" in " ".join(page.split())
    assert published["quota"] == {"records": 10, "bytes": 5000}
    assert "429" in json.dumps(published["openapi"]["responses"]["IdempotencyQuotaExceeded"])


def test_without_a_quota_nothing_is_published_about_one(make):
    app = make(None)
    app.register_blueprint(rules.blueprint())

    published = app.test_client().get("/idempotency", headers={"Accept": "application/json"}).json

    assert published["quota"] is None
    assert "IdempotencyQuotaExceeded" not in published["openapi"]["responses"]


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "dynamodb://orders?region=eu-central-1"])
def test_a_store_that_cannot_count_is_refused_at_start(url):
    app = Flask("quota")
    app.config.update(IDEMPOTENCY_QUOTA={"records": 1})

    with closing(open_store(url)) as store, pytest.raises(ConfigError) as refused:
        Idempotency(app, store=store, scope=scopes.everyone)

    assert str(refused.value).startswith("IDEMPOTENCY_QUOTA needs a store that counts")
    assert "idempotency" not in app.extensions


def test_an_index_that_is_missing_is_noticed_and_made(store_url):
    with closing(open_store(store_url, is_apps_own=True)) as before:
        before.create()
    app = Flask("quota")
    app.config.update(IDEMPOTENCY_QUOTA={"records": 1}, SQLALCHEMY_DATABASE_URI=store_url)
    db = SQLAlchemy(app)
    Idempotency(app, db=db, scope=scopes.everyone)
    run = app.test_cli_runner().invoke

    results = [run(args=["idempotency", command]) for command in ("check", "init", "check")]

    assert [result.exit_code for result in results] == [1, 0, 0]
    assert "IDEMPOTENCY_QUOTA counts" in results[0].output
    app.extensions["idempotency"].store.close()
    with app.app_context():
        db.engine.dispose()


def test_create_all_makes_the_index_too(store_url):
    app = Flask("quota")
    app.config.update(IDEMPOTENCY_QUOTA={"records": 1}, SQLALCHEMY_DATABASE_URI=store_url)
    db = SQLAlchemy(app)
    Idempotency(app, db=db, scope=scopes.everyone)

    with app.app_context():
        db.create_all()
        db.engine.dispose()

    store = app.extensions["idempotency"].store
    store.check()
    store.close()
