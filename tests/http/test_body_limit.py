"""A body over the limit is refused before a claim, and never fills the memory: rows B09, F11 and fault G14."""

import tracemalloc
from io import BytesIO

import pytest
from flask import abort, request

FIELD = "_idempotency_key"
LIMIT = 10_000
AHEAD = 1 << 16  # bytes of a larger form that are read at least, in search of the field
FORM, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"


class Endless:
    """A body that begins with *head* and goes on, and counts what was taken of it."""

    def __init__(self, size, head=b""):
        self._head, self._left, self.taken = BytesIO(head), size - len(head), 0

    def read(self, size=-1):
        piece = self._head.read(size)
        if not piece:
            piece = b"x" * min(self._left, 1 << 16 if size < 0 else size)
            self._left -= len(piece)
        self.taken += len(piece)
        return piece


def chunked(body):
    environ = {"wsgi.input": body, "wsgi.input_terminated": True, "HTTP_TRANSFER_ENCODING": "chunked"}
    return {"environ_overrides": environ}


def declared(body, size):
    return {"environ_overrides": {"wsgi.input": body, "CONTENT_LENGTH": str(size)}}


@pytest.fixture
def small(make_shop):
    return make_shop(max_body=LIMIT)


@pytest.mark.parametrize("path", ["/orders", "/plain"])
@pytest.mark.parametrize("content_type", ["application/json", FORM, MULTIPART, ""])
def test_b09_a_body_over_the_limit_is_refused_not_run(small, path, content_type):
    body = Endless(1 << 30)

    answer = small.send(path, content_type=content_type, **declared(body, 1 << 30))

    assert (answer.status_code, answer.json["code"]) == (413, "body-too-large")
    assert answer.json["reference"] == answer.headers["Idempotency-Reference"]
    assert (small.n, small.store.calls, body.taken) == (0, [], 0)


@pytest.mark.parametrize("path", ["/orders", "/plain"])
@pytest.mark.parametrize("content_type", ["application/json", FORM, MULTIPART, ""])
def test_b09_a_body_without_a_length_is_refused_while_it_is_read(small, path, content_type):
    body = Endless(1 << 30)

    answer = small.send(path, content_type=content_type, **chunked(body))

    assert (answer.status_code, answer.json["code"]) == (413, "body-too-large")
    assert (small.n, small.store.calls) == (0, [])
    assert body.taken <= LIMIT + 1


def test_b09_a_hook_that_read_it_before_us_changes_nothing(small):
    small.app.before_request_funcs[None].insert(0, lambda: (request.get_data(), None)[1])

    answer = small.send(**chunked(Endless(LIMIT + 1)))

    assert (answer.status_code, small.n) == (413, 0)


@pytest.mark.parametrize("send", [lambda body: declared(BytesIO(body), len(body)), lambda body: chunked(BytesIO(body))])
@pytest.mark.parametrize(("size", "status"), [(LIMIT, 201), (LIMIT + 1, 413)])
def test_the_limit_itself_is_still_accepted(small, send, size, status):
    answer = small.send(content_type="text/plain", **send(b"x" * size))

    assert answer.status_code == status


def test_f11_memory_is_bounded_while_a_body_is_read(make_shop):
    shop = make_shop(max_body=1 << 20)
    shop.send(key="to warm up")
    tracemalloc.start()

    answer = shop.send(content_type="application/json", **chunked(Endless(1 << 28)))

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert answer.status_code == 413
    assert peak < 8 << 20


# -- forms, whose key is only known once they are read -----------------------------------------------------------------


@pytest.mark.parametrize("send", [declared, lambda body, _: chunked(body)], ids=["with a length", "chunked"])
@pytest.mark.parametrize(
    ("head", "content_type"),
    [
        (b"_idempotency_key=abc&a=", FORM),
        (b"%5f%69dempotency%5fkey=abc&a=", FORM),
        (b'--x\r\nContent-Disposition: form-data; name="_idempotency_key"\r\n\r\nabc\r\n', MULTIPART),
        (b"a=" + b"x" * (AHEAD - 30) + b"&_idempotency_key=abc&b=", FORM),
    ],
    ids=["urlencoded", "percent-encoded", "multipart", "at the end of what is read"],
)
def test_a_large_form_with_the_field_is_refused(small, send, head, content_type):
    size, body = 1 << 20, Endless(1 << 20, head)

    answer = small.send(key=None, content_type=content_type, **send(body, size))

    assert (answer.status_code, answer.json["code"]) == (413, "body-too-large")
    assert (small.n, small.store.calls) == (0, [])
    assert body.taken <= AHEAD


LATE = {
    "urlencoded": (b"a=" + b"x" * (3 * AHEAD) + b"&_idempotency_key=abc&b=", FORM),
    "across what is read ahead": (b"a=" + b"x" * (AHEAD - 10) + b"&_idempotency_key=abc&b=", FORM),
    "across two chunks": (b"a=" + b"x" * (2 * AHEAD - 12) + b"&_idempotency_key=abc&b=", FORM),
    "percent-encoded across two chunks": (
        b"a=" + b"x" * (2 * AHEAD - 40) + b"&" + "".join(f"%{ord(c):02x}" for c in FIELD).encode() + b"=abc&b=",
        FORM,
    ),
    "multipart": (
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
        + b"x" * (3 * AHEAD)
        + b'\r\n--x\r\nContent-Disposition: form-data; name="_idempotency_key"\r\n\r\nabc\r\n',
        MULTIPART,
    ),
}


@pytest.mark.parametrize("send", [declared, lambda body, _: chunked(body)], ids=["with a length", "chunked"])
@pytest.mark.parametrize("read", [lambda: request.form, lambda: request.get_data(), lambda: request.stream.readlines()])
@pytest.mark.parametrize(("head", "content_type"), LATE.values(), ids=LATE)
def test_a_large_form_whose_field_comes_behind_the_limit_is_refused_where_the_view_reads_it(
    small, send, read, head, content_type
):
    effects = []
    small.answer = lambda: (read(), effects.append(1), "ok")[2]

    answer = small.send(key=None, content_type=content_type, **send(Endless(1 << 20, head), 1 << 20))

    assert (answer.status_code, answer.json["code"]) == (413, "body-too-large")
    assert answer.headers["Link"].endswith('rel="describedby"; type="text/html"')
    assert (effects, small.store.calls) == ([], [])


@pytest.mark.parametrize("required", [False, True], ids=["optional", "required"])
@pytest.mark.parametrize("send", [declared, lambda body, _: chunked(body)], ids=["with a length", "chunked"])
@pytest.mark.parametrize("content_type", [FORM, MULTIPART])
def test_no_more_than_the_limit_of_a_form_is_read_before_the_view_decides(
    make_shop, monkeypatch, required, send, content_type
):
    def no_file(*_, **__):
        pytest.fail("a stranger's form was written to disk")

    monkeypatch.setattr("tempfile.SpooledTemporaryFile", no_file)
    monkeypatch.setattr("tempfile.TemporaryFile", no_file)
    shop = make_shop(max_body=LIMIT, required=required)
    shop.answer = lambda: abort(401)  # whoever asks is not let in
    size = 1 << 30
    body = Endless(size, b"a=")

    answer = shop.send("/plain", key=None, content_type=content_type, **send(body, size))

    assert answer.status_code == (413 if required else 401)
    assert body.taken <= AHEAD
    assert shop.store.calls == []


@pytest.mark.parametrize("content_type", [FORM, MULTIPART])
def test_a_small_form_of_unknown_length_is_protected(small, content_type):
    body = b"_idempotency_key=abc&a=1"
    if content_type == MULTIPART:
        body = b'--x\r\nContent-Disposition: form-data; name="_idempotency_key"\r\n\r\nabc\r\n--x--\r\n'

    def send():
        options = chunked(BytesIO(body))
        options["environ_overrides"]["CONTENT_TYPE"] = content_type  # the client would make a boundary of its own
        return small.send(key=None, **options)

    answers = [send() for _ in range(2)]

    assert [answer.status_code for answer in answers] == [201, 201]
    assert (answers[1].headers.get("Idempotent-Replayed"), small.n) == ("true", 1)


@pytest.mark.parametrize("send", [declared, lambda body, _: chunked(body)], ids=["with a length", "chunked"])
@pytest.mark.parametrize("content_type", [FORM, MULTIPART])
def test_a_large_form_without_the_field_passes_untouched(small, send, content_type):
    seen, size = [], 300_000
    small.answer = lambda: (seen.append(request.get_data()), "ok")[1]

    answer = small.send(key=None, content_type=content_type, **send(Endless(size, b"a=1&b="), size))

    assert answer.status_code == 200
    assert seen == [b"a=1&b=" + b"x" * (size - 6)]
    assert small.store.calls == []


def test_a_large_upload_without_a_key_reaches_the_view_as_a_file(small):
    seen = []
    small.answer = lambda: (seen.append(request.files["picture"].read()), "ok")[1]

    small.send(key=None, data={"picture": (BytesIO(b"x" * 300_000), "cat.png")})

    assert seen == [b"x" * 300_000]


def test_memory_is_bounded_while_a_large_form_is_searched(make_shop):
    shop, size = make_shop(max_body=1 << 20), 1 << 25
    shop.answer = lambda: str(sum(len(piece) for piece in iter(lambda: request.stream.read(1 << 16), b"")))
    shop.send(key=None, data={"to": "warm up"})
    tracemalloc.start()

    answer = shop.send(key=None, content_type=FORM, **declared(Endless(size, b"a="), size))

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert answer.text == str(size)
    assert peak < 8 << 20


@pytest.mark.parametrize("touch", [lambda: request.form, lambda: request.data, lambda: request.get_data()])
@pytest.mark.parametrize(("field", "status"), [("_idempotency_key", 413), ("item", 201)])
def test_a_large_form_that_a_hook_has_read_is_refused_if_it_has_the_field(small, touch, field, status):
    small.app.before_request_funcs[None].insert(0, lambda: (touch(), None)[1])

    answer = small.send(key=None, data={field: "abc", "a": "x" * LIMIT})

    assert answer.status_code == status
    assert (small.n, small.store.calls) == (int(status == 201), [])


def test_the_apps_own_limit_is_the_apps_own_413(small):
    small.app.config["MAX_CONTENT_LENGTH"] = 10

    answer = small.send(data=b"x" * 11, content_type="text/plain")

    assert (answer.status_code, answer.content_type) == (413, "text/html; charset=utf-8")
    assert small.store.calls == []
