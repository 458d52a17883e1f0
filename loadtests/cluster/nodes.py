"""The nodes of a cluster as values: ports, Patroni's configuration, and the cluster's view of each."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fixtures.postgres import SETTINGS

TTL = 20  # seconds without a heartbeat until a leader counts as lost; Patroni's minimum
LOOP = 2  # seconds between two checks by a node
RETRY = 5  # seconds that a node tries to reach etcd; LOOP + 2 × RETRY must not be more than TTL
LAG = 256 * 1024 * 1024  # bytes that a standby may lag and still be promoted; more than a run writes. Synchronous: none


@dataclass(frozen=True, slots=True)
class Member:
    """A node as the cluster sees it."""

    name: str
    role: str  # leader, sync_standby or replica
    state: str  # running, streaming, or what it lacks of that
    lag: object

    @property
    def is_well(self) -> bool:
        """Whether it is in the state that its role requires."""
        return self.state == ("running" if self.role == "leader" else "streaming")


@dataclass(frozen=True, slots=True)
class Node:
    """A place in the cluster: its ports stay, its processes come and go."""

    name: str
    folder: Path
    port: int  # PostgreSQL's
    api: int  # Patroni's

    @property
    def data(self) -> Path:
        """The data folder of its PostgreSQL."""
        return self.folder / "data"


def configuration(node: Node, *, etcd: int, bindir: Path, is_synchronous: bool = True) -> dict[str, Any]:
    """Write Patroni's configuration of one node.

    With synchronous_mode, a COMMIT is answered once a standby has it on disk too, and only that standby may lead next:
    losing one server cannot lose what was acknowledged. Strict, because otherwise a leader that has lost its standbys
    continues alone, and what it acknowledges then is on one disk only.
    """
    login = {"username": "postgres", "password": "not a secret: everybody on 127.0.0.1 is trusted"}
    return {
        "scope": "shop",
        "name": node.name,
        "restapi": {"listen": f"127.0.0.1:{node.api}", "connect_address": f"127.0.0.1:{node.api}"},
        "etcd3": {"host": f"127.0.0.1:{etcd}"},
        "bootstrap": {
            "dcs": {
                "ttl": TTL,
                "loop_wait": LOOP,
                "retry_timeout": RETRY,
                "maximum_lag_on_failover": LAG,
                "synchronous_mode": is_synchronous,
                "synchronous_mode_strict": is_synchronous,
                "postgresql": {
                    "use_pg_rewind": True,
                    "use_slots": True,
                    "parameters": {name: value for name, value in SETTINGS.items() if name != "listen_addresses"},
                },
            },
            "initdb": ["no-sync", "no-locale", {"encoding": "UTF8"}, {"auth": "trust"}],
        },
        "postgresql": {
            "listen": f"127.0.0.1:{node.port}",
            "connect_address": f"127.0.0.1:{node.port}",
            "data_dir": str(node.data),
            "bin_dir": str(bindir),
            "pgpass": str(node.folder / "pgpass"),
            "authentication": {"superuser": login, "replication": login, "rewind": login},
            "pg_hba": ["host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"],
            "remove_data_directory_on_rewind_failure": True,
            "remove_data_directory_on_diverged_timelines": True,
        },
        "watchdog": {"mode": "off"},
    }
