"""The key as it is sent in the header: rows K01 to K21, and faults G1 to G6, of the contract."""

import pytest
from flask import request
from werkzeug.datastructures import Headers

from tests.apps.shop import REFERENCE, REPLAYED


def outcome(shop, value, **options):
    """Send a request with this value of the header; give its status and the code of its refusal, if it is one."""
    response = shop.send(key=value, **options)
    return response.status_code, (response.json or {}).get("code")


def is_replay(response):
    return response.headers.get(REPLAYED) == "true"


def test_k01_without_a_key_an_optional_view_runs_as_if_we_were_not_there(shop):
    first, second = shop.send(key=None), shop.send(key=None)

    assert (first.json, second.json) == ({"id": 1}, {"id": 2})
    assert not {REFERENCE, REPLAYED} & set(dict(second.headers))
    assert shop.records() == []
    assert shop.store.calls == []


def test_k02_without_a_key_a_view_that_requires_one_refuses_each_time(make_shop):
    shop = make_shop(options={"required": True})

    answers = [outcome(shop, None) for _ in range(3)]

    assert answers == [(400, "key-missing")] * 3
    assert shop.n == 0


@pytest.mark.parametrize("value", ["", " ", "\t", '""', '"  "'])
def test_k03_an_empty_key_is_refused_on_an_optional_view_too(shop, value):
    assert outcome(shop, value) == (400, "key-invalid")
    assert (shop.n, shop.store.calls) == (0, [])


@pytest.mark.parametrize("value", ["  abc", "abc \t ", '\t"abc" '])
def test_k04_spaces_and_tabs_around_the_key_do_not_count(shop, value):
    shop.send(key="abc")

    assert is_replay(shop.send(key=value))


def test_k05_a_space_inside_a_bare_key_is_refused(shop):
    assert outcome(shop, "abc def") == (400, "key-invalid")


def test_k05_a_space_inside_an_opaque_key_is_accepted(make_shop):
    assert outcome(make_shop(key_syntax="opaque"), "abc def") == (201, None)


@pytest.mark.parametrize("syntax", ["auto", "strict"])
def test_k06_a_space_inside_quotes_is_accepted(make_shop, syntax):
    assert outcome(make_shop(key_syntax=syntax), '"abc def"') == (201, None)


@pytest.mark.parametrize("value", ["k" * 255, f'"{"k" * 255}"'], ids=["bare", "quoted"])
def test_k07_a_key_of_255_characters_is_accepted(shop, value):
    assert outcome(shop, value) == (201, None)


@pytest.mark.parametrize("value", ["k" * 256, f'"{"k" * 256}"', "k" * 8190], ids=["bare", "quoted", "8 kB"])
def test_k08_a_longer_key_is_refused(shop, value):
    assert outcome(shop, value) == (400, "key-invalid")
    assert (shop.n, shop.store.calls) == (0, [])


@pytest.mark.parametrize("syntax", ["auto", "strict", "opaque"])
@pytest.mark.parametrize("character", ["\0", "\a", "\x1b", "\x7f", "\r", "\n", "\x85"], ids=ascii)
def test_k09_a_control_character_is_refused_before_the_store_is_asked(make_shop, syntax, character):
    shop = make_shop(key_syntax=syntax)

    answer = shop.send(key=None, environ_overrides={"HTTP_IDEMPOTENCY_KEY": f'"a{character}b"'})

    assert (answer.status_code, answer.json["code"]) == (400, "key-invalid")
    assert (shop.n, shop.store.calls) == (0, [])


@pytest.mark.parametrize(
    "text", ["clé".encode().decode("latin-1"), "cl\xe9", "\ud800"], ids=["UTF-8", "Latin-1", "half"]
)
def test_k10_a_character_that_is_not_ascii_is_refused(shop, text):
    answer = shop.send(key=None, environ_overrides={"HTTP_IDEMPOTENCY_KEY": text})

    assert (answer.status_code, answer.json["code"]) == (400, "key-invalid")
    assert (shop.n, shop.store.calls) == (0, [])


@pytest.mark.parametrize("value", ['"abc', '"abc"x', '"abc" x', 'a"b', '"a\\"b"', "a\\b"])
def test_k11_k12_half_a_quoted_string_is_not_taken_for_a_bare_key(shop, value):
    assert outcome(shop, value) == (400, "key-invalid")


@pytest.mark.parametrize("value", ['"abc";ttl=60', '"abc"; a; b="x y"'])
def test_k13_parameters_are_ignored(shop, value):
    shop.send(key="abc")

    assert is_replay(shop.send(key=value))


@pytest.mark.parametrize("syntax", ["auto", "strict", "opaque"])
def test_k14_two_header_lines_are_refused_even_if_they_are_equal(make_shop, syntax):
    shop = make_shop(key_syntax=syntax)
    twice = Headers([("Idempotency-Key", '"abc"'), ("Idempotency-Key", '"abc"')])

    answer = shop.app.test_client().post("/orders", headers=twice)

    assert (answer.status_code, answer.json["code"]) == (400, "key-invalid")
    assert shop.n == 0


@pytest.mark.parametrize("value", ['"a,b"', "a,b", "a1, b2"])
def test_k15_a_comma_is_refused_inside_quotes_too(shop, value):
    assert outcome(shop, value) == (400, "key-invalid")


ITEMS = ["42", "?1", ":aGk=:", "@1659578233"]


@pytest.mark.parametrize("value", ITEMS)
def test_k16_another_kind_of_item_is_a_bare_key(shop, value):
    assert outcome(shop, value) == (201, None)


@pytest.mark.parametrize("value", [*ITEMS, "abc"])
def test_k16_another_kind_of_item_is_refused_by_the_strict_syntax(make_shop, value):
    assert outcome(make_shop(key_syntax="strict"), value) == (400, "key-invalid")


def test_k17_bare_and_quoted_are_one_key(shop):
    shop.send(key="abc")

    assert is_replay(shop.send(key='"abc"'))


def test_k17_bare_and_quoted_are_two_opaque_keys(make_shop):
    shop = make_shop(key_syntax="opaque")
    shop.send(key="abc")

    assert not is_replay(shop.send(key='"abc"'))


def test_k18_keys_are_case_sensitive_on_every_database(shop):
    shop.send(key="ABC")

    assert not is_replay(shop.send(key="abc"))
    assert shop.n == 2


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"query_string": {"idempotency_key": "abc", "Idempotency-Key": "abc"}},
        {"json": {"idempotency_key": "abc", "_idempotency_key": "abc"}},
        {"headers": {"X-Idempotency-Key": "abc"}},
        {"query_string": {"_idempotency_key": "abc"}},
    ],
    ids=["query", "JSON", "another header", "the form field in the query"],
)
def test_k19_a_key_anywhere_else_counts_as_absent(shop, elsewhere):
    shop.send(key=None, **elsewhere)
    shop.send(key=None, **elsewhere)

    assert (shop.n, shop.records()) == (2, [])


def test_k20_the_name_of_the_header_may_be_in_lower_case(shop):
    shop.send(key="abc")

    assert is_replay(shop.send(key=None, headers={"idempotency-key": "abc"}))


def test_k21_the_key_that_firefox_sends_is_accepted(shop):
    assert outcome(shop, '"12345678901234567890"') == (201, None)


@pytest.mark.parametrize("path", ["/orders", "/plain"])
def test_an_app_may_take_the_key_from_a_header_of_its_own(shop, path):
    def translate():
        request.environ["HTTP_IDEMPOTENCY_KEY"] = request.headers["X-Own-Key"]

    shop.app.before_request_funcs[None].insert(0, translate)
    shop.send(path, key=None, headers={"X-Own-Key": "abc"})

    assert is_replay(shop.send(path, key=None, headers={"X-Own-Key": "abc"}))


@pytest.mark.parametrize("value", ["order/42", "'or'1'='1", "../x", "${x}", "*", "%00", "<script>"])
def test_a_key_is_opaque(shop, value):
    first, second = shop.send(key=value), shop.send(key=value)

    assert first.status_code == 201
    assert is_replay(second)
