"""A Redis store and the powers a test has over it: its records move into the past, and answers get lost."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import redis

from flask_idempotency.stores.redis import RedisStore
from flask_idempotency.stores.redis_client import Address, read_url
from flask_idempotency.stores.redis_server import TIMEOUT, VOLATILE, RedisServer
from tests.fixtures.redis import RedisServer as Server
from tests.stores.worlds import HAIR, World

MOVE = """
local by, record_times = tonumber(ARGV[1]), {'created_at', 'lease_until', 'expires_at'}
local function earlier(time) return string.format('%.0f', tonumber(time) - by) end
for _, key in ipairs(redis.call('KEYS', 'idempotency:{*')) do
  if string.find(key, ':record:', 1, true) then
    for _, name in ipairs(record_times) do
      local time = redis.call('HGET', key, name)
      if time then redis.call('HSET', key, name, earlier(time)) end
    end
  elseif string.find(key, ':steps:', 1, true) then
    local step = redis.call('HGETALL', key)
    for i = 1, #step, 2 do
      local head, at, rest = string.match(step[i + 1], '^(%S+ %S+ %S+ %S+ )(%S+)( .*)$')
      redis.call('HSET', key, step[i], head .. earlier(at) .. rest)
    end
  elseif not string.find(key, ':references', 1, true) then
    local members = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
    for i = 1, #members, 2 do redis.call('ZADD', key, earlier(members[i + 1]), members[i]) end
  end
end
"""


class Lossy:
    """A client that can lose an answer: the command was carried out, and its connection broke before that was heard."""

    def __init__(self, client: Any, world: "RedisWorld") -> None:
        self._client, self._world = client, world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def execute_command(self, *words: object) -> Any:
        answer = self._client.execute_command(*words)
        if self._world.loses_next:
            self._world.loses_next = False
            raise redis.ConnectionError("the answer was lost")
        return answer


class RedisWorld(World):
    """A server whose records move into the past when time is to pass; the clock is the server's own."""

    unit = timedelta(minutes=1)  # the server's clock goes on by itself, but not by this much during one program
    loses_next = False

    def __init__(self, url: str, nodes: Sequence[str] = (), store: type[RedisStore] = RedisStore) -> None:
        self._clients = [redis.Redis.from_url(node, protocol=2) for node in nodes or [url]]
        plain = read_url(url, "IDEMPOTENCY_STORE", VOLATILE, TIMEOUT)
        self.store: RedisStore = store(RedisServer(Address(plain.options, lambda: Lossy(plain.connect(), self))))

    def lose_next_answer(self) -> None:
        self.loses_next = True

    def let_pass(self, duration: timedelta) -> None:
        for client in self._clients:
            client.eval(MOVE, 0, (duration + HAIR) // timedelta(microseconds=1))

    def dump(self) -> object:
        return sorted((key, _content(client, key)) for client in self._clients for key in client.scan_iter())

    def clear(self) -> None:
        for client in self._clients:
            client.flushall()

    def close(self) -> None:
        self.store.close()
        for client in self._clients:
            client.close()


def _content(client: redis.Redis, key: bytes) -> object:
    if client.type(key) == b"zset":
        return client.zrange(key, 0, -1, withscores=True)
    return sorted(client.hgetall(key).items())


@contextmanager
def redis_world(server: Server, store: type[RedisStore] = RedisStore) -> Iterator[RedisWorld]:
    """An empty world on a server."""
    world = RedisWorld(server.url, store=store)
    world.clear()
    try:
        yield world
    finally:
        world.close()
