"""What makes two bodies the same request: rows B01 to B08, and rules F3 to F7 and F12, of the contract."""

import gzip
import json
from io import BytesIO

import pytest
from flask import Flask, request

from flask_idempotency import Idempotency
from tests.apps.shop import KEY, REPLAYED

SAME, REUSED = 201, 422


def second_status(shop, first, second):
    """Send two requests under one key; give the status of the second, having checked that the view ran once."""
    assert shop.send(**first).status_code == 201

    answer = shop.send(**second)

    assert shop.n == 1
    assert (answer.headers.get(REPLAYED) == "true") == (answer.status_code == 201)
    return answer.status_code


def raw(text, content_type="application/json"):
    return {"data": text if isinstance(text, bytes) else text.encode(), "content_type": content_type}


def form(text):
    return raw(text, "application/x-www-form-urlencoded")


NOTHING = {}
JSON_ROWS = [
    ("b01 no body, then an empty object", NOTHING, raw("{}"), REUSED),
    ("b02 other order of names", raw('{"a":1,"b":[{"c":2,"d":3}]}'), raw('{"b":[{"d":3,"c":2}],"a":1}'), SAME),
    ("b02 other white space", raw('{"a":1}'), raw(' {\n"a" :\t1 } '), SAME),
    ("b02 other escapes", raw('{"a":"é/"}'), raw('{"a":"\\u00e9\\/"}'), SAME),
    ("b02 other parameters of the type", raw("{}"), raw("{}", "Application/JSON; Charset=UTF-8; x=1"), SAME),
    ("b03 neighbours that a double cannot tell apart", raw("9007199254740992"), raw("9007199254740993"), REUSED),
    ("b04 a name twice", raw('{"amount":1,"amount":100}'), raw('{"amount":100}'), REUSED),
    ("a name twice at depth", raw('[{"x":{"a":1,"a":2}}]'), raw('[{"x":{"a":2}}]'), REUSED),
    ("b08 the same bytes of another type", raw("{}", "text/plain"), raw("{}"), REUSED),
    ("the same bytes with another charset", raw("{}"), raw("{}", "application/json; charset=latin-1"), REUSED),
    ("one value, three texts", raw("[1, 1.0, 1e0]"), raw("[1.0, 1e0, 1]"), SAME),
    ("two values, one double", raw("0.1"), raw("0.1000000000000000055"), REUSED),
    ("five thousand digits", raw("1" * 5000), raw("1" * 4999 + "2"), REUSED),
    ("beyond any double", raw("1e400"), raw("1e401"), REUSED),
    ("a huge exponent", raw("1e999999999"), raw("10e999999998"), SAME),
    ("not a number", raw("NaN"), raw("NaN "), REUSED),
    ("half a surrogate pair", raw('"\\ud800"'), raw('"\\ud801"'), REUSED),
    ("composed and decomposed", raw('"\u00e9"'), raw('"e\u0301"'), REUSED),
    ("a byte order mark", raw(b"\xef\xbb\xbf{}"), raw("{}"), REUSED),
    ("a trailing comma", raw("[1,]"), raw("[1]"), REUSED),
    ("nesting of three thousand", raw("[" * 3000 + "]" * 3000), raw("[" * 3000 + "1" + "]" * 3000), REUSED),
    ("a number and its text", raw("1"), raw('"1"'), REUSED),
    ("a number and a truth", raw("1"), raw("true"), REUSED),
    ("null and absent", raw('{"a":null}'), raw("{}"), REUSED),
    ("order in an array", raw("[1,2]"), raw("[2,1]"), REUSED),
    (
        "a type that ends in +json",
        raw('{"a":1,"b":2}', "application/x+json"),
        raw('{"b":2,"a":1}', "application/x+json"),
        SAME,
    ),
    ("white space in plain text", raw("a b", "text/plain"), raw("a  b", "text/plain"), REUSED),
]
FORM_ROWS = [
    ("b06 other order between names", form("a=1&b=2"), form("b=2&a=1"), SAME),
    ("b06 other order within a name", form("a=1&a=2"), form("a=2&a=1"), REUSED),
    ("b06 bytes that look alike as text", form("a=%ff"), form("a=%25FF"), REUSED),
    ("other spellings", form("a=+%2b&c"), form("a=%20%2B&c="), SAME),
    ("a blank more", form("a=1"), form("a=1&b="), REUSED),
    ("two forms differ", form("a=1"), form("a=2"), REUSED),
]


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [row[1:] for row in JSON_ROWS + FORM_ROWS],
    ids=[row[0] for row in JSON_ROWS + FORM_ROWS],
)
def test_fingerprint_table(shop, first, second, status):
    assert second_status(shop, first, second) == status


# -- uploads -----------------------------------------------------------------------------------------------------------


def multipart(*parts, boundary="first"):
    """A multipart body; each part is a name, a filename or None, a type or None, and bytes."""
    lines = b""
    for name, filename, type_, value in parts:
        named = f'form-data; name="{name}"' + (f'; filename="{filename}"' if filename is not None else "")
        lines += f"--{boundary}\r\nContent-Disposition: {named}\r\n".encode()
        lines += (f"Content-Type: {type_}\r\n".encode() if type_ else b"") + b"\r\n" + value + b"\r\n"
    return {"data": lines + f"--{boundary}--\r\n".encode(), "content_type": f"multipart/form-data; boundary={boundary}"}


NOTE, PICTURE = ("note", None, None, b"hello"), ("picture", "cat.png", "image/png", b"\x89PNG\0\xff")
UPLOAD = multipart(NOTE, PICTURE)
UPLOADS = [
    ("another boundary", multipart(NOTE, PICTURE, boundary="second"), SAME),
    ("other bytes", multipart(NOTE, (*PICTURE[:3], b"\x89PNG\0\xfe")), REUSED),
    ("another filename", multipart(NOTE, ("picture", "dog.png", *PICTURE[2:])), REUSED),
    ("no filename", multipart(NOTE, ("picture", None, *PICTURE[2:])), REUSED),
    ("another part type", multipart(NOTE, (*PICTURE[:2], "image/gif", PICTURE[3])), REUSED),
    ("another order", multipart(PICTURE, NOTE), REUSED),
    ("another name", multipart(NOTE, ("photo", *PICTURE[1:])), REUSED),
    ("a part less", multipart(NOTE), REUSED),
]


@pytest.mark.parametrize(("second", "status"), [row[1:] for row in UPLOADS], ids=[row[0] for row in UPLOADS])
def test_b05_uploads_are_compared_by_content(shop, second, status):
    assert second_status(shop, UPLOAD, second) == status


def test_a_multipart_type_without_a_boundary_is_compared_by_its_bytes(shop):
    part = b'\r\n--\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n----\r\n'

    status = second_status(shop, raw(b"AAA" + part, "multipart/form-data"), raw(b"BBB" + part, "multipart/form-data"))

    assert status == REUSED


def test_a_part_without_a_name_is_not_taken_for_one_with_an_empty_name(shop):
    named, unnamed = multipart(("", None, None, b"1")), multipart(("", None, None, b"1"))
    unnamed["data"] = unnamed["data"].replace(b'; name=""', b"")

    assert second_status(shop, named, unnamed) == REUSED


def test_another_multipart_type_is_compared_by_its_bytes(shop):
    mixed = [raw(multipart(NOTE, boundary=b)["data"], f"multipart/mixed; boundary={b}") for b in ("one", "two")]

    assert second_status(shop, *mixed) == REUSED


# -- compressed requests -----------------------------------------------------------------------------------------------


def test_f6_a_body_compressed_anew_is_another_body(shop):
    bodies = [gzip.compress(b"{}", mtime=time) for time in (1, 2)]
    first, second = [{**raw(body), "headers": {"Content-Encoding": "gzip"}} for body in bodies]

    assert second_status(shop, first, second) == REUSED


def test_f6_the_name_of_the_coding_counts(shop):
    first, second = [{**raw("{}"), "headers": {"Content-Encoding": coding}} for coding in ("gzip", "br")]

    assert second_status(shop, first, second) == REUSED


def test_f6_a_multipart_form_with_a_coding_is_compared_by_its_bytes(shop):
    first, second = [{**multipart(NOTE, boundary=b), "headers": {"Content-Encoding": "x-own"}} for b in ("one", "two")]

    assert second_status(shop, first, second) == REUSED


# -- a view's own function ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [str, lambda text: str(text).encode()], ids=["str", "bytes"])
def test_f12_a_views_own_function_replaces_type_and_body(make_shop, made):
    shop = make_shop(options={"fingerprint": lambda request: made(json.loads(request.get_data())["id"])})
    first, second = raw('{"id": 1, "sent_at": "noon"}'), raw('{"id": 1, "sent_at": "one"}', "text/plain")

    assert second_status(shop, first, second) == SAME


def test_f12_a_views_own_function_tells_requests_apart(make_shop):
    shop = make_shop(options={"fingerprint": lambda request: str(request.json["id"])})

    assert second_status(shop, raw('{"id": 1}'), raw('{"id": 2}')) == REUSED


@pytest.mark.parametrize("elsewhere", [{"method": "PATCH"}, {"query_string": "a=1"}, {"path": "/orders/1/pay"}])
def test_f12_method_path_and_query_stay_in(make_shop, elsewhere):
    shop = make_shop(options={"fingerprint": lambda request: "always the same"})

    assert second_status(shop, {}, elsewhere) == REUSED


def test_f12_text_that_no_encoding_knows_is_no_error(make_shop):
    shop = make_shop(options={"fingerprint": lambda request: request.json})

    assert second_status(shop, raw('"\\ud800"'), raw('"\\ud801"')) == REUSED


@pytest.mark.parametrize("value", [None, 1, {"a": 1}, object()], ids=["None", "int", "dict", "object"])
def test_f12_a_function_that_gives_something_else_is_told_so_and_nothing_runs(make_shop, value):
    shop = make_shop(options={"fingerprint": lambda request: value})
    shop.app.testing = True

    with pytest.raises(TypeError, match=r"fingerprint= .* bytes or str"):
        shop.send()

    assert (shop.n, shop.store.calls) == (0, [])


# -- across keys and callers -------------------------------------------------------------------------------------------


def test_the_same_body_under_another_key_is_another_action(shop):
    shop.send(key=KEY, json={"a": 1})

    answer = shop.send(key="another", json={"a": 1})

    assert (answer.json, shop.n) == ({"id": 2}, 2)


def test_files_reach_the_view_after_they_were_compared(shop):
    seen = []
    shop.answer = lambda: (seen.append((request.form["note"], request.files["picture"].read())), "ok")[1]

    shop.send(data={"note": "hello", "picture": (BytesIO(b"\0bytes"), "cat.png")})

    assert seen == [("hello", b"\0bytes")]


# -- hosts -------------------------------------------------------------------------------------------------------------


def test_another_tenant_s_host_is_another_request_where_hosts_are_routed():
    app = Flask("tenants", subdomain_matching=True)
    app.config.update(SERVER_NAME="shop.test", IDEMPOTENCY_STORE="memory://", IDEMPOTENCY_HOUSEKEEPING=False)
    Idempotency(app, scope=lambda: "alice")
    app.add_url_rule("/orders", "orders", lambda tenant: {"tenant": tenant}, subdomain="<tenant>", methods=["POST"])

    def send(tenant):
        return app.test_client().post("/orders", base_url=f"http://{tenant}", headers={"Idempotency-Key": KEY})

    first, again, other = send("acme.shop.test"), send("ACME.shop.test"), send("emca.shop.test")

    assert (first.json, again.json, other.status_code) == ({"tenant": "acme"}, {"tenant": "acme"}, 422)


@pytest.mark.parametrize(
    ("options", "kind", "hosts"),
    [
        ({"subdomain_matching": True}, "subdomain", {"api": "api.shop.test", "admin": "admin.shop.test"}),
        ({"host_matching": True, "static_host": "x"}, "host", {"a.test": "a.test", "b.test": "b.test"}),
    ],
    ids=["subdomains", "hosts"],
)
def test_static_hosts_and_subdomains_do_not_replay_each_other(store_url, options, kind, hosts):
    app = Flask("hosts", **options)
    app.config.update(SERVER_NAME="shop.test", IDEMPOTENCY_STORE=store_url, IDEMPOTENCY_HOUSEKEEPING=False)
    Idempotency(app, scope=lambda: "alice")
    store = app.extensions["idempotency"].store.inner
    store.create()
    for name in hosts:
        app.add_url_rule("/orders", name.replace(".", ""), lambda name=name: name, methods=["POST"], **{kind: name})

    def send(host):
        return app.test_client().post("/orders", base_url=f"http://{host}", headers={"Idempotency-Key": KEY})

    one, other = hosts.values()
    first, again, elsewhere = send(one), send(one.upper()), send(other)
    store.close()

    assert (first.status_code, again.headers.get(REPLAYED)) == (200, "true")
    assert (elsewhere.status_code, elsewhere.json["code"]) == (422, "key-reused")


def test_f8_another_mount_point_is_another_request(shop):
    first = shop.send(base_url="http://localhost/north")

    again, other = shop.send(base_url="http://localhost/north"), shop.send(base_url="http://localhost/south")

    assert (first.status_code, again.headers.get(REPLAYED), other.status_code) == (201, "true", 422)


def test_another_name_of_the_same_service_is_no_other_request(shop):
    shop.send(json={"a": 1}, base_url="https://shop.test")

    answer = shop.send(json={"a": 1}, base_url="http://10.0.0.1:8080")

    assert (answer.json, shop.n) == ({"id": 1}, 1)
