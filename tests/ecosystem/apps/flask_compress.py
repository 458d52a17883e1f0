"""Flask-Compress: a replay is compressed, or not, as this client wants it."""

from typing import Any

from flask_compress import Compress

from tests.ecosystem.shop import Shop

PACKAGE = "Flask-Compress"
STEP = "Unchanged, in any order of registration."


class Before(Shop):
    """Registered before us."""

    def build(self) -> None:
        Compress(self.app)
        self.protect()
        self.app.post("/orders")(self.long_view)

    def long_view(self) -> Any:
        """Answer with enough to be compressed."""
        placed, status = self.view()
        return {**placed, "note": "a long note " * 200}, status


class After(Before):
    """Registered after us."""

    def build(self) -> None:
        self.protect()
        Compress(self.app)
        self.app.post("/orders")(self.long_view)
