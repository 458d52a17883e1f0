"""Each metric counts what it says, and no label tells whose request it was."""

import signal
import sys

import pytest
from flask import Flask, abort
from flask_sqlalchemy import SQLAlchemy
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest, multiprocess

from flask_idempotency import Idempotency, effect, idempotent, jobs, receipts, scopes, telemetry
from flask_idempotency.errors import ConfigError, NeedsPerson, OutcomeUnknown
from tests.apps.shop import KEY, REFERENCE
from tests.fixtures.processes import ask, eventually

IN_MEMORY = {"IDEMPOTENCY_STORE": "memory://", "IDEMPOTENCY_HOUSEKEEPING": False}
REQUESTS, PREFIX = "idempotency_requests_total", "idempotency_"


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def measured(make_shop, registry):
    """`measured(**options)`: a shop whose outcomes are counted in *registry*."""

    def make(**options):
        shop = make_shop(**options)
        telemetry.prometheus(shop.app, registry)
        return shop

    return make


@pytest.fixture
def told(registry):
    """`told(metric, **labels)`: the sum of all samples with these labels."""

    def add_up(metric, **labels):
        return sum(
            sample.value
            for family in registry.collect()
            for sample in family.samples
            if sample.name == f"{PREFIX}{metric}" and labels.items() <= sample.labels.items()
        )

    return add_up


def test_every_request_with_a_key_is_counted_once_by_its_outcome(measured, told):
    shop = measured()

    shop.send()
    shop.send()
    shop.send(json={"another": "body"})
    shop.send(key="a,b")
    shop.answer = lambda: abort(503)
    shop.send(key="transient")

    counted = {
        name: told("requests_total", endpoint="orders", guard="lease", outcome=name)
        for name in ("first", "replayed", "key-reused", "key-invalid", "not_kept")
    }
    assert counted == dict.fromkeys(counted, 1)
    assert told("requests_total") == 5


def test_requests_without_a_key_are_not_counted(measured, told):
    measured().send(key=None)

    assert told("requests_total") == 0


def test_a_refusal_inside_of_the_view_is_the_outcome_of_its_request(measured, told):
    shop = measured()
    shop.store.fails("complete", OutcomeUnknown())

    shop.send()

    assert told("requests_total", outcome="outcome-unknown") == told("requests_total") == 1


def test_a_duplicate_of_a_running_request_is_in_flight(measured, told):
    shop = measured()
    inside = []
    shop.answer = lambda: inside.append(shop.send().status_code) or shop.create()

    shop.send()

    assert inside == [409]
    assert told("requests_total", outcome="request-in-flight") == 1


def test_a_202_is_counted_as_accepted(registry, told):
    app = Flask(__name__)
    app.config.update(IN_MEMORY, IDEMPOTENCY_IN_FLIGHT="accepted")
    Idempotency(app, scope=scopes.everyone)
    app.register_blueprint(receipts.blueprint())
    telemetry.prometheus(app, registry)

    def send():
        return app.test_client().post("/slow", headers={"Idempotency-Key": KEY})

    inside = []

    @app.post("/slow")
    def slow():
        inside.append(send().status_code)
        return "", 201

    send()

    assert inside == [202]
    assert told("requests_total", outcome="accepted") == 1


def test_a_job_is_counted_where_it_is_handed_over_and_where_it_is_finished(registry, told, monkeypatch):
    now, tickets = [100.0], []
    monkeypatch.setattr("flask_idempotency.http.exchange.monotonic", lambda: now[0])
    app = Flask(__name__)
    app.config.update(IN_MEMORY)
    Idempotency(app, scope=scopes.everyone)
    app.register_blueprint(receipts.blueprint())
    app.add_url_rule("/exports", "exports", lambda: jobs.hand_over(tickets.append), methods=["POST"])
    telemetry.prometheus(app, registry)

    def export():
        now[0] += 7
        return "exported", 201

    app.test_client().post("/exports", headers={"Idempotency-Key": KEY})
    with app.app_context():
        jobs.run(tickets[0], export)

    assert {name: told("requests_total", outcome=name) for name in ("handed_over", "first")} == {
        "handed_over": 1,
        "first": 1,
    }
    assert (told("view_seconds_sum"), told("guard_seconds_sum")) == (7, 0)


def test_a_takeover_and_the_claim_it_cost_are_counted(measured, told, let_pass):
    shop = measured()

    def run():
        if shop.n == 1:
            let_pass(3600)
            shop.send()
        return shop.create()

    shop.answer = run
    shop.send()

    assert (told("takeovers_total", endpoint="orders"), told("claims_lost_total", endpoint="orders")) == (1, 1)
    assert (told("requests_total", outcome="first"), told("requests_total", outcome="replayed")) == (1, 1)


def test_an_effect_in_doubt_and_a_quarantine_are_counted(measured, told):
    shop = measured()

    def charge(key):
        raise TimeoutError if shop.n == 1 else NeedsPerson("nobody knows")

    shop.answer = lambda: effect("charge", charge)

    shop.send()
    shop.send()

    assert told("effects_undecided_total", endpoint="orders", guard="lease") == 1
    assert told("quarantined_total", endpoint="orders", guard="lease") == 1
    outcomes = {name: told("requests_total", outcome=name) for name in ("outcome-unknown", "quarantined")}
    assert (outcomes, told("requests_total")) == ({"outcome-unknown": 1, "quarantined": 1}, 2)


def test_an_answer_that_is_stored_late_is_no_second_request(measured, told):
    shop = measured(housekeeping=True)
    shop.store.fails("complete", OutcomeUnknown())
    shop.send()

    shop.store.heals()

    assert eventually(lambda: told("late_finishes_total") == 1)
    shop.app.extensions["idempotency"].housekeeper.stop()
    assert told("requests_total") == 1


def test_deleted_records_are_counted(measured, told, let_pass):
    shop = measured()
    shop.send()
    let_pass(1e6)

    shop.app.extensions["idempotency"].housekeeper._reap()

    assert told("reaped_total") == 1


def test_the_time_of_the_guard_is_without_the_view_and_without_waiting(measured, told, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("flask_idempotency.http.exchange.monotonic", lambda: now[0])
    shop = measured()
    shop.store.after["claim"] = lambda: now.__setitem__(0, now[0] + 0.25)

    def run():
        now[0] += 7
        return shop.create()

    shop.answer = run
    shop.send()

    assert told("guard_seconds_sum", outcome="first") == 0.25
    assert told("view_seconds_sum", endpoint="orders") == 7
    assert told("wait_seconds_count") == 0


def test_waiting_has_a_histogram_of_its_own(measured, told):
    shop = measured(options={"in_flight": "wait"}, wait=0.2)
    inside = []
    shop.answer = lambda: inside.append(shop.send().status_code) or shop.create()

    shop.send()

    assert inside == [409]
    assert told("wait_seconds_count", endpoint="orders", guard="lease") == 1
    assert told("wait_seconds_sum") >= 0.2


def test_under_the_transaction_guard_a_refused_commit_is_not_kept(registry, told, tmp_path):
    app = Flask(__name__)
    app.config.update(IDEMPOTENCY_HOUSEKEEPING=False, SQLALCHEMY_DATABASE_URI=f"sqlite:///{tmp_path / 'shop.db'}")
    db = SQLAlchemy(app)
    Idempotency(app, db=db, scope=scopes.everyone)
    telemetry.prometheus(app, registry)

    @app.post("/orders")
    @idempotent
    def create_order():
        db.session.execute(db.text("CREATE TABLE IF NOT EXISTS orders (id INTEGER)"))
        db.session.execute(db.text("INSERT INTO orders VALUES (1)"))
        return "", 201  # and nobody commits

    with app.app_context():
        db.create_all()

    answer = app.test_client().post("/orders", headers={"Idempotency-Key": KEY})

    assert answer.status_code == 500
    assert told("requests_total", guard="transaction", outcome="not_kept") == told("requests_total") == 1


def test_no_label_names_a_key_a_scope_or_a_reference(measured, registry):
    shop = measured(scope=lambda: "a-secret-customer")
    references = [shop.send(key=f"a-secret-key-{n}").headers[REFERENCE] for n in range(3)]
    shop.send(key="a-secret-key-0", json={"a-secret": "body"})

    text = generate_latest(registry).decode()

    assert f"{REQUESTS}{{" in text
    assert "secret" not in text
    assert [each for each in references if each in text] == []


def test_apps_can_share_a_registry_and_metrics_come_before_init_app_or_after(registry, told):
    idempotency = Idempotency(scope=scopes.everyone)
    for is_early in (True, False):
        app = Flask(f"early-{is_early}")
        app.config.update(IN_MEMORY)
        app.add_url_rule("/orders", "orders", lambda: ("", 201), methods=["POST"])
        calls = [lambda app=app: telemetry.prometheus(app, registry), lambda app=app: idempotency.init_app(app)]
        for call in calls if is_early else reversed(calls):
            call()
        app.test_client().post("/orders", headers={"Idempotency-Key": KEY})

    assert told("requests_total", outcome="first") == 2


def test_counting_twice_is_refused(registry):
    app = Flask(__name__)
    telemetry.prometheus(app, registry)

    with pytest.raises(ConfigError, match="call it once"):
        telemetry.prometheus(app, registry)


def test_without_the_client_library_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)

    with pytest.raises(ConfigError, match=r"pip install flask-idempotency\[metrics\]"):
        telemetry.prometheus(Flask(__name__))


def test_the_registry_is_the_client_librarys_own_by_default():
    app = Flask(__name__)
    app.config.update(IN_MEMORY)
    Idempotency(app, scope=scopes.everyone)
    app.add_url_rule("/by-default", "by-default", lambda: ("", 201), methods=["POST"])
    telemetry.prometheus(app)

    app.test_client().post("/by-default", headers={"Idempotency-Key": KEY})

    labels = {"endpoint": "by-default", "guard": "lease", "outcome": "first"}
    assert REGISTRY.get_sample_value(REQUESTS, labels) == 1


@pytest.mark.parametrize("options", [[], ["--preload"]], ids=["loaded by each", "preloaded"])
def test_the_numbers_of_several_workers_are_added_up_those_of_the_dead_too(gunicorn, tmp_path, options):
    folder = tmp_path / "numbers"
    folder.mkdir()
    env = {"INSTANCE": str(tmp_path), "PROMETHEUS_MULTIPROC_DIR": str(folder)}
    server, sent = gunicorn("tests.apps.measured:app", workers=2, env=env, options=options), []

    def send_until_all_have_answered(workers):
        while not workers <= set(sent):
            assert len(sent) < 2000, "one worker takes all requests"
            headers = {"Idempotency-Key": f"k{len(sent)}"}
            sent.append(ask(f"{server.url}/orders", "POST", headers=headers).json["worker"])

    def counted():
        """Give the first runs, and the number of views whose time was taken."""
        lines = ask(f"{server.url}/metrics").body.decode().splitlines()
        about = 'endpoint="create_order",guard="lease"'
        wanted = (f'{REQUESTS}{{{about},outcome="first"}}', f"{PREFIX}view_seconds_count{{{about}}}")
        return [float(line.rpartition(" ")[2]) for each in wanted for line in lines if line.startswith(each)]

    old = set(server.workers())
    send_until_all_have_answered(old)
    assert counted() == [len(sent)] * 2

    dead = server.workers()[0]
    server.signal_worker(dead, signal.SIGKILL)
    eventually(lambda: len(server.workers()) == 2 and dead not in server.workers(), what="a worker in its place")
    multiprocess.mark_process_dead(dead, str(folder))  # as gunicorn's hook child_exit does
    send_until_all_have_answered(set(server.workers()))

    assert counted() == [len(sent)] * 2
