"""What is special about MariaDB under the transaction guard: DDL commits, a deadlock ends all, rows are the locks."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pymysql
import pytest
from flask import request
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import QueuePool

from flask_idempotency import idempotent
from tests.apps.shop import Gate
from tests.fixtures.mariadb import MariaDBServer
from tests.fixtures.processes import eventually, race
from tests.fixtures.proxy import Proxy
from tests.transaction.conftest import Shop

LEVELS = ["READ COMMITTED", "REPEATABLE READ"]
BY = pytest.mark.parametrize("level", LEVELS, indirect=True)


@pytest.fixture
def level(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", "REPEATABLE READ"))


@pytest.fixture
def store_url(mariadb_url: str) -> str:
    """Everything here is on MariaDB."""
    return mariadb_url


@pytest.fixture
def shop(make_shop: Callable[..., Shop], level: str) -> Shop:
    """A shop whose app has chosen an isolation level."""
    shop = make_shop(engine={"isolation_level": level})
    shop.begin()
    return shop


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


def outcome(answer: Any) -> tuple[int, str | None, bool]:
    """Status, problem code, and whether it is a replay."""
    code = answer.json.get("code") if answer.is_json else None
    return answer.status_code, code, "Idempotent-Replayed" in answer.headers


def place(shop: Shop, note: str = "placed") -> Any:
    shop.db.session.add(shop.db.Order(note=note))
    shop.db.session.commit()
    return note, 201


# -- many at once ------------------------------------------------------------------------------------------------------


@BY
def test_of_many_at_once_one_runs_and_the_others_are_told_so(shop: Shop):
    shop.serve(lambda: place(shop))

    first = Counter(outcome(answer) for answer in race(12, lambda _: shop.send()))
    later = {outcome(shop.send()) for _ in range(3)}

    assert first[201, None, False] == 1
    assert first.keys() <= {(201, None, False), (201, None, True), (409, "request-in-flight", False)}
    assert later == {(201, None, True)}
    assert shop.notes == ["placed"]


@BY
def test_many_who_wait_all_get_the_one_answer(make_shop: Callable[..., Shop], level: str):
    shop = make_shop(engine={"isolation_level": level, "pool_size": 30}, in_flight="wait", wait=20)
    shop.begin()
    shop.serve(lambda: place(shop))

    found = Counter(outcome(answer) for answer in race(12, lambda _: shop.send()))

    assert found == {(201, None, False): 1, (201, None, True): 11}
    assert shop.notes == ["placed"]


@BY
def test_those_who_wait_for_one_that_fails_run_one_after_the_other(make_shop: Callable[..., Shop], level: str):
    """A rollback wakes several, of whom InnoDB throws all but one back."""
    shop = make_shop(engine={"isolation_level": level, "pool_size": 30}, in_flight="wait", wait=20)
    shop.begin()
    runs: list[int] = []

    def fail_at_first() -> Any:
        runs.append(len(runs))
        place(shop)
        return ("not yet", 503) if len(runs) < 4 else ("placed", 201)

    shop.serve(fail_at_first)

    found = Counter(outcome(answer) for answer in race(12, lambda _: shop.send()))

    assert found == {(503, None, False): 3, (201, None, False): 1, (201, None, True): 8}
    assert shop.notes == ["placed"]


def test_while_one_runs_the_same_request_and_another_are_told_apart(shop: Shop, gate: Gate):
    def wait() -> Any:
        gate.stop()
        return place(shop)

    shop.serve(wait)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(shop.send, data="one")
        gate.wait_for_view()
        same, other = shop.send(data="one"), shop.send(data="two")
        gate.open()

        assert outcome(first.result()) == (201, None, False)
    assert outcome(same) == (409, "request-in-flight", False)
    assert outcome(other) == (422, "key-reused", False)


# -- who else commits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("statement", ["CREATE TABLE extra (a int)", "COMMIT", "START TRANSACTION", "TRUNCATE line"])
@BY
def test_a_view_whose_statement_commits_is_left_to_a_person(shop: Shop, statement: str):
    runs = []

    def view() -> Any:
        runs.append("run")
        shop.db.session.add(shop.db.Order(note="half"))
        shop.db.session.flush()
        shop.db.session.connection().connection.cursor().execute(statement)
        shop.db.session.add(shop.db.Order(note="rest"))
        shop.db.session.commit()
        return "placed", 201

    shop.serve(view)

    first, second = shop.send(), shop.send()

    assert first.status_code >= 400
    assert outcome(second)[1] == "quarantined"
    assert runs == ["run"]
    assert shop.notes in (["half"], ["half", "rest"])


def test_after_such_a_statement_it_is_left_to_a_person_even_if_the_worker_dies(shop: Shop, mariadb: MariaDBServer):
    runs = []

    def view() -> Any:
        runs.append("run")
        shop.db.session.add(shop.db.Order(note="half"))
        shop.db.session.flush()
        connection = shop.db.session.connection().connection.driver_connection
        connection.cursor().execute("CREATE TABLE extra (a int)")
        mariadb.run("KILL %s", connection.thread_id())
        return "placed", 201

    shop.serve(view)

    first, second = shop.send(), shop.send()

    assert first.status_code >= 400
    assert outcome(second)[1] == "quarantined"
    assert runs == ["run"]


# -- deadlocks ---------------------------------------------------------------------------------------------------------


def test_a_deadlock_leaves_nothing_of_the_view_that_was_thrown_back(shop: Shop):
    """A view that catches the error cannot go on, and nothing it did is kept: it has to be sent again."""
    both = threading.Barrier(2, timeout=20)
    shop.sql("INSERT INTO orders (id, note) VALUES (1, 'first'), (2, 'second')")

    def cross() -> Any:
        one, two = (1, 2) if request.args["way"] == "there" else (2, 1)
        shop.db.session.add(shop.db.Order(note=f"by {request.args['way']}"))
        shop.db.session.flush()
        try:
            shop.db.session.execute(text("UPDATE orders SET number = :n WHERE id = :id"), {"n": f"a{one}", "id": one})
            if not both.broken:
                both.wait()
            shop.db.session.execute(text("UPDATE orders SET number = :n WHERE id = :id"), {"n": f"b{two}", "id": two})
        except OperationalError:
            shop.db.session.rollback()
            shop.db.session.add(shop.db.Order(note="after the deadlock"))
        shop.db.session.commit()
        return "crossed", 201

    shop.serve(cross)
    with ThreadPoolExecutor(2) as threads:
        ways = ["there", "back"]
        found = [*threads.map(lambda way: outcome(shop.send(f"/?way={way}", key=way)), ways)]
    both.abort()
    later = [outcome(shop.send(f"/?way={way}", key=way)) for way in ways]

    assert sorted(found) == [(201, None, False), (500, None, False)]
    assert sorted(later) == [(201, None, False), (201, None, True)]
    assert sorted(shop.notes) == ["by back", "by there", "first", "second"]


def test_a_view_that_catches_a_deadlock_and_only_answers_is_sent_again(shop: Shop):
    """Its answer would say that something was done."""
    both = threading.Barrier(2, timeout=20)
    shop.sql("INSERT INTO orders (id, note) VALUES (1, 'first'), (2, 'second')")

    def cross() -> Any:
        one, two = (1, 2) if request.args["way"] == "there" else (2, 1)
        cursor = shop.db.session.connection().connection.cursor()  # SQLAlchemy does not see what happens on it
        try:
            cursor.execute("INSERT INTO orders (note) VALUES (%s)", (request.args["way"],))
            cursor.execute("UPDATE orders SET number = %s WHERE id = %s", (f"a{one}", one))
            if not both.broken:
                both.wait()
            cursor.execute("UPDATE orders SET number = %s WHERE id = %s", (f"b{two}", two))
        except pymysql.err.OperationalError:
            cursor.execute("UPDATE orders SET note = 'changed' WHERE id = 1")
        shop.db.session.commit()
        return "crossed", 201

    shop.serve(cross)
    with ThreadPoolExecutor(2) as threads:
        ways = ["there", "back"]
        found = [*threads.map(lambda way: outcome(shop.send(f"/?way={way}", key=way)), ways)]
    both.abort()
    later = [outcome(shop.send(f"/?way={way}", key=way)) for way in ways]

    assert sorted(found) == [(201, None, False), (503, "store-unavailable", False)]
    assert sorted(later) == [(201, None, False), (201, None, True)]
    assert sorted(shop.notes) == ["back", "first", "second", "there"]


# -- a COMMIT in doubt -------------------------------------------------------------------------------------------------


@pytest.fixture
def proxy(mariadb: MariaDBServer) -> Iterator[Proxy]:
    with Proxy("127.0.0.1", mariadb.port, is_postgres=False) as proxy:
        yield proxy


@pytest.fixture
def far_shop(shop: Shop, proxy: Proxy) -> Iterator[Shop]:
    """The same shop, behind the proxy."""
    far = Shop(shop.url.replace(shop.url.partition("127.0.0.1")[2].partition("/")[0], f":{proxy.port}"))
    far.begin()
    far.serve(lambda: place(far))
    assert outcome(far.send(key="warm")) == (201, None, False)
    yield far
    far.close()


@pytest.mark.parametrize("statement", ["COMMIT", "SET state = 'finished'", "RELEASE SAVEPOINT", "SET STATEMENT"])
def test_a_connection_that_is_cut_before_a_statement_leaves_nothing(far_shop: Shop, proxy: Proxy, statement: str):
    cut = proxy.cut_before(statement.encode())

    first = far_shop.send()
    second = far_shop.send()

    assert cut.is_set()
    # A connection that is dead before anything is done on it is replaced at once.
    assert outcome(first) == ((201, None, False) if statement == "SET STATEMENT" else (503, "store-unavailable", False))
    assert outcome(second) == (201, None, statement == "SET STATEMENT")
    assert far_shop.notes == ["placed"] * 2  # the first of them warm


def test_a_commit_whose_answer_is_lost_is_found_out(far_shop: Shop, proxy: Proxy):
    cut = proxy.cut_after(b"COMMIT")

    first = far_shop.send()
    second = far_shop.send()

    assert cut.is_set()
    assert outcome(first) == (201, None, False)
    assert outcome(second) == (201, None, True)
    assert far_shop.notes == ["placed"] * 2


# -- an app's own settings ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"init_command": "SET sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,SIMULTANEOUS_ASSIGNMENT'"},
        {"init_command": "SET time_zone = '+09:00'"},
        {"init_command": "SET sql_mode = ''", "charset": "latin1"},
        {"init_command": "SET innodb_snapshot_isolation = ON"},
        {"init_command": "SET idle_transaction_timeout = 30"},
    ],
    ids=["sql_mode", "time_zone", "latin1", "snapshot_isolation", "idle_transaction_timeout"],
)
def test_it_does_not_matter_how_an_app_has_set_its_connections(make_shop: Callable[..., Shop], options: dict[str, str]):
    shop = make_shop(engine={"connect_args": options})
    shop.begin()

    def say() -> Any:
        shop.db.session.add(shop.db.Order(note="Zoë's \\ order"))
        shop.db.session.commit()
        return "Zoë's \\ answer: ☃", 201

    shop.serve(say, "/é ☃")

    answers = [shop.send("/é ☃") for _ in range(2)]

    assert [outcome(answer) for answer in answers] == [(201, None, False), (201, None, True)]
    assert answers[0].text == answers[1].text == "Zoë's \\ answer: ☃"
    assert shop.notes == ["Zoë's \\ order"]


def test_connections_without_found_rows_are_served_too(make_shop: Callable[..., Shop], store_url: str):
    """SQLAlchemy asks for them, a creator of the app's own may not."""
    url = create_engine(store_url).url

    def connect() -> Any:
        return pymysql.connect(host=url.host, port=url.port or 0, user=url.username, database=url.database)

    shop = make_shop(engine={"creator": connect, "poolclass": QueuePool})
    shop.begin()
    shop.serve(lambda: place(shop))

    assert [outcome(shop.send()) for _ in range(2)] == [(201, None, False), (201, None, True)]


def test_a_connection_goes_back_to_the_pool_as_it_came(shop: Shop):
    shop.serve(lambda: place(shop))
    shop.send()

    with shop.engine.connect() as connection:
        found = connection.execute(text("SELECT @@idle_transaction_timeout, @@innodb_lock_wait_timeout")).one()

    assert tuple(found) == (0, 50)


def test_what_a_hook_has_only_read_is_not_taken_for_writing(shop: Shop):
    shop.app.before_request(lambda: shop.db.session.get(shop.db.User, 1) and None)
    shop.serve(idempotent(lambda: place(shop)))

    first = shop.send()

    assert outcome(first) == (201, None, False)


def test_a_locked_row_makes_nobody_else_wait(shop: Shop, gate: Gate):
    def wait() -> Any:
        place(shop, request.headers["Idempotency-Key"])
        if request.headers["Idempotency-Key"] == "slow":
            gate.stop()
        return "placed", 201

    shop.serve(wait)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(shop.send, key="slow")
        gate.wait_for_view()
        others = [outcome(shop.send(key=f"other-{n}")) for n in range(10)]
        gate.open()

        assert outcome(first.result()) == (201, None, False)
    assert others == [(201, None, False)] * 10
    eventually(lambda: len(shop.notes) == 11)
