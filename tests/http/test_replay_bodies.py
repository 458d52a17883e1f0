"""The second answer equals the first, whatever the view returned: section 6, rows M07 and R01 to R03."""

import io
import json
from pathlib import Path

import pytest
from flask import Response, abort, jsonify, make_response, redirect, send_file, stream_with_context
from werkzeug.wrappers import Response as PlainResponse

from tests.apps.shop import REFERENCE, REPLAYED

PNG = bytes(range(256)) * 20
GONE = {"code": "body-not-kept", "status": 410}


def file_on_disk():
    return Path(__file__)


def two_links():
    response = make_response("linked")
    response.headers.add("Link", "</a>; rel=next")
    response.headers.add("Link", "</b>; rel=prev")
    return response


VIEWS = {
    "str": lambda: "text é",
    "bytes": lambda: b"\xff\xfe",
    "dict": lambda: {"b": 1, "a": [1.0, None]},
    "list": lambda: [1, {"a": "é"}],
    "body and status": lambda: ("made", 201),
    "body and headers": lambda: ("made", {"X-Own": "1"}),
    "body, status and headers": lambda: ({"a": 1}, 202, [("X-Own", "1"), ("X-Own", "2")]),
    "Response": lambda: Response("text", 203, content_type="text/x-own"),
    "a Response of Werkzeug": lambda: PlainResponse("text", 203),
    "jsonify": lambda: (jsonify(a=1), 201),
    "json with white space": lambda: Response('{ "a" :\t1.50,\n"a":2 }', content_type="application/json"),
    "redirect": lambda: redirect("/orders/1", 303),
    "make_response": lambda: make_response("made", 201),
    "abort": lambda: abort(404, "no such thing"),
    "abort with a Response": lambda: abort(Response("teapot", 418)),
    "204": lambda: ("", 204),
    "204 of an iterator": lambda: Response(iter([]), 204),
    "304": lambda: Response(status=304),
    "an empty 200": lambda: "",
    "empty JSON": lambda: ({}, 200),
    "PNG": lambda: Response(PNG, content_type="image/png"),
    "two Link lines": two_links,
    "a list of pieces": lambda: Response(["one ", b"two ", "drei é"]),
    "a file in memory": lambda: send_file(io.BytesIO(PNG), "image/png", download_name="a.png", as_attachment=True),
    "a file on the disk": lambda: send_file(file_on_disk(), "text/plain"),
    "an iterator with a length": lambda: Response(iter([b"one", b"two"]), headers={"Content-Length": "6"}),
    "a WSGI app": lambda: lambda environ, start: (start("202 Accepted", [("Content-Length", "2")]), [b"ok"])[1],
    "no type": lambda: (lambda response: (response.headers.pop("Content-Type"), response)[1])(make_response("x")),
    "without a charset": lambda: Response(b"x", content_type="text/plain"),
}
ours = {REFERENCE.lower(), REPLAYED.lower()}


def of_the_app(answer):
    """All of an answer but what is ours."""
    return answer.status_code, [h for h in answer.headers if h[0].lower() not in ours], answer.data


@pytest.mark.parametrize("path", ["/orders", "/plain"])
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_the_second_answer_equals_the_first_whatever_the_view_returned(shop, path, view):
    shop.answer = view
    without_us = shop.send(path, method="PUT")

    first, second = shop.send(path), shop.send(path)

    assert second.headers.get(REPLAYED) == "true"
    assert of_the_app(first) == of_the_app(without_us)
    assert sorted(of_the_app(second)[1]) == sorted(of_the_app(first)[1])
    assert (second.status_code, second.data) == (first.status_code, first.data)
    assert shop.n == 2


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_one_length_which_is_that_of_the_bytes_sent(shop, view):
    shop.answer = view
    shop.send()

    second = shop.send()

    lengths = second.headers.getlist("Content-Length")
    assert lengths == ([] if second.status_code in (204, 304) else [str(len(second.data))])


def test_replay_keeps_the_status(shop):
    assert [shop.send().status_code for _ in range(3)] == [201, 201, 201]


def test_the_view_may_have_run_behind_etags_and_conditions(shop):
    def answer():
        response = make_response("made", 201)
        response.add_etag()
        return response

    shop.answer = answer
    first = shop.send()

    assert shop.send(headers={"If-None-Match": first.headers["ETag"]}).status_code == 201


# -- what cannot be kept -----------------------------------------------------------------------------------------------


def events():
    yield "data: one\n\n"
    yield "data: two\n\n"


STREAMS = {
    "generator": lambda: Response(events(), 201, {"Location": "/orders/1"}),
    "server-sent events": lambda: Response(
        stream_with_context(events()), 201, {"Location": "/orders/1"}, content_type="text/event-stream"
    ),
    "returned generator": lambda: (events(), 201, {"Location": "/orders/1"}),
}


@pytest.mark.parametrize("path", ["/orders", "/plain"])
@pytest.mark.parametrize("view", STREAMS.values(), ids=STREAMS)
def test_r02_a_stream_reaches_its_client_once_and_the_retry_is_told(shop, path, view):
    shop.answer = view
    first = shop.send(path)

    second = shop.send(path)

    assert (first.status_code, first.data) == (201, b"data: one\n\ndata: two\n\n")
    assert (second.status_code, shop.n) == (410, 1)
    assert {name: second.json[name] for name in ("code", "status", "original_status", "location")} == {
        **GONE, "original_status": 201, "location": "/orders/1",
    }  # fmt: skip


def test_a_stream_is_left_to_stream(shop):
    pieces = []

    def slowly():
        for piece in ("one", "two"):
            pieces.append(piece)
            yield piece

    shop.answer = lambda: Response(slowly())

    answer = shop.send(buffered=False)

    assert len(pieces) < 2
    assert answer.data == b"onetwo"


BIG = {
    "bytes": lambda: (b"x" * 1001, 201, {"Location": "/orders/1"}),
    "pieces": lambda: Response([b"x" * 600, b"x" * 401], 201, {"Location": "/orders/1"}),
    "a file": lambda: (send_file(io.BytesIO(b"x" * 1001), "text/plain"), 201, {"Location": "/orders/1"}),
}


@pytest.mark.parametrize("view", BIG.values(), ids=BIG)
def test_r03_an_answer_over_the_limit_reaches_its_client_once_and_the_retry_is_told(make_shop, view):
    shop = make_shop(max_body=1000)
    shop.answer = view
    first = shop.send()

    second = shop.send()

    assert (first.status_code, first.data) == (201, b"x" * 1001)
    assert (second.status_code, shop.n) == (410, 1)
    assert (second.json["original_status"], second.json["location"]) == (201, "/orders/1")


def test_an_answer_over_the_limit_is_not_read_before_it_is_sent(make_shop):
    shop, read = make_shop(max_body=1000), []

    def file():
        for _ in range(10):
            read.append(101)
            yield b"x" * 101

    shop.answer = lambda: Response(file(), 201, {"Content-Length": "1010"})

    answer = shop.send(buffered=False)

    assert len(read) <= 1  # what the client itself has asked for
    assert len(answer.data) == 1010


def test_an_answer_of_exactly_the_limit_is_kept(make_shop):
    shop = make_shop(max_body=1000)
    shop.answer = lambda: b"x" * 1000
    shop.send()

    assert shop.send().data == b"x" * 1000


def test_an_answer_that_cannot_be_read_is_finished_without_its_body(shop, caplog):
    def broken():
        yield b"begun"
        raise OSError("the disk is gone")

    shop.answer = lambda: Response(broken(), 201, {"Content-Length": "10"})
    first = shop.send(buffered=False)
    with pytest.raises(OSError, match="the disk is gone"):
        list(first.iter_encoded())

    second = shop.send()

    assert (second.status_code, second.json["original_status"], shop.n) == (410, 201, 1)
    assert "could not be read" in caplog.text


def test_a_file_that_was_read_to_be_kept_is_closed_after_the_answer(shop, tmp_path):
    file = (tmp_path / "file").open("wb+")
    file.write(PNG)
    file.seek(0)
    shop.answer = lambda: send_file(file, "image/png")

    shop.send()

    assert file.closed


def test_bytes_are_never_serialised_anew(shop):
    body = b'{"b":1,"a":1.0,"c":"\\u00e9"}'
    shop.answer = lambda: Response(body, content_type="application/json")
    shop.send()

    assert shop.send().data == body
    assert json.loads(body) == {"b": 1, "a": 1.0, "c": "é"}
