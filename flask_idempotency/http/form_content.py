"""The content of a form, part by part: from its bytes, or from what a hook has already parsed."""

import sys
from hashlib import sha256
from io import BytesIO
from typing import IO
from urllib.parse import unquote_to_bytes

from flask import Request
from werkzeug.exceptions import BadRequest, RequestEntityTooLarge
from werkzeug.sansio.multipart import Data, Epilogue, Field, File, MultipartDecoder, NeedData

from flask_idempotency.core.canonical import Part
from flask_idempotency.core.fingerprint import Form, Multipart
from flask_idempotency.core.key import FORM_FIELD
from flask_idempotency.http.body import FORMS, URLENCODED, chunks_of, not_whole, put_back
from flask_idempotency.http.resuming import PARSED, form_again


def put_form_back(request: Request, limit: int) -> None:
    """Restore the body from a form that a hook has parsed, so that the request can be stored."""
    if request.mimetype not in FORMS:  # by a parser of the app's own
        raise BadRequest(
            "A hook parsed the body before it could be stored, and a body of this type cannot be restored."
        )
    try:
        put_back(request, BytesIO(form_again(request, limit)))
    except ValueError:  # a file was closed
        raise not_whole() from None
    request.environ[PARSED] = True


def multipart_of(request: Request, body: bytes) -> Multipart | None:
    """Give the parts of a multipart form that are compared; None if it cannot be parsed."""
    parts = tuple(part for part, _ in parts_of(request, body) or ())
    return Multipart(parts) if parts else None


def parts_of(request: Request, body: bytes) -> list[tuple[Part, bytes]] | None:
    """Parse a multipart form; None if Werkzeug would find nothing in it either: then its bytes are compared."""
    boundary = request.mimetype_params.get("boundary", "")
    if not boundary or not boundary.isascii():
        return None
    decoder = MultipartDecoder(boundary.encode(), max_parts=request.max_form_parts)
    decoder.receive_data(body)
    decoder.receive_data(None)
    parts: list[tuple[Part, bytes]] = []
    try:
        while not isinstance(event := decoder.next_event(), Epilogue | NeedData):
            if isinstance(event, Field | File):
                head, chunks = event, []
            elif isinstance(event, Data):
                chunks.append(event.data)
                if not event.more_data:
                    value = b"".join(chunks)
                    filename = head.filename if isinstance(head, File) else None
                    type_ = head.headers.get("Content-Type", "")
                    parts.append((Part(head.name, filename, type_, sha256(value).digest()), value))
    except (ValueError, AttributeError, RequestEntityTooLarge):
        return None
    is_whole = isinstance(event, Epilogue) and all(
        isinstance(part.name, str) for part, _ in parts
    )  # a name may be missing
    return parts if is_whole else None


def parsed_form(request: Request) -> Form | Multipart:
    """Give a form that a hook has parsed. Refuse one whose bytes the parser may have changed."""
    fields = [(name, value) for name, value in request.form.items(multi=True) if name != FORM_FIELD]
    if request.mimetype == URLENCODED:
        if any(_may_be_escapes(text) for field in fields for text in field):
            raise BadRequest(
                "The form may not be UTF-8, and a hook parsed it before it could be compared; send it as UTF-8."
            )
        return Form(tuple((name.encode(), value.encode()) for name, value in fields))
    if any(name is None for name, _ in fields):
        raise BadRequest("A part of the form has no name; give every part one.")
    if any(
        "\ufffd" in text for field in fields for text in field
    ):  # Werkzeug's replacement for bytes that are not text
        raise BadRequest(
            "The form may not be UTF-8, and a hook parsed it before it could be compared; send it as UTF-8."
        )
    parts = [Part(name, None, "", sha256(value.encode()).digest()) for name, value in fields]
    for name, file in request.files.items(multi=True):
        parts.append(Part(name, file.filename, file.content_type or "", _digest(file.stream)))
    return Multipart(tuple(parts))


def _may_be_escapes(text: str) -> bool:
    """Say whether Werkzeug may have decoded this from bytes that are not UTF-8, which it writes as ``%FF``."""
    try:
        unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        return True
    return False


def _digest(file: IO[bytes]) -> bytes:
    """Digest a file from its beginning, and restore the position at which a hook left it."""
    try:
        place = file.tell()
        file.seek(0)
        digest = sha256()
        for chunk in chunks_of(file, sys.maxsize):
            digest.update(chunk)
        file.seek(place)
    except ValueError:  # it was closed
        raise not_whole() from None
    return digest.digest()
