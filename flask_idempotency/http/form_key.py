"""Finds the key of an HTML form, which cannot set headers, in the body, without reading more of it than the limit."""

from io import BufferedReader, BytesIO, RawIOBase
from typing import IO, Any, cast
from urllib.parse import unquote_to_bytes

from flask import Request

from flask_idempotency.core.canonical import parse_pairs
from flask_idempotency.core.key import FORM_FIELD
from flask_idempotency.errors import BodyTooLarge, KeyInvalid
from flask_idempotency.http.body import CHUNK, FORMS, MULTIPART, URLENCODED, cached_body, chunks_of, put_back, read_body
from flask_idempotency.http.form_content import parts_of


def form_key(request: Request, limit: int, *, is_required: bool) -> str | None:
    """Find the key of an HTML form that came without the header. Two such fields are refused like two header lines."""
    if request.mimetype not in FORMS:
        return None
    if "form" in vars(request):  # a hook has parsed it before
        return _only(request.form.getlist(FORM_FIELD))
    may_be_over = request.content_length is None or request.content_length > limit
    if may_be_over and _is_over(request, limit, is_required=is_required):
        return None
    body = read_body(request, limit) or b""
    if request.mimetype == MULTIPART:
        parts = parts_of(request, body)
        if parts is None and FORM_FIELD.encode() in body:
            raise KeyInvalid("The form that contains the key is malformed; send it again.")
        values = [value for part, value in parts or () if part.name == FORM_FIELD and part.filename is None]
    else:
        values = [value for name, value in parse_pairs(body) if name == FORM_FIELD.encode()]
    return _only([value.decode("latin-1") for value in values])


def _only(values: list[str]) -> str | None:
    if len(values) > 1:
        raise KeyInvalid("The form contains more than one key; send one.")
    return values[0] if values else None


def _is_over(request: Request, limit: int, *, is_required: bool) -> bool:
    """Say whether a form is larger than *limit*, reading little more of it. Refuses a larger one that has a key.

    If no key is found in the beginning, the form is passed on, and the view reads the rest as it arrives. If the field
    appears there, the request is refused then: it must not run without the protection that it asks for.
    """
    stream: IO[bytes] | None = None
    head = cached_body(request)
    if head is None:
        stream = request.stream
        head = b"".join(chunks_of(stream, max(limit + 1, CHUNK)))  # a low limit must not hide a field at the beginning
    if len(head) <= limit:
        if stream is not None:
            put_back(request, BytesIO(head))
        return False
    rest = _RestOfForm(head, stream, request.mimetype)
    if is_required or rest.has_named_the_field:
        raise BodyTooLarge
    if stream is not None:
        put_back(request, cast(IO[bytes], BufferedReader(rest, CHUNK)))
    return True


class _RestOfForm(RawIOBase):
    """A form of which only the beginning was read, as a stream that refuses it once the name of the field appears.

    A file that happens to contain the name is refused too, rather than run unprotected.
    """

    def __init__(self, head: bytes, stream: IO[bytes] | None, mimetype: str) -> None:
        self._head, self._stream, self._mimetype = BytesIO(head), stream, mimetype
        self._tail = b""
        self.has_named_the_field = self._names_the_field(head)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._head.read(len(buffer))
        if not piece and self._stream is not None:
            piece = self._stream.read(min(len(buffer), CHUNK))
            if self._names_the_field(piece):
                raise BodyTooLarge
        buffer[: len(piece)] = piece
        return len(piece)

    def _names_the_field(self, piece: bytes) -> bool:
        name, text = FORM_FIELD.encode(), self._tail + piece
        self._tail = text[-3 * len(name) :]  # three characters can stand for one
        return name in (unquote_to_bytes(text) if self._mimetype == URLENCODED else text)
