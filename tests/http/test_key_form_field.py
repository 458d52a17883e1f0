"""The key of an HTML form, which cannot set headers: one hidden field, by the same rules."""

from io import BytesIO

import pytest
from flask import request

from tests.apps.shop import REPLAYED

FIELD = "_idempotency_key"
URLENCODED, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"


def is_replay(response):
    return response.headers.get(REPLAYED) == "true"


def parts(*fields):
    """A multipart body as a browser makes it."""
    lines = [f"--x\r\nContent-Disposition: form-data; {name}\r\n\r\n{value}\r\n" for name, value in fields]
    return {"data": "".join(lines).encode() + b"--x--\r\n", "content_type": f"{MULTIPART}; boundary=x"}


def test_k01_a_route_without_a_key_is_untouched(shop):
    shop.send(key=None, data={"item": "tea"})
    shop.send(key=None, data={"item": "tea"})

    assert (shop.n, shop.store.calls) == (2, [])


@pytest.mark.parametrize("content_type", [URLENCODED, MULTIPART])
def test_the_field_is_the_key_where_the_header_is_absent(shop, content_type):
    form = {FIELD: "abc", "item": "tea"}
    shop.send(key=None, data=form, content_type=content_type)

    again = shop.send(key=None, data=form, content_type=content_type)

    assert is_replay(again)
    assert shop.n == 1


@pytest.mark.parametrize("content_type", [URLENCODED, MULTIPART])
def test_the_field_is_left_out_of_the_fingerprint(shop, content_type):
    shop.send(key=None, data={FIELD: "abc", "item": "tea"}, content_type=content_type)

    again = shop.send(key="abc", data={"item": "tea"}, content_type=content_type)

    assert is_replay(again)


def test_the_header_wins_over_the_field_even_if_the_field_is_malformed(shop):
    first = shop.send(key="abc", data={FIELD: "x,y", "item": "tea"})

    assert first.status_code == 201
    assert is_replay(shop.send(key="abc", data={"item": "tea"}))


@pytest.mark.parametrize("content_type", [URLENCODED, MULTIPART])
@pytest.mark.parametrize("value", ["", "a,b", "clé", "k" * 256, "a\0b"], ids=ascii)
def test_a_malformed_field_is_refused(shop, content_type, value):
    answer = shop.send(key=None, data={FIELD: value}, content_type=content_type)

    assert (answer.status_code, answer.json["code"]) == (400, "key-invalid")
    assert (shop.n, shop.store.calls) == (0, [])


@pytest.mark.parametrize("content_type", [URLENCODED, MULTIPART])
def test_two_fields_are_refused_even_if_they_are_equal(shop, content_type):
    answer = shop.send(key=None, data={FIELD: ["abc", "abc"]}, content_type=content_type)

    assert (answer.status_code, answer.json["code"]) == (400, "key-invalid")


def test_two_fields_are_refused_after_a_hook_has_read_the_form(shop):
    shop.app.before_request_funcs[None].insert(0, lambda: (request.form, None)[1])

    answer = shop.send(key=None, data={FIELD: ["abc", "abc"]})

    assert (answer.status_code, answer.json["code"]) == (400, "key-invalid")


def test_a_field_whose_name_is_percent_encoded_is_the_key_all_the_same(shop):
    body = {"data": b"%5Fidempotency%5Fkey=abc&item=tea", "content_type": URLENCODED}
    shop.send(key=None, **body)

    assert is_replay(shop.send(key=None, **body))


def test_a_file_of_that_name_is_no_key(shop):
    upload = {FIELD: (BytesIO(b"abc"), "key.txt"), "item": "tea"}

    answer = shop.send(key=None, data=upload)

    assert answer.status_code == 201
    assert shop.records() == []


def test_the_field_in_a_multipart_form_that_is_cut_off_is_refused_rather_than_run_unprotected(shop):
    whole = parts((f'name="{FIELD}"', "abc"), ('name="item"', "tea"))

    answer = shop.send(key=None, data=whole["data"][:-8], content_type=whole["content_type"])

    assert (answer.status_code, answer.json["code"]) == (400, "key-invalid")
    assert shop.n == 0


def test_the_field_among_more_parts_than_can_be_taken_apart_is_refused_rather_than_run_unprotected(shop):
    many = parts((f'name="{FIELD}"', "abc"), *[(f'name="f{number}"', "") for number in range(1100)])

    answer = shop.send(key=None, **many)

    assert (answer.status_code, answer.json["code"]) == (400, "key-invalid")
    assert shop.n == 0


def test_a_malformed_form_without_the_field_runs_as_if_we_were_not_there(shop):
    shop.answer = lambda: (request.form.to_dict(), 201)

    answer = shop.send(key=None, data=b"--x\r\nrubbish", content_type=f"{MULTIPART}; boundary=x")

    assert (answer.status_code, answer.json) == (201, {})


@pytest.mark.parametrize("content_type", [URLENCODED, MULTIPART])
def test_the_view_finds_its_form_and_its_files_as_they_were_sent(shop, content_type):
    seen = []
    shop.answer = lambda: (seen.append(request.form.to_dict()), "ok")[1]

    shop.send(key=None, data={FIELD: "abc", "item": "tea"}, content_type=content_type)

    assert seen == [{FIELD: "abc", "item": "tea"}]
