"""Which headers a replay repeats, which are today's, and which are never stored: the three rows of section 6."""

import pytest
from flask import Response
from werkzeug.datastructures import Headers

from flask_idempotency.http.capture import Fate, fate_of
from tests.apps.shop import REFERENCE, REPLAYED

AS_IT_WAS = {
    "Content-Type": "application/vnd.own+json; v=2",
    "Content-Language": "en-GB",
    "Content-Disposition": 'attachment; filename="a.bin"',
    "Content-Location": "/orders/1",
    "Location": "/orders/1?x=é".encode().decode("latin-1"),
    "Link": "</a>; rel=next",
    "ETag": '"abc"',
    "Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT",
    "Cache-Control": "private, max-age=5",
    "Expires": "Wed, 21 Oct 2015 07:28:00 GMT",
    "Deprecation": "@1688169599",
    "Sunset": "Wed, 21 Oct 2035 07:28:00 GMT",
    "Content-Digest": "sha-256=:abc=:",
    "Repr-Digest": "sha-256=:abc=:",
    "X-Own": "own",
    "X-Requested-Id": "looks like a fresh one, but is the app's own",
    "Anything": "",
}
TODAYS = [
    "Date", "Server", "Via", "Age", "Alt-Svc", "NEL", "Report-To", "Server-Timing", "X-Runtime", "X-Request-Id",
    "Request-Id", "X-Correlation-Id", "traceparent", "tracestate", "baggage", "X-Amzn-Trace-Id", "CF-Ray",
    "Access-Control-Allow-Origin", "Access-Control-Expose-Headers", "Strict-Transport-Security",
    "Content-Security-Policy", "Content-Security-Policy-Report-Only", "X-Frame-Options", "Permissions-Policy",
    "Referrer-Policy", "RateLimit", "RateLimit-Policy", "RateLimit-Remaining", "X-RateLimit-Limit",
    "X-Rate-Limit-Reset", "Signature", "Signature-Input",
]  # fmt: skip
NEVER = [
    "Set-Cookie", "Set-Cookie2", "WWW-Authenticate", "Proxy-Authenticate", "Authentication-Info",
    "Proxy-Authentication-Info", "Retry-After", "Clear-Site-Data", "Connection", "Keep-Alive", "Proxy-Connection", "TE",
    "Trailer", "Transfer-Encoding", "Upgrade",
]  # fmt: skip


def answer_with(shop, headers, body=b"body", status=201):
    """Have the view answer with exactly these headers."""
    shop.answer = lambda: (lambda response: (setattr(response, "headers", Headers(headers)), response)[1])(
        Response(body, status)
    )


@pytest.mark.parametrize("name", [*AS_IT_WAS, "content-type", "LOCATION", "Vary", "Content-Encoding"])
def test_the_fate_of_what_travels(name):
    assert fate_of(name) is Fate.REPLAYED


@pytest.mark.parametrize("name", [*TODAYS, "Content-Length", "DATE", "access-control-max-age"])
def test_the_fate_of_what_is_todays(name):
    assert fate_of(name) is Fate.FRESH


@pytest.mark.parametrize("name", [*NEVER, "SET-COOKIE", REFERENCE, REPLAYED])
def test_the_fate_of_what_never_travels(name):
    assert fate_of(name) is Fate.NEVER


@pytest.mark.parametrize("path", ["/orders", "/plain"])
def test_kept_headers_are_replayed_with_their_values_order_and_repeats(shop, path):
    answer_with(shop, [*AS_IT_WAS.items(), ("Link", "</b>; rel=prev"), ("X-Own", "twice"), ("Link", "</c>")])
    first = shop.send(path)

    second = shop.send(path)

    ours = {REFERENCE.lower(), REPLAYED.lower()}
    assert [h for h in second.headers if h[0].lower() not in ours] == [
        h for h in first.headers if h[0].lower() not in ours
    ]
    assert second.headers.getlist("Link") == ["</a>; rel=next", "</b>; rel=prev", "</c>"]
    assert second.headers.getlist(REPLAYED) == ["true"]
    assert REPLAYED not in first.headers


def test_fresh_headers_of_the_first_answer_are_not_stored(shop, sql):
    answer_with(shop, [(name, "canary") for name in TODAYS])
    first = shop.send()

    second = shop.send()

    assert first.headers["X-Request-Id"] == "canary"
    assert "canary" not in str(second.headers)
    assert "canary" not in str(sql("SELECT headers FROM idempotency_record"))


def test_headers_that_never_travel_reach_the_first_caller_only(shop, sql):
    answer_with(shop, [(name, "canary") for name in NEVER if name not in ("Connection", "Transfer-Encoding")])
    first = shop.send()

    second = shop.send()

    assert first.headers["Set-Cookie"] == "canary"
    assert "canary" not in str(second.headers)
    assert "canary" not in str(sql("SELECT headers FROM idempotency_record"))


def test_what_the_connection_header_lists_is_not_stored(shop):
    answer_with(
        shop, [("Connection", "close, X-Hop"), ("Connection", "x-other-hop"), ("X-Hop", "1"), ("X-Other-Hop", "1")]
    )
    shop.send()

    second = shop.send()

    assert not {"Connection", "X-Hop", "X-Other-Hop"} & set(dict(second.headers))


def test_the_views_own_values_for_our_names_are_dropped(shop):
    answer_with(shop, [(REPLAYED, "true"), (REFERENCE, "mine"), (REFERENCE, "mine again")])

    first, second = shop.send(), shop.send()

    assert REPLAYED not in first.headers
    assert first.headers.getlist(REFERENCE) == second.headers.getlist(REFERENCE)
    assert "mine" not in str(second.headers)


def test_the_reference_is_on_the_first_answer_and_on_the_replay(shop):
    first, second = shop.send(), shop.send()

    assert first.headers[REFERENCE] == second.headers[REFERENCE]
    assert len(first.headers[REFERENCE]) == 14


def test_first_answers_are_what_the_app_makes_without_us_plus_the_reference(shop):
    answer_with(shop, [*AS_IT_WAS.items(), *((name, "today") for name in TODAYS)])
    without_us = shop.send(method="PUT")

    with_us = shop.send()

    assert [header for header in with_us.headers if header[0] != REFERENCE] == list(without_us.headers)
    assert (with_us.status, with_us.data) == (without_us.status, without_us.data)


@pytest.mark.parametrize(
    ("stored", "todays", "merged"),
    [
        ([], [], []),
        (["Accept"], [], ["Accept"]),
        ([], ["Origin"], ["Origin"]),
        (["Accept, Cookie"], ["Origin, accept"], ["Accept, Cookie, Origin"]),
        (["Accept", "Cookie"], [], ["Accept, Cookie"]),
        (["*"], ["Accept"], ["*, Accept"]),
    ],
)
def test_vary_is_merged_without_doubles(shop, stored, todays, merged):
    answer_with(shop, [("Vary", value) for value in stored])
    shop.send()

    def vary(response):
        response.vary.update(name.strip() for value in todays for name in value.split(","))
        return response

    shop.app.after_request_funcs[None].append(vary)

    assert shop.send().headers.getlist("Vary") == merged


@pytest.mark.parametrize("headers", [{"Accept": "text/html"}, {"Accept-Language": "fr"}, {"Range": "bytes=0-1"}])
def test_what_the_retry_would_rather_have_does_not_matter(shop, headers):
    first = shop.send(json={"a": 1})

    second = shop.send(json={"a": 1}, headers=headers)

    assert (second.status_code, second.data, second.content_type) == (first.status_code, first.data, first.content_type)


def test_a_header_that_could_break_out_of_its_line_is_not_kept(shop, sql):
    shop.app.testing = True

    def answer():
        response = Response("made", 201)
        response.headers._list.append(("X-Bad\r\nSet-Cookie: a", "1"))
        return response

    shop.answer = answer
    shop.send()

    second = shop.send()

    assert (second.status_code, second.json["original_status"], shop.n) == (410, 201, 1)
    assert "Cookie" not in sql("SELECT headers FROM idempotency_record")[0].headers
