"""SQLite's own ways: one file, one writer at a time, several processes, and a file that makes itself."""

import logging
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from sqlalchemy import event

from flask_idempotency.core.record import Busy, Claim, Running, Settled
from flask_idempotency.core.snapshot import Snapshot
from flask_idempotency.errors import ConfigError, OutcomeUnknown, StoreUnavailable
from flask_idempotency.stores import file_locks, forks, open_store
from flask_idempotency.stores import sqlite as module
from flask_idempotency.stores.contract import StoreUndecided
from flask_idempotency.stores.memory import MemoryStore
from flask_idempotency.stores.sqlite import BUSY_TIMEOUT, SqliteStore
from flask_idempotency.stores.sqlite_file import make_private
from flask_idempotency.testing import LEASE, RETENTION, make_asked
from tests.fixtures.processes import ROOT, eventually, race
from tests.stores.others import Child, meanwhile

DONE = Snapshot(201, (("Location", "/orders/1"),), b"done")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records.db"


@pytest.fixture
def open_at() -> Iterator[Callable[..., SqliteStore]]:
    """`open_at(path)`: a store on that file, not created yet; closed after the test."""
    stores: list[SqliteStore] = []

    def open_(path: Path, query: str = "") -> SqliteStore:
        store = open_store(f"sqlite:///{path}{query}")
        assert isinstance(store, SqliteStore)
        stores.append(store)
        return store

    yield open_
    for store in stores:
        store.close()


@pytest.fixture
def store(open_at: Callable[..., SqliteStore], path: Path) -> SqliteStore:
    store = open_at(path)
    store.create()
    return store


@contextmanager
def another_writer(path: Path) -> Iterator[sqlite3.Connection]:
    """Somebody who holds the file's one write lock, at most as long as the block lasts."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        yield writer


# -- durable ---------------------------------------------------------------------------------------------------------


def test_every_connection_writes_ahead_and_to_the_disk(store: SqliteStore):
    connections = [store._engine.raw_connection() for _ in range(4)]  # of which the first has been used before

    pragmas = [
        [connection.cursor().execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
        for connection in connections
    ]

    for connection in connections:
        connection.close()
    assert pragmas == [["wal", 2]] * 4


def test_every_connection_waits_for_the_writer_before_it(store: SqliteStore):
    with closing(store._engine.raw_connection()) as connection:
        milliseconds = connection.cursor().execute("PRAGMA busy_timeout").fetchone()[0]

    assert timedelta(milliseconds=milliseconds) == BUSY_TIMEOUT


def test_leases_may_be_shorter_than_a_second(store: SqliteStore):
    store.claim(make_asked(), timedelta(milliseconds=800))

    record = store.find(make_asked().id)

    assert record is not None
    assert isinstance(record.condition, Running)
    assert record.condition.lease_until - record.created_at == pytest.approx(
        timedelta(milliseconds=800), abs=timedelta(milliseconds=1)
    )


# -- several processes -----------------------------------------------------------------------------------------------


def create_and_claim(folder: Path, files: int, _: int) -> list[str]:
    """Make each file for oneself, as if nobody else did, and claim the same key in it."""
    found = []
    for n in range(files):
        store = open_store(f"sqlite:///{folder / f'{n}.db'}")
        store.prepare()
        found.append(type(store.claim(make_asked(), LEASE)).__name__)
        store.close()
    return found


def test_of_many_processes_that_make_the_file_at_once_one_gets_the_claim(tmp_path: Path):
    files = 12

    found = race(9, partial(create_and_claim, tmp_path, files), processes=3)

    for outcomes in zip(*found, strict=True):
        assert sorted(outcomes) == ["Busy"] * 8 + ["Claim"]


def test_whoever_makes_the_file_releases_no_lock_that_another_thread_has_on_it(path: Path, monkeypatch):
    close, closed = os.close, []

    def look(file: int) -> None:
        closed.append(path.exists() and os.path.samestat(os.fstat(file), path.stat()))
        close(file)

    monkeypatch.setattr(os, "close", look)

    make_private(path, makes=True)

    assert path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == [path]
    assert closed == [False]


def test_somebody_else_who_makes_the_file_is_waited_for(open_at: Callable[..., SqliteStore], path: Path):
    store, statements = open_at(path), list[str]()
    event.listen(store._engine, "connect", lambda c, _: c.set_trace_callback(statements.append), insert=True)

    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with meanwhile(store.prepare) as given:
            eventually(lambda: "BEGIN EXCLUSIVE" in statements or given)  # before that, SQLite does not wait
            writer.execute("ROLLBACK")

    assert given == [None]
    assert isinstance(store.claim(make_asked(), LEASE), Claim)


CHILD = """
import sys
from flask_idempotency.stores import open_store
from flask_idempotency.testing import LEASE, make_asked
store = open_store(sys.argv[1])
print(type(store.claim(make_asked(), LEASE)).__name__, flush=True)
sys.stdin.read()
"""


def test_a_claim_outlives_the_process_that_was_killed_with_it(store: SqliteStore, path: Path):
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, f"sqlite:///{path}"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout is not None
        said = child.stdout.readline()
        child.kill()

    found = store.claim(make_asked(), LEASE)

    assert said == b"Claim\n"
    assert isinstance(found, Busy)


# -- forks -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def used_store(store: SqliteStore) -> SqliteStore:
    """A store that has a connection in its pool, as after a look at it before the workers were forked."""
    store.find(make_asked().id)
    assert store._engine.pool.checkedin() == 1  # type: ignore[attr-defined]  # a QueuePool has it
    return store


def test_a_forked_worker_uses_connections_of_its_own(used_store: SqliteStore):
    def connections_before_and_after() -> tuple[int, int]:
        before = used_store._engine.pool.checkedin()  # type: ignore[attr-defined]  # a QueuePool has it
        used_store.find(make_asked().id)
        return before, used_store._engine.pool.checkedin()  # type: ignore[attr-defined]  # a QueuePool has it

    with Child(connections_before_and_after) as child:
        assert child.step() == "(0, 1)"


def test_a_forked_worker_and_its_parent_never_both_get_a_claim(used_store: SqliteStore):
    # SQLite's locks stay with the process that took them; a child that believes it inherited some loses its writes.
    def claim(key: str) -> str:
        return type(used_store.claim(make_asked(key), LEASE)).__name__

    with Child(partial(claim, "order-1"), partial(claim, "order-2")) as child:
        first = child.step()
        used_store.close()  # the last one to leave folds the log into the file and removes it
        second = child.step()

        assert (first, second) == ("Claim", "Claim")
        assert (claim("order-1"), claim("order-2")) == ("Busy", "Busy")


def test_a_fork_waits_for_the_statements_of_other_threads(used_store: SqliteStore, path: Path):
    # SQLite's own locks are copied as they are: whatever a thread holds at that moment nobody in the child gives back.
    claim = used_store.claim(make_asked(), LEASE)
    assert isinstance(claim, Claim)
    with another_writer(path) as writer, meanwhile(lambda: used_store.renew(claim, LEASE)) as renewed:
        eventually(lambda: used_store._engine.pool.checkedout() == 1)  # type: ignore[attr-defined]  # as above
        threading.Timer(0.2, lambda: writer.execute("ROLLBACK")).start()

        with Child(lambda: len(renewed)) as child:
            assert child.step() == "1"


def test_a_fork_does_not_wait_for_ever(used_store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(forks, "FORK_TIMEOUT", 0.05)
    with another_writer(path) as writer, meanwhile(lambda: used_store.claim(make_asked(), LEASE)) as claimed:
        eventually(lambda: used_store._engine.pool.checkedout() == 1)  # type: ignore[attr-defined]  # as above

        with Child(lambda: "here") as child:  # where SQLite itself may be of no use any more
            waited_for = bool(claimed)
            assert child.step() == "here"
        writer.execute("ROLLBACK")

    assert not waited_for
    assert isinstance(claimed[0], Claim)
    assert isinstance(used_store.claim(make_asked(), LEASE), Busy)


FORKS = """
import os, signal, sys, threading
from flask_idempotency.stores import open_store
from flask_idempotency.testing import LEASE, make_asked

store = open_store(sys.argv[1])
claim = store.claim(make_asked(), LEASE)

def renew():
    while True:
        store.renew(claim, LEASE)

threading.Thread(target=renew, daemon=True).start()
for _ in range(int(sys.argv[2])):
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        store.find(make_asked().id)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        sys.exit(f"a child ended with {status}")
"""


def test_many_forks_beside_a_busy_thread_leave_no_child_hanging(store: SqliteStore, path: Path):
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKS]  # of forking beside threads

    ended = subprocess.run([*command, f"sqlite:///{path}", "150"], cwd=ROOT, capture_output=True, text=True, timeout=60)

    assert ended.returncode == 0, ended.stderr


# -- one writer at a time --------------------------------------------------------------------------------------------


@pytest.fixture
def impatient(open_at: Callable[..., SqliteStore], store: SqliteStore, path: Path) -> SqliteStore:
    """A store on the same file that does not wait long for a writer."""
    return open_at(path, "?timeout=0.05")


def test_a_renewal_that_waits_for_the_writer_in_vain_is_to_be_tried_again_and_says_nothing(
    store: SqliteStore, impatient: SqliteStore, path: Path, caplog: pytest.LogCaptureFixture
):
    # The writer may be a phase of the claim's own; and as long as nobody can write, nobody can take over.
    claim = store.claim(make_asked(), LEASE)
    assert isinstance(claim, Claim)

    with another_writer(path), pytest.raises(StoreUnavailable):
        impatient.renew(claim, LEASE)

    assert caplog.messages == []
    impatient.renew(claim, LEASE)


def test_a_writer_that_holds_the_file_too_long_makes_a_claim_fail(impatient: SqliteStore, path: Path):
    with another_writer(path), pytest.raises(StoreUnavailable):
        impatient.claim(make_asked(), LEASE)

    assert isinstance(impatient.claim(make_asked(), LEASE), Claim)


def test_a_writer_that_holds_the_file_too_long_leaves_the_outcome_of_a_completion_unknown(
    impatient: SqliteStore, path: Path
):
    claim = impatient.claim(make_asked(), LEASE)
    assert isinstance(claim, Claim)

    with another_writer(path), pytest.raises(OutcomeUnknown):
        impatient.complete(claim, DONE, RETENTION)

    assert isinstance(impatient.claim(make_asked(), LEASE), Busy)
    impatient.complete(claim, DONE, RETENTION)
    assert isinstance(impatient.claim(make_asked(), LEASE), Settled)


@pytest.mark.parametrize("lock", ["BEGIN EXCLUSIVE", "BEGIN; SELECT * FROM theirs"])
def test_somebody_who_keeps_the_file_from_being_made_is_not_waited_for_for_ever(
    open_at: Callable[..., SqliteStore], path: Path, lock: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "BUSY_TIMEOUT", timedelta(milliseconds=50))
    store = open_at(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as theirs:
        theirs.execute("CREATE TABLE theirs (id INTEGER)")
        for statement in lock.split("; "):
            theirs.execute(statement).fetchall()

        with pytest.raises(StoreUnavailable):
            store.prepare()

    store.prepare()
    assert isinstance(store.claim(make_asked(), LEASE), Claim)


def test_a_writer_that_lets_go_in_time_is_waited_for(store: SqliteStore, path: Path):
    found: list[object] = []
    claimant = threading.Thread(target=lambda: found.append(store.claim(make_asked(), LEASE)))

    with another_writer(path):
        claimant.start()
        eventually(lambda: store._engine.pool.checkedout() == 1)  # type: ignore[attr-defined]  # a QueuePool has it
        assert found == []
    claimant.join(10)

    assert isinstance(found[0], Claim)


def test_replays_and_refusals_do_not_wait_for_a_writer(impatient: SqliteStore, path: Path):
    impatient.claim(make_asked("running"), LEASE)
    finished = impatient.claim(make_asked("finished"), LEASE)
    assert isinstance(finished, Claim)
    impatient.complete(finished, DONE, RETENTION)

    with another_writer(path):
        busy, settled = impatient.claim(make_asked("running"), LEASE), impatient.claim(make_asked("finished"), LEASE)

    assert isinstance(busy, Busy)
    assert isinstance(settled, Settled)


def test_a_record_finished_between_look_and_claim_is_replayed(store: SqliteStore, monkeypatch: pytest.MonkeyPatch):
    look, rivals = store.find, iter([lambda: finish_as_rival(store)])

    def look_and_be_overtaken(record):
        found = look(record)
        next(rivals, lambda: None)()
        return found

    monkeypatch.setattr(store, "find", look_and_be_overtaken)

    found = store.claim(make_asked(), LEASE)

    assert isinstance(found, Settled)


def test_a_replay_that_had_to_wait_for_the_writer_keeps_nobody_else_waiting(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(file_locks, "IS_AVAILABLE", False)
    begin = store._begin

    def begin_behind_a_rival(connection, *, within):
        finish_as_rival(store)
        return begin(connection, within=within)

    monkeypatch.setattr(store, "_begin", begin_behind_a_rival)

    with closing(sqlite3.connect(path)) as connection:
        found = store.enter(connection, make_asked(), patience=timedelta(0), idle=LEASE)
        with another_writer(path):
            pass

    assert isinstance(found, Settled)


def test_a_record_that_can_be_read_but_not_taken_over_is_not_taken_for_a_store_that_is_down(
    open_at: Callable[..., SqliteStore], path: Path
):
    store = open_at(path, "?timeout=0.05")
    store.create()
    first = store.claim(make_asked(), LEASE)
    assert isinstance(first, Claim)
    store.release(first)

    with another_writer(path), pytest.raises(StoreUndecided):
        store.claim(make_asked(), LEASE)


def finish_as_rival(store: SqliteStore) -> None:
    claim = store.claim(make_asked(), LEASE)
    assert isinstance(claim, Claim)
    store.complete(claim, DONE, RETENTION)


# -- what is flushed to the disk -------------------------------------------------------------------------------------


def test_claims_and_leases_are_not_flushed_and_all_else_is(store: SqliteStore):
    levels: dict[str, int] = {}

    def level_at_commit(connection: sqlite3.Connection, verb: str) -> None:
        def note(statement: str) -> None:
            if statement.startswith("PRAGMA synchronous ="):
                levels[verb] = 1 if statement.endswith("NORMAL") else levels.get(verb, 2)

        connection.set_trace_callback(note)

    with closing(store._engine.raw_connection()) as pooled:
        driver = pooled.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    claim = None
    for verb in ("claim", "renew", "release", "claim again", "complete"):
        level_at_commit(driver, verb)
        match verb:
            case "claim" | "claim again":
                claim = store.claim(make_asked(), LEASE)
            case "complete":
                store.complete(claim, DONE, RETENTION)
            case _:
                store.renew(claim, LEASE) if verb == "renew" else store.release(claim)
        assert driver.execute("PRAGMA synchronous").fetchone() == (2,)

    assert levels == {"claim": 1, "renew": 1, "release": 1}


# -- the file --------------------------------------------------------------------------------------------------------


def test_folder_file_and_table_are_made_on_first_use(open_at: Callable[..., SqliteStore], tmp_path: Path):
    store = open_at(tmp_path / "new" / "folder" / "records.db")

    store.prepare()

    assert isinstance(store.claim(make_asked(), LEASE), Claim)


def test_checking_makes_nothing(open_at: Callable[..., SqliteStore], tmp_path: Path):
    open_at(tmp_path / "new" / "records.db").check()

    assert list(tmp_path.iterdir()) == []


def test_checking_leaves_another_program_s_file_as_it_is(open_at: Callable[..., SqliteStore], path: Path):
    with closing(sqlite3.connect(path)) as theirs:
        theirs.execute("CREATE TABLE theirs (id INTEGER)")
    before = path.read_bytes()

    open_at(path).check()

    assert path.read_bytes() == before


def test_a_table_of_another_version_is_refused_in_one_sentence(open_at: Callable[..., SqliteStore], path: Path):
    with closing(sqlite3.connect(path)) as older:
        older.execute("CREATE TABLE idempotency_record (id BLOB PRIMARY KEY, state TEXT, body BLOB)")
    store = open_at(path)

    for verb in (store.check, store.prepare, store.create):
        with pytest.raises(
            ConfigError, match=r"^The table idempotency_record is of another version, without attempt, "
        ):
            verb()


def test_a_table_that_vanished_makes_claims_fail_and_is_made_again(store: SqliteStore, path: Path):
    with closing(sqlite3.connect(path)) as vandal:
        vandal.execute("DROP TABLE idempotency_record")

    with pytest.raises(StoreUnavailable):
        store.claim(make_asked(), LEASE)

    store.prepare()
    assert isinstance(store.claim(make_asked(), LEASE), Claim)


def a_folder(path: Path) -> Path:
    path.mkdir()
    return path


def inside_a_file(path: Path) -> Path:
    path.write_text("no folder")
    return path / "records.db"


def a_name_too_long(path: Path) -> Path:
    return path.with_name("x" * 300)


def a_letter(path: Path) -> Path:
    path.write_text("Dear SQLite, this is not a database at all. " * 50)
    return path


def a_name_with_nul(path: Path) -> Path:
    return path.with_name("records\0.db")


@pytest.mark.parametrize("bad", [a_folder, inside_a_file, a_name_too_long, a_letter, a_name_with_nul])
def test_a_path_that_cannot_hold_a_database_is_refused_in_one_sentence(
    open_at: Callable[..., SqliteStore], path: Path, bad: Callable[[Path], Path]
):
    store = open_at(bad(path))

    for verb in (store.check, store.prepare, store.create):
        with pytest.raises(ConfigError, match=r"name a file that the app may write in IDEMPOTENCY_STORE\.$") as refusal:
            verb()

        assert "\n" not in str(refusal.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not write")
@pytest.mark.parametrize("mode", [0o555, 0o000], ids=["a folder to read", "a folder not to look into"])
@pytest.mark.parametrize("exists", [True, False], ids=["with the file", "without the file"])
def test_a_folder_that_may_not_be_written_is_refused_in_one_sentence(
    open_at: Callable[..., SqliteStore], mode: int, exists: bool
):
    def check_as_nobody() -> str:
        os.setuid(65534)
        with pytest.raises(ConfigError) as refusal:
            store.check()
        return str(refusal.value)

    with TemporaryDirectory() as folder:
        path = Path(folder, "records.db")
        if exists:
            path.touch(0o666)  # a file one may write is not enough: the log beside it must be made
        Path(folder).chmod(mode)
        store = open_at(path)

        with Child(check_as_nobody) as child:
            assert child.step() == f"{path} cannot be written; name a file that the app may write in IDEMPOTENCY_STORE."


# -- URLs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "memory://"])
def test_a_database_in_memory_keeps_its_records_in_memory(url: str):
    assert isinstance(open_store(url), MemoryStore)


# -- private ---------------------------------------------------------------------------------------------------------


@pytest.fixture(params=[0o000, 0o022, 0o777], ids="umask {:03o}".format)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(*paths: Path) -> list[str]:
    return [f"{path.stat().st_mode & 0o7777:o}" for path in paths]


@pytest.mark.usefixtures("umask")
def test_the_file_its_log_and_the_folders_that_are_made_for_it_are_the_owners_alone(
    open_at: Callable[..., SqliteStore], tmp_path: Path
):
    tmp_path.chmod(0o755)
    path = tmp_path / "instance" / "records" / "idempotency.sqlite"
    store = open_at(path)

    store.prepare()
    store.claim(make_asked(), LEASE)

    assert modes(path, *path.parent.glob("*-wal"), *path.parent.glob("*-shm")) == ["600"] * 3
    assert modes(path.parent, path.parent.parent, tmp_path) == ["700", "700", "755"]


@pytest.mark.parametrize(("failures", "is_ready"), [(1, True), (2, True), (3, False)])
def test_a_file_that_another_process_is_just_closing_is_looked_at_again(store, monkeypatch, failures, is_ready):
    connect, left = sqlite3.connect, list(range(failures))

    def fail_first(*args, **options):
        if left:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorname = "SQLITE_IOERR_SHORT_READ"
            left.pop()
            raise error
        return connect(*args, **options)

    store.create()
    monkeypatch.setattr(sqlite3, "connect", fail_first)

    if is_ready:
        store.check()
    else:
        with pytest.raises(StoreUnavailable):
            store.check()


def test_a_file_that_was_deleted_is_private_when_it_is_made_again(store: SqliteStore, path: Path):
    store.close()
    path.unlink()

    store.prepare()

    assert modes(path) == ["600"]


@pytest.mark.parametrize(
    ("found", "left"), [(0o644, "600"), (0o640, "600"), (0o666, "660"), (0o660, "660"), (0o600, "600"), (0o700, "700")]
)
def test_a_file_that_exists_and_its_logs_are_kept_from_others_and_from_a_group_that_only_reads(
    open_at: Callable[..., SqliteStore], path: Path, caplog: pytest.LogCaptureFixture, found: int, left: str
):
    other = open_at(path)
    other.prepare()
    other.claim(make_asked(), LEASE)
    files = [path, *path.parent.glob("*-wal"), *path.parent.glob("*-shm")]
    for each in files:
        each.chmod(found)

    open_at(path).prepare()
    open_at(path).claim(make_asked("another"), LEASE)

    assert modes(*files) == [left] * 3
    assert caplog.messages == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_file_of_somebody_else_that_others_can_read_is_worth_one_warning(open_at: Callable[..., SqliteStore]):
    def use_as_nobody() -> str:
        os.setuid(65534)
        messages: list[str] = []
        log = logging.getLogger("flask_idempotency")
        log.addFilter(lambda record: messages.append(record.getMessage()) or True)
        for key in ("order-1", "order-2"):
            store = open_at(path)
            store.claim(make_asked(key), LEASE)
            store.close()
        return "|".join(messages)

    with TemporaryDirectory() as folder:
        path = Path(folder, "records.db")
        open_at(path).create()
        Path(folder).chmod(0o777)
        path.chmod(0o666)

        with Child(use_as_nobody) as child:
            said = child.step()

        assert said == (
            f"Others can read {path}, which holds stored answers, and only its owner can change that: chmod 600 {path}"
        )


def test_the_mode_of_an_apps_own_file_is_left_alone(path: Path):
    path.touch()
    path.chmod(0o644)

    with closing(open_store(f"sqlite:///{path}", is_apps_own=True)) as store:
        store.create()

    assert modes(path) == ["644"]


def test_the_file_of_an_apps_own_database_is_made_as_sqlite_makes_it(path: Path):
    with closing(open_store(f"sqlite:///{path}", is_apps_own=True)) as store:
        store.create()

    assert modes(path) == [f"{0o644 & ~_umask():o}"]


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


# -- a place where nothing can be made -------------------------------------------------------------------------------


@pytest.fixture(params=["a file in place of its folder", "a folder that nobody can make", "a disk that is full"])
def impossible(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A path where no store can be made."""
    if "file" in request.param:
        (tmp_path / "taken").touch()
        return tmp_path / "taken" / "records.db"
    if "nobody" in request.param:
        return Path("/proc/no-such-folder/records.db")

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "mkdir", fail)
    return tmp_path / "new" / "records.db"


def test_a_store_that_cannot_be_made_is_one_sentence(open_at: Callable[..., SqliteStore], impossible: Path):
    with pytest.raises(ConfigError, match=r"^\S+ cannot be written.*; name a file that the app may write in "):
        open_at(impossible).prepare()
