"""How the Redis store uses its server: scripts from files, what an error means, and whether the server is fit."""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from hashlib import sha1
from importlib.resources import files
from time import monotonic
from typing import Any, TypeVar

from redis.exceptions import (
    AuthenticationError,
    ConnectionError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
)

from flask_idempotency.core.scope import RecordId
from flask_idempotency.errors import ConfigError, StoreUnavailable
from flask_idempotency.stores.database import first_line
from flask_idempotency.stores.redis_client import Address, Client, Clients

TRIES = 3  # a restarted server has closed every idle connection; the third is for a primary that moved meanwhile
TIMEOUT = 3.0  # seconds; a script takes less than a millisecond, and a disk that is slow to flush two seconds
OLDEST = (7, 0)  # the first with flags for scripts, by which a full server still lets runs finish
WATCH_EVERY, WATCH_AGAIN = 60.0, 1.0  # seconds between two looks at the server's settings, and after a bad one
VOLATILE = {"volatile": "accepted", "server": "checked"}  # the options of a URL, each with its only value

LOSES = "or add ?volatile=accepted to the URL if a key may be forgotten and its request run twice"
EVICTS = (
    "The Redis server may evict records (maxmemory-policy is {policy}), and a request whose record is gone runs again:"
    " set maxmemory-policy to noeviction, " + LOSES + "."
)
FORGETS = (
    "The Redis server forgets all records when it restarts, because it writes neither an append-only file nor"
    " snapshots: set appendonly to yes, " + LOSES + "."
)
HIDES = (
    "The Redis server does not let us see its settings: check that its maxmemory-policy is noeviction and that it"
    " writes an append-only file or snapshots, and then add ?server=checked to the URL."
)
_HIDDEN = (
    "the Redis server does not let us see all its settings: check that appendfsync is what you want, and that"
    " maxmemory-policy is noeviction."
)
TOO_OLD = "Redis {version} is too old; use Redis 7.0 or newer, or any Valkey."

log = logging.getLogger("flask_idempotency")

T = TypeVar("T")


class ServerFull(StoreUnavailable):
    """The server has no memory left for a new record; those that it has can be read."""


class RedisServer:
    """Runs scripts on the records of a server or a cluster, and looks after how that is set up."""

    def __init__(self, address: Address) -> None:
        self._clients = Clients(address.connect)
        self._is_trusted = bool(address.options)  # told that records may be lost, or that they will not be
        self._watched_until = 0.0  # no process inherits a look that is too old: it is an instant
        self._fault: str | None = None

    def close(self) -> None:
        """Close the connections of this process."""
        self._clients.close()

    def check(self) -> None:
        """Raise ConfigError unless the server is new enough, keeps all records, and keeps them on disk."""
        if (fault := self._find_fault()) is not None:
            raise ConfigError(fault)

    def advise(self) -> list[str]:
        """Say what the settings of the servers cost or risk, as far as they let us see them."""

        def look(_: Client) -> list[str]:
            try:
                return [line for server in self._clients.servers() for line in _advice_on(server)]
            except NoPermissionError:
                return [_HIDDEN]

        return list(dict.fromkeys(self._repeat(look)))

    def watch(self) -> None:
        """Look from time to time whether the server still keeps all records. Raises StoreUnavailable if it does not."""
        if self._is_trusted:
            return
        if monotonic() >= self._watched_until:
            self._fault = self._find_fault()
            self._watched_until = monotonic() + (WATCH_EVERY if self._fault is None else WATCH_AGAIN)
            if self._fault is not None:
                log.error("store_unavailable: %s", self._fault)
        if self._fault is not None:
            raise StoreUnavailable(retry_after=5)

    def run(self, verb: str, record: RecordId, *values: object) -> Any:
        """Run a script on one record. Raises StoreUnavailable; the script may have been carried out all the same."""
        keys, (script, digest) = keys_of(record), self._script(verb)
        words = (len(keys), *keys, record, *values)

        def call(client: Client) -> Any:
            try:
                return client.execute_command("EVALSHA", digest, *words)
            except NoScriptError:
                return client.execute_command("EVAL", script, *words)

        return self._repeat(call)

    def ask(self, commands: Sequence[tuple[object, ...]]) -> list[Any]:
        """Send commands that only read indexes, together, and give the answer of each."""

        def call(client: Client) -> list[Any]:
            pipeline = client.pipeline(transaction=False)
            for each in commands:
                pipeline.execute_command(*each)
            return list(pipeline.execute())

        return self._repeat(call)

    def _repeat(self, call: Callable[[Client], T]) -> T:
        """Call, and call again on a new connection if one was lost: everything that is sent can be repeated."""
        for tries_left in reversed(range(TRIES)):
            try:
                return call(self._clients.here())
            except (RedisError, RedisClusterException) as error:
                if isinstance(error, ConnectionError | ReadOnlyError):
                    self._clients.drop_idle()  # the others lead to the same server, which is gone or a replica now
                # A server that did not answer in time, which is another error, would not do so at once either.
                is_lost = isinstance(error, ConnectionError) and not isinstance(error, AuthenticationError)
                if not (is_lost and tries_left):
                    raise unavailable(error) from error
        raise AssertionError("the last try returns or raises")

    def _script(self, verb: str) -> tuple[str, str]:
        return load_script(verb)

    def _find_fault(self) -> str | None:
        """Say what is wrong with the servers, if anything."""

        def look(_: Client) -> str | None:
            try:
                faults = [self._fault_of(server) for server in self._clients.servers()]
            except NoPermissionError:
                return None if self._is_trusted else HIDES
            return next(filter(None, faults), None)

        return self._repeat(look)

    def _fault_of(self, server: Any) -> str | None:
        """Say what is wrong with one server, if anything."""
        about = server.info()
        if tuple(int(part) for part in str(about["redis_version"]).split(".")[:2]) < OLDEST:
            return TOO_OLD.format(version=about["redis_version"])
        if self._is_trusted:
            return None
        if (policy := about.get("maxmemory_policy")) != "noeviction":
            return HIDES if policy is None else EVICTS.format(policy=policy)
        if about.get("aof_enabled"):
            return None
        try:
            settings = server.execute_command("CONFIG", "GET", "save")
        except ResponseError:  # forbidden, or renamed, as managed services do
            return HIDES
        values = list(settings.values()) if isinstance(settings, dict) else settings[1::2]
        return None if any(values) else FORGETS


def _advice_on(server: Any) -> Iterator[str]:
    """Judge the settings of one server."""
    about = server.info()
    try:
        known = server.config_get("appendfsync", "min-replicas-to-write")
    except ResponseError:  # forbidden, or renamed, as managed services do
        known = {}
        yield _HIDDEN
    if (policy := about.get("maxmemory_policy", "noeviction")) != "noeviction":
        yield f"maxmemory-policy is {policy}: a request whose record is evicted runs again: set it to noeviction."
    if not about.get("aof_enabled"):
        yield (
            "appendonly is no: a crash of the server loses what came after its last snapshot, and those requests run"
            " again: set it to yes."
        )
    elif (when := known.get("appendfsync", "always")) != "always":
        yield (
            f"appendfsync is {when}: a crash of the server's machine loses the last second or more, and those requests"
            " run again: set it to always if that costs more than waiting for the disk."
        )
    if about.get("connected_slaves") and known.get("min-replicas-to-write") == "0":
        yield (
            "replication is asynchronous: a failover loses what the replica has not received, and those requests run"
            " again: set min-replicas-to-write to 1, which bounds that."
        )
    if about.get("maxmemory") == 0:
        yield (
            "maxmemory is 0: when the machine has no memory left, the system kills the server: set a limit, at which"
            " new keys are refused and all others go on."
        )


def unavailable(error: Exception) -> StoreUnavailable:
    """Log what keeps the store from being used, and give the refusal to raise."""
    advice = next((advice for part, advice in _ADVICE.items() if part in f"{type(error).__name__}: {error}"), "")
    log.error("store_unavailable: %s: %s%s", type(error).__name__, first_line(error), advice and f"; {advice}")
    kind = ServerFull if isinstance(error, OutOfMemoryError) else StoreUnavailable
    return kind(retry_after=1)


_ADVICE = {
    "OutOfMemory": "raise maxmemory, or lower IDEMPOTENCY_RETENTION: new requests get 503 until there is memory again",
    "AuthenticationError": "correct the user and the password in the URL",
    "NoPermission": "let the user run EVAL, EVALSHA, INFO and the commands on hashes and sorted sets",
    "MISCONF": "the server cannot write to its disk, so it takes no writes",
    "BusyLoading": "the server has just started",
    "ReadOnly": "the URL leads to a replica; name the primary, or use redis+sentinel://",
}


def bucket_of(record: bytes) -> bytes:
    """Name the bucket of a record, by the first byte of its id. All keys of a bucket are in one hash slot."""
    return b"idempotency:{%02x}:" % record[0]


def index_keys(bucket: bytes) -> list[bytes]:
    """Name the indexes of a bucket, in the order in which the scripts expect them."""
    return [bucket + name for name in (b"references", b"created", b"running", b"finished", b"quarantined")]


def keys_of(record: RecordId) -> list[bytes]:
    """Name every key that a script on this record may touch."""
    bucket = bucket_of(record)
    return [bucket + b"record:" + record, bucket + b"steps:" + record, *index_keys(bucket)]


@cache
def load_script(verb: str) -> tuple[str, str]:
    """Read a script from its file, behind what all have in common; give it with its digest, by which it is called."""
    folder = files(f"{__package__}.statements").joinpath("redis")
    first, _, rest = folder.joinpath(f"{verb}.lua").read_text("utf-8").partition("\n")
    text = f"{first}\n{folder.joinpath('common.lua').read_text('utf-8')}{rest}"
    return text, digest_of(text)


def digest_of(script: str) -> str:
    """Name a script as the server does."""
    return sha1(script.encode()).hexdigest()  # noqa: S324  # a name, not a secret
