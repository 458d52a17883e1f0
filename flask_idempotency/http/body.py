"""The body of a request, read whole before anything parses it, and put back for the view."""

from collections.abc import Iterator
from io import BytesIO
from typing import IO

from flask import Request
from werkzeug.exceptions import BadRequest

from flask_idempotency.errors import BodyTooLarge

URLENCODED, MULTIPART = FORMS = "application/x-www-form-urlencoded", "multipart/form-data"
CHUNK = 64 * 1024  # bytes read at a time


def read_body(request: Request, limit: int) -> bytes | None:
    """Read the whole body, at most *limit* bytes, and put it back for the view; None if a hook has parsed it.

    A body shorter than announced is refused: its client left while sending, and the retry must not get a 422.
    """
    announced, used = request.content_length, _is_used(request)
    if announced is not None and announced > limit:
        raise BodyTooLarge
    if cached_body(request) is None:
        if announced is None:
            body = b"".join(chunks_of(request.stream, limit + 1))
            if len(body) > limit:
                raise BodyTooLarge
            put_back(request, BytesIO(body))
        elif _is_untouched(request) and announced <= (request.max_content_length or limit):
            body = b"".join(chunks_of(request.environ["wsgi.input"], announced))
            if len(body) != announced:
                raise not_whole()
            put_back(request, BytesIO(body))
            return body
    try:
        body = request.get_data(cache=True, parse_form_data=False)
    except OSError:
        raise not_whole() from None
    if len(body) > limit:
        raise BodyTooLarge
    if not body and is_form_parsed(request):
        return None
    if used if announced is None else announced != len(body):
        raise not_whole()
    put_back(request, BytesIO(body))
    return body


def _is_used(request: Request) -> bool:
    """Say whether a hook may have read some of a body of unknown length without keeping it."""
    if "stream" not in vars(request) or cached_body(request) is not None:
        return False
    if "form" in vars(request) and request.mimetype not in FORMS:
        return False  # looking for a form does not consume a body of another type
    # In HTTP/1, a request with neither this header nor a length has no body.
    environ = request.environ
    return "HTTP_TRANSFER_ENCODING" in environ or not environ.get("SERVER_PROTOCOL", "").startswith("HTTP/1")


def _is_untouched(request: Request) -> bool:
    """Say whether Werkzeug has not touched the body yet; then it is faster to read the server's stream."""
    return not vars(request).keys() & {"stream", "form"}


def not_whole() -> BadRequest:
    """Make the refusal for a body that cannot be compared."""
    return BadRequest("The request body did not arrive whole, or a hook had consumed it; send the request again.")


def cached_body(request: Request) -> bytes | None:
    """Give the body if a hook has read it with get_data() or get_json(): Werkzeug caches it."""
    body: bytes | None = getattr(request, "_cached_data", None)
    return body


def chunks_of(stream: IO[bytes], most: int) -> Iterator[bytes]:
    """Read at most *most* bytes, a chunk at a time."""
    try:
        while most > 0 and (chunk := stream.read(min(most, CHUNK))):
            most -= len(chunk)
            yield chunk
    except OSError:  # a broken connection, or a malformed chunk
        raise not_whole() from None


def put_back(request: Request, stream: IO[bytes]) -> None:
    """Replace the request's stream by one that starts at the beginning of the body."""
    request.environ["wsgi.input"] = stream
    request.environ["wsgi.input_terminated"] = True  # this stream ends by itself
    vars(request).pop("stream", None)


def is_form_parsed(request: Request) -> bool:
    """Say whether a hook has parsed a form that was not empty."""
    return "form" in vars(request) and bool(request.form or request.files)
