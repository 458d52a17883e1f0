"""What a failover loses: a store under load, its primary killed, and every acknowledged answer looked for afterwards.

python -m tests.stores.redis_failover
"""

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import monotonic

from flask_idempotency.core.record import Claim, Finished
from flask_idempotency.core.snapshot import Snapshot
from flask_idempotency.errors import IdempotencyError
from flask_idempotency.stores import Store, open_store
from flask_idempotency.testing import LEASE, RETENTION, make_asked
from tests.fixtures.processes import eventually
from tests.fixtures.proxy import Proxy
from tests.fixtures.redis import SERVERS, RedisServer, watched_pair

CLIENTS = 4


@dataclass(frozen=True, slots=True)
class Figures:
    """What became of the answers that were acknowledged before the primary died, and how it went on."""

    acknowledged: int
    lost: int  # the new primary does not know them: a retry would run again
    changed: int  # it knows another answer
    after: int  # answers acknowledged after the failover
    pause: float  # seconds without an acknowledged answer


class Load:
    """Clients that claim and complete one record after the other, and write down what was acknowledged."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.acknowledged: list[tuple[float, str]] = []
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _run(self, client: int) -> None:
        number = 0
        while not self._is_over.is_set():
            key, number = f"{client}-{number}", number + 1
            try:
                claim = self._store.claim(make_asked(key), LEASE)
                assert isinstance(claim, Claim)
                self._store.complete(claim, answer_to(key), RETENTION)
            except IdempotencyError:
                self._is_over.wait(0.02)
                continue
            self.acknowledged.append((monotonic(), key))

    def end(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()


def answer_to(key: str) -> Snapshot:
    return Snapshot(201, (), key.encode())


def measure(store: Store, fail_over: Callable[[], None], survivor: Store, before: float = 2.0) -> Figures:
    """Put a store under load, fail over, and count."""
    load, began = Load(store), monotonic()
    try:
        eventually(lambda: monotonic() - began > before and len(load.acknowledged) > 500, within=60)
        fail_over()
        died = monotonic()
        eventually(lambda: any(at > died for at, _ in load.acknowledged) or store is not survivor, within=60)
        if store is survivor:
            known = len(load.acknowledged)
            eventually(lambda: len(load.acknowledged) > known + 200, within=60)
    finally:
        load.end()
    times = sorted(at for at, _ in load.acknowledged)
    keys = [key for at, key in load.acknowledged if at <= died]
    found = {key: survivor.find(make_asked(key).id) for key in keys}
    done = {key: record.condition for key, record in found.items() if record and isinstance(record.condition, Finished)}
    return Figures(
        acknowledged=len(keys),
        lost=sum(key not in done for key in keys),
        changed=sum(condition.answer != answer_to(key) for key, condition in done.items()),
        after=len(load.acknowledged) - len(keys),
        pause=max((later - at for at, later in pairwise(times)), default=0.0),
    )


def behind_sentinels(program: Path) -> Figures:
    """Kill the primary with -9; the Sentinels make the replica the new one. Both are on this machine."""
    with watched_pair(program) as (primary, _, hosts), closing(open_store(f"redis+sentinel://{hosts}/shop/0")) as store:
        return measure(store, primary.kill, store)


def with_lag(program: Path, seconds: float) -> Figures:
    """Kill it when its replica has heard nothing for so long, as on a slow network, and promote that by hand."""
    with ExitStack() as ends:
        primary = ends.enter_context(RedisServer(program))
        proxy = ends.enter_context(Proxy("127.0.0.1", primary.port))
        replica = ends.enter_context(RedisServer(program, {"replicaof": f"127.0.0.1 {proxy.port}"}))
        client = ends.enter_context(closing(replica.client()))
        eventually(lambda: client.info("replication")["master_link_status"] == "up", what="a replica in step")
        store = ends.enter_context(closing(open_store(primary.url)))
        survivor = ends.enter_context(closing(open_store(replica.url)))

        def fail_over() -> None:
            proxy.blackhole()
            threading.Event().wait(seconds)  # the load goes on; that it is lost later is what is measured
            primary.kill()
            client.replicaof("NO", "ONE")

        return measure(store, fail_over, survivor)


def main() -> None:
    """Print the figures as they are on the page on stores."""
    logging.disable()  # a store that cannot be reached says so each time
    for name, run in (
        ("killed, Sentinels promote a replica on the same machine", lambda: behind_sentinels(SERVERS["redis"])),
        ("killed, 0.3 s after its replica heard the last of it", lambda: with_lag(SERVERS["redis"], 0.3)),
        ("killed, 1 s after its replica heard the last of it", lambda: with_lag(SERVERS["redis"], 1.0)),
    ):
        runs = [run() for _ in range(3)]
        acknowledged, lost = sum(each.acknowledged for each in runs), sum(each.lost for each in runs)
        pauses = ", ".join(f"{each.pause:.1f}" for each in runs)
        print(f"{name}: {lost:,} of {acknowledged:,} acknowledged answers lost; pauses of {pauses} s")  # noqa: T201  # its product


if __name__ == "__main__":
    main()
