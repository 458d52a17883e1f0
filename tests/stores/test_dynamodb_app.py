"""An app whose records are in DynamoDB: commands, first runs, replays, and effects that are resumed."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from flask import Flask

from flask_idempotency import Idempotency, effect, idempotent, scopes
from tests.fixtures.dynamodb import table_at


@pytest.fixture(scope="module")
def app(moto_port: int) -> Iterator[Flask]:
    app = Flask("shop")
    app.config["IDEMPOTENCY_STORE"] = table_at(moto_port)
    app.config["IDEMPOTENCY_GRACE"] = timedelta(hours=3)
    app.config["IDEMPOTENCY_HOUSEKEEPING"] = False
    Idempotency(app, scope=scopes.everyone)
    app.extensions["charges"] = []

    @app.post("/orders")
    def order():
        app.extensions["charges"].append("order")
        return {"id": len(app.extensions["charges"])}, 201

    @app.post("/checkout")
    @idempotent(required=True)
    def checkout():
        def charge(key: str) -> str:
            app.extensions["charges"].append(key)
            if len(app.extensions["charges"]) == 1:
                raise TimeoutError("no answer")
            return "ch_1"

        return {"charge": effect("charge", charge)}, 201

    made = app.test_cli_runner().invoke(args=["idempotency", "init"])
    assert made.output == "The store is ready.\n"
    yield app
    app.extensions["idempotency"].store.close()


@pytest.fixture
def charges(app: Flask) -> list[str]:
    app.extensions["charges"].clear()
    charges: list[str] = app.extensions["charges"]
    return charges


def send(app: Flask, path: str, key: str):
    return app.test_client().post(path, headers={"Idempotency-Key": key}, json={})


def test_a_retry_gets_the_first_answer(app: Flask, charges: list[str]):
    first, again = send(app, "/orders", "order-1"), send(app, "/orders", "order-1")

    assert charges == ["order"]
    assert (first.status_code, first.json) == (again.status_code, again.json) == (201, {"id": 1})
    assert again.headers["Idempotent-Replayed"] == "true"


def test_an_effect_without_an_answer_is_sent_again_with_the_same_key(app: Flask, charges: list[str]):
    first, again = send(app, "/checkout", "order-2"), send(app, "/checkout", "order-2")

    assert (first.status_code, again.status_code) == (503, 201)
    assert len(charges) == 2
    assert len(set(charges)) == 1


def test_expired_records_stay_for_the_apps_grace(app: Flask):
    assert app.extensions["idempotency"].store.grace == timedelta(hours=3)


def test_the_command_says_that_the_table_is_fine(app: Flask):
    found = app.test_cli_runner().invoke(args=["idempotency", "check"])

    assert found.exit_code == 0, found.output


def test_the_command_says_in_one_sentence_what_is_missing(moto_port: int):
    app = Flask("shop")
    app.config["IDEMPOTENCY_STORE"] = table_at(moto_port, "nowhere")
    Idempotency(app, scope=scopes.everyone)

    found = app.test_cli_runner().invoke(args=["idempotency", "check"])

    assert found.exit_code == 1
    assert found.output.strip() == "Error: The table nowhere does not exist; make it with: flask idempotency init"
