"""What is special about DynamoDB: its table, its limits, its clients, and what its faults look like."""

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from botocore.retries.standard import ExponentialBackoff

from flask_idempotency.core.checkpoint import REQUEST, Checkpoint, Kind
from flask_idempotency.core.lifecycle import State
from flask_idempotency.core.record import Busy, Finished, Settled
from flask_idempotency.core.reference import reference_of
from flask_idempotency.core.snapshot import NotKept, Snapshot
from flask_idempotency.errors import BodyTooLarge, ConfigError, StoreUnavailable
from flask_idempotency.stores import TablesMissing, open_store
from flask_idempotency.stores.contract import StoreUndecided
from flask_idempotency.stores.dynamodb import DynamoStore
from flask_idempotency.stores.dynamodb_schema import INDEX
from flask_idempotency.testing import LEASE, MOMENT, RETENTION, make_asked
from tests.fixtures.dynamodb import table_at
from tests.stores.dynamodb_world import DynamoWorld
from tests.stores.others import Child, fork_in_c
from tests.stores.worlds import claimed

CREATED = Snapshot(201, (("Location", "/orders/1"),), b"{}")


@pytest.fixture(scope="module")
def made(moto_port: int) -> DynamoWorld:
    """A table whose expired items the service deletes: only this module makes clients for it."""
    return DynamoWorld(table_at(moto_port))


@pytest.fixture
def world(made: DynamoWorld) -> DynamoWorld:
    made.clear()
    return made


@pytest.fixture
def store(world: DynamoWorld) -> DynamoStore:
    return world.store


def opened(url: str) -> DynamoStore:
    store = open_store(url)
    assert isinstance(store, DynamoStore)
    return store


@pytest.fixture
def unmade(moto_port: int, made: DynamoWorld) -> DynamoStore:
    """A store whose table is not made, with a client that was made before, which saves a second."""
    store = opened(table_at(moto_port))
    store._table._client = made.store._table._client
    return store


def item_of(store: DynamoStore, key: str = "order-1") -> dict[str, Any]:
    item = store._table.read(make_asked(key).id)
    assert item is not None
    return item


# -- the table -------------------------------------------------------------------------------------------------------


def test_a_missing_table_is_named_with_the_command_that_makes_it(unmade: DynamoStore):
    for look in (unmade.check, unmade.prepare):
        with pytest.raises(TablesMissing, match=r"^The table records-\w+ does not exist; make it with: flask idempot"):
            look()


def test_a_request_without_a_table_is_refused_and_the_log_says_why(
    unmade: DynamoStore, caplog: pytest.LogCaptureFixture
):
    with pytest.raises(StoreUnavailable):
        unmade.claim(make_asked(), LEASE)

    assert "does not exist; make it with: flask idempotency init" in caplog.text


def test_the_table_is_billed_on_demand_and_deletes_what_has_expired(store: DynamoStore):
    table = store._table
    found = table.send("describe_table", TableName=table.name)["Table"]
    expiry = table.send("describe_time_to_live", TableName=table.name)["TimeToLiveDescription"]

    assert found["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    assert (expiry["TimeToLiveStatus"], expiry["AttributeName"]) == ("ENABLED", "delete_at")
    store.create()
    store.check()


def test_a_table_that_keeps_everything_for_ever_is_noticed_and_mended(store: DynamoStore):
    table = store._table
    off = {"Enabled": False, "AttributeName": "delete_at"}
    table.send("update_time_to_live", TableName=table.name, TimeToLiveSpecification=off)
    store.prepare()

    with pytest.raises(ConfigError, match=r"keeps expired records for ever; turn its TTL on with: flask idempotency"):
        store.check()
    store.create()

    store.check()


def test_a_table_without_the_index_is_noticed_and_mended(unmade: DynamoStore):
    table = unmade._table
    unmade.create()
    gone = {"AttributeDefinitions": [], "GlobalSecondaryIndexUpdates": [{"Delete": {"IndexName": INDEX}}]}
    table.send("update_table", TableName=table.name, **gone)

    with pytest.raises(TablesMissing, match=f"has no index {INDEX}; make it with: flask idempotency init"):
        unmade.check()
    unmade.create()

    unmade.check()


def test_somebody_elses_table_is_refused(unmade: DynamoStore):
    table = unmade._table
    theirs = {"KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}], "BillingMode": "PAY_PER_REQUEST"}
    types = [{"AttributeName": "id", "AttributeType": "S"}]
    table.send("create_table", TableName=table.name, AttributeDefinitions=types, **theirs)

    for use in (unmade.check, unmade.create):
        with pytest.raises(ConfigError, match=r"has other keys, so it is not ours: name another one in the URL\.$"):
            use()


# -- expiry ----------------------------------------------------------------------------------------------------------


def test_the_service_deletes_an_item_when_its_grace_has_passed_and_not_before(store: DynamoStore):
    store.grace = timedelta(hours=5)
    claim = claimed(store.claim(make_asked(), LEASE))
    while_running = item_of(store)

    store.complete(claim, CREATED, RETENTION)

    finished = item_of(store)
    assert "delete_at" not in while_running
    late = finished["delete_at"] * 1000 - finished["expires_at"]
    assert timedelta(0) <= timedelta(milliseconds=late) - store.grace < timedelta(seconds=1)


def test_nothing_is_deleted_that_is_not_finished(world: DynamoWorld, store: DynamoStore):
    store.complete(claimed(store.claim(make_asked(), LEASE)), CREATED, RETENTION)
    world.let_pass(RETENTION)
    again = claimed(store.claim(make_asked(), LEASE))
    anew = item_of(store)
    store.quarantine(again, "nobody knows")
    quarantined = item_of(store)
    store.reopen(make_asked().id, "ada")

    assert not any("delete_at" in item for item in (anew, quarantined, item_of(store)))


def test_housekeeping_leaves_expired_items_to_the_service_and_ends_abandoned_ones(
    world: DynamoWorld, store: DynamoStore
):
    store.complete(claimed(store.claim(make_asked(), LEASE)), CREATED, RETENTION)
    claimed(store.claim(make_asked("order-2"), LEASE))
    world.let_pass(RETENTION * 2)

    assert store.reap(MOMENT) == 0
    assert store.reap_abandoned(MOMENT) == (1, [])
    assert [record.asked for record in store.browse()] == [make_asked()]


def test_a_claim_meets_an_expired_item_that_the_service_deletes_at_that_moment(
    world: DynamoWorld, store: DynamoStore, monkeypatch: pytest.MonkeyPatch
):
    store.complete(claimed(store.claim(make_asked(), LEASE)), CREATED, RETENTION)
    world.let_pass(RETENTION)
    table, put = store._table, store._table.put

    def put_late(*given: Any) -> None:
        if table.read(make_asked().id):
            world.clear()
        put(*given)

    monkeypatch.setattr(table, "put", put_late)

    claim = claimed(store.claim(make_asked(body="two books"), LEASE))

    assert (claim.attempt, claim.taken_over) == (1, False)


def test_only_unfinished_records_are_in_the_index(store: DynamoStore):
    running = claimed(store.claim(make_asked(), LEASE))
    before = item_of(store).get("listed")
    store.complete(running, CREATED, RETENTION)

    assert str(before).startswith("running ")
    assert "listed" not in item_of(store)


def test_a_stale_index_gives_nobody_a_wrong_answer(store: DynamoStore, monkeypatch: pytest.MonkeyPatch):
    claim = claimed(store.claim(make_asked(), LEASE))
    (stale,) = store._table.pages("scan", IndexName=INDEX)
    store.complete(claim, CREATED, RETENTION)

    monkeypatch.setattr(
        store, "_query", lambda _, values, **__: iter([item for item in stale if item["listed"] == values["shelf"]])
    )

    assert store.browse(state=State.RUNNING) == []
    assert store.reap_abandoned(timedelta(0)) == (0, [])


# -- what an item can hold -------------------------------------------------------------------------------------------


def test_an_answer_that_an_item_cannot_hold_is_done_and_not_kept(store: DynamoStore, caplog: pytest.LogCaptureFixture):
    claim = claimed(store.claim(make_asked(), LEASE))

    store.complete(claim, Snapshot(201, CREATED.headers, b"x" * 500_000), RETENTION)

    found = store.claim(make_asked(), LEASE)
    assert isinstance(found, Settled)
    assert isinstance(found.record.condition, Finished)
    assert found.record.condition.answer == NotKept(201, "/orders/1")
    assert "body_not_kept" in caplog.text


def test_a_request_that_is_too_large_to_be_stored_is_refused_before_anything_runs(store: DynamoStore):
    large = Checkpoint(REQUEST, Kind.REQUEST, 0, result="x" * 500_000)

    with pytest.raises(BodyTooLarge):
        store.claim(make_asked(), LEASE, large)
    claim = claimed(store.claim(make_asked("order-2"), LEASE))
    with pytest.raises(BodyTooLarge):
        store.checkpoint(claim, large)

    assert store.find(make_asked().id) is None
    assert store.checkpoints(claim.id) == []


# -- answers that are lost -------------------------------------------------------------------------------------------


def test_a_claim_that_the_sdk_has_sent_twice_is_known_as_our_own(world: DynamoWorld, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda *_: 0.01)
    world.store.find(make_asked().id)  # which learns the time, so that the claim comes next

    world.lose_next_answer()
    claim = claimed(world.store.claim(make_asked(), LEASE))

    assert isinstance(world.store.claim(make_asked(), LEASE), Busy)
    world.store.renew(claim, LEASE)


# -- clients ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fork", [os.fork, fork_in_c], ids=["Python's fork", "C's fork"])
def test_a_child_does_not_use_its_parents_connections(store: DynamoStore, fork: Callable[[], int]):
    store.claim(make_asked(), LEASE)
    parents = store._table._client

    def in_child() -> str:
        found = store.claim(make_asked(), LEASE)
        return f"{type(found).__name__} {store._table._client is parents}"

    with Child(in_child, fork=fork) as child:
        assert child.step() == "Busy False"
    assert store._table._client is parents
    assert isinstance(store.claim(make_asked(), LEASE), Busy)


def test_the_sdk_is_loaded_by_whoever_uses_it_alone():
    program = (
        "import sys; from flask_idempotency.stores import open_store; open_store('sqlite:///x.db');"
        "print([name for name in ('boto3', 'botocore') if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout == "[]\n"


def test_a_missing_sdk_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "flask_idempotency.stores.dynamodb")
    monkeypatch.delitem(sys.modules, "flask_idempotency.stores.dynamodb_table")
    for name in ("dynamodb_listing", "dynamodb_schema"):
        monkeypatch.delitem(sys.modules, f"flask_idempotency.stores.{name}")
    monkeypatch.setitem(sys.modules, "boto3", None)

    with pytest.raises(ConfigError, match=r"boto3 is not installed; run: pip install flask-idempotency\[dynamodb\]$"):
        open_store("dynamodb://records?region=eu-central-1")


# -- the URL ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "dynamodb://?region=eu-central-1",
        "dynamodb://key:secret@records?region=eu-central-1",
        "dynamodb://records:8000",
        "dynamodb://records/another",
        "dynamodb://records?zone=eu-central-1",
        "dynamodb://records?ttl=on",
    ],
)
def test_a_url_with_more_or_less_than_it_needs_is_refused_in_one_sentence(url: str):
    with pytest.raises(ConfigError, match=r"^IDEMPOTENCY_STORE is not a DynamoDB URL; write it like [^\n]+\.$") as told:
        open_store(url)

    assert "secret" not in str(told.value)


def test_an_app_never_keeps_its_own_rows_there():
    with pytest.raises(ConfigError, match=r"^db= uses dynamodb, which cannot hold the records"):
        open_store("dynamodb://records?region=eu-central-1", is_apps_own=True)


def test_without_a_region_the_check_says_where_to_put_it(no_account: None):
    with pytest.raises(ConfigError, match=r"^The region is not known: add \?region=\.\.\. to the URL"):
        open_store("dynamodb://records").check()


def test_without_credentials_the_check_says_what_to_give_it(no_account: None):
    with pytest.raises(ConfigError, match=r"^No AWS credentials were found: give the process a role"):
        open_store("dynamodb://records?region=eu-central-1").check()


def test_the_partition_of_a_record_is_the_reference_that_people_read_out(store: DynamoStore):
    claimed(store.claim(make_asked(), LEASE))

    assert item_of(store)["reference"] == reference_of(make_asked().id)


# -- time ------------------------------------------------------------------------------------------------------------


def test_in_doubt_about_the_time_nothing_is_over(store: DynamoStore, monkeypatch: pytest.MonkeyPatch):
    # It is between the fourth and the ninth second.
    table, second = store._table, timedelta(seconds=1)
    monkeypatch.setattr(table, "earliest", lambda: 4000)
    monkeypatch.setattr(table, "latest", lambda: 9000)
    claim = claimed(store.claim(make_asked(), second))
    monkeypatch.setattr(table, "earliest", lambda: 9999)
    still_held = isinstance(store.claim(make_asked(), second), Busy)
    monkeypatch.setattr(table, "earliest", lambda: 10_000)
    store.complete(claim, CREATED, second)
    monkeypatch.setattr(table, "earliest", lambda: 9999)
    still_there = store.find(claim.id)

    monkeypatch.setattr(table, "earliest", lambda: 10_000)

    assert still_held
    assert still_there is not None
    assert store.find(claim.id) is None


# -- writes that are refused -------------------------------------------------------------------------------------------


def test_an_item_that_can_be_read_but_not_taken_over_is_not_taken_for_a_service_that_is_down(
    store: DynamoStore, monkeypatch: pytest.MonkeyPatch
):
    store.release(claimed(store.claim(make_asked(), LEASE)))

    def throttle(*_: Any, **__: Any) -> None:
        raise StoreUnavailable(retry_after=1)

    monkeypatch.setattr(store._table, "update", throttle)

    with pytest.raises(StoreUndecided):
        store.claim(make_asked(), LEASE)
