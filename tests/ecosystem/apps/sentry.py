"""Sentry: a failure is reported once for each attempt that failed, a replay or a refusal never."""

from typing import Any

import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.integrations.flask import FlaskIntegration
from sentry_sdk.integrations.sqlalchemy import SqlalchemyIntegration
from sentry_sdk.transport import Transport

from tests.ecosystem.shop import Shop

PACKAGE = "Sentry (sentry-sdk)"
STEP = "Unchanged; replays are traced like other requests, and refusals are not reported as errors."


class Memory(Transport):
    """Keeps what would be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.items: list[dict[str, Any]] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        self.items += [item.payload.json for item in envelope.items if item.payload.json]


class Traced(Shop):
    """Errors and traces, with the integrations of Flask and SQLAlchemy."""

    def build(self) -> None:
        self.sent = Memory()
        sentry_sdk.init(
            dsn="https://key@sentry.example/1",
            transport=self.sent,
            traces_sample_rate=1.0,
            auto_enabling_integrations=False,
            integrations=[FlaskIntegration(), SqlalchemyIntegration()],
            auto_session_tracking=False,  # it would start a thread
            enable_backpressure_handling=False,  # and so would this
        )
        self.protect()
        self.app.post("/orders")(self.view)

    @property
    def errors(self) -> list[str]:
        """The types of the exceptions that were reported."""
        return [value["type"] for item in self.sent.items for value in item.get("exception", {}).get("values", [])]

    @property
    def transactions(self) -> list[str]:
        """The status of every traced request."""
        return [item["contexts"]["trace"]["status"] for item in self.sent.items if item.get("type") == "transaction"]

    def close(self) -> None:
        sentry_sdk.get_client().close()
        sentry_sdk.get_global_scope().set_client(None)
        super().close()
