"""The proxy before PostgreSQL: each way to fail, as the client meets it and as the server has it."""

import asyncio
import socket
import socketserver
import threading
from collections.abc import Iterator

import psycopg
import pytest

from tests.fixtures.processes import eventually
from tests.fixtures.proxy import Proxy


def plain(url: str) -> str:
    """The URL as the driver itself wants it."""
    return url.replace("postgresql+psycopg://", "postgresql://")


@pytest.fixture
def direct(postgres_url: str) -> Iterator[psycopg.Connection]:
    """A connection beside the proxy, to see what is so."""
    with psycopg.connect(plain(postgres_url), autocommit=True) as connection:
        connection.execute("CREATE TABLE done (id int)")
        yield connection


@pytest.fixture
def proxied(postgres_url: str, proxy: Proxy, direct: psycopg.Connection) -> Iterator[psycopg.Connection]:
    """A connection through the proxy with a row inserted, not yet committed."""
    connection = psycopg.connect(plain(proxy.through(postgres_url)))
    connection.execute("INSERT INTO done VALUES (1)")
    yield connection
    connection.close()


def rows(direct: psycopg.Connection) -> int:
    (count,) = direct.execute("SELECT count(*) FROM done").fetchone() or (None,)
    assert isinstance(count, int)
    return count


def test_what_is_large_passes_unharmed(proxied):
    sent = "x" * 5_000_000

    (received,) = proxied.execute("SELECT %s::text", [sent]).fetchone()

    assert received == sent


def test_a_cut_after_commit_leaves_the_row_and_no_answer(proxy, proxied, direct):
    happened = proxy.cut_after(b"COMMIT")

    with pytest.raises(psycopg.OperationalError) as raised:
        proxied.commit()

    assert raised.value.sqlstate is None
    assert rows(direct) == 1
    assert happened.wait(5)


class Telling(socketserver.BaseRequestHandler):
    """Answers whatever it is asked."""

    def handle(self):
        while self.request.recv(100):
            self.request.sendall(b"an answer of ")
            self.request.sendall(b"two pieces")


@pytest.fixture
def telling():
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Telling) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        with Proxy(*server.server_address) as proxy:
            yield proxy
        server.shutdown()
        thread.join()


def test_a_cut_within_an_answer_swallows_its_end_alone_and_hangs_up_in_order(telling):
    happened = telling.cut_within(b"ask", withheld=7)
    with socket.create_connection(("127.0.0.1", telling.port), timeout=10) as client:
        client.sendall(b"ask for something")
        received = b"".join(iter(lambda: client.recv(100), b""))

    assert received == b"an answer of two"
    assert happened.wait(5)


def test_a_cut_before_commit_leaves_nothing(proxy, proxied, direct, postgres):
    happened = proxy.cut_before(b"COMMIT")
    backend = proxied.info.backend_pid

    with pytest.raises(psycopg.OperationalError):
        proxied.commit()

    assert happened.wait(5)
    eventually(lambda: backend not in postgres.backends(), what="the end of the cut connection")
    assert rows(direct) == 0


def insert_and_commit(connection: psycopg.Connection) -> None:
    with connection.pipeline():
        connection.execute("INSERT INTO done VALUES (2)")
        connection.execute("INSERT INTO done SELECT 3 FROM repeat(%s, 10)", ["long" * 50_000])
        connection.commit()


def test_a_cut_after_commit_finds_it_at_the_end_of_a_pipeline(proxy, proxied, direct):
    proxy.cut_after(b"COMMIT")

    with pytest.raises(psycopg.OperationalError):
        insert_and_commit(proxied)

    assert rows(direct) == 3


def test_messages_are_counted_wherever_in_a_packet_they_are(proxy, proxied):
    messages = proxy.listen()

    insert_and_commit(proxied)

    assert b"".join(messages) == b"PBDE" * 3 + b"SS"


@pytest.mark.parametrize(
    ("number", "moment", "left"),
    [
        (12, "before", 0),
        (12, "after", 3),
        (12, "answered", 3),
        (13, "before", 3),
        (11, "after", 0),
        (11, "abandoned", 0),
    ],
)
def test_a_cut_at_a_message_falls_inside_the_packet(proxy, proxied, direct, postgres, number, moment, left):
    happened = proxy.cut_at(number, moment)  # the twelfth is the one that executes COMMIT
    backend = proxied.info.backend_pid

    with pytest.raises(psycopg.OperationalError):
        insert_and_commit(proxied)

    assert happened.wait(5)
    eventually(lambda: backend not in postgres.backends(), what="the end of the cut connection")
    assert rows(direct) == left


def test_an_answer_reaches_the_client_before_the_cut_behind_it(proxy, proxied, direct):
    happened = proxy.cut_at(5, "answered")

    proxied.execute("INSERT INTO done VALUES (%s)", [2])

    assert happened.wait(5)
    with pytest.raises(psycopg.OperationalError):
        proxied.commit()
    assert rows(direct) == 0


def test_a_cut_happens_only_where_it_matches(proxy, proxied, direct):
    happened = proxy.cut_after(lambda piece: b"never sent" in piece)

    proxied.commit()

    assert not happened.is_set()
    assert rows(direct) == 1


def test_a_cut_happens_once(proxy, proxied, direct, postgres_url):
    proxy.cut_before(b"COMMIT")
    with pytest.raises(psycopg.OperationalError):
        proxied.commit()

    with psycopg.connect(plain(proxy.through(postgres_url))) as connection:
        connection.execute("INSERT INTO done VALUES (2)")

    assert rows(direct) == 1


def test_cut_resets_what_is_open_and_lets_new_connections_pass(proxy, proxied, postgres_url, direct):
    proxy.cut()

    with pytest.raises(psycopg.OperationalError):
        proxied.commit()
    with psycopg.connect(plain(proxy.through(postgres_url))) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert rows(direct) == 0


def test_refuse_is_a_server_that_is_down_until_it_is_healed(proxy, proxied, postgres_url):
    proxy.refuse()

    with pytest.raises(psycopg.OperationalError, match="refused"):
        psycopg.connect(plain(proxy.through(postgres_url)))
    with pytest.raises(psycopg.OperationalError):
        proxied.commit()

    proxy.pass_through()
    with psycopg.connect(plain(proxy.through(postgres_url))) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_blackhole_keeps_the_client_waiting_and_loses_nothing(proxy, proxied, direct):
    proxy.blackhole()
    committing = threading.Thread(target=proxied.commit)
    committing.start()

    committing.join(0.2)
    assert committing.is_alive()
    assert rows(direct) == 0

    proxy.pass_through()
    committing.join(5)
    assert not committing.is_alive()
    assert rows(direct) == 1


def test_a_blackhole_lets_a_new_connection_time_out(proxy, postgres_url):
    proxy.blackhole()

    with pytest.raises(psycopg.errors.ConnectionTimeout):
        psycopg.connect(plain(proxy.through(postgres_url)), connect_timeout=2)  # the driver's least


def test_the_end_of_the_server_reaches_the_client(own_postgres):
    with Proxy(own_postgres.host, own_postgres.port) as proxy:
        connection = psycopg.connect(plain(proxy.through(own_postgres.url())))

        own_postgres.kill()

        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
        connection.close()


@pytest.mark.parametrize("steps", range(5))
def test_a_connection_that_is_told_to_end_while_it_ends_does_so_at_the_server_too(proxy, proxied, direct, steps):
    async def end_twice():
        for link in proxy._links:
            link.cancel()
        for _ in range(steps):
            await asyncio.sleep(0)
        await proxy._reset_links()

    proxy._do(end_twice())

    others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    eventually(lambda: direct.execute(others).fetchone() == (0,), what="the end of the connection")
