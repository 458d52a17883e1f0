"""A request as it is stored to be resumed without its client, and made again from that. No credential is in it."""

import json
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING

from flask import Request
from werkzeug.test import EnvironBuilder

from flask_idempotency.core.record import Asked

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

RESUMED = "flask_idempotency.resumed"  # in environ: what was asked, by whom. No client can send it.
_HEADERS = (
    "Content-Encoding",
    "Accept",
    "Accept-Language",
)  # what may change the answer, and says nothing of the caller


def pack_request(request: Request) -> str:
    """Write down what was asked."""
    environ = request.environ
    return json.dumps(
        {
            "base": request.root_url,
            "method": request.method,
            "path": environ.get("PATH_INFO", ""),
            "query": environ.get("QUERY_STRING", ""),
            "type": environ.get("CONTENT_TYPE", ""),
            "headers": {name: request.headers[name] for name in _HEADERS if name in request.headers},
            "body": b64encode(request.get_data(cache=True, parse_form_data=False)).decode(),
        }
    )


def unpack_request(text: str, asked: Asked) -> "WSGIEnvironment":
    """Make the request again, as one of the caller who asked it first."""
    stored = json.loads(text)
    builder = EnvironBuilder(
        method=stored["method"],
        base_url=stored["base"],
        query_string=stored["query"],
        content_type=stored["type"] or None,
        headers=stored["headers"],
        data=b64decode(stored["body"]),
    )
    return {**builder.get_environ(), "PATH_INFO": stored["path"], RESUMED: asked}
