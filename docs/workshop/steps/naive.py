"""A shop that takes orders once. It looks right: the answer is stored under the key, and a retry gets it again."""

import json
import sqlite3
from contextlib import closing

from flask import Flask, request

TABLES = """
CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, account TEXT, tea TEXT, cups INTEGER);
CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, answer TEXT);
"""


def create_app(database):
    app = Flask(__name__)
    with closing(sqlite3.connect(database)) as db:
        db.executescript(TABLES)

    @app.post("/orders")
    def create_order():
        key = request.headers["Idempotency-Key"]
        with closing(sqlite3.connect(database)) as db:
            known = db.execute("SELECT answer FROM answers WHERE key = ?", [key]).fetchone()
            if known:
                return json.loads(known[0]), 201
            answer = {"order": place_order(db)}
            db.commit()
            db.execute("INSERT INTO answers VALUES (?, ?)", [key, json.dumps(answer)])
            db.commit()
            return answer, 201

    return app


def place_order(db):
    order = request.json
    row = [request.authorization.token, order["tea"], order["cups"]]
    return db.execute("INSERT INTO orders (account, tea, cups) VALUES (?, ?, ?)", row).lastrowid
