"""After a fork nobody uses a connection from before it, whoever forks and whatever the app had open."""

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from flask import Flask

from tests.fixtures.processes import Answer, ask, race
from tests.stores.others import Child, fork_in_c
from tests.transaction.conftest import Shop

INTENTS = 160
FORKS = {"os.fork": os.fork, "a fork in C": fork_in_c}


# -- a server that loads the app before it forks ---------------------------------------------------------------------


def _order(url: str, number: int) -> list[Answer]:
    """Send a twentieth of all intents one after the other, each twice."""
    answers = []
    for intent in range(number, INTENTS, 8):
        body, headers = json.dumps({"intent": f"{intent}"}).encode(), {"Idempotency-Key": f"intent-{intent}"}
        headers["Content-Type"] = "application/json"
        answers += [ask(f"{url}/orders", "POST", body=body, headers=headers) for _ in range(2)]
    return answers


def test_workers_of_a_preloaded_app_whose_pool_was_used_lose_no_order_and_double_none(gunicorn, store_url):
    server = gunicorn(
        "tests.apps.preloaded:create_app()",
        workers=4,
        env={"PRELOADED_DATABASE": store_url},
        options=["--preload", "--timeout", "60"],
    )

    answers = [answer for each in race(8, partial(_order, server.url)) for answer in each]

    engine = sqlalchemy.create_engine(store_url)
    with engine.connect() as connection:
        rows = connection.execute(sqlalchemy.text('SELECT intent, worker FROM "order"')).all()
    engine.dispose()
    assert Counter(answer.status for answer in answers) == {201: 2 * INTENTS}
    assert Counter(intent for intent, _ in rows) == {f"{intent}": 1 for intent in range(INTENTS)}
    assert len({worker for _, worker in rows}) > 1, "one worker did it all, and nothing was shared"


# -- any fork --------------------------------------------------------------------------------------------------------


@pytest.fixture(params=FORKS)
def fork(request: pytest.FixtureRequest) -> Callable[[], int]:
    return FORKS[request.param]


@pytest.fixture
def shop(make_shop: Callable[..., Shop], store_url: str, tmp_path: Path) -> Shop:
    """A shop with two databases, both of which were used."""
    other = store_url if store_url.startswith("postgresql") else f"sqlite:///{tmp_path / 'audit.db'}"
    shop = make_shop(binds={"audit": other})
    shop.begin()
    shop.serve(partial(place, shop))
    with shop.app.app_context():
        for engine in shop.db.engines.values():
            engine.connect().close()
            assert engine.pool.checkedin() == 1
    shop._outside.dispose()  # which is the test's own, and nothing that we look after
    return shop


def place(shop: Shop) -> Any:
    shop.db.session.add(shop.db.Order(note="placed"))
    shop.db.session.commit()
    return "placed", 201


def drivers(app: Flask, db: Any) -> list[Any]:
    """The driver's connections that the app's engines give out, one each, held by nobody."""
    found = []
    with app.app_context():
        for engine in db.engines.values():
            with engine.connect() as connection:
                found.append(connection.connection.driver_connection)
    return found


def test_every_engine_of_the_app_connects_anew_in_a_child(shop, fork):
    before = drivers(shop.app, shop.db)

    def inherited() -> list[bool]:
        shop.send(key="any")  # a server in C tells nobody of its fork: it is noticed at the next request
        return [each in before for each in drivers(shop.app, shop.db)]

    with Child(inherited, fork=fork) as child:
        assert child.step() == "[False, False]"


def test_a_child_that_serves_no_request_connects_anew_too(shop):
    before = drivers(shop.app, shop.db)

    def inherited() -> list[bool]:  # such as a worker of Celery or multiprocessing
        return [each in before for each in drivers(shop.app, shop.db)]

    with Child(inherited) as child:
        assert child.step() == "[False, False]"


def test_a_child_and_its_parent_keep_what_each_of_them_has_committed(shop, fork):
    # SQLite's locks stay with the process that took them: a child that believes in inherited ones loses its writes.
    def send(key: str) -> int:
        return shop.send(key=key).status_code

    with Child(partial(send, "child-1"), partial(send, "child-2"), fork=fork) as child:
        answers = [child.step(), send("parent-1")]
        shop.close()  # the last one to leave folds SQLite's log into the file and removes it
        answers += [child.step(), send("parent-2")]

    assert answers == ["201", 201, "201", 201]
    assert shop.notes == ["placed"] * 4


def test_a_session_that_was_open_at_the_fork_begins_anew_in_the_child(shop, fork):
    # An app context that is pushed and never popped, as in scripts; its session serves every request in it.
    context = shop.app.app_context()
    context.push()
    ada = shop.db.session.get(shop.db.User, 1)
    before = shop.db.session.connection().connection.driver_connection

    def use() -> tuple[int, bool, str]:
        status = shop.send().status_code
        return status, shop.db.session.connection().connection.driver_connection is before, ada.name

    with Child(use, fork=fork) as child:
        told = child.step()
    shop.db.session.get(shop.db.User, 1).visits = 5
    shop.db.session.commit()
    shop.db.session.remove()
    context.pop()

    assert told == "(201, False, 'Ada')"
    assert shop.notes == ["placed"]
    assert shop.sql('SELECT visits FROM "user"') == [(5,)]


@pytest.mark.postgresql
def test_a_child_that_ends_in_order_rolls_nothing_of_its_parent_back(make_postgres_shop, fork):
    shop = make_postgres_shop()
    shop.begin()
    with shop.app.app_context():
        shop.db.session.add(shop.db.Order(note="parent's"))
        shop.db.session.flush()

        def leave() -> str:
            shop.send(key="any")
            shop.db.session.remove()
            return "left"

        with Child(leave, fork=fork) as child:
            assert child.step() == "left"
        shop.db.session.commit()

    assert shop.notes == ["parent's"]


# -- connections that are in use at the fork ---------------------------------------------------------------------------


def test_the_one_connection_of_a_static_pool_that_is_in_use_at_a_fork_stays_open_in_the_parent(make_sqlite_shop):
    shop = make_sqlite_shop(engine={"poolclass": sqlalchemy.StaticPool})
    shop.begin()
    with shop.app.app_context():
        shop.db.session.add(shop.db.Order(note="parent's"))
        shop.db.session.flush()

        with Child(lambda: "forked") as child:
            assert child.step() == "forked"
        shop.db.session.commit()

    assert shop.notes == ["parent's"]


def test_a_connection_that_is_in_use_at_a_fork_comes_back_to_its_pool_and_is_closed_with_it(make_sqlite_shop):
    shop = make_sqlite_shop()
    shop.begin()
    in_use, idle = shop.engine.connect(), shop.engine.connect()
    drivers = [each.connection.driver_connection for each in (in_use, idle)]
    idle.close()

    with Child(lambda: "forked") as child:
        assert child.step() == "forked"
    in_use.execute(sqlalchemy.text("INSERT INTO orders (note) VALUES ('parent''s')"))
    in_use.commit()
    in_use.close()
    known = shop.engine.pool.checkedin()
    shop.engine.dispose()

    assert (known, [_is_closed(driver) for driver in drivers]) == (1, [True, True])
    assert shop.notes == ["parent's"]


def _is_closed(driver: sqlite3.Connection) -> bool:
    try:
        driver.execute("SELECT 1")
    except sqlite3.ProgrammingError as error:
        return "closed database" in str(error)
    return False
