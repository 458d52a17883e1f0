"""A request as it is stored to be resumed without its client, and made again from that. No credential is in it."""

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

RESUMED = "flask_idempotency.resumed"  # in environ: what was asked, by whom. No client can send it.
ROUTED = "flask_idempotency.routed"  # in environ: a list, no longer empty once the resumed request has come to our app
PARSED = "flask_idempotency.parsed"  # in environ: somebody parsed the form before us, and its body was made again
_HEADERS = (
    "Content-Encoding",
    "Accept",
    "Accept-Language",
)  # what may change the answer, and says nothing of the caller


def pack_request(request: Request, namespace: str) -> str:
    """Write down what was asked, once it was read: then the whole body is in ``wsgi.input``, wherever that stands."""
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
    """Make the request again, as one of the caller who asked it first. None: it is another namespace's."""
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
        "QUERY_STRING": stored["query"],  # as it came: some clients send bytes as they are
        RESUMED: asked,
        ROUTED: [],
        PARSED: stored.get("parsed", False),  # older releases did not say
    }


def form_again(request: Request, limit: int) -> bytes:
    """Make a body of a form that was parsed, such that the same is parsed from it.

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
    # What was parsed by this boundary does not hold it.
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
    """Write every character in percents: in quotes, each reader makes something else of some."""
    return {f"{key}*": f"UTF-8''{quote(value, safe='')}"} if value else {key: value}
