"""The shop knows who asks, and what was asked: a key counts only together with its caller, and for one order."""

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
            known = db.execute("SELECT asked, answer FROM answers WHERE id = ?", [id]).fetchone()
            if known:
                return again(asked, *known)
            answer = {"order": place_order(db)}
            db.commit()
            db.execute("INSERT INTO answers VALUES (?, ?, ?)", [id, asked, json.dumps(answer)])
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
    return json.loads(answer), 201


def place_order(db):
    order = request.json
    row = [request.authorization.token, order["tea"], order["cups"]]
    return db.execute("INSERT INTO orders (account, tea, cups) VALUES (?, ?, ?)", row).lastrowid
