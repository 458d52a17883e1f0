"""Connects to Redis or Valkey: one server, a primary that Sentinels know, or a cluster. Knows nothing of records."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import parse_url
from redis.retry import Retry
from redis.sentinel import Sentinel

from flask_idempotency.errors import ConfigError

Client = Any  # redis.Redis or RedisCluster, whose stubs are typed differently from one release to the next

_FORM = re.compile(
    r"(?P<tls>rediss?)(?:\+(?P<kind>sentinel|cluster))?://(?:(?P<user>[^@/?]*)@)?(?P<hosts>[^/?@]*)(?P<path>/[^?]*)?(?:\?(?P<query>.*))?"
)
_PORTS = {"sentinel": 26379, "cluster": 6379}
_OF_SENTINELS = ("sentinel_username", "sentinel_password")


@dataclass(frozen=True, slots=True)
class Address:
    """What a URL says: the options that are ours, and how to make a client from the rest."""

    options: Mapping[str, str]
    connect: Callable[[], Client]


def read_url(url: str, setting: str, ours: Mapping[str, str], timeout: float) -> Address:
    """Read a URL; *ours* are the options that are not the driver's, each with the only value it can have.

    Raises ConfigError, in one sentence, for what is none of the forms; a password is not repeated.
    """
    found = _FORM.fullmatch(url)
    if found is None:
        raise ConfigError(_not_a_url(setting))
    pairs = dict(parse_qsl(found["query"] or ""))
    options = {name: pairs.pop(name) for name in ours if name in pairs}
    for name, value in options.items():
        if value != ours[name]:
            raise ConfigError(f"{setting}: {name}= can only be {ours[name]!r}; see the page on choosing a store.")
    sentinels = {name.removeprefix("sentinel_"): pairs.pop(name) for name in _OF_SENTINELS if name in pairs}
    try:
        return Address(options, _connecting(found, pairs, sentinels, timeout))
    except (ValueError, TypeError):
        raise ConfigError(_not_a_url(setting)) from None


def _not_a_url(setting: str) -> str:
    return (
        f"{setting} is not a Redis URL; write it like redis://user:password@host:6379/0, rediss:// for TLS,"
        " redis+sentinel://host1:26379,host2:26379/service/0 or redis+cluster://host1:6379,host2:6379."
    )


def _connecting(
    found: re.Match[str], pairs: Mapping[str, str], sentinels: Mapping[str, str], timeout: float
) -> Callable[[], Client]:
    """Give the function that makes a client. Raises ValueError or TypeError for what the driver does not understand."""
    service, _, database = (found["path"] or "/").removeprefix("/").partition("/")
    if found["kind"] == "sentinel" and not service:
        raise ValueError("a Sentinel URL names a service")
    if found["kind"] == "cluster" and service:
        raise ValueError("a cluster has one database only")
    if found["kind"] is None:
        database = service
    user = f"{found['user']}@" if found["user"] is not None else ""
    hosts = [_host(each, found["kind"]) for each in found["hosts"].split(",")]
    # The driver reads what is left: how it logs in, and its own options. Retries are ours: it would not tell of them.
    query = urlencode(pairs)
    single = f"{found['tls']}://{user}{found['hosts'].split(',')[0]}/{database}{'?' + query if query else ''}"
    always = {"retry": Retry(NoBackoff(), 0), "decode_responses": False, "protocol": 2}
    patience = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
    pool = redis.ConnectionPool.from_url(single, **{**patience, **always})
    pool.make_connection()  # connects to nothing yet; raises for an option that it does not know
    if found["kind"] is None:
        return lambda: redis.Redis.from_url(single, **{**patience, **always})
    given = {**patience, **parse_url(single), **always}
    for of_one_host in ("host", "port", "connection_class"):
        given.pop(of_one_host, None)
    if found["tls"] == "rediss":
        given["ssl"] = True
    if found["kind"] == "sentinel":
        own = {**patience, **sentinels, **({"ssl": True} if "ssl" in given else {})}
        return lambda: Sentinel(hosts, sentinel_kwargs=own).master_for(service, **given)
    given.pop("db", None)
    return lambda: RedisCluster(startup_nodes=[ClusterNode(*each) for each in hosts], **given)


def _host(text: str, kind: str | None) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError("a URL names a host")
    return parts.hostname, parts.port or _PORTS.get(kind or "", 6379)


class Clients:
    """One client for each process: after a fork the child makes its own, and leaves its parent's alone."""

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect = connect
        self._made: dict[int, Client] = {}  # a lock held during a fork would stay held, and what is dropped is closed

    def here(self) -> Client:
        """Give this process's client; connect to a cluster if that is still to be done."""
        process = os.getpid()
        return self._made.get(process) or self._made.setdefault(process, self._connect())

    def drop_idle(self) -> None:
        """Close the connections that are not in use: they are as old as one that was found dead."""
        for each in self._each(self._made.get(os.getpid())):
            each.connection_pool.disconnect(inuse_connections=False)

    def close(self) -> None:
        """Close this process's connections."""
        client = self._made.pop(os.getpid(), None)
        for each in self._each(client):
            each.connection_pool.disconnect()

    def servers(self) -> Iterator[redis.Redis]:
        """Give a client for each server that holds records: one, or every primary of a cluster."""
        client = self.here()
        if _is_cluster(client):
            for node in client.get_primaries():
                yield client.get_redis_connection(node)
        else:
            yield client

    @staticmethod
    def _each(client: Client | None) -> list[Client]:
        if client is None:
            return []
        if _is_cluster(client):
            nodes = [node.redis_connection for node in client.get_nodes()]
            return [each for each in nodes if each is not None]
        return [client]


def _is_cluster(client: Client) -> bool:
    return hasattr(client, "get_primaries")
