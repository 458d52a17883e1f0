"""asgi-idempotency-header, as its README has it."""

from idempotency_header_middleware import IdempotencyHeaderMiddleware
from idempotency_header_middleware.backends import MemoryBackend
from starlette.applications import Starlette
from starlette.middleware import Middleware

from tests.conformance.peers.asgi_view import routes

app = Starlette(routes=routes(), middleware=[Middleware(IdempotencyHeaderMiddleware, backend=MemoryBackend())])
