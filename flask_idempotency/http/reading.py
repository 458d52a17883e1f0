"""A request as values: whose it is, which key, and what is asked.

The body is read before anything parses it, and put back for the view.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from io import BufferedReader, BytesIO, RawIOBase
from typing import IO, Any, cast
from urllib.parse import quote, unquote_to_bytes

from flask import Request
from werkzeug.exceptions import BadRequest, RequestEntityTooLarge
from werkzeug.sansio.multipart import Data, Epilogue, Field, File, MultipartDecoder, NeedData

from flask_idempotency.core.canonical import Part, parse_pairs
from flask_idempotency.core.fingerprint import RULES, Content, Custom, Fingerprint, Form, Multipart, Raw, fingerprint
from flask_idempotency.core.framing import utf8
from flask_idempotency.core.key import FORM_FIELD, parse_key
from flask_idempotency.core.record import Asked
from flask_idempotency.core.reference import reference_of
from flask_idempotency.core.scope import record_id, scope_of
from flask_idempotency.errors import BodyTooLarge, KeyInvalid, KeyMissing, RequestRefused
from flask_idempotency.http.resuming import PARSED, RESUMED, form_again
from flask_idempotency.policy import Policy
from flask_idempotency.settings import Settings

URLENCODED, MULTIPART = _FORMS = "application/x-www-form-urlencoded", "multipart/form-data"
MAX_PATH = 255  # characters shown to people; the fingerprint has the whole path
CHUNK = 64 * 1024  # bytes read at a time


@dataclass(frozen=True, slots=True)
class Reading:
    """What was asked, and the content from which to say it again by the rules of an older record."""

    asked: Asked
    content: Content

    def by_rules_of(self, known: Fingerprint) -> Asked:
        """Say what was asked by the rules of another record's version, if they are known here."""
        if known.version == self.asked.fingerprint.version or known.version not in RULES:
            return self.asked
        return replace(self.asked, fingerprint=fingerprint(self.content, known.version))


def may_have_key(request: Request) -> bool:
    """Say whether a request may turn out to have a key, without looking into its body."""
    environ = request.environ
    if "HTTP_IDEMPOTENCY_KEY" in environ or RESUMED in environ:
        return True
    return bool(environ.get("CONTENT_TYPE", "").lower().startswith(_FORMS))


def read(request: Request, policy: Policy, settings: Settings, caller: Callable[[], object]) -> Reading | None:
    """Read a request that this policy covers; None if it has no key and needs none. Refuses what cannot be compared.

    *caller* says who is asking, once there is a key.
    """
    resumed: Asked | None = request.environ.get(RESUMED)
    if resumed is not None:
        if request.environ.get(PARSED):
            _ = request.form  # as the first time, whether or not a hook does it now
        content = _content(request, policy, settings.max_body)
        return Reading(replace(resumed, fingerprint=fingerprint(content, resumed.fingerprint.version)), content)
    # Asked of the environ: for a header that is missing Werkzeug raises an exception, and catches it.
    text: str | None = request.environ.get("HTTP_IDEMPOTENCY_KEY")
    if text is None:
        text = _form_key(request, settings.max_body, is_required=policy.required)
    if text is None:
        if policy.required:
            raise KeyMissing
        return None
    key = parse_key(text, settings.key_syntax)
    scope = scope_of(caller())
    id_ = record_id(scope, key, settings.namespace)
    try:
        content = _content(request, policy, settings.max_body)
    except RequestRefused as refusal:
        refusal.reference = reference_of(id_)
        raise
    path = quote(content.path, safe="/:@!$&'()*+,;=")[:MAX_PATH]
    return Reading(Asked(id_, scope, content.method, path, fingerprint(content)), content)


def _content(request: Request, policy: Policy, limit: int) -> Content:
    body = _body(request, limit)
    if body is None and policy.resumable:
        _put_form_back(request, limit)
    coding = request.environ.get("HTTP_CONTENT_ENCODING", "").strip().lower()
    payload: Raw | Form | Multipart | Custom
    if policy.fingerprint is not None:
        payload = _custom(policy.fingerprint(request))
    elif body is None:
        payload = _parsed_form(request)
    elif request.mimetype == MULTIPART and not coding:
        payload = _multipart(request, body) or Raw(body)
    else:
        payload = Raw(body)
    return Content(
        method=request.method,
        path=_path(request).encode("latin-1"),
        query=request.query_string,
        kind=_kind(request),
        coding=coding,
        payload=payload,
    )


def _path(request: Request) -> str:
    """Give the path as it is routed: with its mount point, and with the host where the rule has one."""
    environ, rule = request.environ, request.url_rule
    path: str = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    has_host = rule is not None and (rule.host or rule.subdomain)
    return f"//{request.host.lower()}{path}" if has_host else path


def _custom(value: object) -> Custom:
    if isinstance(value, str):
        return Custom(utf8(value))
    if isinstance(value, bytes):
        return Custom(value)
    raise TypeError(f"fingerprint= must be a function that returns bytes or str; it returned {type(value).__name__}.")


def _kind(request: Request) -> str:
    charset = request.mimetype_params.get("charset", "utf-8").lower()
    return request.mimetype if charset in ("utf-8", "utf8") else f"{request.mimetype};charset={charset}"


def _body(request: Request, limit: int) -> bytes | None:
    """Read the whole body, at most *limit* bytes, and put it back for the view; None: a hook has parsed it before.

    A body shorter than announced is no request: its client left while sending, and the retry must not meet a 422.
    """
    announced, used = request.content_length, _is_used(request)
    if announced is not None and announced > limit:
        raise BodyTooLarge
    if _cached(request) is None:
        if announced is None:
            body = b"".join(_chunks(request.stream, limit + 1))
            if len(body) > limit:
                raise BodyTooLarge
            _put_back(request, BytesIO(body))
        elif _is_untouched(request) and announced <= (request.max_content_length or limit):
            body = b"".join(_chunks(request.environ["wsgi.input"], announced))
            if len(body) != announced:
                raise _not_whole()
            _put_back(request, BytesIO(body))
            return body
    try:
        body = request.get_data(cache=True, parse_form_data=False)
    except OSError:
        raise _not_whole() from None
    if len(body) > limit:
        raise BodyTooLarge
    if not body and _is_form_parsed(request):
        return None
    if used if announced is None else announced != len(body):
        raise _not_whole()
    _put_back(request, BytesIO(body))
    return body


def _is_used(request: Request) -> bool:
    """Say whether somebody may have read a body of unknown length, in part or whole, and kept nothing of it."""
    if "stream" not in vars(request) or _cached(request) is not None:
        return False
    if "form" in vars(request) and request.mimetype not in _FORMS:
        return False  # who looked for a form let this body pass
    # In HTTP/1 a request with neither this header nor a length has no body that could have been used.
    environ = request.environ
    return "HTTP_TRANSFER_ENCODING" in environ or not environ.get("SERVER_PROTOCOL", "").startswith("HTTP/1")


def _is_untouched(request: Request) -> bool:
    """Say whether nobody has asked Werkzeug for the body yet; then the server's own stream gives it faster."""
    return not vars(request).keys() & {"stream", "form"}


def _not_whole() -> BadRequest:
    return BadRequest("The request's body did not arrive whole, or was used up before it could be compared.")


def _cached(request: Request) -> bytes | None:
    """Give the body if somebody read it with get_data() or get_json() before: Werkzeug keeps it for the next reader."""
    body: bytes | None = getattr(request, "_cached_data", None)
    return body


def _chunks(stream: IO[bytes], most: int) -> Iterator[bytes]:
    try:
        while most > 0 and (chunk := stream.read(min(most, CHUNK))):
            most -= len(chunk)
            yield chunk
    except OSError:  # a connection that broke, or a chunk that was none
        raise _not_whole() from None


def _put_back(request: Request, stream: IO[bytes]) -> None:
    """Let the next reader of the request's stream begin at its beginning."""
    request.environ["wsgi.input"] = stream
    request.environ["wsgi.input_terminated"] = True  # this one ends by itself, and needs no counting
    vars(request).pop("stream", None)


def _is_form_parsed(request: Request) -> bool:
    return "form" in vars(request) and bool(request.form or request.files)


def _put_form_back(request: Request, limit: int) -> None:
    """Make a body of what a hook left, for whoever stores the request."""
    if request.mimetype not in _FORMS:  # by a parser of the app's own
        raise BadRequest("The body was parsed before it could be stored, and a body of its type cannot be made again.")
    try:
        _put_back(request, BytesIO(form_again(request, limit)))
    except ValueError:  # a file was closed
        raise _not_whole() from None
    request.environ[PARSED] = True


def _form_key(request: Request, limit: int, *, is_required: bool) -> str | None:
    """Find the key of an HTML form that came without the header. Two such fields are refused like two header lines."""
    if request.mimetype not in _FORMS:
        return None
    if "form" in vars(request):  # a hook has parsed it before
        return _only(request.form.getlist(FORM_FIELD))
    may_be_over = request.content_length is None or request.content_length > limit
    if may_be_over and _is_over(request, limit, is_required=is_required):
        return None
    body = _body(request, limit) or b""
    if request.mimetype == MULTIPART:
        parts = _parts(request, body)
        if parts is None and FORM_FIELD.encode() in body:
            raise KeyInvalid("The form that holds the key is malformed; send it anew.")
        values = [value for part, value in parts or () if part.name == FORM_FIELD and part.filename is None]
    else:
        values = [value for name, value in parse_pairs(body) if name == FORM_FIELD.encode()]
    return _only([value.decode("latin-1") for value in values])


def _only(values: list[str]) -> str | None:
    if len(values) > 1:
        raise KeyInvalid("The form has more than one key; send one.")
    return values[0] if values else None


def _is_over(request: Request, limit: int, *, is_required: bool) -> bool:
    """Say whether a form is larger than *limit*, having read little more of it. Refuses one that has a key.

    What is larger has no key, as far as can be seen: it is passed on, and the view reads the rest as it comes. Should
    the field turn up there it is refused then, for the request must not run without the protection it asks for.
    """
    stream: IO[bytes] | None = None
    head = _cached(request)
    if head is None:
        stream = request.stream
        head = b"".join(_chunks(stream, max(limit + 1, CHUNK)))  # a small limit would hide a field at the beginning
    if len(head) <= limit:
        if stream is not None:
            _put_back(request, BytesIO(head))
        return False
    rest = _RestOfForm(head, stream, request.mimetype)
    if is_required or rest.has_named_the_field:
        raise BodyTooLarge
    if stream is not None:
        _put_back(request, cast(IO[bytes], BufferedReader(rest, CHUNK)))
    return True


class _RestOfForm(RawIOBase):
    """A form of which only the head was read, as a stream that refuses the form once the field's name comes by.

    A file that happens to hold the name is refused too, rather than run unprotected.
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


def _multipart(request: Request, body: bytes) -> Multipart | None:
    parts = tuple(part for part, _ in _parts(request, body) or ())
    return Multipart(parts) if parts else None


def _parts(request: Request, body: bytes) -> list[tuple[Part, bytes]] | None:
    """Take a multipart form apart; None, if Werkzeug would find nothing in it either: then its bytes are compared."""
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


def _parsed_form(request: Request) -> Form | Multipart:
    """Take what a hook left: the parsed form. Refuse what it may have blurred."""
    fields = [(name, value) for name, value in request.form.items(multi=True) if name != FORM_FIELD]
    if request.mimetype == URLENCODED:
        if any(_may_be_escapes(text) for field in fields for text in field):
            raise BadRequest("The form may not be UTF-8 and was read before it could be compared.")
        return Form(tuple((name.encode(), value.encode()) for name, value in fields))
    if any(name is None for name, _ in fields):
        raise BadRequest("A part of the form has no name.")
    if any("\ufffd" in text for field in fields for text in field):  # what Werkzeug leaves where bytes were no text
        raise BadRequest("The form may not be UTF-8 and was read before it could be compared.")
    parts = [Part(name, None, "", sha256(value.encode()).digest()) for name, value in fields]
    for name, file in request.files.items(multi=True):
        parts.append(Part(name, file.filename, file.content_type or "", _digest(file.stream)))
    return Multipart(tuple(parts))


def _may_be_escapes(text: str) -> bool:
    """Say whether Werkzeug may have made this text of bytes that were none: it writes such a byte as ``%FF``."""
    try:
        unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        return True
    return False


def _digest(file: IO[bytes]) -> bytes:
    """Digest a file from its beginning, wherever a hook has left off, and leave it there."""
    try:
        place = file.tell()
        file.seek(0)
        digest = sha256()
        for chunk in _chunks(file, sys.maxsize):
            digest.update(chunk)
        file.seek(place)
    except ValueError:  # it was closed
        raise _not_whole() from None
    return digest.digest()
