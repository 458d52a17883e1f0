"""Flask-Limiter: every request counts, replays and refusals included, and a 429 is not kept."""

from flask_limiter import Limiter
from flask_limiter.util import get_remote_address

from flask_idempotency import idempotent
from tests.ecosystem.shop import Shop

PACKAGE = "Flask-Limiter"
STEP = "Unchanged; put `@idempotent` below `@limiter.limit(…)`, so that replays count too."


class Decorated(Shop):
    """`@limiter.limit` above `@idempotent`."""

    def build(self) -> None:
        self.limit = "100 per minute"
        self.protect()
        limiter = Limiter(get_remote_address, app=self.app, storage_uri="memory://", headers_enabled=True)
        self.app.post("/orders")(limiter.limit(lambda: self.limit)(idempotent(self.view)))


class InAHook(Shop):
    """A limit for the whole app, which the package checks in a hook that is registered after us."""

    def build(self) -> None:
        self.limit = "100 per minute"
        self.protect()
        Limiter(
            get_remote_address,
            app=self.app,
            application_limits=[lambda: self.limit],
            storage_uri="memory://",
            headers_enabled=True,
        )
        self.app.post("/orders")(self.view)
