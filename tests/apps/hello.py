"""The smallest app gunicorn can serve, for the tests of the workshop itself."""

import os

from flask import Flask

app = Flask(__name__)


@app.get("/")
def hello() -> dict[str, object]:
    """Say which worker answered, and what it found in its environment."""
    return {"pid": os.getpid(), "greeting": os.environ.get("GREETING")}


@app.post("/echo")
def echo() -> tuple[dict[str, int], int]:
    """Accept anything, so that many can ask at once."""
    return {"pid": os.getpid()}, 201
