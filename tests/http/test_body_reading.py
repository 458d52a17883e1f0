"""The body is read once, before the view and after any hook, and nobody notices: rule F2, F10 and row B07."""

from io import BytesIO

import pytest
from flask import request

from tests.apps.shop import KEY, REPLAYED

FORM, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
UPLOAD = {"note": "hello", "picture": (b"picture one", "cat.png")}


class Trickle(BytesIO):
    """A socket that gives a few bytes at a time, and counts them."""

    taken = 0

    def read(self, size=-1):
        piece = super().read(min(size, 7) if size and size > 0 else -1)
        self.taken += len(piece)
        return piece

    readinto = None


def chunked(body, content_type="application/json", **environ):
    """A request without a length, from a server that ends the stream itself."""
    return {
        "input_stream": body if hasattr(body, "read") else Trickle(body),
        "content_type": content_type,
        "environ_overrides": {"wsgi.input_terminated": True, "HTTP_TRANSFER_ENCODING": "chunked", **environ},
    }


def before_ours(shop, hook):
    """Register a hook as an app does that sets itself up before the extension."""
    shop.app.before_request_funcs[None].insert(0, lambda: (hook(), None)[1])


def form(**fields):
    """A multipart form, made anew for each request because its files are read."""
    return {name: (BytesIO(v[0]), *v[1:]) if isinstance(v, tuple) else v for name, v in fields.items()}


# -- what the view sees ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("send", [lambda body: {"data": body}, chunked], ids=["with a length", "chunked"])
@pytest.mark.parametrize(
    "read",
    [
        lambda: request.stream.read(),
        lambda: b"".join(iter(lambda: request.stream.read(3), b"")),
        lambda: request.get_data(),
        lambda: request.data,
        lambda: request.stream.readline() + request.stream.read(),
    ],
    ids=["stream", "stream in pieces", "get_data", "data", "stream by lines"],
)
def test_the_view_can_read_the_body_in_any_way(shop, send, read):
    seen = []
    shop.answer = lambda: (seen.append(read()), "ok")[1]

    shop.send(**{"content_type": "text/plain", **send(b"line one\nline two")})

    assert seen == [b"line one\nline two"]


def test_the_view_can_parse_json_and_read_the_bytes_again(shop):
    seen = []
    shop.answer = lambda: (seen.append((request.get_json(), request.get_data())), "ok")[1]

    shop.send(data=b'{"a": 1}', content_type="application/json")

    assert seen == [({"a": 1}, b'{"a": 1}')]


def test_f10_chunked_or_not_is_the_same_request(shop):
    shop.send(data=b'{"a": 1}', content_type="application/json")

    answer = shop.send(**chunked(b'{"a":1}'))

    assert answer.headers[REPLAYED] == "true"


def test_chunked_bodies_differ(shop):
    shop.send(**chunked(b'{"a":1}'))

    assert shop.send(**chunked(b'{"a":2}')).status_code == 422


# -- a body that did not arrive ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("terminated", [False, True], ids=["the server is silent", "the server ends the stream"])
@pytest.mark.parametrize("path", ["/orders", "/plain"])
def test_f10_a_body_shorter_than_announced_is_a_plain_400_without_a_claim(shop, path, terminated):
    cut = {"input_stream": BytesIO(b'{"a"'), "environ_overrides": {"CONTENT_LENGTH": "8"}}
    cut["environ_overrides"] |= {"wsgi.input_terminated": True} if terminated else {}

    answer = shop.send(path, content_type="application/json", **cut)

    assert (answer.status_code, answer.content_type) == (400, "text/html; charset=utf-8")
    assert (shop.n, shop.store.calls) == (0, [])
    assert shop.send(path, data=b'{"a": 1}', content_type="application/json").status_code == 201


def test_f10_a_short_body_that_a_hook_has_read_is_a_plain_400_too(shop):
    before_ours(shop, lambda: request.get_data())

    answer = shop.send(
        input_stream=BytesIO(b'{"a"'), environ_overrides={"CONTENT_LENGTH": "8", "wsgi.input_terminated": True}
    )

    assert answer.status_code == 400
    assert (shop.n, shop.store.calls) == (0, [])


@pytest.mark.parametrize("length", [None, "8"], ids=["chunked", "with a length"])
@pytest.mark.parametrize("terminated", [True, False])
def test_a_connection_that_breaks_while_the_body_is_read_is_a_plain_400(shop, length, terminated):
    class Broken:
        def read(self, size=-1):
            raise ConnectionResetError

    environ = {"wsgi.input": Broken(), **({"wsgi.input_terminated": True} if terminated or not length else {})}
    environ |= {"CONTENT_LENGTH": length} if length else {"HTTP_TRANSFER_ENCODING": "chunked"}

    answer = shop.send(environ_overrides=environ)

    assert answer.status_code == 400
    assert (shop.n, shop.store.calls) == (0, [])


# -- hooks that were there first ---------------------------------------------------------------------------------------

TOUCHES = {
    "form": lambda: request.form,
    "files": lambda: request.files,
    "values": lambda: request.values,
    "data": lambda: request.data,
    "get_data": lambda: request.get_data(),
    "get_json": lambda: request.get_json(silent=True),
    "get_json, forced": lambda: request.get_json(silent=True, force=True),
}
touched = pytest.mark.parametrize("touch", TOUCHES.values(), ids=TOUCHES)


@touched
@pytest.mark.parametrize("send", [{}, {"environ_overrides": {"wsgi.input_terminated": True}}], ids=["plain", "ended"])
@pytest.mark.parametrize(
    ("first", "same", "other", "content_type"),
    [
        (b'{"a": 1}', b'{"a":1}', b'{"a": 2}', "application/json"),
        (b"a=1&b=2", b"b=2&a=1", b"a=1&b=3", FORM),
        (b"text", b"text", b"text!", "text/plain"),
    ],
    ids=["JSON", "form", "text"],
)
def test_b07_bodies_differ_even_after_a_hook_read_them(shop, touch, send, first, same, other, content_type):
    before_ours(shop, touch)
    one = shop.send(data=first, content_type=content_type, **send)

    again = shop.send(data=same, content_type=content_type, **send)
    reused = shop.send(data=other, content_type=content_type, **send)

    assert (one.status_code, again.headers[REPLAYED], reused.status_code) == (201, "true", 422)
    assert shop.n == 1


@touched
def test_uploads_differ_even_after_a_hook_read_the_form(shop, touch):
    before_ours(shop, touch)
    shop.send(data=form(**UPLOAD))

    again = shop.send(data=form(**UPLOAD))
    others = [
        shop.send(data=form(**{**UPLOAD, "picture": (b"picture two", "cat.png")})),
        shop.send(data=form(**{**UPLOAD, "picture": (b"picture one", "dog.png")})),
        shop.send(data=form(**{**UPLOAD, "note": "bye"})),
    ]

    assert again.headers[REPLAYED] == "true"
    assert [other.status_code for other in others] == [422, 422, 422]


@pytest.mark.parametrize(
    "read", [lambda file: file.save(BytesIO()), lambda file: file.read(), lambda file: file.read(4)],
    ids=["saved", "read", "begun"],
)  # fmt: skip
def test_uploads_differ_even_after_a_hook_read_the_file(shop, read):
    before_ours(shop, lambda: read(request.files["picture"]))
    shop.send(data=form(**UPLOAD))

    again = shop.send(data=form(**UPLOAD))
    other = shop.send(data=form(**{**UPLOAD, "picture": (b"picture two", "cat.png")}))

    assert (again.headers.get(REPLAYED), other.status_code) == ("true", 422)


def test_the_view_finds_a_file_as_the_hook_left_it(shop):
    seen = []
    before_ours(shop, lambda: request.files["picture"].read(8))
    shop.answer = lambda: (seen.append(request.files["picture"].read()), "ok")[1]

    shop.send(data=form(**UPLOAD))

    assert seen == [b"one"]


def test_an_upload_that_a_hook_closed_is_refused(shop):
    before_ours(shop, lambda: request.files["picture"].close())

    answer = shop.send(data=form(**UPLOAD))

    assert answer.status_code == 400
    assert (shop.n, shop.store.calls) == (0, [])


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"a=%ff", FORM),
        (b"a=%25FF", FORM),
        (b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n\xff\r\n--x--\r\n', f"{MULTIPART}; boundary=x"),
    ],
    ids=["bytes that are no text", "text that looks like them", "multipart"],
)
def test_b06_b07_a_form_that_a_hook_may_have_blurred_is_refused(shop, body, content_type):
    before_ours(shop, lambda: request.form)

    answer = shop.send(data=body, content_type=content_type)

    assert answer.status_code == 400
    assert (shop.n, shop.store.calls) == (0, [])


def test_a_percent_encoded_address_in_a_form_is_not_blurred(shop):
    before_ours(shop, lambda: request.form)

    answer = shop.send(data={"url": "https://shop.example/caf%C3%A9?a=100%25"})

    assert answer.status_code == 201


@pytest.mark.parametrize("send", [lambda body: {"data": body}, chunked], ids=["with a length", "chunked"])
@pytest.mark.parametrize("size", [None, 3], ids=["whole", "in part"])
def test_f2_a_body_that_a_hook_has_used_up_is_refused_rather_than_taken_for_empty(shop, send, size):
    before_ours(shop, lambda: request.stream.read(size or -1))

    answer = shop.send(**{**send(b'{"a":1}'), "content_type": "application/json"})

    assert answer.status_code == 400
    assert (shop.n, shop.store.calls) == (0, [])


@touched
def test_a_request_without_a_body_or_a_length_runs_after_a_hook_looked_for_one(shop, touch):
    before_ours(shop, touch)
    nothing = {"environ_overrides": {"wsgi.input_terminated": True, "CONTENT_LENGTH": None}}

    first, second = (shop.send("/orders/1/pay", **nothing) for _ in range(2))

    assert (first.status_code, second.headers.get(REPLAYED), shop.n) == (201, "true", 1)


@touched
def test_chunked_json_differs_after_a_hook_looked_for_a_form(shop, touch):
    before_ours(shop, touch)
    shop.send(**chunked(b'{"a":1}'))

    again, other = shop.send(**chunked(b'{"a": 1}')), shop.send(**chunked(b'{"a":2}'))

    assert (again.headers.get(REPLAYED), other.status_code) == ("true", 422)


@pytest.mark.parametrize("key", [KEY, None], ids=["header", "field"])
def test_a_scope_may_read_the_form(make_shop, key):
    shop = make_shop(scope=lambda: request.form["account"])
    first, second, other = (
        shop.send(key=key, data={"account": "7", "_idempotency_key": KEY, "a": value}) for value in "112"
    )

    assert (first.status_code, second.headers.get(REPLAYED), other.status_code) == (201, "true", 422)


def test_the_key_in_a_form_is_found_after_a_hook_read_the_form(shop):
    before_ours(shop, lambda: request.data)
    shop.send(key=None, data={"_idempotency_key": KEY, "a": "1"})

    assert shop.send(key=None, data={"_idempotency_key": KEY, "a": "1"}).headers[REPLAYED] == "true"


def test_a_part_without_a_name_that_a_hook_has_parsed_is_refused(shop):
    shop.app.before_request_funcs.setdefault(None, []).insert(0, lambda: (request.form, None)[1])
    body = b"--x\r\nContent-Disposition: form-data\r\n\r\n1\r\n--x--\r\n"

    answer = shop.send(data=body, content_type="multipart/form-data; boundary=x")

    assert (answer.status_code, shop.n) == (400, 0)
