"""The rules of the statement files: named after a verb, opened by a promise, the same verbs everywhere."""

import re
from importlib.resources import files
from pathlib import Path

import pytest

from flask_idempotency.stores import sql
from flask_idempotency.stores.database import load_statement
from flask_idempotency.stores.mariadb import MariaStore
from flask_idempotency.stores.postgres import PostgresStore
from flask_idempotency.stores.sqlite import SqliteStore

ROOM = Path(str(files(sql.__package__))) / "statements"
FILES = sorted(ROOM.glob("*/*.sql"))
SCRIPTS = sorted(ROOM.glob("redis/*.lua"))
LOCKS = {
    "lock",
    "exists",
    "wait",
    "bound",
    "get_to_know",
    "bound_wait",
    "free_wait",
    "confirm",
}  # one writer at a time needs none


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_statement_opens_with_its_promise_and_fits_on_a_page(path: Path):
    lines = path.read_text("utf-8").splitlines()

    assert re.match(r"-- [A-Z]", lines[0])
    assert len(lines) <= 40


NEEDED_ON_MARIADB = {
    "advise",
    "dirty",  # its locks are rows
    "enter",
    "get_to_know",
    "is_running",
    "look_again",
    "vacate",
    "prolong",
    "expired_ids",  # it locks in one statement, and deletes by key in the next
    "untouched_ids",
    "abandoned_ids",
}
NOT_ON_MARIADB = {
    "reap_abandoned",  # reap does it
    "upgrade_2",  # the tables were of version 5 from the beginning
    "upgrade_3",
}


@pytest.mark.parametrize("path", [path for path in SCRIPTS if path.stem != "common"], ids=lambda path: path.stem)
def test_a_script_says_what_it_may_do_and_then_its_promise_and_fits_on_a_page(path: Path):
    lines = path.read_text("utf-8").splitlines()

    assert lines[0] == ("#!lua" if path.stem == "claim" else "#!lua flags=allow-oom")  # a full server refuses claims
    assert re.match(r"-- [A-Z]", lines[1])
    assert len(lines) <= 45


def test_every_technology_knows_the_same_verbs():
    verbs = {folder.name: {path.stem for path in folder.glob("*.sql")} for folder in ROOM.iterdir() if folder.is_dir()}

    known = {
        verb
        for name in verbs["postgres"] - LOCKS - {"only_read", "has_unkept", "is_running", "advise", "index_scopes"}
        for verb in name.split("_and_")
    }
    assert known == verbs["sqlite"] - {
        "reap_checkpoints",
        "reap_abandoned_requests",
        "prolong",
    }  # the other does it in one
    assert known - NOT_ON_MARIADB == verbs["mariadb"] - NEEDED_ON_MARIADB


@pytest.mark.parametrize("store", [PostgresStore, SqliteStore, MariaStore])
def test_a_statement_is_loaded_without_comments_and_with_the_driver_s_parameters(store: type[sql.SqlStore]):
    text = load_statement(store.technology, "find", store.mark)

    assert "--" not in text
    assert "@record" not in text
    assert text.startswith("SELECT id, scope,")
    assert f"WHERE id = {store.mark.replace('NAME', 'id')} " in text


def test_a_cast_is_no_parameter():
    text = load_statement("postgres", "browse", "%(NAME)s")

    assert "%(state)s::text IS NULL" in text


PARTITIONED = {path.stem for path in (ROOM / "postgres_partitioned").glob("*.sql")}
OLD_STEPS = {"answers", "reseal", "upgrade_2", "upgrade_3", "upgrade_4"}  # for plain tables only
ASKED_OF_THE_SERVER = {
    "structure",
    "get_to_know",
    "bound",
    "alone",
    "advise",
    "index_scopes",
}  # sent as they stand, whatever form the tables have


@pytest.mark.parametrize(
    "verb", sorted({path.stem for path in (ROOM / "postgres").glob("*.sql")} - OLD_STEPS - ASKED_OF_THE_SERVER)
)
def test_a_statement_without_a_form_of_its_own_is_about_the_open_partition(verb: str):
    """Only what is written for partitions may name the whole table: elsewhere a key that spans it would be assumed."""
    text = load_statement("postgres", verb, "%(NAME)s", "postgres_partitioned", "_open")

    assert "@" not in text
    if not any(name in PARTITIONED for name in (verb, *verb.split("_and_"))):
        assert not re.search(r"idempotency_(record|checkpoint)\b", text)
    if "ON CONFLICT" in text:
        assert re.search(r"INTO idempotency_(record|checkpoint)_open", text)


def test_every_insert_into_a_partitioned_record_names_its_day():
    for verb in PARTITIONED:
        text = load_statement("postgres", verb, "%(NAME)s", "postgres_partitioned", "_open")
        for columns in re.findall(r"INSERT INTO idempotency_(?:record|checkpoint)\s*\(([^)]*)\)", text):
            assert "day" in columns.replace(",", " ").split()
