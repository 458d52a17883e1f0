"""The file of an outbox: one SQLite table of actions. Every change is on the disk when its method returns.

What is done with an answer is decided in ``outbox``.
"""

import fcntl
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from flask_idempotency.client.errors import OutboxError

State = Literal["waiting", "given up", "done"]

VERSION: Final = 1
APPLICATION: Final = 1179406146  # "FLOB" in ASCII: what is not ours is not touched
PATIENCE: Final = 10.0  # seconds to wait for another process that writes: each takes milliseconds

CREATE = """
PRAGMA application_id = 1179406146;
PRAGMA user_version = 1;
CREATE TABLE action (
    id INTEGER PRIMARY KEY AUTOINCREMENT,   -- the order in which actions were stored
    key TEXT NOT NULL UNIQUE,
    subject TEXT,                           -- NULL: no other action has to wait for it
    method TEXT NOT NULL,
    url TEXT NOT NULL,
    server TEXT NOT NULL,                   -- host and port
    headers TEXT NOT NULL,
    body BLOB NOT NULL,
    state TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'given up', 'done')),
    attempts INTEGER NOT NULL DEFAULT 0,
    stored_at REAL NOT NULL,
    sent_at REAL,                           -- since when it may have reached the server
    due_at REAL NOT NULL,
    ended_at REAL,
    status INTEGER,
    reference TEXT,
    reason TEXT NOT NULL DEFAULT ''
);
CREATE INDEX open_action ON action (subject, id) WHERE state <> 'done';
CREATE INDEX waiting_action ON action (due_at, id) WHERE state = 'waiting';
CREATE TABLE clock (latest REAL NOT NULL, skew REAL NOT NULL);
INSERT INTO clock VALUES (0, 0);
"""
INSERT = """
INSERT INTO action (key, subject, method, url, server, headers, body, stored_at, due_at)
VALUES (:key, :subject, :method, :url, :server, :headers, :body, :now, :now)
"""
# Only the oldest of its subject that is not done: one that was given up keeps the later ones waiting for a person.
# By due date, so that one which fails again and again comes behind those that have not been tried.
NEXT = """
SELECT * FROM action
WHERE state = 'waiting' AND (due_at <= :now OR :hurry)
  AND server NOT IN (SELECT value FROM json_each(:servers)) AND id NOT IN (SELECT value FROM json_each(:tried))
  AND NOT EXISTS (
    SELECT 1 FROM action AS earlier
    WHERE earlier.subject = action.subject AND earlier.id < action.id AND earlier.state <> 'done')
ORDER BY due_at, id LIMIT 1
"""
NEXT_DUE = """
SELECT min(due_at) FROM action
WHERE state = 'waiting'
  AND NOT EXISTS (
    SELECT 1 FROM action AS earlier
    WHERE earlier.subject = action.subject AND earlier.id < action.id AND earlier.state <> 'done')
"""
FIND = "SELECT * FROM action WHERE id = :id"
FIND_KEY = "SELECT * FROM action WHERE key = :key"
BROWSE = "SELECT * FROM action WHERE :state IS NULL OR state = :state ORDER BY id"
COUNT = "SELECT state, count(*), min(stored_at) FROM action GROUP BY state"
BEGIN_ATTEMPT = (
    "UPDATE action SET sent_at = coalesce(sent_at, :now), attempts = attempts + 1 WHERE id = :id AND state = 'waiting'"
)
WAIT = """
UPDATE action SET due_at = :due_at, sent_at = CASE WHEN :may_have_run THEN sent_at ELSE :sent_before END,
                  status = :status, reason = :reason, reference = coalesce(:reference, reference)
WHERE id = :id AND state = 'waiting'
"""
GIVE_UP = """
UPDATE action SET state = 'given up', ended_at = :now, status = coalesce(:status, status), reason = :reason,
                  reference = coalesce(:reference, reference)
WHERE id = :id AND state = 'waiting'
"""
# What was sent is no longer needed, and may be private.
FINISH = """
UPDATE action SET state = 'done', ended_at = :now, status = :status, reason = '', headers = '[]', body = x'',
                  reference = coalesce(:reference, reference)
WHERE id = :id AND state = 'waiting'
"""
REOPEN = """
UPDATE action SET state = 'waiting', due_at = :now, attempts = 0, reason = '', ended_at = NULL,
                  stored_at = :now, sent_at = CASE WHEN :is_new THEN NULL ELSE sent_at END
WHERE id = :id AND state = 'given up'
"""
DROP = "DELETE FROM action WHERE id = :id AND state <> 'done'"
PRUNE = "DELETE FROM action WHERE state = 'done' AND ended_at < :before"


@dataclass(frozen=True, slots=True)
class StoredAction:
    """An action in an outbox. Times are seconds since 1970, by the outbox's clock, which never goes back."""

    id: int
    key: str
    method: str
    url: str
    server: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    subject: str | None
    state: State
    attempts: int
    stored_at: float
    sent_at: float | None  # since when it may have reached the server
    due_at: float
    status: int | None
    reference: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Progress:
    """How many actions an outbox holds, and how long ago the oldest that still waits was stored."""

    waiting: int
    given_up: int
    done: int
    oldest_waiting: float | None  # seconds


class OutboxFile:
    """One file. Its connections are opened for each call, so that threads and processes can share it."""

    def __init__(self, path: Path, wall: Callable[[], float], *, create: bool) -> None:
        self._wall = wall
        if not path.exists():
            if not create:
                raise OutboxError(f"There is no outbox at {path}.")
            if not path.parent.is_dir():
                raise OutboxError(f"The outbox {path} cannot be made: its folder does not exist.")
            try:
                path.touch(mode=0o600)  # it holds what users sent
            except OSError as error:
                raise OutboxError(f"The outbox {path} cannot be made: {error.strerror}.") from error
        self.path = path.resolve()  # the program may change its folder, and a link to the file must find the same lock
        self._address = f"{self.path.as_uri()}?mode=rw"  # a file that was removed since is not made anew, and empty
        with self._open():
            pass

    def now(self) -> float:
        """Give the time: that of the machine, corrected by how far its clock was ever set back."""
        with self._open() as connection:
            return self._now(connection)

    def put(self, **action: Any) -> StoredAction:
        """Store an action, or find the one with its key. Raises OutboxError if that is another action."""
        with self._open() as connection:
            known = connection.execute(FIND_KEY, action).fetchone()
            if known is None:
                connection.execute(INSERT, {**action, "now": self._now(connection, writes=True)})
                return _action(connection.execute(FIND_KEY, action).fetchone())
            found = _action(known)
        is_same = (found.method, found.url, found.subject) == (action["method"], action["url"], action["subject"])
        if not is_same or (found.state != "done" and found.body != action["body"]):
            raise OutboxError("The key belongs to another action in this outbox: make a new key for a new action.")
        return found

    def next_due(self, tried: Iterable[int], servers: Iterable[str], *, hurry: bool) -> StoredAction | None:
        """Give an action to send now, which was not *tried* and is for none of the *servers*; in a *hurry*, any."""
        left_out = {"tried": json.dumps([*tried]), "servers": json.dumps([*servers])}
        with self._open() as connection:
            now = self._now(connection)
            row = connection.execute(NEXT, {"now": now, "hurry": hurry, **left_out}).fetchone()
            return None if row is None else _action(row)

    def seconds_to_next(self) -> float | None:
        """Give the seconds until the next waiting action is due; None if nothing waits."""
        with self._open() as connection:
            due_at: float | None = connection.execute(NEXT_DUE).fetchone()[0]
            return None if due_at is None else max(0.0, due_at - self._now(connection))

    def find(self, id: int) -> StoredAction:
        """Give an action. Raises OutboxError if there is none."""
        with self._open() as connection:
            row = connection.execute(FIND, {"id": id}).fetchone()
        if row is None:
            raise OutboxError(f"There is no action {id} in this outbox.")
        return _action(row)

    def browse(self, state: State | None) -> list[StoredAction]:
        """Give the actions in one state, or all, in order."""
        with self._open() as connection:
            return [_action(row) for row in connection.execute(BROWSE, {"state": state})]

    def progress(self) -> Progress:
        """Count the actions."""
        with self._open() as connection:
            found = {state: (count, first) for state, count, first in connection.execute(COUNT)}
            now = self._now(connection)
        waiting, first = found.get("waiting", (0, None))
        oldest = None if first is None else max(0.0, now - first)
        return Progress(waiting, found.get("given up", (0, 0))[0], found.get("done", (0, 0))[0], oldest)

    def begin_attempt(self, id: int) -> bool:
        """Note that an action may reach the server from now on; give False if it is not there to be sent any more."""
        return self._change(BEGIN_ATTEMPT, id=id) == 1

    def wait(self, action: StoredAction, seconds: float, **told: Any) -> None:
        """Have an action wait for its next attempt. What certainly did not run is as old as it was before."""
        with self._open() as connection:
            due_at = self._now(connection, writes=True) + seconds
            connection.execute(WAIT, {"id": action.id, "due_at": due_at, "sent_before": action.sent_at, **told})

    def give_up(self, id: int, **told: Any) -> None:
        """Leave an action to a person."""
        self._change(GIVE_UP, id=id, **told)

    def finish(self, id: int, **told: Any) -> None:
        """Note that an action is done."""
        self._change(FINISH, id=id, **told)

    def reopen(self, id: int, *, is_new: bool) -> None:
        """Have an action that was given up wait again."""
        self._change(REOPEN, id=id, is_new=is_new)

    def drop(self, id: int) -> None:
        """Remove an action."""
        self._change(DROP, id=id)

    def prune(self, older_than: float) -> None:
        """Remove actions that were done so many seconds ago."""
        with self._open() as connection:
            connection.execute(PRUNE, {"before": self._now(connection) - older_than})

    @contextmanager
    def sole_sender(self) -> Iterator[bool]:
        """Hold the lock of the one process that sends; give False if another does. The system frees a dead one's."""
        lock = self.path.with_name(f"{self.path.name}.lock")
        try:
            file = lock.open("ab")
        except OSError as error:
            raise OutboxError(f"Nothing was sent: {lock} cannot be opened: {error.strerror}.") from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    def _change(self, statement: str, **parameters: Any) -> int:
        with self._open() as connection:
            changed = connection.execute(statement, {**parameters, "now": self._now(connection, writes=True)})
            return changed.rowcount

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction that has the file for itself, and is on the disk at its end."""
        try:
            with closing(
                sqlite3.connect(self._address, timeout=PATIENCE, isolation_level=None, uri=True)
            ) as connection:
                connection.row_factory = sqlite3.Row
                connection.execute(
                    "PRAGMA synchronous = EXTRA"
                )  # the folder's entry too: FULL can lose the last commit
                connection.execute("BEGIN IMMEDIATE")
                try:
                    self._check(connection)
                    yield connection
                    connection.execute("COMMIT")
                finally:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise OutboxError(
                f"The outbox {self.path} cannot be used: {error}. This call changed nothing in it."
            ) from error

    def _check(self, connection: sqlite3.Connection) -> None:
        """Refuse a file that is not ours; make the table in an empty one."""
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if (application, version) == (APPLICATION, VERSION):
            return
        if application == APPLICATION:
            raise OutboxError(
                f"The outbox {self.path} has version {version}, and this release reads version {VERSION}: "
                "send its actions with the release that wrote it."
            )
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise OutboxError(f"{self.path} is a database, but not an outbox: give the outbox a file of its own.")
        for statement in CREATE.split(";\n"):
            connection.execute(statement)

    def _now(self, connection: sqlite3.Connection, *, writes: bool = False) -> float:
        """Give the time. When the machine's clock was set back, go on from where it was: no age may shrink."""
        latest, skew = connection.execute("SELECT latest, skew FROM clock").fetchone()
        wall = self._wall()
        now: float = max(wall + skew, latest)
        if writes or now > wall + skew:
            connection.execute("UPDATE clock SET latest = :now, skew = :skew", {"now": now, "skew": now - wall})
        return now


def _action(row: sqlite3.Row) -> StoredAction:
    values = {name: row[name] for name in StoredAction.__slots__}
    headers = tuple((name, value) for name, value in json.loads(row["headers"]))
    return StoredAction(**{**values, "headers": headers, "body": bytes(row["body"])})
