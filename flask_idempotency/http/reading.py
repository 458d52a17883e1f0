"""Reads a request: its caller, its key, and what it asks for."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from urllib.parse import quote

from flask import Request

from flask_idempotency.core.fingerprint import RULES, Content, Custom, Fingerprint, Form, Multipart, Raw, fingerprint
from flask_idempotency.core.framing import utf8
from flask_idempotency.core.record import Asked
from flask_idempotency.core.reference import reference_of
from flask_idempotency.core.scope import EventSource, event_id, filed_under, record_id, scope_of
from flask_idempotency.errors import RequestRefused
from flask_idempotency.http.body import FORMS, MULTIPART, read_body
from flask_idempotency.http.dialects import KEY
from flask_idempotency.http.form_content import multipart_of, parsed_form, put_form_back
from flask_idempotency.http.key import find_key
from flask_idempotency.http.resuming import PARSED, RESUMED
from flask_idempotency.policy import Policy
from flask_idempotency.settings import Settings

MAX_PATH = 255  # characters shown to people; the fingerprint has the whole path


@dataclass(frozen=True, slots=True)
class Reading:
    """What was asked, and the content from which to compute it again by the rules of an older record."""

    asked: Asked
    content: Content

    def by_rules_of(self, known: Fingerprint) -> Asked:
        """Give what was asked, with a fingerprint by the rules of another version, if they are known here."""
        if known.version == self.asked.fingerprint.version or known.version not in RULES:
            return self.asked
        return replace(self.asked, fingerprint=fingerprint(self.content, known.version))


def may_have_key(request: Request) -> bool:
    """Say whether a request may have a key, without looking into its body."""
    environ = request.environ
    if "HTTP_IDEMPOTENCY_KEY" in environ or RESUMED in environ:
        return True
    return bool(environ.get("CONTENT_TYPE", "").lower().startswith(FORMS))


def read(request: Request, policy: Policy, settings: Settings, caller: Callable[[], object]) -> Reading | None:
    """Read a request that this policy covers; None if it has no key and needs none. Refuses what cannot be compared.

    *caller* is called only if there is a key.
    """
    resumed: Asked | None = request.environ.get(RESUMED)
    if resumed is not None:
        if request.environ.get(PARSED):
            _ = request.form  # as in the first run, whether or not a hook does it now
        content = content_of(request, policy, settings.max_body)
        return Reading(replace(resumed, fingerprint=fingerprint(content, resumed.fingerprint.version)), content)
    # A function may parse the body, which can be compared only as it came.
    before = content_of(request, policy, settings.max_body) if callable(policy.key) else None
    key = find_key(request, policy, settings)
    if key is None:
        return None
    if policy.key is None:
        request.environ[KEY] = key
    principal = caller()
    scope, is_event = scope_of(principal), isinstance(principal, EventSource)
    if is_event:
        id_ = event_id(scope, key, _path(request).encode("latin-1"), settings.namespace)
    else:
        id_ = record_id(scope, key, settings.namespace)
    try:
        content = content_of(request, policy, settings.max_body) if before is None else before
    except RequestRefused as refusal:
        refusal.reference = reference_of(id_)
        raise
    filed, shown = filed_under(scope, settings.namespace), shown_path(content.path)
    asked = Asked(id_, filed, content.method, shown, fingerprint(content), counts=not is_event)
    return Reading(asked, content)


def endpoint_of(request: Request) -> tuple[str, str]:
    """Give the method and the path of a request, as its record would have them."""
    return request.method, shown_path(_path(request).encode("latin-1"))


def shown_path(path: bytes) -> str:
    """Give a path as it is stored and shown to people."""
    return quote(path, safe="/:@!$&'()*+,;=")[:MAX_PATH]


def content_of(request: Request, policy: Policy, limit: int) -> Content:
    """Read what is asked. Raises BodyTooLarge, or BadRequest for a body that did not arrive whole."""
    body = read_body(request, limit)
    if body is None and policy.resumable:
        put_form_back(request, limit)
    coding = request.environ.get("HTTP_CONTENT_ENCODING", "").strip().lower()
    payload: Raw | Form | Multipart | Custom
    if policy.fingerprint is not None:
        payload = _custom(policy.fingerprint(request))
    elif body is None:
        payload = parsed_form(request)
    elif request.mimetype == MULTIPART and not coding:
        payload = multipart_of(request, body) or Raw(body)
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
