"""fastidempotent, as its README has it."""

from fastapi import FastAPI
from fastidempotent import IdempotencyMiddleware, MemoryBackend

from tests.conformance.peers.asgi_view import routes

app = FastAPI(routes=routes())
app.add_middleware(IdempotencyMiddleware, backend=MemoryBackend())
