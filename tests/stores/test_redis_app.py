"""An app whose records are in Redis: the lease guard with effects, without phases; also after a fork."""

import gc
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from flask import Flask

from flask_idempotency import Idempotency, effect, phase, scopes
from flask_idempotency.core.lifecycle import State
from flask_idempotency.core.record import Busy, Claim
from flask_idempotency.errors import ConfigError
from flask_idempotency.stores import open_store
from flask_idempotency.testing import LEASE, RETENTION, make_asked
from flask_idempotency.testing.given import CREATED
from tests.fixtures.redis import RedisServer
from tests.stores.others import Child, fork_in_c
from tests.stores.worlds import claimed


@pytest.fixture
def app(redis_server: RedisServer) -> Iterator[Flask]:
    with closing(redis_server.client()) as client:
        client.flushall()
    app = Flask("shop")
    app.config.update(IDEMPOTENCY_STORE=redis_server.url, IDEMPOTENCY_HOUSEKEEPING=False, TESTING=True)
    Idempotency(app, scope=scopes.everyone)
    yield app
    app.extensions["idempotency"].store.close()


def send(app: Flask) -> Any:
    app.testing = False  # an error is an answer
    return app.test_client().post("/", headers={"Idempotency-Key": "order-1"})


def test_a_retry_is_replayed(app: Flask):
    app.add_url_rule("/", view_func=lambda: ({"id": 1}, 201, {"X-Tea": "Earl Grey"}), methods=["POST"])

    first, second = send(app), send(app)

    assert (second.status_code, second.data, second.headers["X-Tea"]) == (201, first.data, "Earl Grey")
    assert second.headers["Idempotent-Replayed"] == "true"


def test_an_effect_is_done_once_though_the_view_fails_after_it(app: Flask):
    keys: list[str] = []
    trouble = [True, False]

    @app.post("/")
    def order() -> tuple[dict[str, str], int]:
        charge = effect("charge", lambda key: keys.append(key) or {"id": "ch_1"})
        if trouble.pop(0):
            raise OSError
        return {"charge": charge["id"]}, 201

    assert (send(app).status_code, send(app).status_code, len(keys)) == (500, 201, 1)


def test_a_phase_is_refused_with_what_it_needs(app: Flask):
    app.config["PROPAGATE_EXCEPTIONS"] = True
    app.add_url_rule("/", view_func=lambda: phase("placed", dict), methods=["POST"])

    with pytest.raises(ConfigError, match="needs the app's own database"):
        send(app)


def test_the_transaction_guard_is_refused(redis_server: RedisServer):
    app = Flask("shop")
    app.config.update(IDEMPOTENCY_STORE=redis_server.url, IDEMPOTENCY_GUARD="transaction")

    with pytest.raises(ConfigError, match="needs the app's own database"):
        Idempotency(app, scope=scopes.everyone)


def test_a_password_is_not_shown(redis_server: RedisServer, caplog: pytest.LogCaptureFixture):
    app = Flask("shop")
    app.config["IDEMPOTENCY_STORE"] = redis_server.url.replace("//", "//shop:s3cret@")
    Idempotency(app, scope=scopes.everyone)

    assert "s3cret" not in caplog.text
    assert "s3cret" not in repr(app.extensions["idempotency"].settings.store is None)


def test_the_newest_finished_records_are_found_behind_newer_ones_that_run(redis_server: RedisServer):
    with closing(redis_server.client()) as client, closing(open_store(redis_server.url)) as store:
        client.flushall()
        for n in range(3):
            store.complete(claimed(store.claim(make_asked(f"done-{n}"), LEASE)), CREATED, RETENTION)
        for n in range(9):
            store.claim(make_asked(f"running-{n}"), LEASE)

        found = store.browse(state=State.FINISHED, limit=2)

        assert [record.asked.id for record in found] == [make_asked("done-2").id, make_asked("done-1").id]


@pytest.mark.parametrize("setting", ["IDEMPOTENCY_STORE", "IDEMPOTENCY_HINT"])
def test_a_driver_that_is_not_installed_is_named(setting: str, monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in sys.modules if name.startswith("flask_idempotency.stores.redis")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)
    app = Flask("shop")
    app.config[setting] = "redis://127.0.0.1/0"

    with pytest.raises(ConfigError, match=r"redis is not installed; run: pip install flask-idempotency\[redis\]$"):
        Idempotency(app, scope=scopes.everyone)


@pytest.mark.parametrize("fork", [None, fork_in_c], ids=["Python", "C"])
def test_a_child_has_connections_of_its_own(redis_server: RedisServer, fork: Any):
    with closing(redis_server.client()) as client, closing(open_store(redis_server.url)) as store:
        client.flushall()
        claim = claimed(store.claim(make_asked("parent"), LEASE))
        before = client.info("clients")["connected_clients"]

        def in_child() -> object:
            found = (
                type(store.claim(make_asked("child"), LEASE)).__name__,
                type(store.claim(make_asked("parent"), LEASE)).__name__,
            )
            gc.collect()
            return found, client.info("clients")["connected_clients"]

        with Child(in_child, **({} if fork is None else {"fork": fork})) as child:
            said = child.step()

        assert said.startswith(f"(('{Claim.__name__}', '{Busy.__name__}'), ")
        assert int(said.rpartition(" ")[2].rstrip(")")) > before
        store.complete(claim, CREATED, RETENTION)  # on a connection that the child has left alone
