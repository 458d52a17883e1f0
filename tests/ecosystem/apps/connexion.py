"""Connexion 2: an app made from an OpenAPI document, which validates before it calls the function."""

from typing import Any

import connexion
from connexion.resolver import Resolver
from flask import Flask

from flask_idempotency import idempotent
from tests.ecosystem.shop import Shop

PACKAGE = "Connexion 2"
STEP = "Unchanged, from 2.15 on; pass `connexion_app.app` to `init_app`. Connexion 3 is not a Flask app."

DOCUMENT: dict[str, Any] = {
    "openapi": "3.0.3",
    "info": {"title": "Orders", "version": "1"},
    "paths": {
        "/orders": {
            "post": {
                "operationId": "create_order",
                "requestBody": {
                    "required": True,
                    "content": {
                        "application/json": {
                            "schema": {
                                "type": "object",
                                "required": ["item"],
                                "properties": {"item": {"type": "string"}},
                            }
                        }
                    },
                },
                "responses": {"201": {"description": "created"}},
            }
        }
    },
}


class Undecorated(Shop):
    """The function is not decorated with ours."""

    def make_app(self) -> Flask:
        self.connexion = connexion.FlaskApp("shop", specification_dir=".")
        return self.connexion.app

    def build(self) -> None:
        self.protect()
        self.add_api(lambda view: view)

    def add_api(self, decorator: Any) -> None:
        """Add the document and the function that it names."""

        @decorator
        def create_order(body: dict[str, str]) -> Any:
            return self.place_order(body["item"]), 201

        self.connexion.add_api(DOCUMENT, resolver=Resolver(lambda _: create_order))


class Decorated(Undecorated):
    """The function is decorated; the package validates before it calls it."""

    invalid_is_kept = False

    def build(self) -> None:
        self.protect()
        self.add_api(idempotent)
