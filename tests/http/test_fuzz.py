"""Whatever is sent, the answer is never a 500, and what is refused leaves nothing behind."""

from io import BytesIO

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flask_idempotency.core.key import FORM_FIELD
from tests.apps.shop import KEY

# The shop lives through all examples; each begins with whatever the ones before it left.
together = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)

latin = st.text(st.characters(max_codepoint=255), max_size=300)
keys = st.one_of(
    latin,
    st.from_regex(r'"[ -~]*"(;[a-z]+(=[ -~]*)?)*', fullmatch=True),
    st.sampled_from([KEY, f'"{KEY}"', "", " ", '""', "a,b", "x" * 255, "x" * 256, '"abc";a="\\"', "é"]),
)
types = st.one_of(
    latin,
    st.sampled_from(
        [
            "application/json", "application/x+json", "text/plain; charset=\"", "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x", "multipart/form-data", "multipart/form-data; boundary=\xff", "a/b; c",
            "application/json; charset=utf-16", "multipart/form-data; boundary=\"\"", "application/json;;;=",
        ]
    ),
)  # fmt: skip
PART = b'--x\r\nContent-Disposition: form-data; %sname="%s"\r\n\r\n%s\r\n'
part = st.builds(
    lambda name, filename, value: PART % (filename, name, value),
    st.sampled_from([b"a", FORM_FIELD.encode(), b"\xff", b""]),
    st.sampled_from([b"", b'filename="f"; ', b"filename*=UTF-8''%ff; "]),
    st.binary(max_size=20),
)
bodies = st.one_of(
    st.binary(max_size=500),
    st.lists(part, max_size=4).map(lambda parts: b"".join(parts) + b"--x--\r\n"),
    st.recursive(st.sampled_from([b"1", b"NaN", b'"\\ud800"', b"1e999999999"]), lambda inner: st.one_of(
        inner.map(lambda text: b"[" + text + b"]"), inner.map(lambda text: b'{"a":' + text + b',"a":1}')
    )),
    st.lists(st.tuples(st.sampled_from([b"a", FORM_FIELD.encode(), b"%ff"]), st.binary(max_size=9))).map(
        lambda pairs: b"&".join(name + b"=" + value for name, value in pairs)
    ),
)  # fmt: skip
REFUSED = {"key-invalid", "key-missing", "scope-unknown", "body-too-large", "key-reused"}


@pytest.fixture
def fuzzed(make_shop):
    shop = make_shop(max_body=400, options={"required": True})
    shop.app.testing = True  # an exception is not hidden behind a page
    return shop


def assert_is_in_order(shop, answer, before):
    assert answer.status_code < 500
    code = (answer.get_json(silent=True) or {}).get("code")
    if code in REFUSED or answer.status_code in (400, 404, 405, 413):
        assert shop.records() == before
    else:
        assert answer.status_code == 201


@together
@given(
    path=st.sampled_from(["/orders", "/plain"]),
    method=st.sampled_from(["POST", "PATCH", "PUT", "DELETE"]),
    key=st.none() | keys,
    content_type=st.none() | types,
    body=bodies,
    query=latin,
    chunked=st.booleans(),
)
def test_any_request_is_answered_and_a_refused_one_leaves_nothing(
    fuzzed, path, method, key, content_type, body, query, chunked
):
    environ = {"QUERY_STRING": query, "wsgi.input": BytesIO(body)}
    environ |= {"HTTP_IDEMPOTENCY_KEY": key} if key is not None else {}
    environ |= {"CONTENT_TYPE": content_type} if content_type is not None else {}
    framing = {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}
    environ |= framing if chunked else {"CONTENT_LENGTH": str(len(body))}
    before = fuzzed.records()

    answer = fuzzed.send(path, None, method=method, environ_overrides=environ)

    assert_is_in_order(fuzzed, answer, before)


@together
@given(
    length=st.one_of(st.integers(-5, 500).map(str), latin),
    body=st.binary(max_size=450),
    coding=st.one_of(st.none(), latin),
    terminated=st.booleans(),
)
def test_any_framing_is_answered(fuzzed, length, body, coding, terminated):
    environ = {"wsgi.input": BytesIO(body), "CONTENT_LENGTH": length}
    environ |= {"HTTP_CONTENT_ENCODING": coding, "HTTP_TRANSFER_ENCODING": coding} if coding is not None else {}
    environ |= {"wsgi.input_terminated": True} if terminated else {}
    before = fuzzed.records()

    answer = fuzzed.send(environ_overrides=environ)

    assert_is_in_order(fuzzed, answer, before)


@together
@given(key=keys, body=bodies, content_type=types)
def test_whatever_was_accepted_is_replayed(fuzzed, key, body, content_type):
    environ = {"HTTP_IDEMPOTENCY_KEY": key, "CONTENT_TYPE": content_type, "CONTENT_LENGTH": str(len(body))}
    first, second = (
        fuzzed.send(key=None, environ_overrides={**environ, "wsgi.input": BytesIO(body)}) for _ in range(2)
    )

    assert second.status_code == first.status_code
    assert second.data == first.data or first.status_code != 201
    assert (second.headers.get("Idempotent-Replayed") == "true") == (first.status_code == 201)
