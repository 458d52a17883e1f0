"""idemptx's decorator. The view returns a JSONResponse, which is all that it keeps."""

import json
from collections.abc import Callable

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse, Response
from idemptx import idempotent
from idemptx.backend.memory import InMemoryBackend
from idemptx.exceptions import ConflictRequestException, MissingKeyException, RequestInProgressException

from tests.conformance.peers.asgi_view import count, orders
from tests.conformance.peers.orders import CALLERS, MEDIA_TYPES

app = FastAPI()
app.add_route("/count", count)
backend = InMemoryBackend()


async def place(request: Request) -> Response:
    """Place an order for one of the callers."""
    if request.headers.get("Authorization") not in CALLERS:
        raise HTTPException(401)
    status, text = await orders.place_slowly(await request.json())
    path = request.url.path
    answer = (
        Response(text, status, orders.headers, MEDIA_TYPES[path])
        if path == "/text"
        else JSONResponse(json.loads(text), status, orders.headers, MEDIA_TYPES[path])
    )
    if path == "/cookies":
        answer.set_cookie("basket", orders.cookie)
    return answer


for path in MEDIA_TYPES:
    app.add_api_route(path, idempotent(storage_backend=backend)(place), methods=["POST", "PATCH"])


def answer_with(status: int) -> Callable[[Request, Exception], Response]:
    """Answer an exception of idemptx; without a handler, each is a 500."""
    return lambda request, error: JSONResponse({"detail": str(error)}, status)


app.add_exception_handler(MissingKeyException, answer_with(400))
app.add_exception_handler(ConflictRequestException, answer_with(422))
app.add_exception_handler(RequestInProgressException, answer_with(409))
