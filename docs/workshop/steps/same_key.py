"""The gateway gets the same key in every attempt at the same order, so it charges once however often it is asked."""

import json
import sqlite3
import time
from contextlib import closing
from hashlib import sha256
from secrets import token_hex

from flask import Flask, abort, request

TABLES = """
CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, account TEXT, tea TEXT, cups INTEGER, charge TEXT);
CREATE TABLE IF NOT EXISTS answers (id TEXT PRIMARY KEY, asked TEXT, answer TEXT, expires REAL, token TEXT);
"""
RETENTION = 24 * 3600  # seconds: longer than any client, queue or person goes on trying
PRICE = 250  # cents a cup
LEASE = 30  # seconds: whoever has not answered by then must have died


def create_app(database, gateway):
    app = Flask(__name__)
    with closing(sqlite3.connect(database)) as db:
        db.executescript(TABLES)

    @app.post("/orders")
    def create_order():
        id, asked = identify()
        token = token_hex(16)
        with closing(sqlite3.connect(database)) as db:
            db.execute("DELETE FROM answers WHERE expires < ?", [time.time()])
            try:
                db.execute("INSERT INTO answers VALUES (?, ?, NULL, ?, ?)", [id, asked, time.time() + LEASE, token])
            except sqlite3.IntegrityError:
                return again(asked, *db.execute("SELECT asked, answer FROM answers WHERE id = ?", [id]).fetchone())
            db.commit()
            charge = gateway.charge(PRICE * request.json["cups"], key=f"charge-{id}-{asked}")
            answer = {"order": place_order(db, charge)}
            finished = [json.dumps(answer), time.time() + RETENTION, id, token]
            if not db.execute(
                "UPDATE answers SET answer = ?, expires = ? WHERE id = ? AND token = ?", finished
            ).rowcount:
                db.rollback()
                abort(409, "Another worker took over this request: send it again, with the same key.")
            db.commit()
            return answer, 201

    return app


def let_pass(database, seconds):
    """Let time pass, for the workshop: move what the shop has stored into the past."""
    with closing(sqlite3.connect(database)) as db:
        db.execute("UPDATE answers SET expires = expires - ?", [seconds])
        db.commit()


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


def place_order(db, charge):
    order = request.json
    row = [request.authorization.token, order["tea"], order["cups"], charge]
    return db.execute("INSERT INTO orders (account, tea, cups, charge) VALUES (?, ?, ?, ?)", row).lastrowid
