"""PostgreSQL's own ways: tables and roles, rivals in every order, and replays that touch nothing."""

import re
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from flask_idempotency.core.checkpoint import Checkpoint, Kind, Progress
from flask_idempotency.core.record import Busy, Claim, Running, Settled
from flask_idempotency.core.snapshot import Snapshot
from flask_idempotency.errors import ConfigError, OutcomeUnknown, StoreUnavailable
from flask_idempotency.stores import open_store, postgres_server
from flask_idempotency.stores.database import load_statement
from flask_idempotency.stores.pipeline import converse
from flask_idempotency.stores.postgres import PostgresStore
from flask_idempotency.testing import LEASE, MOMENT, RETENTION, make_asked
from tests.fixtures.postgres import Postgres
from tests.fixtures.processes import eventually, race
from tests.stores.others import Child, meanwhile
from tests.stores.worlds import SqlWorld, callers_clock, claimed, plain

DONE = Snapshot(201, (("Location", "/orders/1"),), b"done")
HOUR = timedelta(hours=1)


@pytest.fixture
def store(postgres_store: PostgresStore) -> PostgresStore:
    return postgres_store


@pytest.fixture
def let_pass(store: PostgresStore) -> Callable[[timedelta], None]:
    return SqlWorld(store).let_pass


@pytest.fixture
def session(store: PostgresStore) -> Iterator[psycopg.Connection[Any]]:
    """Somebody else in the same database, with transactions of their own."""
    with psycopg.connect(plain(store)) as connection:
        yield connection


def wait_for_somebody_blocked_by(session: psycopg.Connection[Any]) -> None:
    """Return when a statement of somebody else waits for a lock that *session* holds."""
    with psycopg.connect(session.info.dsn, autocommit=True) as observer:
        query = "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
        eventually(
            lambda: observer.execute(query, [session.info.backend_pid]).fetchone() != (0,), what="a blocked rival"
        )


# -- the table -------------------------------------------------------------------------------------------------------


def test_a_missing_table_is_one_sentence(postgres_url: str):
    store = open_store(postgres_url)

    for verb in (store.check, store.prepare):
        with pytest.raises(ConfigError) as refusal:
            verb()

        assert str(refusal.value) == (
            "The table idempotency_record does not exist; make it with: flask idempotency init"
        )
    store.close()


def test_a_table_of_another_version_is_one_sentence(postgres_url: str):
    store = open_store(postgres_url)
    assert isinstance(store, PostgresStore)
    with psycopg.connect(plain(store)) as connection:
        connection.execute("CREATE TABLE idempotency_record (id bytea PRIMARY KEY, state text, body bytea)")

    for verb in (store.check, store.prepare, store.create):
        with pytest.raises(ConfigError) as refusal:
            verb()

        assert str(refusal.value) == (
            "The table idempotency_record is of another version, without attempt, created_at, expires_at, fingerprint,"
            " headers, lease_until, method, path, scope, status, token;"
            " rename or drop it, then run: flask idempotency init"
        )
    store.close()


def test_a_table_that_vanished_makes_claims_fail_until_it_is_back(store: PostgresStore, session: Any):
    session.execute("ALTER TABLE idempotency_record RENAME TO elsewhere")
    session.commit()
    try:
        with pytest.raises(StoreUnavailable):
            store.claim(make_asked(), LEASE)
    finally:
        session.execute("ALTER TABLE elsewhere RENAME TO idempotency_record")
        session.commit()

    assert isinstance(store.claim(make_asked(), LEASE), Claim)


def test_many_may_create_the_table_at_once(postgres_url: str):
    stores = [open_store(postgres_url) for _ in range(8)]

    race(8, lambda n: stores[n].create())

    assert isinstance(stores[0].claim(make_asked(), LEASE), Claim)
    for store in stores:
        store.close()


def test_psycopg_is_asked_for_by_name_where_it_is_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for name in ("postgres", "postgres_phase", "postgres_transaction", "postgres_server", "pipeline"):
        monkeypatch.delitem(sys.modules, f"flask_idempotency.stores.{name}")

    with pytest.raises(ConfigError, match=r"psycopg is not installed; run: pip install flask-idempotency\[postgres\]$"):
        open_store("postgresql://user@127.0.0.1/db")


# -- roles -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def as_role(store: PostgresStore, session: Any) -> Iterator[Callable[..., PostgresStore]]:
    """`as_role("SET …")`: a store whose role may read and write the rows and nothing else, with settings of its own."""
    name = f"clerk_{uuid.uuid4().hex}"  # roles are the whole server's, and tests run side by side
    role = sql.Identifier(name)
    session.execute(sql.SQL("CREATE ROLE {} LOGIN").format(role))
    session.execute(
        sql.SQL("GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency_record, idempotency_checkpoint TO {}").format(role)
    )
    session.commit()
    stores: list[PostgresStore] = []

    def open_(*settings: str) -> PostgresStore:
        for setting in settings:
            session.execute(sql.SQL("ALTER ROLE {} {}").format(role, sql.SQL(setting)))  # type: ignore[arg-type]  # not user input
        session.commit()
        opened = open_store(store._engine.url.set(username=name))
        assert isinstance(opened, PostgresStore)
        stores.append(opened)
        return opened

    yield open_
    for opened in stores:
        opened.close()
    session.rollback()
    session.execute(sql.SQL("DROP OWNED BY {}").format(role))
    session.execute(sql.SQL("DROP ROLE {}").format(role))
    session.commit()


def test_a_role_that_may_only_touch_rows_can_do_everything(
    as_role: Callable[..., PostgresStore], let_pass: Callable[[timedelta], None]
):
    clerk = as_role()

    clerk.prepare()
    first = claimed(clerk.claim(make_asked(), LEASE))
    clerk.renew(first, LEASE)
    clerk.release(first)
    second = claimed(clerk.claim(make_asked(), LEASE))
    let_pass(LEASE)
    third = claimed(clerk.claim(make_asked(), LEASE))
    clerk.complete(third, DONE, RETENTION)
    found, listed = clerk.find(make_asked().id), clerk.browse()
    let_pass(RETENTION + MOMENT)
    reaped = clerk.reap(timedelta(0))

    assert (second.attempt, third.attempt) == (1, 2)
    assert [found] == listed
    assert reaped == 1


@pytest.fixture
def heard(session: Any) -> Iterator[Callable[[], list[tuple[str, ...]]]]:
    """What synchronous_commit was inside each statement with which the clerk wrote a record."""
    session.execute("CREATE TABLE heard (n serial, who text, verb text, state text, commit text)")
    session.execute("GRANT INSERT ON heard TO public")
    session.execute("GRANT USAGE ON heard_n_seq TO public")
    session.execute(
        "CREATE FUNCTION hear() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " INSERT INTO heard (who, verb, state, commit)"
        " VALUES (current_user, TG_OP, NEW.state, current_setting('synchronous_commit'));"
        " RETURN NEW; END $$"
    )
    session.execute(
        "CREATE TRIGGER hear AFTER INSERT OR UPDATE ON idempotency_record FOR EACH ROW EXECUTE FUNCTION hear()"
    )
    session.commit()

    yield lambda: session.execute("SELECT verb, state, commit FROM heard WHERE who LIKE 'clerk%' ORDER BY n").fetchall()

    session.rollback()
    session.execute("DROP TRIGGER hear ON idempotency_record")
    session.execute("DROP FUNCTION hear")
    session.execute("DROP TABLE heard")
    session.commit()


def test_claims_takeovers_and_completions_are_on_the_disk_whatever_the_role_says(
    as_role: Callable[..., PostgresStore],
    let_pass: Callable[[timedelta], None],
    heard: Callable[[], list[tuple[str, ...]]],
):
    hasty = as_role("SET synchronous_commit = off")

    claimed(hasty.claim(make_asked(), LEASE))
    let_pass(LEASE)
    claim = claimed(hasty.claim(make_asked(), LEASE))
    hasty.complete(claim, DONE, RETENTION)

    assert heard() == [("INSERT", "running", "on"), ("UPDATE", "running", "on"), ("UPDATE", "finished", "on")]


def test_a_stricter_wait_for_standbys_is_left_as_the_role_has_it(
    as_role: Callable[..., PostgresStore], heard: Callable[[], list[tuple[str, ...]]]
):
    strict = as_role("SET synchronous_commit = remote_apply")

    strict.complete(claimed(strict.claim(make_asked(), LEASE)), DONE, RETENTION)

    assert {commit for _, _, commit in heard()} == {"remote_apply"}


def test_nothing_but_the_bounds_and_the_isolation_of_its_own_connections_is_left_set_in_the_session(
    store: PostgresStore,
):
    store.complete(claimed(store.claim(make_asked(), LEASE)), DONE, RETENTION)

    with closing(store._engine.raw_connection()) as connection:
        cursor = connection.cursor()
        left = cursor.execute("SELECT name FROM pg_settings WHERE source = 'session' ORDER BY name").fetchall()

    drivers_own = {"client_encoding"}
    ours = {"lock_timeout", "statement_timeout", "default_transaction_isolation"}
    assert {name for (name,) in left} - drivers_own == ours


# -- rivals ----------------------------------------------------------------------------------------------------------


def insert_as_rival(session: psycopg.Connection[Any]) -> None:
    """Claim by hand, without committing."""
    run_verb(session, "claim", scope="ada", **values_of_claim())


COMMIT_FAILS = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'not at this level' USING errcode = '40001'; END $$;
CREATE CONSTRAINT TRIGGER refuse AFTER INSERT OR UPDATE ON idempotency_record DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION refuse()
"""
COMMIT_IS_WELL = "DROP FUNCTION refuse CASCADE"


def test_no_claim_is_given_that_could_not_be_committed(store: PostgresStore, session: Any):
    session.execute(COMMIT_FAILS)
    session.commit()
    for first in (None, Checkpoint("request", Kind.REQUEST, position=0, result="{}")):
        with pytest.raises(StoreUnavailable):
            store.claim(make_asked(), LEASE, first)
    session.execute(COMMIT_IS_WELL)
    session.commit()

    assert store.find(make_asked().id) is None
    assert claimed(store.claim(make_asked(), LEASE)).attempt == 1


def test_nothing_counts_as_written_that_could_not_be_committed(store: PostgresStore, session: Any):
    claim = claimed(store.claim(make_asked(), LEASE))
    sent = Checkpoint("charge", Kind.EFFECT, position=1, state=Progress.SENT)
    session.execute(COMMIT_FAILS)
    session.commit()
    with pytest.raises(OutcomeUnknown):
        store.checkpoint(claim, sent)
    with pytest.raises(OutcomeUnknown):
        store.complete(claim, DONE, RETENTION)
    session.execute(COMMIT_IS_WELL)
    session.commit()

    assert store.checkpoints(claim.id) == []
    store.complete(store.checkpoint(claim, sent), DONE, RETENTION)


def test_a_rival_s_claim_committed_after_ours_began_is_read_again_and_found_busy(store: PostgresStore, session: Any):
    insert_as_rival(session)

    with meanwhile(lambda: store.claim(make_asked(), LEASE)) as given:
        wait_for_somebody_blocked_by(session)
        session.commit()

    assert isinstance(given[0], Busy)
    assert given[0].fingerprint == make_asked().fingerprint


def test_a_rival_s_claim_rolled_back_after_ours_began_leaves_the_claim_to_us(store: PostgresStore, session: Any):
    insert_as_rival(session)

    with meanwhile(lambda: store.claim(make_asked(), LEASE)) as given:
        wait_for_somebody_blocked_by(session)
        session.rollback()

    assert claimed(given[0]).attempt == 1


@pytest.mark.parametrize("committed", [True, False], ids=["commits", "rolls back"])
def test_of_two_that_take_over_one_gets_the_claim(
    store: PostgresStore, session: Any, let_pass: Callable[[timedelta], None], committed: bool
):
    store.claim(make_asked(), LEASE)
    let_pass(LEASE)
    run_verb(session, "take_over", takeovers=5, **values_of_claim())

    with meanwhile(lambda: store.claim(make_asked(), LEASE)) as given:
        wait_for_somebody_blocked_by(session)
        session.commit() if committed else session.rollback()

    if committed:
        assert isinstance(given[0], Busy)
    else:
        assert (claimed(given[0]).attempt, claimed(given[0]).taken_over) == (2, True)


@pytest.mark.parametrize("committed", [True, False], ids=["commits", "rolls back"])
def test_an_expired_record_that_is_being_reaped_can_be_claimed(
    store: PostgresStore, session: Any, let_pass: Callable[[timedelta], None], committed: bool
):
    store.complete(claimed(store.claim(make_asked(), LEASE)), DONE, RETENTION)
    let_pass(RETENTION + MOMENT)
    run_verb(session, "reap", grace=timedelta(0), limit=500)

    with meanwhile(lambda: store.claim(make_asked(), LEASE)) as given:
        wait_for_somebody_blocked_by(session)
        session.commit() if committed else session.rollback()

    assert claimed(given[0]).attempt == 1
    assert len(store.browse()) == 1


def values_of_claim(key: str = "order-1") -> dict[str, object]:
    asked = make_asked(key)
    values = {"id": asked.id, "method": asked.method, "path": asked.path, "fingerprint": bytes(asked.fingerprint)}
    return values | {"token": b"r" * 16, "lease": LEASE, "point": None}


def run_verb(session: psycopg.Connection[Any], verb: str, **values: object) -> list[Any]:
    """Run one of the store's own statements in somebody's transaction."""
    return session.execute(load_statement("postgres", verb, "%(NAME)s"), values).fetchall()


def test_a_reaper_leaves_alone_what_a_rival_brings_back_to_life(
    store: PostgresStore, session: Any, let_pass: Callable[[timedelta], None]
):
    store.complete(claimed(store.claim(make_asked(), LEASE)), DONE, RETENTION)
    let_pass(RETENTION + MOMENT)
    run_verb(session, "take_over", takeovers=5, **values_of_claim())

    before_its_commit = store.reap(timedelta(0))
    session.commit()
    after_its_commit = store.reap(timedelta(0))

    assert (before_its_commit, after_its_commit) == (0, 0)
    assert isinstance(store.claim(make_asked(), LEASE), Busy)


def test_the_reaper_passes_over_a_row_that_somebody_holds(
    store: PostgresStore, session: Any, let_pass: Callable[[timedelta], None]
):
    for key in ("held", "free"):
        store.complete(claimed(store.claim(make_asked(key), LEASE)), DONE, RETENTION)
    let_pass(RETENTION + MOMENT)
    session.execute("SELECT FROM idempotency_record WHERE id = %s FOR UPDATE", [make_asked("held").id])

    reaped = store.reap(timedelta(0))

    assert reaped == 1
    assert [record.asked for record in store.browse()] == [make_asked("held")]


def test_a_reaper_in_the_middle_of_its_batch_blocks_no_claim_of_other_keys(
    store: PostgresStore, session: Any, let_pass: Callable[[timedelta], None]
):
    store.complete(claimed(store.claim(make_asked("expired"), LEASE)), DONE, RETENTION)
    let_pass(RETENTION + MOMENT)
    run_verb(session, "reap", grace=timedelta(0), limit=500)

    found = [store.claim(make_asked(f"order-{n}"), LEASE) for n in range(3)]

    assert all(isinstance(each, Claim) for each in found)


def test_a_reaper_reads_no_further_than_the_expired_records_go(store: PostgresStore, session: Any):
    session.execute("SET LOCAL enable_seqscan = off")
    statement = load_statement("postgres", "reap", "%(NAME)s")

    plan = session.execute(f"EXPLAIN {statement}", {"grace": timedelta(0), "limit": 500}).fetchall()

    assert "Index Cond: (expires_at < " in "\n".join(line for (line,) in plan)


@pytest.mark.parametrize("point", [None, "placed"], ids=["fresh", "half-way"])
def test_an_abandoned_record_that_a_rival_takes_over_meanwhile_is_left_alone(
    store: PostgresStore, session: Any, let_pass: Callable[[timedelta], None], point: str | None
):
    claim = claimed(store.claim(make_asked(), LEASE))
    store.release(claim if point is None else store.checkpoint(claim, Checkpoint(point, Kind.PHASE, 1)))
    let_pass(RETENTION + MOMENT)
    run_verb(session, "take_over", takeovers=5, **values_of_claim())

    before_its_commit = store.reap_abandoned(RETENTION)
    session.commit()
    after_its_commit = store.reap_abandoned(RETENTION)

    assert (before_its_commit, after_its_commit) == ((0, []), (0, []))
    assert isinstance(store.claim(make_asked(), LEASE), Busy)


@pytest.mark.parametrize("verb", ["reap_abandoned", "quarantine_abandoned"])
def test_abandoned_records_are_found_among_the_running_ones_alone(session: Any, store: PostgresStore, verb: str):
    session.execute("SET LOCAL enable_seqscan = off")
    values = {"age": timedelta(1), "limit": 500, "request": "@request", "reason": ""}

    plan = session.execute(f"EXPLAIN {load_statement('postgres', verb, '%(NAME)s')}", values).fetchall()

    assert "idempotency_record_running" in "\n".join(line for (line,) in plan)


@pytest.mark.parametrize("verb", ["fence_step", "release", "give_up"])
def test_an_owner_finds_its_record_by_the_key_though_few_are_running(session: Any, store: PostgresStore, verb: str):
    values = {"id": bytes(32), "token": bytes(16), "previous": None, "point": "placed", "idle": "30s", "reason": ""}

    plan = session.execute(f"EXPLAIN {load_statement('postgres', verb, '%(NAME)s')}", values).fetchall()

    assert "idempotency_record_running" not in "\n".join(line for (line,) in plan)


def test_neither_a_renewal_nor_a_phase_nor_a_release_writes_an_index(store: PostgresStore, session: Any):
    claim = claimed(store.claim(make_asked(), LEASE))
    held = {"id": claim.id, "token": claim.guard.token}
    moved = {"previous": None, "point": "placed", "idle": "30s"}

    run_verb(session, "renew", **held, lease=LEASE)
    run_verb(session, "fence_step", **held, **moved)
    run_verb(session, "release", **held)

    table = "to_regclass('idempotency_record')"
    counts = f"SELECT pg_stat_get_xact_tuples_updated({table}), pg_stat_get_xact_tuples_hot_updated({table})"
    assert session.execute(counts).fetchone() == (3, 3)


def test_nobody_waits_long_for_a_row_that_somebody_holds(store: PostgresStore, session: Any):
    claim = claimed(store.claim(make_asked(), LEASE))
    session.execute("SELECT FROM idempotency_record FOR UPDATE")

    with (
        meanwhile(lambda: store.complete(claim, DONE, RETENTION)) as completed,
        meanwhile(lambda: store.renew(claim, LEASE)) as renewed,
        meanwhile(lambda: store.release(claim)) as released,
    ):
        pass

    assert isinstance(completed[0], OutcomeUnknown)
    assert renewed == [None]  # who holds it may be the owner's own phase, and others are to be renewed as well
    assert isinstance(released[0], StoreUnavailable)
    session.rollback()
    record = store.find(make_asked().id)
    assert record is not None
    assert isinstance(record.condition, Running)
    assert record.condition.token == claim.guard.token
    store.complete(claim, DONE, RETENTION)
    assert isinstance(store.claim(make_asked(), LEASE), Settled)


# -- replays ---------------------------------------------------------------------------------------------------------


def test_replays_and_refusals_write_nothing_and_lock_nothing(store: PostgresStore, session: Any):
    store.claim(make_asked("running"), LEASE)
    store.complete(claimed(store.claim(make_asked("finished"), LEASE)), DONE, RETENTION)
    marks = "SELECT id, ctid, xmin, xmax FROM idempotency_record ORDER BY id"
    before = session.execute(marks).fetchall()
    session.rollback()

    transactions = []
    for key in ("running", "finished"):
        run_verb(session, "claim", scope="ada", **values_of_claim(key))
        run_verb(session, "find", id=make_asked(key).id)
        transactions.append(session.execute("SELECT txid_current_if_assigned()").fetchone())
        session.rollback()
        store.claim(make_asked(key), LEASE)

    assert transactions == [(None,), (None,)]
    assert session.execute(marks).fetchall() == before


def test_a_replay_does_not_wait_for_a_row_that_somebody_holds(store: PostgresStore, session: Any):
    store.complete(claimed(store.claim(make_asked(), LEASE)), DONE, RETENTION)
    session.execute("SELECT FROM idempotency_record FOR UPDATE")

    with meanwhile(lambda: store.claim(make_asked(), LEASE)) as given:
        pass

    assert isinstance(given[0], Settled)


def test_a_key_that_comes_again_is_only_read(store: PostgresStore, monkeypatch: pytest.MonkeyPatch):
    store.complete(claimed(store.claim(make_asked(), LEASE)), DONE, RETENTION)
    fresh, statements = PostgresStore(store._engine), list[str]()  # as another process has it
    fresh.prepare()
    monkeypatch.setattr(
        postgres_server,
        "converse",
        lambda connection, messages, *args, **options: (
            statements.extend(text.split()[0] for text, _ in messages),
            converse(connection, messages, *args, **options),
        )[1],
    )

    replays = []
    for _ in range(3):
        statements.clear()
        assert isinstance(fresh.claim(make_asked(), LEASE), Settled)
        replays.append(list(statements))

    assert replays == [["INSERT", "SELECT"], ["SELECT"], ["SELECT"]]


def test_an_expired_record_that_is_reaped_meanwhile_is_replaced_all_the_same(
    store: PostgresStore, session: Any, let_pass: Callable[[timedelta], None]
):
    store.complete(claimed(store.claim(make_asked(), LEASE)), DONE, RETENTION)
    let_pass(RETENTION + HOUR)
    claim = claimed(store.enter(session, make_asked(), patience=timedelta(0), idle=LEASE))

    reaped = store.reap(timedelta(0))
    store.finish(session, claim, make_asked(), DONE, RETENTION)

    assert reaped == 1
    assert isinstance(store.claim(make_asked(), LEASE), Settled)


# -- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("off_by", [HOUR, -HOUR], ids=["ahead", "behind"])
def test_a_caller_s_wrong_clock_changes_nothing(store: PostgresStore, session: Any, off_by: timedelta):
    with callers_clock(off_by):
        claim = claimed(store.claim(make_asked(), LEASE))
        lease = session.execute("SELECT lease_until - clock_timestamp() FROM idempotency_record").fetchone()[0]
        store.complete(claim, DONE, RETENTION)
        retention = session.execute("SELECT expires_at - clock_timestamp() FROM idempotency_record").fetchone()[0]

    assert LEASE - MOMENT < lease <= LEASE
    assert RETENTION - MOMENT < retention <= RETENTION


def test_time_goes_on_inside_a_transaction(store: PostgresStore, session: Any):
    session.execute("SELECT 1")  # from here on now() stands still
    store.claim(make_asked(), timedelta(milliseconds=100))

    def has_passed() -> bool:
        (row,) = run_verb(session, "find", id=make_asked().id)
        record = store._record(row)
        assert isinstance(record.condition, Running)
        return record.condition.lease_left < timedelta(0)

    assert eventually(has_passed)


def test_only_a_seal_asks_for_the_time_at_which_its_transaction_began():
    folder = Path(postgres_server.__file__).with_name("statements") / "postgres"

    frozen = [
        path.name
        for path in folder.glob("*.sql")
        if re.search(r"\bnow\(\)|\bcurrent_timestamp\b|\btransaction_timestamp\b", path.read_text(), re.IGNORECASE)
    ]

    assert frozen == ["commit_phase.sql"]  # to measure how long the phase took


# -- forks -----------------------------------------------------------------------------------------------------------


def test_a_forked_worker_leaves_its_parent_s_connections_alone(store: PostgresStore, postgres: Postgres):
    store.find(make_asked().id)
    database = store._engine.url.database
    parents = set(postgres.backends(database))

    def claim_and_count() -> tuple[str, int]:
        found = store.claim(make_asked(), LEASE)
        return type(found).__name__, len(set(postgres.backends(database)) - parents)

    with Child(claim_and_count) as child:
        said = child.step()

        assert said == "('Claim', 1)"
        assert set(postgres.backends(database)) >= parents
        assert isinstance(store.claim(make_asked(), LEASE), Busy)
    assert set(postgres.backends(database)) >= parents
