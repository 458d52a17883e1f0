"""Flask-CORS: a script on another origin may send the key, and read what is said about it."""

from flask_cors import CORS

from tests.ecosystem.shop import Shop

PACKAGE = "Flask-CORS"
STEP = "Add our headers to `allow_headers` and `expose_headers`; see [scripts on another origin](#cors)."
OURS = ["Idempotent-Replayed", "Idempotency-Reference", "Retry-After"]


class Before(Shop):
    """Registered before us."""

    headers = {"Origin": "https://shop.example"}

    def build(self) -> None:
        self.add_cors()
        self.protect()
        self.app.post("/orders")(self.view)

    def add_cors(self) -> None:
        """Allow two origins."""
        origins = ["https://shop.example", "https://till.example"]
        CORS(self.app, origins=origins, allow_headers=["Content-Type", "Idempotency-Key"], expose_headers=OURS)


class After(Before):
    """Registered after us."""

    def build(self) -> None:
        self.protect()
        self.add_cors()
        self.app.post("/orders")(self.view)
