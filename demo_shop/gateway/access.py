"""Who may call the gateway: clients with the API key. The check is above ``@idempotent``, so that it covers replays."""

import hmac
from collections.abc import Callable
from functools import wraps
from typing import Any

from flask import current_app, request


def needs_api_key(view: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse requests without ``Authorization: Bearer <key>``."""

    @wraps(view)
    def checked(*args: Any, **kwargs: Any) -> Any:
        wanted = f"Bearer {current_app.config['GATEWAY_API_KEY']}"
        given = request.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), wanted.encode()):
            return {"error": "Send the API key: Authorization: Bearer <key>."}, 401, {"WWW-Authenticate": "Bearer"}
        return view(*args, **kwargs)

    return checked
