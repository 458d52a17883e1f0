"""The same shop on DBOS: a workflow named by the key, whose one transaction inserts the order."""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from flask import Flask, request

from tests.bench.apps import closing, make_shop

IS_INSTALLED = importlib.util.find_spec("dbos") is not None  # in the dependency group `bench` alone


@contextmanager
def dbos_app(url: str) -> Iterator[Flask]:
    """The shop on a DBOS of its own; there can be one in a process, and it has threads."""
    from dbos import DBOS, SetWorkflowID, SQLAlchemyDatasource

    app, db, order_class = make_shop(url)
    with app.app_context():
        db.create_all()
        engine = db.engine
    DBOS(config={"name": "shop", "system_database_url": url, "log_level": "ERROR"})
    source = SQLAlchemyDatasource.create(url, engine=engine)
    # As the other apps have it; SQLite knows one level only.
    level: Literal["SERIALIZABLE", "READ COMMITTED"] = "SERIALIZABLE" if engine.name == "sqlite" else "READ COMMITTED"

    @source.transaction(isolation_level=level)
    def insert_order(asked: dict[str, object]) -> int:
        order = order_class(**asked)
        source.sql_session().add(order)
        source.sql_session().flush()
        return int(order.id)

    @DBOS.workflow()
    def place_order(asked: dict[str, object]) -> int:
        return insert_order(asked)

    @app.post("/orders")
    def create_order() -> tuple[dict[str, int], int]:
        with SetWorkflowID(request.headers["Idempotency-Key"]):
            return {"id": place_order(request.get_json())}, 201

    with closing(app):
        DBOS.launch()
        try:
            yield app
        finally:
            DBOS.destroy(destroy_registry=True)
