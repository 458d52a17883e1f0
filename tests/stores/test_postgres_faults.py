"""PostgreSQL and the way to it, broken: cut at the worst moment, silent, killed, read-only, waiting for a standby."""

import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from flask_idempotency.core.checkpoint import Checkpoint, Kind, Progress
from flask_idempotency.core.record import Busy, Claim, Finished, Quarantined, Record, Running, Settled
from flask_idempotency.core.snapshot import Snapshot
from flask_idempotency.errors import ClaimLost, ConfigError, OutcomeUnknown, StoreUnavailable
from flask_idempotency.stores import open_store, pipeline
from flask_idempotency.stores import postgres as module
from flask_idempotency.stores.postgres import PostgresStore
from flask_idempotency.testing import LEASE, RETENTION, make_asked
from tests.fixtures.postgres import PostgresServer
from tests.fixtures.processes import eventually, free_port
from tests.fixtures.proxy import Proxy
from tests.stores.others import meanwhile
from tests.stores.worlds import SqlWorld, claimed, plain, sent

DONE = Snapshot(201, (("Location", "/orders/1"),), b"done")
OTHER = Snapshot(200, (), b"another answer")

# What only the statement of this verb says.
CLAIM, TAKE_OVER, COMPLETE = map(sent, ("claim", "take_over", "complete"))
RENEW, RELEASE, FIND, REAP = map(sent, ("renew", "release", "find", "reap"))
RESOLVE, REOPEN = map(sent, ("resolve", "reopen"))


@pytest.fixture
def opened() -> Iterator[Callable[..., PostgresStore]]:
    """`opened(url)`: a store that is closed after the test."""
    with contextlib.ExitStack() as stack:

        def open_(url: object) -> PostgresStore:
            store = open_store(url)  # type: ignore[arg-type]  # a string or a URL
            assert isinstance(store, PostgresStore)
            stack.callback(store.close)
            return store

        yield open_


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail if what is inside takes longer."""
    start = time.monotonic()
    yield
    assert time.monotonic() - start < seconds


def record_in(store: PostgresStore) -> Record:
    record = store.find(make_asked().id)
    assert record is not None
    return record


def running_in(store: PostgresStore) -> Running:
    condition = record_in(store).condition
    assert isinstance(condition, Running)
    return condition


def finished_in(store: PostgresStore) -> Finished:
    condition = record_in(store).condition
    assert isinstance(condition, Finished)
    return condition


# -- cut at the worst moment -----------------------------------------------------------------------------------------


@pytest.fixture
def direct(postgres_store: PostgresStore) -> PostgresStore:
    """A store on the same rows as `remote`, by a way that is never broken."""
    return postgres_store


@pytest.fixture
def remote(direct: PostgresStore, proxy: Proxy, opened: Callable[..., PostgresStore]) -> PostgresStore:
    """A store behind the proxy."""
    return opened(proxy.through(direct._engine.url.render_as_string(hide_password=False)))


def test_a_claim_whose_answer_was_lost_is_recognised_as_ours(
    remote: PostgresStore, direct: PostgresStore, proxy: Proxy
):
    cut = proxy.cut_after(CLAIM)

    claim = claimed(remote.claim(make_asked(), LEASE))

    assert cut.wait(5)
    assert (claim.attempt, claim.taken_over) == (1, False)
    assert running_in(direct).token == claim.guard.token
    remote.complete(claim, DONE, RETENTION)
    assert finished_in(direct).answer == DONE


def test_a_claim_that_never_arrived_is_sent_again(remote: PostgresStore, direct: PostgresStore, proxy: Proxy):
    cut = proxy.cut_before(CLAIM)

    claim = claimed(remote.claim(make_asked(), LEASE))

    assert cut.wait(5)
    assert running_in(direct).token == claim.guard.token


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_takeover_in_doubt_is_counted_once(remote: PostgresStore, direct: PostgresStore, proxy: Proxy, moment: str):
    direct.claim(make_asked(), LEASE)
    SqlWorld(direct).let_pass(LEASE)
    cut = proxy.cut_after(TAKE_OVER) if moment == "after" else proxy.cut_before(TAKE_OVER)

    claim = claimed(remote.claim(make_asked(), LEASE))

    assert cut.wait(5)
    assert claim.attempt == record_in(direct).attempt == 2
    assert running_in(direct).token == claim.guard.token


def test_a_new_epoch_whose_answer_was_lost_is_recognised_as_ours(
    remote: PostgresStore, direct: PostgresStore, proxy: Proxy
):
    direct.complete(claimed(direct.claim(make_asked(), LEASE)), DONE, RETENTION)
    SqlWorld(direct).let_pass(RETENTION)
    cut = proxy.cut_after(TAKE_OVER)

    claim = claimed(remote.claim(make_asked(), LEASE))

    assert cut.wait(5)
    assert (claim.attempt, running_in(direct).token) == (1, claim.guard.token)


def test_a_refusal_whose_answer_was_lost_is_asked_for_again(remote: PostgresStore, direct: PostgresStore, proxy: Proxy):
    direct.claim(make_asked(), LEASE)
    proxy.cut_after(CLAIM)
    proxy.cut_after(FIND)

    assert isinstance(remote.claim(make_asked(), LEASE), Busy)


def test_a_completion_whose_answer_was_lost_is_recognised_as_done(
    remote: PostgresStore, direct: PostgresStore, proxy: Proxy
):
    claim = claimed(remote.claim(make_asked(), LEASE))
    cut = proxy.cut_after(COMPLETE)

    remote.complete(claim, DONE, RETENTION)

    assert cut.wait(5)
    assert finished_in(direct).answer == DONE


def test_a_completion_that_never_arrived_is_done_on_the_second_try(
    remote: PostgresStore, direct: PostgresStore, proxy: Proxy
):
    claim = claimed(remote.claim(make_asked(), LEASE))
    cut = proxy.cut_before(COMPLETE)

    remote.complete(claim, DONE, RETENTION)

    assert cut.wait(5)
    assert finished_in(direct).answer == DONE


def test_a_completion_that_never_arrived_is_lost_to_whoever_took_over_meanwhile(
    remote: PostgresStore, direct: PostgresStore, proxy: Proxy
):
    claim = claimed(remote.claim(make_asked(), LEASE))
    SqlWorld(direct).let_pass(LEASE)
    direct.complete(claimed(direct.claim(make_asked(), LEASE)), OTHER, RETENTION)
    proxy.cut_before(COMPLETE)

    with pytest.raises(ClaimLost):
        remote.complete(claim, DONE, RETENTION)

    assert finished_in(direct).answer == OTHER


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_renewal_in_doubt_is_sent_again(remote: PostgresStore, direct: PostgresStore, proxy: Proxy, moment: str):
    claim = claimed(remote.claim(make_asked(), LEASE))
    cut = proxy.cut_after(RENEW) if moment == "after" else proxy.cut_before(RENEW)

    remote.renew(claim, LEASE * 2)

    assert cut.wait(5)
    assert running_in(direct).lease_left > LEASE


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_release_in_doubt_is_sent_again(remote: PostgresStore, direct: PostgresStore, proxy: Proxy, moment: str):
    claim = claimed(remote.claim(make_asked(), LEASE))
    cut = proxy.cut_after(RELEASE) if moment == "after" else proxy.cut_before(RELEASE)

    remote.release(claim)

    assert cut.wait(5)
    assert running_in(direct).token is None


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_reaping_in_doubt_is_sent_again(remote: PostgresStore, direct: PostgresStore, proxy: Proxy, moment: str):
    direct.complete(claimed(direct.claim(make_asked(), LEASE)), DONE, RETENTION)
    SqlWorld(direct).let_pass(RETENTION * 2)
    cut = proxy.cut_after(REAP) if moment == "after" else proxy.cut_before(REAP)

    remote.reap(RETENTION / 2)

    assert cut.wait(5)
    assert direct.browse() == []


@pytest.fixture
def doubtful(direct: PostgresStore) -> Checkpoint:
    """An effect in doubt, on a record that was given to a person."""
    effect = Checkpoint("charge", Kind.EFFECT, 1, Progress.SENT)
    direct.quarantine(direct.checkpoint(claimed(direct.claim(make_asked(), LEASE)), effect), "nobody knows")
    return effect


def progress_in(store: PostgresStore) -> list[Checkpoint]:
    return [replace(each, age=timedelta(0)) for each in store.checkpoints(make_asked().id)]


@pytest.mark.usefixtures("doubtful")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_person_whose_answer_was_in_doubt_is_told_that_it_is_given(
    remote: PostgresStore, direct: PostgresStore, proxy: Proxy, moment: str
):
    cut = proxy.cut_after(RESOLVE) if moment == "after" else proxy.cut_before(RESOLVE)

    told = remote.resolve(make_asked().id, DONE, RETENTION, "answered by ada")

    assert cut.wait(5)
    assert told
    assert finished_in(direct).answer == DONE
    assert (record_in(direct).reason or "").count("answered by ada") == 1


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_person_whose_reopening_was_in_doubt_is_told_that_it_is_done(
    remote: PostgresStore, direct: PostgresStore, proxy: Proxy, doubtful: Checkpoint, moment: str
):
    cut = proxy.cut_after(REOPEN) if moment == "after" else proxy.cut_before(REOPEN)

    told = remote.reopen(make_asked().id, "reopened by ada", [("charge", '"no"')])

    assert cut.wait(5)
    assert told
    assert running_in(direct).token is None
    assert progress_in(direct) == [replace(doubtful, state=Progress.VOID, generation=2, result='"no"')]
    assert (record_in(direct).reason or "").count("reopened by ada") == 1


@pytest.mark.usefixtures("doubtful")
def test_a_person_whose_reopening_was_in_doubt_is_told_so_though_somebody_goes_on_already(
    remote: PostgresStore, direct: PostgresStore, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
):
    cut = proxy.cut_after(REOPEN)
    dispose = remote._engine.dispose  # what follows on a lost connection

    def go_on() -> None:
        dispose()
        claim = claimed(direct.claim(make_asked(), LEASE))
        direct.note(claim, "a deploy was under way")

    monkeypatch.setattr(remote._engine, "dispose", go_on)
    told = remote.reopen(make_asked().id, "reopened by ada", [("charge", '"no"')])
    monkeypatch.undo()

    assert cut.wait(5)
    assert told


@pytest.mark.usefixtures("doubtful")
@pytest.mark.parametrize("verb", ["resolve", "reopen"])
def test_a_person_who_comes_too_late_is_told_so_though_the_network_broke(
    remote: PostgresStore, direct: PostgresStore, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, verb: str
):
    cut = proxy.cut_before(sent(verb))
    dispose = remote._engine.dispose  # what follows on a lost connection

    def be_faster() -> None:
        dispose()
        assert direct.reopen(make_asked().id, "reopened by grace")

    monkeypatch.setattr(remote._engine, "dispose", be_faster)
    told = (
        remote.resolve(make_asked().id, DONE, RETENTION, "answered by ada")
        if verb == "resolve"
        else remote.reopen(make_asked().id, "reopened by ada")
    )
    monkeypatch.undo()

    assert cut.wait(5)
    assert not told


def test_a_reopening_that_fails_refutes_nothing(
    remote: PostgresStore, direct: PostgresStore, proxy: Proxy, doubtful: Checkpoint
):
    cuts = [proxy.cut_before(REOPEN) for _ in range(3)]

    with pytest.raises(StoreUnavailable):
        remote.reopen(make_asked().id, "reopened by ada", [("charge", '"no"')])

    assert all(cut.wait(5) for cut in cuts)
    assert isinstance(record_in(direct).condition, Quarantined)
    assert progress_in(direct) == [doubtful]


def test_a_person_who_comes_a_moment_too_late_refutes_nothing(direct: PostgresStore, doubtful: Checkpoint):
    def reopen() -> bool:
        return direct.reopen(make_asked().id, "reopened by ada", [("charge", '"no"')])

    with psycopg.connect(plain(direct)) as rival:
        rival.execute("UPDATE idempotency_record SET state = 'running', token = NULL, lease_until = clock_timestamp()")
        with meanwhile(reopen) as told:
            eventually(lambda: waiting_for_locks(rival) or told, what="somebody who waits")
            rival.commit()

    assert told == [False]
    assert progress_in(direct) == [doubtful]


def waiting_for_locks(connection: psycopg.Connection[Any]) -> bool:
    found = connection.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()
    return bool(found and found[0])


def test_a_network_that_breaks_again_and_again_is_given_up(remote: PostgresStore, direct: PostgresStore, proxy: Proxy):
    cuts = [proxy.cut_before(CLAIM) for _ in range(3)]

    with pytest.raises(StoreUnavailable):
        remote.claim(make_asked(), LEASE)

    assert all(cut.wait(5) for cut in cuts)
    assert direct.find(make_asked().id) is None
    assert isinstance(remote.claim(make_asked(), LEASE), Claim)


def test_connections_that_died_in_the_pool_are_replaced_unseen(remote: PostgresStore, proxy: Proxy):
    claims = [claimed(remote.claim(make_asked(f"order-{n}"), LEASE)) for n in range(3)]
    held = [remote._engine.raw_connection() for _ in range(4)]
    for connection in held:
        connection.close()

    proxy.cut()

    for claim in claims:
        remote.complete(claim, DONE, RETENTION)


# -- not there, or silent --------------------------------------------------------------------------------------------


def test_a_server_that_is_down_is_unavailable_at_once(opened: Callable[..., PostgresStore]):
    store = opened(f"postgresql://user:secret@127.0.0.1:{free_port()}/records")

    for verb in (lambda: store.claim(make_asked(), LEASE), store.check, store.prepare, store.create):
        with within(10), pytest.raises(StoreUnavailable):
            verb()


def test_the_log_names_the_fault_and_no_secret(opened: Callable[..., PostgresStore], caplog: pytest.LogCaptureFixture):
    store = opened(f"postgresql://user:secret@127.0.0.1:{free_port()}/records")

    with caplog.at_level(logging.INFO), pytest.raises(StoreUnavailable):
        store.claim(make_asked("key-of-a-customer"), LEASE)

    assert caplog.messages
    assert all(message.startswith("store_unavailable: OperationalError: ") for message in caplog.messages)
    assert "secret" not in caplog.text
    assert "key-of-a-customer" not in caplog.text


def test_a_server_that_never_answers_is_given_up_after_the_connect_timeout(
    opened: Callable[..., PostgresStore], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "CONNECT_TIMEOUT", 2)
    monkeypatch.setattr(pipeline, "ANSWER_TIMEOUT", 60)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = opened(f"postgresql://user@127.0.0.1:{silent.getsockname()[1]}/records")

        with within(20), pytest.raises(StoreUnavailable):
            store.claim(make_asked(), LEASE)


def test_a_connect_timeout_in_the_url_wins(opened: Callable[..., PostgresStore], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "CONNECT_TIMEOUT", 60)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = opened(f"postgresql://user@127.0.0.1:{silent.getsockname()[1]}/records?connect_timeout=2")

        with within(20), pytest.raises(StoreUnavailable):
            store.claim(make_asked(), LEASE)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait less than in production for a server that is silent."""
    monkeypatch.setattr(module, "CONNECT_TIMEOUT", 2)
    monkeypatch.setattr(pipeline, "ANSWER_TIMEOUT", 0.5)


@pytest.mark.usefixtures("impatient")
def test_a_server_that_falls_silent_is_given_up_and_found_again(
    remote: PostgresStore, direct: PostgresStore, proxy: Proxy
):
    claim = claimed(remote.claim(make_asked(), LEASE))
    proxy.blackhole()

    with (
        within(20),
        meanwhile(lambda: remote.complete(claim, DONE, RETENTION)) as completed,
        meanwhile(lambda: remote.claim(make_asked("order-2"), LEASE)) as second,
    ):
        pass

    assert isinstance(completed[0], OutcomeUnknown)
    assert isinstance(second[0], StoreUnavailable)
    proxy.pass_through()
    remote.complete(claim, DONE, RETENTION)
    assert finished_in(direct).answer == DONE


def test_an_exhausted_pool_is_unavailable_within_its_timeout(
    direct: PostgresStore, opened: Callable[..., PostgresStore], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "POOL_TIMEOUT", 0.2)
    store = opened(direct._engine.url)
    held = [store._engine.raw_connection() for _ in range(15)]

    with within(10), pytest.raises(StoreUnavailable):
        store.claim(make_asked(), LEASE)

    for connection in held:
        connection.close()
    assert direct.find(make_asked().id) is None
    assert isinstance(store.claim(make_asked(), LEASE), Claim)


def test_a_caller_that_is_stopped_in_the_middle_leaves_no_half_used_connection(
    direct: PostgresStore, monkeypatch: pytest.MonkeyPatch
):
    execute = PostgresStore._execute

    def be_stopped(store: Any, connection: Any, messages: Any) -> Any:
        connection.cursor().execute("BEGIN")
        execute(store, connection, messages)
        raise SystemExit  # as a worker's time-out does inside a view

    monkeypatch.setattr(PostgresStore, "_execute", be_stopped)
    with pytest.raises(SystemExit):
        direct.claim(make_asked(), LEASE)
    monkeypatch.undo()

    assert isinstance(direct.claim(make_asked(), LEASE), Claim)


# -- killed and started again ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def one_mortal(postgres_bindir: Path, postgres_servers: object) -> Iterator[PostgresServer]:
    """A server of this module's own. What is committed without waiting for the disk stays in memory for long."""
    with PostgresServer(postgres_bindir, {"wal_writer_delay": "10s"}) as server:
        yield server


@pytest.fixture
def mortal(one_mortal: PostgresServer) -> Iterator[PostgresServer]:
    """A server to kill, as good as new."""
    yield one_mortal
    if (still_standby := one_mortal.data / "standby.signal").exists():
        one_mortal.stop()
        still_standby.unlink()
        one_mortal.start()
    ask(one_mortal, "ALTER ROLE postgres RESET ALL")


@pytest.fixture
def mortal_store(mortal: PostgresServer, opened: Callable[..., PostgresStore]) -> Iterator[PostgresStore]:
    database = mortal.create_database()
    store = opened(mortal.url(database))
    store.create()
    yield store
    store.close()


def ask(server: PostgresServer, statement: str) -> list[Any]:
    with psycopg.connect(server.url(driver="postgresql"), autocommit=True) as connection:
        cursor = connection.execute(statement)  # type: ignore[arg-type]  # not user input
        return cursor.fetchall() if cursor.description else []


def test_a_killed_server_that_is_started_again_is_used_again(mortal: PostgresServer, mortal_store: PostgresStore):
    claim = claimed(mortal_store.claim(make_asked(), LEASE))
    mortal.kill(signal.SIGKILL)
    with pytest.raises(OutcomeUnknown):
        mortal_store.complete(claim, DONE, RETENTION)
    with pytest.raises(StoreUnavailable):
        mortal_store.claim(make_asked(), LEASE)

    mortal.start()

    assert isinstance(mortal_store.claim(make_asked(), LEASE), Busy)
    mortal_store.complete(claim, DONE, RETENTION)
    assert isinstance(mortal_store.claim(make_asked(), LEASE), Settled)


def test_a_server_restarted_behind_our_back_is_not_noticed(mortal: PostgresServer, mortal_store: PostgresStore):
    claim = claimed(mortal_store.claim(make_asked(), LEASE))

    mortal.kill(signal.SIGKILL)
    mortal.start()

    mortal_store.complete(claim, DONE, RETENTION)
    assert finished_in(mortal_store).answer == DONE


def test_a_killed_backend_takes_the_others_with_it_and_all_come_back(
    mortal: PostgresServer, mortal_store: PostgresStore
):
    claim = claimed(mortal_store.claim(make_asked(), LEASE))
    (backend,) = mortal.backends(mortal_store._engine.url.database)

    os.kill(backend, signal.SIGKILL)

    # Until the server has recovered it answers that it cannot, and so do we.
    eventually(lambda: mortal_store.renew(claim, LEASE) or True, within=20, ignoring=StoreUnavailable)
    mortal_store.complete(claim, DONE, RETENTION)
    assert finished_in(mortal_store).answer == DONE


@pytest.mark.parametrize("last", ["claim", "takeover", "completion"])
def test_what_was_acknowledged_outlives_the_server_whatever_the_role_says(
    mortal: PostgresServer, mortal_store: PostgresStore, last: str
):
    ask(mortal, "ALTER ROLE postgres SET synchronous_commit = off")
    claim = claimed(mortal_store.claim(make_asked(), LEASE))
    if last != "claim":
        SqlWorld(mortal_store).let_pass(LEASE)
        mortal_store.close()  # the setting counts for new connections
    with psycopg.connect(plain(mortal_store), autocommit=True) as connection:
        connection.execute("CREATE TABLE forgotten ()")
        match last:
            case "claim":
                mortal_store.close()
                claim = claimed(mortal_store.claim(make_asked("order-2"), LEASE))
            case "takeover":
                claim = claimed(mortal_store.claim(make_asked(), LEASE))
            case "completion":
                mortal_store.complete(claim, DONE, RETENTION)
        connection.execute("INSERT INTO forgotten DEFAULT VALUES")
        mortal.kill(signal.SIGKILL)
    mortal.start()

    record = mortal_store.find(claim.id)

    assert record is not None
    assert isinstance(record.condition, Finished if last == "completion" else Running)
    assert record.condition.token == claim.guard.token  # type: ignore[union-attr]  # both have one
    with psycopg.connect(plain(mortal_store)) as connection:
        # Shows that this server does forget: else the test proves nothing.
        assert connection.execute("SELECT count(*) FROM forgotten").fetchone() == (0,)


# -- standbys --------------------------------------------------------------------------------------------------------


def become_standby(server: PostgresServer) -> None:
    """Start the server again as one that only repeats what another does."""
    server.stop()
    (server.data / "standby.signal").touch(0o644)
    server.start()


def test_a_standby_is_refused_until_it_is_promoted(mortal: PostgresServer, mortal_store: PostgresStore):
    claim = claimed(mortal_store.claim(make_asked(), LEASE))

    become_standby(mortal)

    for verb in (mortal_store.check, mortal_store.prepare, mortal_store.create):
        with pytest.raises(
            ConfigError, match=r"^IDEMPOTENCY_STORE points to a standby: use the address of the primary\.$"
        ):
            verb()
    for read_or_write in (
        lambda: mortal_store.claim(make_asked(), LEASE),
        lambda: mortal_store.find(make_asked().id),
        lambda: mortal_store.renew(claim, LEASE),
    ):
        with pytest.raises(StoreUnavailable):
            read_or_write()
    with pytest.raises(OutcomeUnknown):
        mortal_store.complete(claim, DONE, RETENTION)

    ask(mortal, "SELECT pg_promote()")

    mortal_store.complete(claim, DONE, RETENTION)
    assert finished_in(mortal_store).answer == DONE


def test_a_refused_standby_is_left_without_a_connection(mortal: PostgresServer, mortal_store: PostgresStore):
    become_standby(mortal)

    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            mortal_store.find(make_asked().id)

    eventually(lambda: mortal.backends(mortal_store._engine.url.database) == [])


def test_a_database_that_became_read_only_is_unavailable_and_used_again_afterwards(
    mortal: PostgresServer, mortal_store: PostgresStore
):
    name = mortal_store._engine.url.database
    ask(mortal, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    mortal_store.close()
    for connection in [mortal_store._engine.raw_connection() for _ in range(3)]:
        connection.close()
    with pytest.raises(StoreUnavailable):
        mortal_store.claim(make_asked(), LEASE)
    ask(mortal, f"ALTER DATABASE {name} RESET default_transaction_read_only")

    # All connections from before were thrown away, so the next ones know better.
    assert isinstance(mortal_store.claim(make_asked(), LEASE), Claim)


@pytest.fixture
def ghost(mortal: PostgresServer, mortal_store: PostgresStore) -> Iterator[Callable[[str], None]]:
    """`ghost("on")`: have every COMMIT wait for a standby that does not exist; `ghost("off")`: no longer."""

    def switch(how: str) -> None:
        name = "ghost" if how == "on" else ""
        with psycopg.connect(mortal.url(driver="postgresql"), autocommit=True) as connection:
            connection.execute("SET synchronous_commit = local")
            connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
            connection.execute("SELECT pg_reload_conf()")
        if how == "on":
            eventually(lambda: commits_wait(mortal))

    yield switch
    switch("off")


def commits_wait(server: PostgresServer) -> bool:
    """Commit something and see: a reloaded setting is not felt everywhere at once."""
    with contextlib.closing(psycopg.connect(server.url(driver="postgresql"), autocommit=True)) as probe:
        pid, wire = probe.info.backend_pid, probe.pgconn
        wire.send_query(b"SELECT pg_logical_emit_message(true, 'probe', 'probe')")

        def is_answered() -> bool:
            wire.consume_input()
            return not wire.is_busy()

        eventually(lambda: is_answered() or pid in waiting_for_ghost(server))
        answered = is_answered()
    ask(server, f"SELECT pg_terminate_backend({pid}, 5000)")
    return not answered


def waiting_for_ghost(server: PostgresServer) -> list[int]:
    return [pid for (pid,) in ask(server, "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'")]


def test_a_completion_cut_off_while_it_waits_for_a_standby_is_unknown_and_stands_later(
    mortal: PostgresServer,
    mortal_store: PostgresStore,
    ghost: Callable[[str], None],
    opened: Callable[..., PostgresStore],
):
    with Proxy(mortal.host, mortal.port) as proxy:
        remote = opened(proxy.through(mortal_store._engine.url.render_as_string(hide_password=False)))
        claim = claimed(remote.claim(make_asked(), LEASE))
        ghost("on")

        with within(9), meanwhile(lambda: remote.complete(claim, DONE, RETENTION)) as given:
            eventually(lambda: waiting_for_ghost(mortal))
            proxy.cut()

        # The dead connection's COMMIT still waits: readers see the old state, and the row is locked.
        assert isinstance(given[0], OutcomeUnknown)
        assert running_in(mortal_store).token == claim.guard.token
        ghost("off")
        eventually(lambda: isinstance(record_in(mortal_store).condition, Finished))
        remote.complete(claim, OTHER, RETENTION)
        assert finished_in(mortal_store).answer == DONE
        remote.close()


@pytest.mark.usefixtures("impatient")
def test_a_wait_for_a_standby_that_never_comes_ends(
    mortal: PostgresServer, mortal_store: PostgresStore, ghost: Callable[[str], None]
):
    claim = claimed(mortal_store.claim(make_asked(), LEASE))
    ghost("on")

    with (
        within(20),
        meanwhile(lambda: mortal_store.complete(claim, DONE, RETENTION)) as completed,
        meanwhile(lambda: mortal_store.claim(make_asked("order-2"), LEASE)) as second,
    ):
        pass

    assert isinstance(completed[0], OutcomeUnknown)
    assert isinstance(second[0], StoreUnavailable)
    ghost("off")
    mortal_store.complete(claim, DONE, RETENTION)


def cancel_when_waiting(server: PostgresServer) -> None:
    (pid,) = eventually(lambda: waiting_for_ghost(server))
    ask(server, f"SELECT pg_cancel_backend({pid})")


def test_a_commit_that_gave_up_waiting_for_its_standby_is_no_success(
    mortal: PostgresServer, mortal_store: PostgresStore, ghost: Callable[[str], None]
):
    claim = claimed(mortal_store.claim(make_asked(), LEASE))
    ghost("on")

    with meanwhile(lambda: mortal_store.complete(claim, DONE, RETENTION)) as completed:
        cancel_when_waiting(mortal)
    with meanwhile(lambda: mortal_store.claim(make_asked("order-2"), LEASE)) as second:
        cancel_when_waiting(mortal)

    assert isinstance(completed[0], OutcomeUnknown)
    assert isinstance(second[0], StoreUnavailable)
    ghost("off")
    assert isinstance(mortal_store.claim(make_asked(), LEASE), Settled)
