"""Importing the extension loads nothing that only some apps need; how long it takes is a matter of the bench."""

import subprocess
import sys

import pytest

USE = """
import sys
from flask import Flask
from flask_idempotency import Idempotency, effect, errors, exempt, idempotent, phase, reference, scopes, signals, stores
"""
SET_UP = """
from flask_idempotency.stores.memory import MemoryStore

app = Flask("light")
app.config["IDEMPOTENCY_HOUSEKEEPING"] = False
Idempotency(app, store=MemoryStore(), scope=scopes.everyone)

@app.post("/charges")
@idempotent(required=True)
def charge():
    return effect("charge", lambda key: {"paid": True}), 201

answers = [app.test_client().post("/charges", headers={"Idempotency-Key": "k"}) for _ in range(2)]
assert [answer.status_code for answer in answers] == [201, 201], answers[0].text
assert answers[1].headers["Idempotent-Replayed"] == "true"
"""
SQL_STORE = """
app = Flask("light", instance_path="/nonexistent")
Idempotency(app, scope=scopes.everyone)
"""


def loaded(program):
    """The modules that a fresh interpreter has loaded when it has run a program."""
    program = f"{program}\nprint(' '.join(sys.modules))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("program", [USE, USE + SET_UP], ids=["importing", "serving with a store of one's own"])
def test_without_a_sql_store_no_sqlalchemy_is_loaded(program):
    modules = loaded(program)

    assert "flask_idempotency.extension" in modules
    assert not {name for name in modules if name.partition(".")[0] in ("sqlalchemy", "psycopg", "flask_sqlalchemy")}


def test_without_db_no_orm_is_loaded():
    modules = loaded(USE + SQL_STORE)

    assert "sqlalchemy.engine" in modules
    assert not {name for name in modules if name.startswith("sqlalchemy.orm")}


def test_with_db_all_of_it_is_loaded_before_the_first_request():
    modules = loaded(
        USE
        + """
from flask_sqlalchemy import SQLAlchemy
app = Flask("loaded")
app.config["SQLALCHEMY_DATABASE_URI"] = "sqlite:////nonexistent/shop.db"
Idempotency(app, db=SQLAlchemy(app), scope=scopes.everyone)
"""
    )

    assert {"flask_idempotency.guards.transaction", "flask_idempotency.guards.phase_transaction"} <= modules
