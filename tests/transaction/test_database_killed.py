"""PostgreSQL killed under load and back again: no acknowledged order is lost, and none is placed twice."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.apps.guarded_outside import is_definitive, is_first
from tests.fixtures.postgres import PostgresServer
from tests.fixtures.processes import Answer, eventually
from tests.transaction.faults import Books, served

CLIENTS = 6


def kill_a_backend(server: PostgresServer) -> None:
    """Have the postmaster end all the others and recover."""
    os.kill(eventually(lambda: server.backends("postgres"))[0], signal.SIGKILL)


def kill_the_server(server: PostgresServer) -> None:
    server.kill()
    server.start()


@pytest.mark.parametrize("strike", [kill_a_backend, kill_the_server], ids=["one backend", "the postmaster"])
def test_a_database_killed_under_load_costs_no_acknowledged_order_and_makes_none_twice(own_postgres, tmp_path, strike):
    url, books = own_postgres.url(), Books(own_postgres.url())
    answers: dict[str, list[Answer]] = {}
    enough = threading.Event()

    with served(tmp_path, url, server={"workers": 2, "threads": 8}) as counter:
        workers = counter.server.workers()

        def client(number: int) -> None:
            """Order under key after key; each until there is a verdict, and then once more."""
            orders = 0
            while not enough.is_set() or orders < 5:
                key = f"order-{number}-{orders}"
                seen = answers[key] = []

                def verdict(answer: Answer, seen: list[Answer] = seen) -> bool:
                    seen.append(answer)
                    return is_definitive(answer)

                for _ in range(2):
                    counter.order_until(verdict, key, within=20)
                orders += 1

        with ThreadPoolExecutor(CLIENTS) as clients:
            try:
                load = [clients.submit(client, number) for number in range(CLIENTS)]
                for strikes in (1, 2, 3):
                    enough_orders = 40 * strikes
                    eventually(lambda n=enough_orders: len(answers) >= n, within=20, what="some orders")
                    if strikes < 3:
                        strike(own_postgres)
                        eventually(own_postgres.backends, within=20, what="the database", ignoring=(Exception,))
            finally:
                enough.set()
            for each in load:
                each.result(40)
        survivors = counter.server.workers()

    placed = dict(books.ask("SELECT intent, count(*) FROM orders GROUP BY intent"))
    assert placed == dict.fromkeys(answers, 1)
    assert books.ask("SELECT state, count(*) FROM idempotency_record GROUP BY state") == [("finished", len(answers))]
    for seen in answers.values():
        definitive = [answer for answer in seen if is_definitive(answer)]
        assert {answer.status for answer in seen} <= {201, 409, 503}
        assert len({answer.body for answer in definitive}) == 1
        assert sum(map(is_first, definitive)) <= 1
    assert survivors == workers
