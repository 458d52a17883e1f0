"""fastapi-idempotency, as its README has it."""

from fastapi import FastAPI
from fastapi_idempotency import IdempotencyMiddleware

from tests.conformance.peers.asgi_view import routes

app = FastAPI(routes=routes())
app.add_middleware(IdempotencyMiddleware)
