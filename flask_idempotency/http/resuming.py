"""Stores a request so that it can be resumed without its client, and rebuilds it. It contains no credentials."""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import TYPE_CHECKING, cast
from urllib.parse import quote, urlencode

from flask import Request
from werkzeug.http import dump_options_header
from werkzeug.test import EnvironBuilder

from flask_idempotency.core.record import Asked
from flask_idempotency.errors import BodyTooLarge

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

RESUMED = "flask_idempotency.resumed"  # in environ: what was asked, and by whom. No client can send it.
ROUTED = "flask_idempotency.routed"  # in environ: a list, no longer empty once the resumed request has reached our app
PARSED = "flask_idempotency.parsed"  # in environ: a hook had parsed the form, and its body was rebuilt
_HEADERS = (
    "Content-Encoding",
    "Accept",
    "Accept-Language",
)  # these may change the answer, and do not identify the caller


def pack_request(request: Request, namespace: str) -> str:
    """Pack a request that was read: then ``wsgi.input`` holds the whole body, at whatever position."""
    environ = request.environ
    return json.dumps(
        {
            "namespace": namespace,
            "base": request.root_url,
            "method": request.method,
            "path": environ.get("PATH_INFO", ""),
            "query": environ.get("QUERY_STRING", ""),
            "type": environ.get("CONTENT_TYPE", ""),
            "headers": {name: request.headers[name] for name in _HEADERS if name in request.headers},
            "body": b64encode(cast(BytesIO, environ["wsgi.input"]).getvalue()).decode(),
            "parsed": environ.get(PARSED, False),
        }
    )


def unpack_request(text: str, asked: Asked, namespace: str) -> "WSGIEnvironment | None":
    """Rebuild the request of the original caller. None if it belongs to another namespace."""
    stored = json.loads(text)
    if stored.get("namespace", "") != namespace:
        return None
    builder = EnvironBuilder(
        method=stored["method"],
        base_url=stored["base"],
        query_string=stored["query"],
        content_type=stored["type"] or None,
        headers=stored["headers"],
        data=b64decode(stored["body"]),
    )
    return {
        **builder.get_environ(),
        "PATH_INFO": stored["path"],
        "QUERY_STRING": stored["query"],  # unchanged, because some clients do not escape
        RESUMED: asked,
        ROUTED: [],
        PARSED: stored.get("parsed", False),  # older releases did not store it
    }


def form_again(request: Request, limit: int) -> bytes:
    """Rebuild the body of a parsed form, so that parsing it gives the same form.

    Raises BodyTooLarge if it has more than *limit* bytes, ValueError if one of its files was closed.
    """
    body = bytearray()
    for each in _written(request, limit):
        body += each
        if len(body) > limit:
            raise BodyTooLarge
    return bytes(body)


def _written(request: Request, limit: int) -> Iterator[bytes]:
    fields = request.form.items(multi=True)
    if request.mimetype != "multipart/form-data":
        yield urlencode(list(fields)).encode()
        return
    # A part that was parsed by this boundary does not contain it.
    boundary = f"--{request.mimetype_params['boundary']}".encode()
    for name, value in fields:
        yield b"%s\r\n%s\r\n%s\r\n" % (boundary, _head(name), value.encode())
    for name, file in request.files.items(multi=True):
        place = file.tell()
        file.seek(0)
        content = file.read(limit + 1)
        file.seek(place)
        yield b"%s\r\n%s\r\n%s\r\n" % (boundary, _head(name, file.filename, file.headers), content)
    yield b"%s--\r\n" % boundary


def _head(name: str | None, filename: str | None = None, headers: Iterable[tuple[str, str]] = ()) -> bytes:
    named = dump_options_header("form-data", {**_option("name", name), **_option("filename", filename)})
    others = [each for each in headers if each[0].lower() != "content-disposition"]
    return "".join(f"{key}: {value}\r\n" for key, value in [("Content-Disposition", named), *others]).encode()


def _option(key: str, value: str | None) -> dict[str, str | None]:
    """Percent-encode every character, because parsers disagree about some in a quoted string."""
    return {f"{key}*": f"UTF-8''{quote(value, safe='')}"} if value else {key: value}
