"""Requests that nobody comes back for are finished: as their caller, once, and without any stored credential."""

import os
import secrets
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy
from flask import Flask, abort, g, request, url_for
from flask_sqlalchemy import SQLAlchemy

from flask_idempotency import Idempotency, effect, idempotent, phase, reference
from flask_idempotency.errors import ConfigError
from flask_idempotency.guards.recovery import complete_abandoned
from tests.fixtures.processes import ROOT, eventually
from tests.phases.conftest import Tables, id_of

NOW, HOUR = timedelta(0), timedelta(hours=1)
SECRET, BOB_S_SECRET = "Bearer ada-s-secret", "Bearer bob-s-secret"


class Office:
    """An app whose callers are known by a credential, and whose gateway is down until it is told otherwise."""

    def __init__(self, tables: Tables, *, settings: dict[str, Any] | None = None, **options: Any) -> None:
        self.tables = tables
        self.app = Flask("office")
        self.app.config.update(
            {"SQLALCHEMY_DATABASE_URI": tables.url, "IDEMPOTENCY_HOUSEKEEPING": False, **(settings or {})}
        )
        self.db: Any = SQLAlchemy(self.app)
        self.charges: list[tuple[str, str]] = []  # the key, and for whom
        self.is_down = True
        self.seen: list[dict[str, Any]] = []

        class Order(self.db.Model):  # type: ignore[name-defined, misc]  # made by Flask-SQLAlchemy at run time
            __tablename__ = "orders"
            id = self.db.Column(self.db.Integer, primary_key=True)
            owner = self.db.Column(self.db.String)

        self.order = Order
        Idempotency(self.app, db=self.db, **{"scope": lambda: g.user, "caller": self.act_as, **options})
        self.app.before_request(self.log_in)
        leased = idempotent(required=True, guard="lease", resumable=True)
        self.app.post("/checkout/<kind>")(leased(self.checkout))
        self.app.post("/private")(idempotent(required=True, guard="lease")(self.private))
        with self.app.app_context():
            self.db.create_all()

    def act_as(self, scope: str) -> None:
        g.user = scope

    def log_in(self) -> None:
        if "user" not in g:
            known = {SECRET: "ada", BOB_S_SECRET: "bob"}
            g.user = known.get(request.headers.get("Authorization", "")) or abort(401)

    def checkout(self, kind: str) -> Any:
        self.seen.append(
            {"kind": kind, "type": request.mimetype, "url": url_for("checkout", kind=kind, _external=True)}
        )
        order = phase("order_placed", self.place_order)
        charge = effect("charge", self.charge)
        return {
            "order": order,
            "charge": charge,
            "for": g.user,
            "asked": request.get_data(as_text=True),
            "query": request.args.to_dict(),
            "reference": reference(),
        }, 201

    def private(self) -> Any:
        phase("order_placed", self.place_order)
        return {"charge": effect("charge", self.charge)}, 201

    def place_order(self) -> int:
        order = self.order(owner=g.user)
        self.db.session.add(order)
        self.db.session.flush()
        return int(order.id)

    def charge(self, key: str) -> str:
        if self.is_down:
            raise TimeoutError
        self.charges.append((key, g.user))
        return "charged"

    def send(self, key: str = "k", path: str = "/checkout/new?gift=1", *, secret: str = SECRET, **options: Any) -> Any:
        headers = {"Authorization": secret, "Idempotency-Key": key, "Cookie": "session=secret"}
        return self.app.test_client(use_cookies=False).post(path, **{"json": {"tea": 2}, "headers": headers, **options})

    def complete(self, age: timedelta = NOW, **options: Any) -> list[tuple[int, str]]:
        """Run the completer once; give the status and the outcome of each request it went on with."""
        return [(each.status, each.outcome) for each in complete_abandoned(self.app, age=age, **options)]

    def orders(self) -> list[str]:
        return [owner for (owner,) in self.tables.sql("SELECT owner FROM orders")]

    def close(self) -> None:
        with self.app.app_context():
            self.db.engine.dispose()
        self.app.extensions["idempotency"].store.close()


@pytest.fixture
def office(tables: Tables) -> Iterator[Office]:
    office = Office(tables)
    yield office
    office.close()


def test_a_request_that_nobody_came_back_for_is_finished_as_its_caller(office):
    assert office.send().status_code == 503
    office.is_down = False

    assert office.complete() == [(201, "finished")]

    assert office.orders() == ["ada"]
    assert [owner for _, owner in office.charges] == ["ada"]


def test_a_client_that_comes_back_late_gets_the_answer_that_the_completer_got(office):
    office.send()
    office.is_down = False
    office.complete()

    answer = office.send()

    assert (answer.status_code, answer.headers["Idempotent-Replayed"]) == (201, "true")
    assert {name: answer.json[name] for name in ("for", "asked", "query")} == {
        "for": "ada",
        "asked": '{"tea": 2}',
        "query": {"gift": "1"},
    }
    assert answer.json["reference"] == answer.headers["Idempotency-Reference"]
    assert len(office.charges) == 1


def test_a_request_of_another_namespace_is_left_to_its_own_app(tables, office):
    other = Office(tables, settings={"IDEMPOTENCY_NAMESPACE": "billing"})
    other.send()
    office.is_down = other.is_down = False

    assert office.complete() == []
    assert other.complete() == [(201, "finished")]
    assert (len(office.charges), len(other.charges)) == (0, 1)
    other.close()


def test_the_view_sees_the_request_as_it_was_first_sent(office):
    office.send(path="/checkout/t%C3%A9%20a?gift=1&gift=2", base_url="https://shop.example/app")
    office.is_down = False

    office.complete()

    assert len(office.seen) == 2
    assert office.seen[0] == office.seen[1]
    assert office.seen[0]["kind"] == "té a"


@pytest.mark.parametrize(
    "body",
    [
        {"json": {"tea": 2}},
        {"data": {"tea": "2", "note": "für Ada"}},
        {"data": b"\xff\x00raw", "content_type": "image/x"},
    ],
    ids=["json", "form", "bytes"],
)
def test_every_kind_of_body_comes_again_as_it_was(office, body):
    office.send(**({"json": None} | body))
    office.is_down = False

    assert office.complete() == [(201, "finished")]
    assert office.send(**({"json": None} | body)).headers["Idempotent-Replayed"] == "true"


def test_no_credential_is_stored(office):
    office.send()

    stored = "".join(str(row) for row in office.tables.sql("SELECT result FROM idempotency_checkpoint"))

    assert '"path"' in stored
    for secret in (SECRET, "ada-s-secret", "session=secret", "Cookie", "Authorization"):
        assert secret not in stored


def test_the_stored_request_is_deleted_when_it_is_finished(office):
    office.is_down = False
    office.send()

    kinds = [kind for (kind,) in office.tables.sql("SELECT kind FROM idempotency_checkpoint ORDER BY position")]

    assert kinds == ["phase", "effect"]


def test_a_view_that_is_not_resumable_stores_nothing_and_is_left_alone(office):
    office.send(path="/private")
    office.is_down = False

    assert office.complete() == []
    assert office.tables.progress("k") == []
    assert [each.kind for each in office.tables.store.checkpoints(id_of("k", "ada"))] == ["phase", "effect"]


def test_a_request_that_is_under_way_is_left_to_its_owner(office):
    seen: list[Any] = []
    office.charge = lambda key: seen.append(office.complete()) or "charged"
    office.app.view_functions["checkout"].__wrapped__.__self__.charge = office.charge

    assert office.send().status_code == 201
    assert seen == [[]]


def test_a_client_is_given_time_to_come_back_by_itself(office, let_pass):
    office.send()
    office.is_down = False

    assert office.complete(age=HOUR) == []
    let_pass(HOUR)
    assert office.complete(age=HOUR) == [(201, "finished")]


def test_what_cannot_be_finished_yet_stays_and_does_not_keep_the_others_waiting(office):
    for key in ("one", "two", "three"):
        office.send(key)

    first = office.complete(limit=2)
    office.is_down = False
    second = office.complete(limit=2)

    assert first == [(503, "running")] * 3
    assert second == [(201, "finished")] * 3
    assert len(office.charges) == 3


def test_requests_that_are_refused_before_they_are_claimed_do_not_keep_the_others_waiting(office):
    @office.app.before_request
    def have_fewer_routes_later() -> None:
        if request.path == "/checkout/gone" and not office.is_down:
            abort(404)

    for number in range(5):
        office.send(f"gone-{number}", path="/checkout/gone")
    office.send("good")
    office.is_down = False

    first, second = office.complete(limit=2), office.complete(limit=2)

    assert sorted(first) == [(201, "finished"), *[(404, "running")] * 5]
    assert second == [(404, "running")] * 5


@pytest.fixture
def make_sealed_office(tables: Tables) -> Iterator[Callable[[str], Office]]:
    """`make_sealed_office(key)`: an office that encrypts with this key, on the test's database."""
    made: list[Office] = []

    def make(key: str) -> Office:
        made.append(Office(tables, settings={"IDEMPOTENCY_ENCRYPTION_KEYS": [key]}))
        return made[-1]

    yield make
    for office in made:
        office.close()


def test_requests_that_cannot_be_decrypted_do_not_keep_the_others_waiting(make_sealed_office, caplog):
    old, new = (make_sealed_office(secrets.token_urlsafe(32)) for _ in range(2))
    old.send("old")
    new.send("new")
    old.is_down = new.is_down = False

    assert new.complete() == [(201, "finished")]
    assert "a key that is not in IDEMPOTENCY_ENCRYPTION_KEYS" in caplog.text
    assert old.complete() == [(201, "finished")]


def test_a_person_sees_how_far_a_run_has_come_though_it_cannot_be_decrypted(make_sealed_office):
    old, new = (make_sealed_office(secrets.token_urlsafe(32)) for _ in range(2))
    known = old.send().headers["Idempotency-Reference"]

    shown = new.app.test_cli_runner().invoke(args=["idempotency", "show", known])

    assert shown.exit_code == 0
    assert "phase order_placed, done" in shown.output


def test_a_pass_goes_on_with_each_request_once_though_it_is_left_again_at_once(office):
    for number in range(5):
        office.send(f"k-{number}")

    office.seen.clear()

    office.complete(limit=2)

    assert len(office.seen) == 5


def test_a_crash_is_finished_after_its_lease(office, let_pass):
    def die(key: str) -> str:
        raise SystemExit

    office.app.view_functions["checkout"].__wrapped__.__self__.charge = die
    with pytest.raises(SystemExit):
        office.send()
    del office.__dict__["charge"]
    office.is_down = False
    let_pass(HOUR)

    assert office.complete() == [(201, "finished")]
    assert office.orders() == ["ada"]


def test_whoever_cannot_become_the_caller_is_told_how(tables):
    office = Office(tables, caller=None)

    with pytest.raises(ConfigError, match=r"a function that takes the scope, as in init_app\(app, caller=act_as\)\.$"):
        list(complete_abandoned(office.app, age=NOW))
    office.close()


def test_without_the_hook_the_request_is_nobody_s_and_is_not_run(tables):
    office = Office(tables, caller=lambda scope: None)
    office.send()
    office.is_down = False

    assert office.complete() == [(401, "running")]
    assert office.charges == []
    office.close()


def test_a_client_cannot_pretend_to_be_resumed(office):
    headers = {"flask_idempotency.resumed": "x", "Flask-Idempotency-Resumed": "x", "Idempotency-Key": "k"}

    assert office.app.test_client().post("/checkout/new", headers=headers).status_code == 401


def test_resumable_needs_the_lease_guard(tables):
    office = Office(tables)
    office.app.post("/joined")(idempotent(resumable=True)(lambda: "ok"))
    office.app.testing = True

    with pytest.raises(ConfigError, match=r'resumable=True needs guard="lease"'):
        office.send(path="/joined")
    office.close()


@pytest.mark.parametrize("value", ["yes", 1.5, object])
def test_resumable_is_true_or_false(value):
    with pytest.raises(ConfigError, match=r"^resumable= must be True or False, not "):
        idempotent(resumable=value)


# The command


def test_the_command_says_what_it_has_done(office):
    run = office.app.test_cli_runner().invoke
    sent = office.send()
    office.is_down = False

    result = run(args=["idempotency", "complete", "--after", "0"])

    known = sent.headers["Idempotency-Reference"]
    assert result.output.splitlines() == [
        f"{known}  POST /checkout/new  201, finished",
        "Resumed 1 request: 1 finished.",
    ]
    assert run(args=["idempotency", "complete", "--after", "0"]).output == "Resumed 0 requests.\n"


def test_the_command_waits_for_clients_unless_told_otherwise(office):
    office.send()
    office.is_down = False

    assert office.app.test_cli_runner().invoke(args=["idempotency", "complete"]).output == "Resumed 0 requests.\n"


def test_the_watching_command_finishes_what_is_left_and_ends_in_order_when_stopped(office, tables, tmp_path):
    office.send()
    app = tmp_path / "office_app.py"
    app.write_text(
        textwrap.dedent(f"""
            from tests.phases.conftest import Tables
            from tests.phases.test_completer import Office
            office = Office(Tables({tables.url!r}))
            office.is_down = False
            app = office.app
        """)
    )
    command = [sys.executable, "-m", "flask", "--app", str(app), "idempotency", "complete", "--watch", "--every", "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([*command, "--after", "0"], stdout=subprocess.PIPE, text=True, env=environment) as completer:
        try:
            engine = sqlalchemy.create_engine(tables.url)

            def is_finished() -> bool:
                with engine.connect() as connection:
                    return connection.scalar(sqlalchemy.text("SELECT state FROM idempotency_record")) == "finished"

            eventually(is_finished, within=30, what="the end of the request")
            completer.send_signal(signal.SIGTERM)
            said, _ = completer.communicate(timeout=30)
        finally:
            completer.kill()
            engine.dispose()

    assert completer.returncode == 0
    assert said.splitlines()[-1] == "Resumed 1 request: 1 finished."
