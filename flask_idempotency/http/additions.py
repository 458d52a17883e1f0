"""What an app adds to its replays, with ``@idempotency.on_replay``: headers, and nothing else."""

import logging
from collections.abc import Callable, Sequence

from flask import Response

from flask_idempotency.http.dialects import OURS

ReplayHook = Callable[[Response], object]
ONLY_ADDS = (
    "%r, a function of on_replay, changed more than it may: a replay is the first answer again, so it can only add"
    " headers that this answer does not have."
)

log = logging.getLogger("flask_idempotency")


def add_to_replay(response: Response, hooks: Sequence[ReplayHook]) -> Response:
    """Let each hook add headers to a replay that is ready to be sent. Whatever else it changes is put back."""
    for hook in hooks:
        headers, status, body = list(response.headers), response.status, response.get_data()
        try:
            hook(response)
        except Exception:
            log.exception("a function of on_replay failed; the replay is sent all the same")
        known = {name.lower() for name, _ in headers} | OURS
        added = [(name, value) for name, value in response.headers if name.lower() not in known]
        if response.get_data() != body or response.status != status or set(headers) - set(response.headers):
            log.error(ONLY_ADDS, getattr(hook, "__name__", hook))
        response.status = status
        response.set_data(body)
        response.headers.clear()
        response.headers.extend([*headers, *added])
    return response
