"""Whoever inserts the record has the right to run: the primary key lets one of two copies in."""

import json
import sqlite3
from contextlib import closing
from hashlib import sha256

from flask import Flask, abort, request

TABLES = """
CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, account TEXT, tea TEXT, cups INTEGER);
CREATE TABLE IF NOT EXISTS answers (id TEXT PRIMARY KEY, asked TEXT, answer TEXT);
"""


def create_app(database):
    app = Flask(__name__)
    with closing(sqlite3.connect(database)) as db:
        db.executescript(TABLES)

    @app.post("/orders")
    def create_order():
        id, asked = identify()
        with closing(sqlite3.connect(database)) as db:
            try:
                db.execute("INSERT INTO answers VALUES (?, ?, NULL)", [id, asked])
            except sqlite3.IntegrityError:
                return again(asked, *db.execute("SELECT asked, answer FROM answers WHERE id = ?", [id]).fetchone())
            db.commit()
            answer = {"order": place_order(db)}
            db.commit()
            db.execute("UPDATE answers SET answer = ? WHERE id = ?", [json.dumps(answer), id])
            db.commit()
            return answer, 201

    return app


def identify():
    """Say which record the request has, and what it asks for: the same JSON written otherwise asks for the same."""
    record = json.dumps([request.authorization.token, request.headers["Idempotency-Key"]])
    asked = json.dumps([request.method, request.full_path, request.json], sort_keys=True)
    return sha256(record.encode()).hexdigest(), sha256(asked.encode()).hexdigest()


def again(asked, was_asked, answer):
    if asked != was_asked:
        abort(422, "This key was used for another order: make a new one.")
    if answer is None:
        abort(409, "The first request is still running: send it again later, with the same key.")
    return json.loads(answer), 201


def place_order(db):
    order = request.json
    row = [request.authorization.token, order["tea"], order["cups"]]
    return db.execute("INSERT INTO orders (account, tea, cups) VALUES (?, ?, ?)", row).lastrowid
