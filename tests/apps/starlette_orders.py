"""Orders on Starlette, protected by hand and in memory as the contract requires: a correct server that is not ours.

Served by uvicorn as `tests.apps.starlette_orders:app`, in one process.
"""

import asyncio
import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

CALLERS = {"Bearer alice-has-a-key": "alice", "Bearer bob-has-another": "bob"}
BARE = re.compile(r"[!#-+\--\[\]-~]{1,255}")
QUOTED = re.compile(r'"([ !#-+\--\[\]-~]{1,255})"')
MOST = 1024 * 1024  # bytes of a body that is compared


@dataclass
class Record:
    """What one caller asked for under one key, and what the answer was."""

    asked: str
    answer: Response | None = None


@dataclass
class Books:
    """Everything that this server remembers."""

    records: dict[tuple[str, str], Record] = field(default_factory=dict)
    orders: int = 0
    failures: int = 0


books = Books()


def refusal(status: int, title: str) -> Response:
    document = {"type": f"https://shop.example/keys#{status}", "title": title, "status": status}
    return Response(json.dumps(document), status, media_type="application/problem+json")


def key_of(request: Request) -> str | None:
    """Give the key, or None if it is malformed."""
    values = request.headers.getlist("Idempotency-Key")
    value = values[0].strip(" \t") if len(values) == 1 else ""
    if found := QUOTED.fullmatch(value):
        return found[1]
    return value if BARE.fullmatch(value) else None


def canonical(media_type: str, body: bytes) -> str:
    """Write equal bodies equally: JSON with sorted members and all digits of its numbers."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in pairs}) < len(pairs):
            raise ValueError("a member is repeated")
        return dict(pairs)

    def digits(text: str) -> dict[str, str]:
        return {"a number of": text}

    if media_type == "application/json":
        try:
            document = json.loads(body, object_pairs_hook=once, parse_int=digits, parse_float=digits)
        except ValueError:
            return repr(body)
        return json.dumps(document, sort_keys=True)
    if media_type == "application/x-www-form-urlencoded":
        return repr(sorted(parse_qsl(body, keep_blank_values=True), key=lambda pair: pair[0]))
    return repr(body)


async def place_order(body: bytes) -> Response:
    """The unprotected view."""
    asked = json.loads(body)
    await asyncio.sleep(asked.get("seconds", 0.03))
    if asked.get("fail"):
        books.failures += 1
        return JSONResponse({"failure": books.failures}, 503)
    books.orders += 1
    headers = {"Location": f"/orders/{books.orders}", "Set-Cookie": f"basket={books.orders}"}
    return Response(json.dumps({"id": books.orders}), 201, headers, "application/json")


async def orders(request: Request) -> Response:
    """Protect the view."""
    caller = CALLERS.get(request.headers.get("Authorization", ""))
    if caller is None:
        return Response(status_code=401)
    if "Idempotency-Key" not in request.headers:
        return refusal(400, "Idempotency-Key is missing")
    key = key_of(request)
    if key is None:
        return refusal(400, "Idempotency-Key is malformed")
    try:
        body = await request.body()
    except ClientDisconnect:
        return Response(status_code=400)
    if len(body) > MOST:
        return refusal(413, "The request body is too large")
    media_type = request.headers.get("Content-Type", "").partition(";")[0]
    parts = [request.method, request.url.path, request.url.query, media_type, canonical(media_type, body)]
    asked = hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    record = books.records.get((caller, key))
    if record is None:
        record = books.records[caller, key] = Record(asked)
        # The client may leave; what was begun is brought to its end.
        await asyncio.shield(asyncio.ensure_future(finish((caller, key), record, body)))
        assert record.answer is not None
        return record.answer
    if record.asked != asked:
        return refusal(422, "Idempotency-Key was used for another request")
    if record.answer is None:
        return refusal(409, "The first request is still running")
    first = record.answer
    headers = {name: value for name, value in first.headers.items() if name not in ("set-cookie", "content-length")}
    return Response(first.body, first.status_code, headers | {"Idempotent-Replayed": "true"})


async def finish(slot: tuple[str, str], record: Record, body: bytes) -> None:
    """Run the view, and keep its answer unless it failed."""
    try:
        record.answer = await place_order(body)
    finally:
        if record.answer is None or record.answer.status_code >= 500:
            del books.records[slot]


async def count(request: Request) -> Response:
    """Say how many orders were placed."""
    return JSONResponse({"orders": {"made": books.orders}})


app = Starlette(
    routes=[
        Route("/orders", orders, methods=["POST", "PATCH"]),
        Route("/refunds", orders, methods=["POST"]),
        Route("/count", count),
    ]
)
