"""Partitions are made ahead and dropped whole; nothing that counts is ever in one that is dropped."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import MetaData, create_engine

from flask_idempotency.core.checkpoint import Checkpoint, Kind
from flask_idempotency.core.lifecycle import State
from flask_idempotency.core.record import Busy, Claim, Settled
from flask_idempotency.core.snapshot import Snapshot
from flask_idempotency.errors import ClaimLost, ConfigError, StoreUnavailable
from flask_idempotency.stores import include_object, open_store, postgres_partitions
from flask_idempotency.stores.partitioned import partitioned
from flask_idempotency.stores.postgres import PostgresStore
from flask_idempotency.testing import LEASE, RETENTION, make_asked
from tests.fixtures.postgres import Postgres
from tests.fixtures.processes import eventually, race
from tests.stores.clocks import MovedClock, moved_clock
from tests.stores.others import meanwhile
from tests.stores.test_schema import asked_for, insert_older, make_older
from tests.stores.worlds import claimed

DONE = Snapshot(201, (("Location", "/orders/1"),), b"done")
DAY, HOUR, NO_GRACE = timedelta(days=1), timedelta(hours=1), timedelta(0)


@pytest.fixture
def clock(postgres: Postgres) -> Iterator[MovedClock]:
    with moved_clock(postgres) as clock:
        clock.set_to(hour=12)
        yield clock


@pytest.fixture
def plain(clock: MovedClock) -> Iterator[PostgresStore]:
    """A store in plain tables."""
    with closing(another(clock)) as store:
        store.create()
        yield store


@pytest.fixture
def store(plain: PostgresStore) -> PostgresStore:
    """A store in partitioned ones."""
    plain.partition(RETENTION)
    return plain


def another(clock: MovedClock) -> PostgresStore:
    """A store on the same database, as another process has it."""
    store = open_store(clock.url)
    assert isinstance(store, PostgresStore)
    return store


def finish(store: PostgresStore, key: str, retention: timedelta = RETENTION) -> None:
    claim = claimed(store.claim(make_asked(key), LEASE))
    claim = store.checkpoint(claim, Checkpoint("placed", Kind.PHASE, 1))
    store.complete(claim, DONE, retention)


def answer_of(store: PostgresStore, key: str) -> object:
    found = store.claim(make_asked(key), LEASE)
    return found.record.condition.answer if isinstance(found, Settled) else found


def places(clock: MovedClock, table: str = "idempotency_record") -> list[str]:
    """Where rows are: ``open``, or how many days after today's partition."""
    rows = clock.run(f"SELECT tableoid::regclass::text FROM {table} ORDER BY 1")
    return [place(clock, name) for (name,) in rows]


def place(clock: MovedClock, name: str) -> str:
    end = name.rpartition("_")[2]
    if end == "open":
        return end
    day = datetime.strptime(end, "%Y%m%d").replace(tzinfo=UTC).date()
    return f"{(day - clock.now().date()).days:+d}"


def days_of(clock: MovedClock) -> list[str]:
    query = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'idempotency_record'::regclass"
    return sorted(place(clock, name) for (name,) in clock.run(query))


# -- where records are -----------------------------------------------------------------------------------------------


def test_a_record_is_open_until_it_is_finished_and_then_in_the_day_of_its_expiry(
    store: PostgresStore, clock: MovedClock
):
    claim = claimed(store.claim(make_asked(), LEASE))
    claim = store.checkpoint(claim, Checkpoint("placed", Kind.PHASE, 1))
    while_running = places(clock), places(clock, "idempotency_checkpoint")

    store.complete(claim, DONE, RETENTION)

    assert while_running == (["open"], ["open"])
    assert (places(clock), places(clock, "idempotency_checkpoint")) == (["+1"], ["+1"])
    assert [each.name for each in store.checkpoints(make_asked().id)] == ["placed"]


def test_retentions_that_differ_lead_to_different_days(store: PostgresStore, clock: MovedClock):
    for key, retention in (("short", HOUR), ("usual", DAY), ("long", 2 * DAY)):
        finish(store, key, retention)

    assert places(clock) == ["+0", "+1", "+2"]


def test_what_expires_on_a_day_without_partition_stays_open_and_is_found(store: PostgresStore, clock: MovedClock):
    finish(store, "for years", 1000 * DAY)

    assert places(clock) == ["open"]
    assert answer_of(store, "for years") == DONE


@pytest.mark.parametrize(("before", "expected"), [(timedelta(seconds=2), "+0"), (-timedelta(seconds=2), "+1")])
def test_the_day_ends_at_midnight_utc(store: PostgresStore, clock: MovedClock, before: timedelta, expected: str):
    """Whatever the time zone of the role is."""
    database = clock.url.rpartition("/")[2]
    clock.run(f"ALTER DATABASE {database} SET timezone = 'Asia/Tokyo'")
    with closing(another(clock)) as elsewhere:
        midnight = (clock.now() + DAY).replace(hour=0, minute=0, second=0, microsecond=0)

        finish(elsewhere, "at midnight", midnight - clock.now() - before)

    assert places(clock) == [expected]


def test_requests_that_pass_midnight_run_once_and_are_found_on_both_sides(store: PostgresStore, clock: MovedClock):
    """Expired records of the old day are no longer looked at, those of the new day are."""
    finish(store, "expires before", 30 * 60 * timedelta(seconds=1))
    clock.set_to(hour=23, minute=59, second=59.7)
    stores = [another(clock) for _ in range(4)]
    for each in stores:
        each.prepare()

    def work(n: int) -> list[str]:
        ran = []
        for i in range(60):
            for key in ("expires before", f"key-{i}") if i == 30 else (f"key-{i}",):
                found = stores[n].claim(make_asked(key), LEASE)
                if isinstance(found, Claim):
                    ran.append(key)
                    stores[n].complete(found, DONE, timedelta(seconds=30 if i % 2 else 3600))
        return ran

    ran = [key for keys in race(4, work) for key in keys]

    assert sorted(ran) == sorted({*ran})
    assert set(ran) == {"expires before", *(f"key-{i}" for i in range(60))}
    assert (
        clock.run(
            "SELECT id FROM idempotency_record WHERE expires_at > clock_timestamp() GROUP BY id HAVING count(*) > 1"
        )
        == []
    )
    for each in stores:
        each.close()


# -- made ahead, dropped whole ---------------------------------------------------------------------------------------


def test_partitions_are_made_ahead_by_housekeeping(store: PostgresStore, clock: MovedClock):
    at_first = days_of(clock)
    clock.let_pass(DAY)

    store.upkeep(RETENTION, DAY)

    assert at_first == ["+0", "+1", "+2", "+3", "open"]
    assert days_of(clock) == ["+0", "+1", "+2", "+3", "-1", "open"]


def test_a_day_is_dropped_when_everything_in_it_has_expired_for_longer_than_the_grace(
    store: PostgresStore, clock: MovedClock
):
    finish(store, "old")
    clock.let_pass(DAY + 11 * HOUR)
    store.upkeep(RETENTION, HOUR)
    before_midnight = places(clock)
    clock.let_pass(90 * timedelta(minutes=1))
    store.upkeep(RETENTION, HOUR)
    within_the_grace = places(clock)
    clock.let_pass(HOUR)

    store.upkeep(RETENTION, HOUR)

    assert (before_midnight, within_the_grace) == (["+0"], ["-1"])
    assert (places(clock), places(clock, "idempotency_checkpoint")) == ([], [])
    assert clock.run("SELECT count(*) FROM pg_class WHERE relname LIKE 'idempotency_%' AND relkind = 'r'") == [(10,)]


def test_what_is_live_running_or_quarantined_survives_every_drop(store: PostgresStore, clock: MovedClock):
    finish(store, "dead")
    finish(store, "kept for years", 1000 * DAY)
    store.quarantine(claimed(store.claim(make_asked("quarantined"), LEASE)), "nobody knows")
    running = claimed(store.claim(make_asked("running"), LEASE))
    running = store.checkpoint(running, Checkpoint("placed", Kind.PHASE, 1))
    for _ in range(4):
        clock.let_pass(DAY)
        store.upkeep(RETENTION, NO_GRACE)
        finish(store, f"new {_}")

    assert {record.state for record in store.browse()} == {State.FINISHED, State.QUARANTINED, State.RUNNING}
    assert answer_of(store, "kept for years") == DONE
    assert isinstance(store.claim(make_asked("quarantined"), LEASE), Settled)
    assert isinstance(store.claim(make_asked("dead"), LEASE), Claim)
    store.complete(running, DONE, RETENTION)
    assert answer_of(store, "running") == DONE
    assert [each.name for each in store.checkpoints(make_asked("running").id)] == ["placed"]


def test_a_quarantined_record_that_is_settled_moves_with_its_checkpoints(store: PostgresStore, clock: MovedClock):
    claim = store.checkpoint(claimed(store.claim(make_asked(), LEASE)), Checkpoint("placed", Kind.PHASE, 1))
    store.quarantine(claim, "nobody knows")

    store.resolve(make_asked().id, DONE, RETENTION, "answered by ada")

    assert (places(clock), places(clock, "idempotency_checkpoint")) == (["+1"], ["+1"])
    assert answer_of(store, "order-1") == DONE


@pytest.mark.parametrize("passed", [HOUR, DAY], ids=["the same day", "the next day"])
def test_a_key_that_comes_again_after_its_expiry_knows_nothing_of_the_old_one(
    store: PostgresStore, clock: MovedClock, passed: timedelta
):
    finish(store, "order-1", HOUR)
    clock.let_pass(passed)

    claim = claimed(store.claim(make_asked(body="two books"), LEASE))

    assert (claim.attempt, claim.point) == (1, None)
    assert store.checkpoints(make_asked().id) == []
    store.complete(claim, DONE, HOUR)
    assert store.find(make_asked().id) is not None


def test_nothing_that_counts_can_be_written_into_a_day(store: PostgresStore, clock: MovedClock):
    """So a worker that still knows the plain tables cannot either: the rule of the partition refuses it."""
    finish(store, "order-1")

    for change in ("state = 'running'", "expires_at = expires_at + interval '1 day'"):
        with pytest.raises(psycopg.errors.CheckViolation):
            clock.run(f"UPDATE idempotency_record SET lease_until = clock_timestamp(), {change}")


def test_an_open_transaction_delays_a_drop_and_nobody_else(store: PostgresStore, clock: MovedClock):
    finish(store, "old")
    clock.let_pass(4 * DAY)
    with psycopg.connect(clock.plain_url) as slow:
        slow.execute("SELECT count(*) FROM idempotency_record")
        store.upkeep(RETENTION, NO_GRACE)
        meanwhile = places(clock), store.claim(make_asked("new"), LEASE)
        store.upkeep(RETENTION, NO_GRACE)

    store.upkeep(RETENTION, NO_GRACE)

    assert isinstance(meanwhile[1], Claim)
    assert "-" not in "".join(days_of(clock))


def test_a_drop_that_was_interrupted_is_finished_by_the_next_housekeeper(store: PostgresStore, clock: MovedClock):
    clock.let_pass(4 * DAY)
    tables = "SELECT relname FROM pg_class WHERE relname ~ '^idempotency_record_[0-9]{8}$' ORDER BY 1"
    old = clock.run(tables)[0][0]
    clock.run(f"ALTER TABLE idempotency_record DETACH PARTITION {old}")

    store.upkeep(RETENTION, NO_GRACE)

    assert clock.run("SELECT to_regclass(%s)", old) == [(None,)]


def test_many_housekeepers_at_once_do_it_once(store: PostgresStore, clock: MovedClock):
    clock.let_pass(4 * DAY)
    stores = [another(clock) for _ in range(6)]

    race(6, lambda n: stores[n].upkeep(RETENTION, NO_GRACE))

    store.upkeep(RETENTION, NO_GRACE)
    assert days_of(clock) == ["+0", "+1", "+2", "+3", "open"]
    for each in stores:
        each.close()


# -- nobody made them ------------------------------------------------------------------------------------------------


def test_where_housekeeping_was_off_for_a_week_nothing_is_lost_and_check_says_so(
    store: PostgresStore, clock: MovedClock, caplog: pytest.LogCaptureFixture
):
    store.check()
    clock.let_pass(7 * DAY)
    finish(store, "order-1")

    with pytest.raises(ConfigError, match=r"There is no partition for records that expire on .* init --partitioned"):
        store.check()

    assert (places(clock), answer_of(store, "order-1")) == (["open"], DONE)
    store.upkeep(RETENTION, DAY)
    assert "partition_missing" in caplog.text
    store.check()
    finish(store, "order-2")
    assert places(clock) == ["+1", "open"]
    assert answer_of(store, "order-1") == DONE
    clock.let_pass(RETENTION + HOUR)
    assert store.reap(NO_GRACE) == 1


def test_a_role_that_may_only_use_the_tables_needs_no_more_and_says_what_the_owner_must_do(
    plain: PostgresStore, clock: MovedClock, caplog: pytest.LogCaptureFixture
):
    """What was granted on the plain tables is granted on the partitioned ones."""
    role = f"worker_{clock.url[-8:]}"
    clock.run(f"CREATE ROLE {role} LOGIN")
    clock.run(f"GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency_record, idempotency_checkpoint TO {role}")
    try:
        plain.partition(RETENTION)
        with closing(open_store(clock.url.replace("postgres@", f"{role}@"))) as worker:
            worker.prepare()
            finish(worker, "order-1")
            clock.let_pass(4 * DAY)

            worker.upkeep(RETENTION, NO_GRACE)
            worker.upkeep(RETENTION, NO_GRACE)

            assert caplog.text.count("as their owner, run every day: flask idempotency reap") == 1
            assert isinstance(worker.claim(make_asked("order-1"), LEASE), Claim)
    finally:
        clock.run(f"DROP OWNED BY {role}; DROP ROLE {role}")


# -- moving over -----------------------------------------------------------------------------------------------------


def test_plain_tables_are_moved_over_with_every_record(plain: PostgresStore, clock: MovedClock):
    finish(plain, "finished")
    plain.quarantine(claimed(plain.claim(make_asked("quarantined"), LEASE)), "nobody knows")
    running = plain.checkpoint(claimed(plain.claim(make_asked("running"), LEASE)), Checkpoint("placed", Kind.PHASE, 1))
    before = sorted(map(str, plain.browse()))

    plain.partition(RETENTION)

    assert [len(before), len(plain.browse())] == [3, 3]
    assert answer_of(plain, "finished") == DONE
    assert isinstance(plain.claim(make_asked("running"), LEASE), Busy)
    plain.complete(running, DONE, RETENTION)
    assert places(clock) == ["+1", "open", "open"]
    assert [each.name for each in plain.checkpoints(make_asked("running").id)] == ["placed"]
    plain.check()
    plain.create()
    plain.partition(RETENTION)


def test_a_worker_that_knows_the_plain_tables_notices_at_its_next_claim(plain: PostgresStore, clock: MovedClock):
    with closing(another(clock)) as old:
        old.prepare()
        running = claimed(old.claim(make_asked("running"), LEASE))
        plain.partition(RETENTION)

        old.complete(running, DONE, RETENTION)
        finish(old, "order-1")

        assert answer_of(plain, "running") == answer_of(plain, "order-1") == DONE
        assert old.is_partitioned
        assert places(clock) == ["+1", "open"]


def test_a_transaction_of_a_worker_that_knows_the_plain_tables_is_in_nobodys_way(
    plain: PostgresStore, clock: MovedClock
):
    """It holds the lock on the id as the others do, and its record stays in the open partition."""
    with closing(another(clock)) as old, psycopg.connect(clock.plain_url) as connection:
        old.prepare()
        plain.partition(RETENTION)
        claim = claimed(old.enter(connection, make_asked(), patience=NO_GRACE, idle=LEASE))
        beside = plain.claim(make_asked(), LEASE)

        old.finish(connection, claim, make_asked(), DONE, RETENTION)

    assert beside == Busy(make_asked().fingerprint, timedelta(0))
    assert (places(clock), answer_of(plain, "order-1")) == (["open"], DONE)


def test_what_such_a_transaction_cannot_do_is_a_503_and_the_retry_runs(plain: PostgresStore, clock: MovedClock):
    finish(plain, "order-1", HOUR)
    clock.let_pass(2 * HOUR)
    with closing(another(clock)) as old, psycopg.connect(clock.plain_url) as connection:
        old.prepare()
        plain.partition(RETENTION)
        claim = claimed(old.enter(connection, make_asked(), patience=NO_GRACE, idle=LEASE))
        with pytest.raises(StoreUnavailable):
            old.finish(connection, claim, make_asked(), DONE, RETENTION)
        connection.rollback()

        claim = claimed(old.enter(connection, make_asked(), patience=NO_GRACE, idle=LEASE))
        old.finish(connection, claim, make_asked(), DONE, RETENTION)

    assert (places(clock), answer_of(plain, "order-1")) == (["+1"], DONE)


def test_a_view_that_ended_its_transaction_cannot_add_a_record_without_the_lock(
    store: PostgresStore, clock: MovedClock
):
    """No key spans the partitions, so the savepoint of the entered transaction is asked for."""
    with psycopg.connect(clock.plain_url) as connection:
        claim = claimed(store.enter(connection, make_asked(), patience=NO_GRACE, idle=LEASE))
        connection.commit()
        connection.execute("SELECT 1")

        with pytest.raises(ClaimLost):
            store.finish(connection, claim, make_asked(), DONE, RETENTION)
        connection.rollback()

    assert [record.state for record in store.browse()] == [State.QUARANTINED]


@pytest.mark.parametrize("passed", [HOUR, 2 * HOUR, DAY + HOUR], ids=["live", "expired today", "expired yesterday"])
def test_a_transaction_with_one_snapshot_replaces_what_has_expired_and_nothing_else(
    store: PostgresStore, clock: MovedClock, passed: timedelta
):
    finish(store, "order-1", 90 * timedelta(minutes=1))
    clock.let_pass(passed)
    with psycopg.connect(clock.plain_url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ

        found = store.enter(connection, make_asked(), patience=NO_GRACE, idle=LEASE)
        if isinstance(found, Claim):
            store.finish(connection, found, make_asked(), DONE, RETENTION)

    assert isinstance(found, Settled if passed == HOUR else Claim)
    assert answer_of(store, "order-1") == DONE
    assert store.checkpoints(make_asked().id) == [] or passed == HOUR


def test_what_was_written_after_the_snapshot_of_a_transaction_is_in_its_way(store: PostgresStore, clock: MovedClock):
    """It could not see the record that it would have to replace."""
    with psycopg.connect(clock.plain_url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT 1 FROM fake.clock")
        store.release(claimed(store.claim(make_asked(), LEASE)))

        found = store.enter(connection, make_asked(), patience=NO_GRACE, idle=LEASE)

    assert found == Busy(make_asked().fingerprint, NO_GRACE)


@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
def test_a_claim_sees_what_the_last_holder_of_the_lock_has_written(
    store: PostgresStore, clock: MovedClock, monkeypatch: pytest.MonkeyPatch, level: str
):
    """Whatever the isolation level of the role is: a snapshot from before the lock would show no record."""
    monkeypatch.setattr(postgres_partitions, "CLAIMED_NEXT", timedelta(seconds=3))
    database = clock.url.rpartition("/")[2]
    clock.run(f"ALTER DATABASE {database} SET default_transaction_isolation = '{level}'")
    with closing(another(clock)) as rival, psycopg.connect(clock.plain_url) as connection:
        rival.prepare()
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        claim = claimed(store.enter(connection, make_asked(), patience=NO_GRACE, idle=LEASE))
        with meanwhile(lambda: rival.claim(make_asked(), LEASE)) as given:
            blocked = "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
            eventually(lambda: clock.run(blocked, connection.info.backend_pid) != [(0,)], what="a waiting claim")
            store.finish(connection, claim, make_asked(), DONE, RETENTION)

    assert isinstance(given[0], Settled)
    assert len(places(clock)) == 1


def test_many_may_partition_at_once(plain: PostgresStore, clock: MovedClock):
    finish(plain, "order-1")
    stores = [another(clock) for _ in range(4)]

    race(4, lambda n: stores[n].partition(RETENTION))

    assert answer_of(stores[0], "order-1") == DONE
    assert days_of(clock) == ["+0", "+1", "+2", "+3", "open"]
    for each in stores:
        each.close()


def test_a_store_that_cannot_be_partitioned_is_none():
    assert partitioned(open_store("memory://")) is None
    assert partitioned(open_store("sqlite:///records.db")) is None


@pytest.mark.parametrize("has_tables", [True, False], ids=["in the metadata", "not in it"])
def test_alembic_leaves_partitioned_tables_alone(postgres_url: str, has_tables: bool):
    metadata, engine = MetaData(), create_engine(postgres_url)
    with closing(open_store(postgres_url)) as store:
        assert isinstance(store, PostgresStore)
        store.partition(RETENTION)
        if has_tables:
            store.add_tables(metadata)

        with engine.connect() as connection:
            context = MigrationContext.configure(connection, opts={"include_object": include_object})
            proposed = compare_metadata(context, metadata)

    engine.dispose()
    assert proposed == []


@pytest.mark.parametrize("version", [1, 4])
def test_an_older_version_is_upgraded_and_partitioned(postgres_url: str, version: int):
    with closing(open_store(postgres_url)) as store:
        assert isinstance(store, PostgresStore)
        make_older(store, version)
        insert_older(store, version)

        store.partition(RETENTION)

        store.check()
        found = store.claim(asked_for("done"), LEASE)
        assert isinstance(found, Settled)
        finish(store, "new")
        assert answer_of(store, "new") == DONE


def test_a_database_that_was_left_half_way_is_used_as_plain_and_moved_over_later(
    plain: PostgresStore, clock: MovedClock
):
    for table in ("idempotency_record", "idempotency_checkpoint"):
        plain._briefly(partial(plain._follow, "add_day", table=table))
    plain.check()
    finish(plain, "order-1")

    plain.partition(RETENTION)

    assert answer_of(plain, "order-1") == DONE
