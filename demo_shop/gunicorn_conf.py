"""Configures gunicorn for the shop and the gateway, by ``--config python:demo_shop.gunicorn_conf``."""

import signal
from typing import Any

from demo_shop.children import die_with_parent

threads = 4  # a request that waits for a slow gateway holds up no other
graceful_timeout = 5  # seconds that requests under way may take when it is stopped
control_socket_disable = True  # its default path is shared by every gunicorn of the user


def post_fork(server: Any, worker: Any) -> None:
    """End each worker with its master."""
    die_with_parent(signal.SIGTERM, parent=server.pid)
