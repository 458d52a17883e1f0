"""On SQLite a claim is held by locks of the operating system, and the writer's lock is taken by the first write."""

import errno
import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta

import pytest
from flask import g, request
from sqlalchemy import event, exc, text

from flask_idempotency import idempotent
from flask_idempotency.core.reference import reference_of
from flask_idempotency.stores import file_locks, sqlite_claims
from flask_idempotency.testing import LEASE, make_asked
from tests.apps.shop import Gate
from tests.fixtures.processes import eventually
from tests.stores.others import Child, fork_in_c, meanwhile

FORKS = {"os.fork": os.fork, "a fork in C": fork_in_c}


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def make_slow_shop(make_sqlite_shop, gate):
    """A shop whose view stops before or after its first write, if its key says so."""

    def make(**settings):
        shop = make_sqlite_shop(**{"engine": {"connect_args": {"timeout": 0.3}}, **settings})
        shop.begin()

        def place():
            key = request.headers["Idempotency-Key"]
            assert shop.db.session.get(shop.db.User, 1).name == "Ada"
            if key.startswith("reads"):
                gate.stop()
            shop.db.session.add(shop.db.Order(note=key))
            shop.db.session.flush()
            if key.startswith("writes"):
                gate.stop()
            shop.db.session.commit()
            return "placed", 201

        shop.serve(idempotent(place))
        return shop

    return make


@pytest.fixture
def slow_shop(make_slow_shop):
    return make_slow_shop()


# -- what others are told --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["reads", "writes"])
def test_the_same_request_in_flight_is_409_and_another_with_its_key_422(slow_shop, gate, key):
    with meanwhile(lambda: slow_shop.send(key=key, data="one").status_code) as first:
        gate.wait_for_view()
        same, other = slow_shop.send(key=key, data="one"), slow_shop.send(key=key, data="two")
        gate.open()

    assert (same.status_code, same.json["code"]) == (409, "request-in-flight")
    assert (other.status_code, other.json["code"]) == (422, "key-reused")
    assert (first, slow_shop.notes) == ([201], [key])


def test_a_view_that_only_reads_keeps_nobody_from_writing(slow_shop, gate):
    with meanwhile(lambda: slow_shop.send(key="reads").status_code) as first:
        gate.wait_for_view()
        purchase, without_key = slow_shop.send(key="purchase"), slow_shop.sql("INSERT INTO orders (note) VALUES ('x')")
        gate.open()

    assert (purchase.status_code, without_key, first) == (201, [], [201])
    assert slow_shop.notes == ["purchase", "x", "reads"]


def test_a_reader_goes_on_beside_a_writer(slow_shop, gate):
    slow_shop.app.add_url_rule("/look", "look", lambda: str(slow_shop.db.session.query(slow_shop.db.Order).count()))
    with meanwhile(lambda: slow_shop.send(key="writes").status_code) as first:
        gate.wait_for_view()
        seen = slow_shop.app.test_client().get("/look").text
        gate.open()

    assert (seen, first) == ("0", [201])


def test_a_duplicate_that_waits_gets_the_replay(make_slow_shop, gate):
    shop = make_slow_shop(in_flight="wait", wait=20)
    with meanwhile(lambda: shop.send(key="reads").status_code) as first:
        gate.wait_for_view()
        with meanwhile(lambda: shop.send(key="reads").headers["Idempotent-Replayed"]) as second:
            eventually(lambda: shop.engine.pool.checkedout() == 2, what="a duplicate that waits")
            gate.open()

    assert (first, second, shop.notes) == ([201], ["true"], ["reads"])


def test_a_duplicate_waits_too_where_the_app_begins_its_transactions_and_has_read(make_sqlite_shop, gate):
    shop = make_sqlite_shop(in_flight="wait", wait=20, engine={"connect_args": {"timeout": 0.3}})
    event.listen(shop.engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    shop.app.before_request(lambda: shop.db.session.get(shop.db.User, 1) and None)
    shop.begin()

    def place():
        shop.db.session.add(shop.db.Order(note="placed"))
        shop.db.session.commit()
        gate.stop()
        return "placed", 201

    shop.serve(idempotent(place))
    with meanwhile(lambda: shop.send().status_code) as first:
        gate.wait_for_view()
        with meanwhile(lambda: shop.send().headers.get("Idempotent-Replayed")) as second:
            eventually(lambda: shop.engine.pool.checkedout() == 2, what="a duplicate that waits")
            gate.open()

    assert (first, second, shop.notes) == ([201], ["true"], ["placed"])


def test_a_hooks_transaction_goes_on_behind_a_wait_in_vain(make_sqlite_shop, gate):
    shop, is_open = make_sqlite_shop(in_flight="wait", wait=0.1), []
    event.listen(shop.engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
    event.listen(shop.engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    shop.app.before_request(lambda: shop.db.session.get(shop.db.User, 1) and None)

    @shop.app.after_request
    def look(response):
        if response.status_code == 409:
            is_open.append(shop.db.session.connection().connection.driver_connection.in_transaction)
        return response

    shop.begin()
    shop.serve(idempotent(lambda: (gate.stop(), ("placed", 201))[1]))
    with meanwhile(lambda: shop.send().status_code):
        gate.wait_for_view()
        shop.send()
        gate.open()

    assert is_open == [True]


def test_a_commit_of_the_drivers_before_the_first_write_is_left_to_a_person(make_sqlite_shop):
    shop = make_sqlite_shop()
    shop.app.before_request(lambda: setattr(g, "driver", shop.db.session.connection().connection.driver_connection))
    shop.begin()

    def fail():
        g.driver.execute("INSERT INTO orders (note) VALUES ('committed')")
        g.driver.commit()
        return "failed", 500

    shop.serve(idempotent(fail))

    answers = [shop.send() for _ in range(2)]

    assert [answer.json["code"] for answer in answers] == ["quarantined"] * 2
    assert shop.notes == ["committed"]


def test_a_record_that_expired_and_is_reaped_meanwhile_is_no_rival(make_sqlite_shop):
    shop = make_sqlite_shop()
    shop.begin()
    shop.serve(idempotent(lambda: (shop.sql("DELETE FROM idempotency_record"), ("placed", 201))[1]))
    shop.send()
    shop.sql("UPDATE idempotency_record SET expires_at = 1")

    again, replayed = shop.send(), shop.send()

    assert ("Idempotent-Replayed" in again.headers, again.status_code) == (False, 201)
    assert replayed.headers["Idempotent-Replayed"] == "true"


def test_whoever_holds_the_writers_lock_does_not_wait_for_a_duplicate_that_waits_for_it(make_sqlite_shop, gate):
    shop = make_sqlite_shop(in_flight="wait", wait=20)

    @shop.app.before_request
    def count():
        if "X-Count" in request.headers:
            shop.db.session.execute(text('UPDATE "user" SET visits = visits + 1'))

    def place():
        gate.stop()
        shop.db.session.add(shop.db.Order(note="placed"))
        shop.db.session.commit()
        return "placed", 201

    shop.begin()
    shop.serve(idempotent(place))
    with meanwhile(lambda: shop.send().status_code) as first:
        gate.wait_for_view()
        told = shop.send(headers={"X-Count": "1"}).status_code
        gate.open()

    assert (told, first, shop.notes) == (409, [201], ["placed"])


def test_two_records_that_share_a_lock_by_chance_are_told_to_come_again(slow_shop, gate, monkeypatch):
    honest = sqlite_claims._byte
    monkeypatch.setattr(sqlite_claims, "_byte", lambda quarter, name: 7 if quarter == 1 else honest(quarter, name))
    with meanwhile(lambda: slow_shop.send(key="reads").status_code) as first:
        gate.wait_for_view()
        stranger = slow_shop.send(key="stranger")
        gate.open()

    assert (stranger.status_code, stranger.json["code"]) == (409, "request-in-flight")
    assert (first, slow_shop.send(key="stranger").status_code) == ([201], 201)


# -- waiting for the writer ------------------------------------------------------------------------------------------


def test_a_writer_that_waits_too_long_is_503_and_leaves_nothing(slow_shop, gate):
    with meanwhile(lambda: slow_shop.send(key="writes").status_code) as first:
        gate.wait_for_view()
        late = slow_shop.send(key="late")
        gate.open()

    assert (late.status_code, late.json["code"]) == (503, "store-unavailable")
    assert (first, slow_shop.notes, slow_shop.send(key="late").status_code) == ([201], ["writes"], 201)


def test_a_view_that_catches_the_failure_to_write_gets_no_201(slow_shop, gate):
    def place():
        try:
            slow_shop.db.session.add(slow_shop.db.Order(note="lost"))
            slow_shop.db.session.commit()
        except Exception:  # noqa: BLE001  # as careless views do
            slow_shop.db.session.rollback()
        return "placed", 201

    slow_shop.serve(idempotent(place), "/careless")
    with meanwhile(lambda: slow_shop.send(key="writes").status_code):
        gate.wait_for_view()
        careless = slow_shop.send("/careless", key="careless")
        gate.open()

    assert (careless.status_code, slow_shop.notes, slow_shop.records) == (503, ["writes"], 1)


def test_a_query_for_update_waits_for_the_writer(slow_shop, gate):
    def pay():
        user = slow_shop.db.session.query(slow_shop.db.User).with_for_update().one()
        user.visits += 1
        slow_shop.db.session.commit()
        return str(user.visits), 201

    slow_shop.serve(idempotent(pay), "/pay")
    with meanwhile(lambda: slow_shop.send(key="writes").status_code):
        gate.wait_for_view()
        refused = slow_shop.send("/pay", key="pay")
        gate.open()

    assert (refused.status_code, slow_shop.send("/pay", key="pay").text) == (503, "1")


def test_what_a_view_has_read_before_it_writes_does_not_spoil_its_write(slow_shop, gate):
    with meanwhile(lambda: slow_shop.send(key="reads").status_code) as first:
        gate.wait_for_view()
        slow_shop.sql("""UPDATE "user" SET name = 'Ada' """)  # a snapshot from before could not be written to
        gate.open()

    assert (first, slow_shop.notes) == ([201], ["reads"])


def test_a_cursor_that_is_still_open_makes_a_503_and_never_a_201_without_a_row(make_sqlite_shop):
    shop = make_sqlite_shop()
    shop.begin()
    shop.sql("INSERT INTO \"user\" (name, visits) VALUES ('Bob', 0)")

    def place():
        users = shop.db.session.execute(text('SELECT name FROM "user" ORDER BY id'), execution_options={"yield_per": 1})
        next(users)
        shop.sql("INSERT INTO orders (note) VALUES ('from elsewhere')")
        shop.db.session.add(shop.db.Order(note="placed"))
        shop.db.session.commit()
        return "placed", 201

    shop.serve(idempotent(place))

    status = shop.send().status_code

    assert (status == 201) is ("placed" in shop.notes)
    assert shop.records == shop.notes.count("placed")


def test_writers_of_one_process_are_served_in_the_order_in_which_they_came(make_slow_shop, gate):
    shop = make_slow_shop(engine={"connect_args": {"timeout": 20}})
    line = shop.app.extensions["idempotency"].store._line
    waiting = []
    with meanwhile(lambda: shop.send(key="writes").status_code):
        gate.wait_for_view()
        for number in range(4):
            waiting.append(threading.Thread(target=shop.send, kwargs={"key": f"order-{number}"}))
            waiting[-1].start()
            eventually(lambda: len(line._line) == len(waiting), what="one more in the line")
        gate.open()
        for each in waiting:
            each.join(30)

    assert shop.notes == ["writes", "order-0", "order-1", "order-2", "order-3"]
    assert line._line == {}


def test_an_app_that_begins_its_transactions_itself_has_one_from_the_claim(make_sqlite_shop, gate):
    shop = make_sqlite_shop(engine={"connect_args": {"timeout": 0.3}})
    event.listen(shop.engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    event.listen(shop._outside, "connect", lambda connection, _: connection.execute("PRAGMA busy_timeout = 1"))
    shop.begin()

    def read():
        seen = shop.db.session.query(shop.db.Order).count()
        gate.stop()
        return f"{seen} {shop.db.session.query(shop.db.Order).count()}", 201

    shop.serve(idempotent(read))
    with meanwhile(lambda: shop.send().text) as first:
        gate.wait_for_view()
        with pytest.raises(exc.OperationalError, match="locked"):
            shop.sql("INSERT INTO orders (note) VALUES ('meanwhile')")
        same = shop.send()
        gate.open()

    assert (first, same.status_code) == (["0 0"], 409)


# -- processes -------------------------------------------------------------------------------------------------------


class Claimant:
    """Claims one and the same request, on a connection of its own."""

    def __init__(self, shop):
        self.shop, self.store = shop, shop.app.extensions["idempotency"].store

    def enter(self):
        self.pooled = self.shop.engine.raw_connection()
        found = self.store.enter(self.pooled.driver_connection, make_asked(), patience=timedelta(0), idle=LEASE)
        return type(found).__name__

    def write(self):
        self.store.begin(self.pooled.driver_connection)
        return "began"

    def give_back(self):
        self.pooled.close()


@pytest.fixture
def plain_shop(make_sqlite_shop):
    shop = make_sqlite_shop()
    shop.begin()
    return shop


def test_a_process_that_is_killed_lets_go_at_once(plain_shop):
    theirs = Claimant(plain_shop)
    with Child(theirs.enter, theirs.write) as holder:
        claimed = [holder.step(), holder.step()]
        refused = Claimant(plain_shop).enter()
        os.kill(holder.pid, signal.SIGKILL)
        os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
        ours = Claimant(plain_shop)
        after = [ours.enter(), ours.write()]

    assert (claimed, refused, after) == (["Claim", "began"], "Busy", ["Claim", "began"])


@pytest.mark.parametrize("fork", FORKS.values(), ids=FORKS)
def test_a_child_neither_releases_nor_keeps_the_locks_of_its_parent(plain_shop, fork):
    ours = Claimant(plain_shop)
    held = ours.enter()
    with Child(lambda: Claimant(plain_shop).enter(), lambda: "still there", fork=fork) as child:
        meanwhile_ = [child.step(), Claimant(plain_shop).enter()]
        ours.give_back()
        after = Claimant(plain_shop).enter()
        assert child.step() == "still there"

    assert (held, meanwhile_, after) == ("Claim", ["Busy", "Busy"], "Claim")


def test_a_program_that_is_started_meanwhile_inherits_no_lock(plain_shop):
    ours = Claimant(plain_shop)
    ours.enter()
    listing = "import os; print([os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd') if n != '3'])"
    done = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, close_fds=False, check=True)
    ours.give_back()

    assert "sqlite-locks" not in done.stdout


# -- the file of the locks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "expected"), [(0o644, "600"), (0o664, "660"), (0o666, "666"), (0o600, "600")])
def test_whoever_may_write_the_database_may_lock(plain_shop, tmp_path, mode, expected):
    (tmp_path / "shop.sqlite").chmod(mode)

    Claimant(plain_shop).enter()

    assert f"{(tmp_path / 'shop.sqlite-locks').stat().st_mode & 0o777:o}" == expected


def test_a_database_has_one_file_of_locks_under_all_its_names(plain_shop, tmp_path):
    link = tmp_path / "link.sqlite"
    link.symlink_to(tmp_path / "shop.sqlite")
    claims = sqlite_claims.SqliteClaims(link)
    asked, claimant = make_asked(), Claimant(plain_shop)

    claimant.enter()

    assert claims.is_running(reference_of(asked.id), asked.scope)
    assert not (tmp_path / "link.sqlite-locks").exists()


def test_a_file_of_locks_that_was_deleted_is_made_again(plain_shop, tmp_path):
    first = Claimant(plain_shop)
    first.enter()
    first.give_back()
    (tmp_path / "shop.sqlite-locks").unlink()

    assert [first.enter(), Claimant(plain_shop).enter()] == ["Claim", "Busy"]


# -- without such locks ----------------------------------------------------------------------------------------------


def no_such_system(monkeypatch):
    monkeypatch.setattr(file_locks, "IS_AVAILABLE", False)


def no_such_file_system(monkeypatch):
    def refuse(file, command, *_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(file_locks.fcntl, "fcntl", refuse)


def a_folder_to_read(monkeypatch):
    real = os.open

    def refuse(path, *args, **options):
        if str(path).endswith("-locks"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, *args, **options)

    monkeypatch.setattr(os, "open", refuse)


@pytest.mark.parametrize("lack", [no_such_system, no_such_file_system, a_folder_to_read])
def test_without_locks_the_writers_lock_holds_the_claim(slow_shop, gate, monkeypatch, caplog, lack):
    lack(monkeypatch)
    with meanwhile(lambda: slow_shop.send(key="reads").status_code) as first:
        gate.wait_for_view()
        refused = slow_shop.send(key="purchase")
        gate.open()

    replay = slow_shop.send(key="reads")
    assert (first, refused.status_code, refused.json["code"]) == ([201], 503, "store-unavailable")
    assert (slow_shop.send(key="purchase").status_code, replay.headers["Idempotent-Replayed"]) == (201, "true")
    told = [each for each in caplog.messages if each.startswith("no_locks: ")]
    assert len(told) == (0 if lack is no_such_system else 1)


def test_a_process_without_locks_beside_one_with_them_runs_a_key_once(slow_shop, gate, monkeypatch):
    with meanwhile(lambda: slow_shop.send(key="reads")) as first:
        gate.wait_for_view()
        no_such_system(monkeypatch)
        second = meanwhile(lambda: slow_shop.send(key="reads"))
        with second as other:
            gate.open()

    assert {each.status_code for each in (*first, *other)} == {201}
    assert slow_shop.notes == ["reads"]
    assert sum("Idempotent-Replayed" in each.headers for each in (*first, *other)) == 1
