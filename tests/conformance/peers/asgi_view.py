"""The view of the apps on Starlette and FastAPI, unprotected, and its routes."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.conformance.peers.orders import CALLERS, MEDIA_TYPES, Orders

orders = Orders()


async def place(request: Request) -> Response:
    """Place an order for one of the callers."""
    if request.headers.get("Authorization") not in CALLERS:
        raise HTTPException(401)
    status, text = await orders.place_slowly(await request.json())
    media_type = MEDIA_TYPES[request.url.path]
    answer = Response(text, status, {**orders.headers, "Content-Type": media_type})
    if request.url.path == "/cookies":
        answer.set_cookie("basket", orders.cookie)
    return answer


async def count(request: Request) -> Response:
    """Say how many orders were placed."""
    return JSONResponse(orders.count)


def routes() -> list[Route]:
    """All routes."""
    return [Route("/count", count), *(Route(path, place, methods=["POST", "PATCH"]) for path in MEDIA_TYPES)]
