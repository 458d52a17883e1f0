"""Greenlets of one process that write to one SQLite file: who waits does not block who writes."""

import subprocess
import sys
import textwrap

UNDER_GEVENT = """
    from gevent import monkey
    monkey.patch_all()
    import sys, time
    import gevent
    from flask import Flask, request
    from flask_sqlalchemy import SQLAlchemy
    from flask_idempotency import Idempotency, scopes
    from flask_idempotency.stores import open_store

    app = Flask("shop")
    app.config.update(SQLALCHEMY_DATABASE_URI=sys.argv[1], IDEMPOTENCY_HOUSEKEEPING=False)
    db = SQLAlchemy(app)
    open_store(sys.argv[1]).create()
    Idempotency(app, db=db, scope=scopes.everyone)

    @app.post("/<name>")
    def place(name):
        db.session.execute(db.text("INSERT INTO orders VALUES (:name)"), {"name": name})
        if name == "slow":
            time.sleep(0.3)
        db.session.commit()
        return name, 201

    with app.app_context(), db.engine.begin() as connection:
        connection.execute(db.text("CREATE TABLE orders (name text)"))

    def send(name):
        begun = time.monotonic()
        answer = app.test_client().post("/" + name, headers={"Idempotency-Key": name})
        return f"{answer.status_code} {time.monotonic() - begun < 3}"

    sent = [gevent.spawn(send, name) for name in ("slow", "one", "two")]
    gevent.joinall(sent)
    print(*(each.value for each in sent))
"""


def test_a_greenlet_that_waits_to_write_does_not_block_the_one_that_writes(tmp_path):
    url = f"sqlite:///{tmp_path / 'shop.sqlite'}"

    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(UNDER_GEVENT), url], capture_output=True, text=True, timeout=60
    )

    assert done.stdout.split() == ["201", "True"] * 3, done.stderr
