"""Compressed answers: bytes and label never disagree, and every caller can read them: section 6, row R05, fault H28."""

import gzip
import zlib

import brotli
import pytest
from backports import zstd
from flask import Response, request

from flask_idempotency.http import coding as codings
from tests.apps.shop import REPLAYED

PLAIN = b"hello " * 100


def raw_deflate(data):
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


CODED = {
    "gzip": gzip.compress(PLAIN),
    "deflate": zlib.compress(PLAIN),
    "x-gzip": gzip.compress(PLAIN),
    "br": brotli.compress(PLAIN),
    "zstd": zstd.compress(PLAIN),
}
NONE_OF_THEM = ";q=0, ".join([*CODED, "compress"])


def answer_coded(shop, coding, body, **headers):
    named = {"Content-Encoding": coding, "ETag": '"abc"', "Content-Digest": "sha-256=:x=:", **headers}
    shop.answer = lambda: Response(body, 201, named, content_type="text/plain")


@pytest.mark.parametrize("coding", CODED)
@pytest.mark.parametrize("accepted", ["identity", "", "compress", NONE_OF_THEM, "*;q=0"])
def test_a_caller_that_excludes_the_coding_gets_plain_bytes(shop, coding, accepted):
    answer_coded(shop, coding, CODED[coding])
    shop.send()

    second = shop.send(headers={"Accept-Encoding": accepted})

    assert second.data == PLAIN
    assert (second.headers[REPLAYED], second.headers["Content-Length"]) == ("true", str(len(PLAIN)))
    assert not {"Content-Encoding", "ETag", "Content-Digest"} & set(dict(second.headers))


@pytest.mark.parametrize("coding", CODED)
@pytest.mark.parametrize("headers", [{}, {"Accept-Encoding": "*"}, {"Accept-Encoding": ", ".join(CODED)}])
def test_any_other_caller_gets_the_bytes_with_their_label(shop, coding, headers):
    answer_coded(shop, coding, CODED[coding])
    shop.send()

    second = shop.send(headers=headers)

    assert (second.data, second.headers["Content-Encoding"]) == (CODED[coding], coding)
    assert second.headers["ETag"] == '"abc"'


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", b"not gzip at all"),
        ("gzip", gzip.compress(PLAIN)[:-9]),
        ("gzip", gzip.compress(PLAIN) + b"rubbish"),
        ("compress", b"\x1f\x9d\x90hello"),
        ("br", brotli.compress(PLAIN)[:-9]),
        ("br", b"not br at all"),
        ("zstd", zstd.compress(PLAIN)[:-9]),
        ("zstd", b"not zstd at all"),
        ("gzip, br", gzip.compress(PLAIN)),
        ("identity", PLAIN),
    ],
    ids=[
        "mislabelled",
        "cut short",
        "something behind",
        "another coding",
        "br cut short",
        "br mislabelled",
        "zstd cut short",
        "zstd mislabelled",
        "two codings",
        "no coding",
    ],
)
def test_what_cannot_be_decoded_keeps_its_label(shop, coding, body):
    answer_coded(shop, coding, body)
    shop.send()

    second = shop.send(headers={"Accept-Encoding": "identity"})

    assert (second.data, second.headers["Content-Encoding"]) == (body, coding)


def test_an_answer_in_several_gzip_members_is_decoded_whole(shop):
    answer_coded(shop, "gzip", gzip.compress(b"one ") + gzip.compress(b"two"))
    shop.send()

    assert shop.send(headers={"Accept-Encoding": "identity"}).data == b"one two"


def test_deflate_without_its_wrapping_is_decoded_too(shop):
    answer_coded(shop, "deflate", raw_deflate(PLAIN))
    shop.send()

    assert shop.send(headers={"Accept-Encoding": "identity"}).data == PLAIN


@pytest.mark.parametrize(
    ("coding", "compress"), [("gzip", gzip.compress), ("br", brotli.compress), ("zstd", zstd.compress)]
)
def test_a_bomb_is_not_blown_up(shop, monkeypatch, coding, compress):
    monkeypatch.setattr(codings, "LARGEST", 1_000_000)
    bomb = compress(bytes(1_000_000))
    answer_coded(shop, coding, bomb)
    shop.send()

    second = shop.send(headers={"Accept-Encoding": "identity"})

    assert (second.data, second.headers["Content-Encoding"]) == (bomb, coding)


@pytest.mark.parametrize("coding", ["br", "zstd"])
def test_where_the_library_of_a_coding_is_missing_its_answers_keep_their_label(shop, monkeypatch, coding):
    monkeypatch.setattr(codings, "_first_installed", lambda names: None)
    answer_coded(shop, coding, CODED[coding])
    shop.send()

    second = shop.send(headers={"Accept-Encoding": "identity"})

    assert (second.data, second.headers["Content-Encoding"]) == (CODED[coding], coding)


def test_the_first_library_that_is_installed_is_taken_and_none_is_no_error():
    assert codings._first_installed(("no_such_library", "zlib")) is zlib
    assert codings._first_installed(("no_such_library",)) is None


@pytest.mark.parametrize("coding", CODED)
def test_an_answer_that_varies_by_the_coding_comes_in_plain_to_a_caller_that_names_none(shop, coding):
    answer_coded(shop, coding, CODED[coding], Vary="Cookie, Accept-Encoding")
    shop.send()

    second = shop.send()

    assert (second.data, second.headers[REPLAYED]) == (PLAIN, "true")
    assert "Content-Encoding" not in second.headers


# -- compressing hooks -------------------------------------------------------------------------------------------------


def compress(response):
    """Compress as the usual extensions do: for callers that accept it, unless it was done already."""
    if "gzip" in request.headers.get("Accept-Encoding", "") and "Content-Encoding" not in response.headers:
        response.set_data(gzip.compress(response.get_data()))
        response.headers["Content-Encoding"] = "gzip"
        response.headers.add("Vary", "Accept-Encoding")
    return response


def compress_carelessly(response):
    """Compress whatever comes along, even what is compressed."""
    response.set_data(gzip.compress(response.get_data()))
    response.headers["Content-Encoding"] = "gzip"
    return response


def compress_anew(response):
    """Compress into a response of its own."""
    return Response(
        gzip.compress(response.get_data()), response.status_code, {**response.headers, "Content-Encoding": "gzip"}
    )


def read(answer):
    body = answer.data
    return gzip.decompress(body) if answer.headers.get("Content-Encoding") == "gzip" else body


@pytest.mark.parametrize("first", ["gzip", "identity"])
@pytest.mark.parametrize("second", ["gzip", "identity"])
def test_r05_with_a_compressing_hook_everybody_can_read_the_replay(shop, first, second):
    shop.app.after_request(compress)
    plain = shop.send(key=None).data.replace(b"1", b"2")
    shop.send(headers={"Accept-Encoding": first})

    answer = shop.send(headers={"Accept-Encoding": second})

    assert answer.headers[REPLAYED] == "true"
    assert read(answer) == plain
    assert second == "gzip" or "Content-Encoding" not in answer.headers
    assert len(answer.headers.getlist("Vary")) <= 1


@pytest.mark.parametrize("hook", [compress_carelessly, compress_anew])
def test_a_careless_hook_before_us_compresses_once(shop, hook):
    shop.app.after_request_funcs[None].append(hook)
    first = shop.send(headers={"Accept-Encoding": "gzip"})

    second = shop.send(headers={"Accept-Encoding": "gzip"})

    assert second.headers[REPLAYED] == "true"
    assert read(second) == read(first)
    assert second.headers.getlist("Content-Encoding") == ["gzip"]
