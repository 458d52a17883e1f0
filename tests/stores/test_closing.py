"""A store closes what it has opened: when it is told to, and when it is forgotten."""

import gc
import sqlite3
from contextlib import suppress

from flask import Flask

from flask_idempotency import Idempotency, scopes
from flask_idempotency.stores import open_store
from flask_idempotency.testing import make_asked


def is_closed(driver):
    with suppress(sqlite3.ProgrammingError):
        return getattr(driver, "closed", None) or not driver.execute("SELECT 1")
    return True


def open_connections(store):
    """Use the store, and give the driver's connections in its pool."""
    store.create()
    store.find(make_asked().id)
    with store._engine.connect() as connection:
        return [connection.connection.driver_connection]


def test_a_store_that_is_closed_leaves_no_connection_open(store_url):
    store = open_store(store_url)
    opened = open_connections(store)

    store.close()

    assert all(map(is_closed, opened))


def test_a_store_that_is_forgotten_leaves_no_connection_open(store_url):
    # A Python from 3.13 on warns of a SQLite connection that was not closed, perhaps in the middle of another test.
    opened = open_connections(open_store(store_url))
    gc.collect()

    assert all(map(is_closed, opened))


def test_an_app_that_is_forgotten_leaves_no_connection_open(store_url):
    open_connections(open_store(store_url))  # so that there are tables
    app = Flask("shop")
    app.config["IDEMPOTENCY_STORE"] = store_url
    Idempotency(app, scope=scopes.everyone)
    opened = open_connections(app.extensions["idempotency"].store.inner)
    del app
    gc.collect()

    assert all(map(is_closed, opened))
