"""Work that takes longer than its request: it is started once, finished by a worker, and found by its receipt."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask, abort, request
from flask_sqlalchemy import SQLAlchemy
from werkzeug.test import TestResponse

from flask_idempotency import Idempotency, after_commit, effect, idempotent, jobs, phase, receipts, reference, signals
from flask_idempotency.core.ticket import read_ticket
from flask_idempotency.errors import ConfigError, IdempotencyError, OutcomeUnknown, StoreUnavailable
from flask_idempotency.http.dialects import REFERENCE, REPLAYED
from flask_idempotency.stores import open_store
from tests.apps.shop import Gate, Spy
from tests.phases.conftest import Tables, id_of

LEASE, WITHIN = timedelta(seconds=30), timedelta(minutes=5)
ALICE, BOB = "alice", "bob"
DONE = ({"rows": 3}, 201)


class Exports:
    """An app with an export that a worker makes: the queue is a list of tickets, and the test is the worker."""

    def __init__(self, tables: Tables, **settings: Any) -> None:
        self.tables = tables
        self.app = Flask("exports")
        self.app.config.update({"SQLALCHEMY_DATABASE_URI": tables.url, "IDEMPOTENCY_HOUSEKEEPING": False, **settings})
        self.db: Any = SQLAlchemy(self.app)

        class Export(self.db.Model):  # type: ignore[name-defined, misc]  # made by Flask-SQLAlchemy at run time
            __tablename__ = "exports"
            id = self.db.Column(self.db.Integer, primary_key=True)
            note = self.db.Column(self.db.String)

        self.Export = Export
        self.queue: list[str] = []
        self.start: Callable[[str], object] = self.queue.append
        self.before: Callable[[], object] = lambda: None
        self.worked: list[str] = []
        Idempotency(self.app, db=self.db, scope=lambda: request.headers.get("X-User"))
        self.app.register_blueprint(receipts.blueprint())
        guarded = idempotent(required=True, guard="lease", lease=LEASE, in_flight="accepted")
        self.app.post("/exports")(guarded(self.view))
        with self.app.app_context():
            self.db.create_all()

    def view(self) -> Any:
        self.before()
        return jobs.hand_over(self.start, within=WITHIN)

    def add(self, note: str) -> int:
        """A step: add a row."""
        row = self.Export(note=note)
        self.db.session.add(row)
        self.db.session.flush()
        return int(row.id)

    def post(self, user: str = ALICE, **options: Any) -> TestResponse:
        headers = {"X-User": user, "Idempotency-Key": "1", **options.pop("headers", {})}
        return self.app.test_client().post("/exports", headers=headers, **{"json": {"year": 2026}, **options})

    def get(self, address: str, user: str = ALICE) -> TestResponse:
        return self.app.test_client().get(address, headers={"X-User": user})

    def receipt(self) -> dict[str, Any]:
        """The receipt, as the caller polls it."""
        (found,) = {f"/receipts/{each}" for each in self.references()}
        receipt: dict[str, Any] = self.get(found).json  # type: ignore[assignment]  # it is an object
        return receipt

    def references(self) -> set[str]:
        return {self.post(json={"year": 0}).headers[REFERENCE]}  # a refusal names it, and changes nothing

    def work(self, ticket: str | None = None, job: Callable[[], Any] | None = None) -> bool:
        """Deliver a ticket as a queue does, the last one unless told otherwise."""

        def make() -> Any:
            self.worked.append(str(reference()))
            return DONE

        with self.app.app_context():
            return jobs.run(self.queue[-1] if ticket is None else ticket, job or make)

    @property
    def notes(self) -> list[str]:
        return [each for (each,) in self.tables.sql("SELECT note FROM exports ORDER BY id")]

    def state(self) -> str | None:
        found = self.tables.record_of(ALICE)
        return None if found is None else str(found.state)

    def close(self) -> None:
        with self.app.app_context():
            self.db.engine.dispose()
        self.app.extensions["idempotency"].housekeeper.stop()
        self.app.extensions["idempotency"].store.close()


class Records(Tables):
    def record_of(self, caller: str) -> Any:
        return self.store.find(id_of("1", caller))


@pytest.fixture
def records(store_url: str) -> Iterator[Records]:
    found = Records(store_url)
    yield found
    found.close()


@pytest.fixture
def make_exports(records: Records) -> Iterator[Callable[..., Exports]]:
    made: list[Exports] = []

    def make(**settings: Any) -> Exports:
        made.append(Exports(records, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def exports(make_exports: Callable[..., Exports]) -> Exports:
    return make_exports()


def fail() -> Any:
    raise RuntimeError("the disk is full")


# -- from the POST to the result ---------------------------------------------------------------------------------------


def test_a_job_is_started_once_and_polled_to_its_result(exports):
    accepted, again = exports.post(), exports.post()

    assert [(each.status_code, each.headers["Location"]) for each in (accepted, again)] == [
        (202, f"/receipts/{accepted.headers[REFERENCE]}")
    ] * 2
    assert (
        accepted.json
        == again.json
        == {
            "reference": accepted.headers[REFERENCE],
            "state": "running",
            "receipt": accepted.headers["Location"],
        }
    )
    assert int(accepted.headers["Retry-After"]) >= 1
    assert accepted.headers["Cache-Control"] == "no-store"
    assert REPLAYED not in accepted.headers
    assert len(exports.queue) == 1
    polled = exports.get(accepted.headers["Location"])
    assert (polled.json["state"], "Retry-After" in polled.headers) == ("running", True)

    assert exports.work() is True

    receipt = exports.get(accepted.headers["Location"]).json
    assert (receipt["state"], receipt["status"]) == ("finished", 201)
    for answer in (exports.get(receipt["answer"]), exports.post()):
        assert (answer.status_code, answer.json, answer.headers[REPLAYED]) == (201, {"rows": 3}, "true")
    assert exports.worked == [accepted.headers[REFERENCE]]


def test_another_callers_receipt_of_a_job_is_none(exports):
    address = exports.post().headers["Location"]
    exports.work()

    assert exports.get(address, BOB).status_code == 404


def test_another_body_is_refused_while_the_job_waits_and_after_it(exports):
    exports.post()
    before = exports.post(json={"year": 1})
    exports.work()

    assert (before.status_code, exports.post(json={"year": 1}).status_code) == (422, 422)
    assert len(exports.queue) == 1


def test_steps_of_the_view_and_of_the_job_are_each_taken_once(exports):
    exports.before = lambda: phase("asked", exports.add, "asked")
    exports.post()

    def job() -> Any:
        phase("written", exports.add, "written")
        sent = effect("mail", lambda key: {"key": key})
        return sent, 201

    assert exports.work(job=job) is True

    assert exports.notes == ["asked", "written"]
    assert len(exports.post().json["key"]) == 32


def test_a_job_without_a_database_is_handed_over_too(tmp_path):
    app, tickets = Flask("plain"), []
    app.config["IDEMPOTENCY_HOUSEKEEPING"] = False
    Idempotency(app, store=open_store("memory://"), scope=lambda: ALICE)
    app.register_blueprint(receipts.blueprint())
    app.post("/")(idempotent(in_flight="accepted")(lambda: jobs.hand_over(tickets.append)))
    post = lambda: app.test_client().post("/", headers={"Idempotency-Key": "1"})  # noqa: E731  # used three times
    assert (post().status_code, post().status_code) == (202, 202)

    with app.app_context():
        assert jobs.run(tickets[0], lambda: ("done", 200)) is True

    assert (post().text, len(tickets)) == ("done", 1)


def test_what_is_to_be_done_after_the_commit_is_done_after_the_hand_over_and_after_the_job(exports):
    done: list[str] = []
    exports.before = lambda: after_commit(lambda: done.append("view"))
    exports.post()
    assert done == ["view"]

    exports.work(job=lambda: (after_commit(lambda: done.append("job")), DONE)[1])

    assert done == ["view", "job"]


def test_a_queue_that_does_its_work_at_once_is_a_queue_too(exports):
    exports.start = lambda ticket: exports.work(ticket)

    assert exports.post().status_code == 202
    assert exports.post().json == {"rows": 3}


def test_the_job_sees_the_urls_of_its_request(exports):
    exports.post()

    exports.work(job=lambda: ({"at": request.url_root, "path": request.path}, 201))

    assert exports.post().json == {"at": "http://localhost/", "path": "/exports"}


def test_an_answer_that_the_job_raises_is_kept_like_one_that_it_returns(exports):
    exports.post()

    assert exports.work(job=lambda: abort(404)) is True

    assert (exports.post().status_code, exports.state()) == (404, "finished")


# -- jobs that fail, come late, or come twice --------------------------------------------------------------------------


def test_a_ticket_that_is_delivered_twice_is_worked_on_once(exports):
    exports.post()

    assert [exports.work(), exports.work()] == [True, True]
    assert len(exports.worked) == 1


def test_a_ticket_that_is_delivered_while_its_job_runs_is_to_be_delivered_again(exports):
    exports.post()
    gate = Gate()
    with ThreadPoolExecutor(max_workers=1) as threads:
        first = threads.submit(exports.work, job=lambda: (gate.stop(), DONE)[1])
        gate.wait_for_view()
        second = exports.work()
        gate.open()

        assert (first.result(30), second) == (True, False)
    assert (exports.worked, exports.post().json) == ([], {"rows": 3})


def test_a_job_that_raises_can_be_delivered_again(exports):
    exports.post()
    with pytest.raises(RuntimeError, match="the disk is full"):
        exports.work(job=fail)

    assert exports.state() == "running"
    assert exports.work() is True
    assert exports.post().json == {"rows": 3}


def test_a_job_whose_worker_died_is_started_again_by_a_retry(exports, records):
    exports.before = lambda: phase("asked", exports.add, "asked")
    exports.post()
    records.let_pass(WITHIN + LEASE)

    assert exports.post().status_code == 202

    assert len(exports.queue) == 2
    assert exports.work() is True
    assert (exports.notes, exports.post().json) == (["asked"], {"rows": 3})


def test_while_its_ticket_waits_no_retry_starts_another_job(exports, records):
    exports.post()
    records.let_pass(LEASE * 2)

    assert exports.post().status_code == 202
    assert len(exports.queue) == 1


def test_until_then_its_receipt_says_to_send_the_request_again(exports, records):
    address = exports.post().headers["Location"]
    records.let_pass(WITHIN + LEASE)

    receipt = exports.get(address)

    assert "send the same request with the same key" in receipt.json["detail"]
    assert "Retry-After" not in receipt.headers


def test_a_ticket_that_comes_late_is_worked_on_if_nobody_has_taken_over(exports, records):
    exports.post()
    records.let_pass(WITHIN + LEASE)

    assert exports.work() is True
    assert exports.post().json == {"rows": 3}


def test_an_old_ticket_may_be_worked_on_in_place_of_the_new_one_but_not_beside_it(exports, records):
    exports.post()
    records.let_pass(WITHIN + LEASE)
    exports.post()
    old, new = exports.queue

    assert exports.work(old) is False  # the new job's lease has not passed
    assert exports.work(new) is True
    assert exports.work(old) is True
    assert len(exports.worked) == 1


def test_a_worker_that_finishes_after_another_took_over_overwrites_nothing(exports, records):
    exports.post()

    def paused() -> Any:
        records.let_pass(LEASE * 2)
        assert exports.work() is True
        return {"rows": "from the late one"}, 201

    assert exports.work(job=paused) is False

    assert exports.post().json == {"rows": 3}


def test_what_a_late_worker_writes_in_a_phase_is_rolled_back(exports, records):
    exports.post()

    def paused() -> Any:
        records.let_pass(LEASE * 2)
        assert exports.work(job=lambda: (phase("written", exports.add, "in time"), DONE)[1]) is True
        phase("written", exports.add, "too late")

    with pytest.raises(IdempotencyError):
        exports.work(job=paused)

    assert (exports.notes, exports.post().json) == (["in time"], {"rows": 3})


def test_a_worker_that_finishes_after_its_lease_is_in_time_while_nobody_took_over(exports, records):
    exports.post()

    assert exports.work(job=lambda: (records.let_pass(LEASE * 2), DONE)[1]) is True
    assert exports.post().json == {"rows": 3}


def test_while_a_job_runs_its_lease_is_renewed(make_exports):
    exports = make_exports(IDEMPOTENCY_HOUSEKEEPING=True)
    exports.post()
    keeper = exports.app.extensions["idempotency"].housekeeper
    watched: list[int] = []

    exports.work(job=lambda: (watched.append(len(keeper._rounds_here()._duties)), DONE)[1])

    assert watched == [2]  # the lease, and the reaper
    assert len(keeper._rounds_here()._duties) == 1


@pytest.mark.parametrize("status", [503, 500, 429, 409])
def test_an_answer_that_is_not_kept_leaves_the_job_to_be_delivered_again(exports, status):
    exports.post()

    assert exports.work(job=lambda: ("not now", status)) is False
    assert exports.work() is True
    assert exports.post().json == {"rows": 3}


def test_a_request_whose_workers_die_again_and_again_is_given_to_a_person(exports, records):
    exports.post()
    for _ in range(6):
        records.let_pass(WITHIN + LEASE)
        exports.post()

    assert exports.state() == "quarantined"
    assert exports.work() is True
    assert exports.worked == []


def test_so_is_one_whose_ticket_kills_every_worker(exports, records, caplog):
    exports.post()
    state, ticket = exports.app.extensions["idempotency"], read_ticket(exports.queue[0])
    with exports.app.app_context():
        for _ in range(6):
            jobs._claim(state, ticket)  # and the worker dies
            records.let_pass(LEASE * 2)

    assert exports.work() is True

    assert (exports.worked, exports.state()) == ([], "quarantined")
    assert "quarantined" in caplog.text


def test_a_ticket_of_a_request_that_has_expired_is_not_worked_on_under_a_later_one(exports, records):
    exports.post()
    exports.work()
    records.let_pass(timedelta(hours=25))
    old = exports.queue.pop()
    assert exports.work(old) is True
    assert exports.state() is None
    exports.post()
    records.let_pass(WITHIN + LEASE)

    assert exports.work(old) is True

    assert len(exports.worked) == 1
    assert exports.work() is True
    assert len(exports.worked) == 2


def test_a_job_that_commits_outside_of_a_phase_is_given_to_a_person(exports):
    exports.post()

    def job() -> Any:
        exports.add("outside")
        exports.db.session.commit()
        return DONE

    assert exports.work(job=job) is False
    assert exports.state() == "quarantined"


def test_an_effect_whose_outcome_is_unknown_leaves_the_job_to_be_delivered_again(exports):
    exports.post()
    keys: list[str] = []

    def job(answer: Callable[[str], Any]) -> Any:
        return effect("charge", answer), 201

    with pytest.raises(OutcomeUnknown):
        exports.work(job=lambda: job(lambda key: (keys.append(key), fail())[1]))
    assert exports.work(job=lambda: job(lambda key: (keys.append(key), {"paid": True})[1])) is True

    assert keys[0] == keys[1]
    assert exports.post().json == {"paid": True}


# -- a view that hands over badly --------------------------------------------------------------------------------------


def test_a_job_that_could_not_be_enqueued_was_not_handed_over(exports):
    exports.start = lambda ticket: fail()
    exports.app.config["PROPAGATE_EXCEPTIONS"] = False

    assert exports.post().status_code == 500

    exports.start = exports.queue.append
    assert exports.post().status_code == 202
    assert exports.work() is True


def test_a_job_that_was_enqueued_although_that_failed_runs_once(exports):
    exports.start = lambda ticket: (exports.queue.append(ticket), fail())
    exports.app.config["PROPAGATE_EXCEPTIONS"] = False
    assert exports.post().status_code == 500

    assert exports.work() is True
    assert exports.post().json == {"rows": 3}


def test_a_view_that_does_not_answer_with_what_it_was_given_is_an_error(exports, caplog):
    exports.app.view_functions["view"] = idempotent(required=True, guard="lease", in_flight="accepted")(
        lambda: (jobs.hand_over(exports.queue.append), ({"id": 1}, 201))[1]
    )

    assert exports.post().status_code == 500
    assert "return what hand_over() returns" in caplog.text
    assert exports.post().status_code == 202


def test_an_apps_own_body_may_stand_in_a_202(exports):
    exports.app.view_functions["view"] = idempotent(required=True, guard="lease", in_flight="accepted")(
        lambda: (jobs.hand_over(exports.queue.append), ({"id": 1}, 202))[1]
    )

    accepted = exports.post()

    assert (accepted.json, accepted.headers["Location"]) == ({"id": 1}, f"/receipts/{accepted.headers[REFERENCE]}")


def test_changes_that_the_view_left_uncommitted_are_not_lost_in_silence(exports):
    exports.before = lambda: exports.add("left")
    exports.app.config["PROPAGATE_EXCEPTIONS"] = False

    assert exports.post().status_code == 500
    assert (exports.queue, exports.notes) == ([], [])


def test_a_view_that_has_committed_outside_of_a_phase_cannot_hand_over(exports):
    exports.before = lambda: (exports.add("outside"), exports.db.session.commit())
    exports.app.config["PROPAGATE_EXCEPTIONS"] = False

    assert exports.post().status_code == 500
    assert (exports.queue, exports.state()) == ([], "quarantined")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"guard": "transaction"}, "needs the lease guard"),
        ({"guard": "lease", "dialect": "stripe"}, "Stripe's dialect"),
    ],
)
def test_a_view_that_cannot_hand_over_is_told_so_in_a_sentence(exports, options, words):
    exports.app.view_functions["view"] = idempotent(required=True, **options)(
        lambda: jobs.hand_over(exports.queue.append)
    )
    exports.app.config["PROPAGATE_EXCEPTIONS"] = True

    with pytest.raises(IdempotencyError, match=words):
        exports.post()
    assert exports.queue == []


def test_without_receipts_nothing_is_handed_over():
    app = Flask("plain")
    app.config["IDEMPOTENCY_HOUSEKEEPING"] = False
    Idempotency(app, store=open_store("memory://"), scope=lambda: ALICE)
    app.post("/")(idempotent(lambda: jobs.hand_over(print)))
    app.config["PROPAGATE_EXCEPTIONS"] = True

    with pytest.raises(IdempotencyError, match=r"register flask_idempotency\.receipts\.blueprint\(\)"):
        app.test_client().post("/", headers={"Idempotency-Key": "1"})


@pytest.mark.parametrize("within", [0, -1, timedelta(0)])
def test_a_queue_must_be_given_some_time(within):
    with pytest.raises(ConfigError, match="within= must be longer than zero"):
        jobs.hand_over(print, within=within)


@pytest.mark.parametrize("ticket", ["", "nonsense", "e30=", "bnVsbA==", "é", "W10="])
def test_what_is_no_ticket_is_refused_in_a_sentence(exports, ticket):
    with pytest.raises(IdempotencyError, match="This is not a ticket"):
        exports.work(ticket)


def test_a_ticket_names_neither_the_key_nor_the_caller(exports):
    exports.post(headers={"Idempotency-Key": "a-key-of-alices"})

    ticket = read_ticket(exports.queue[0])

    assert str(ticket) == exports.queue[0]
    assert "alice" not in repr(ticket)


# -- a store that fails ------------------------------------------------------------------------------------------------


@pytest.fixture
def spied():
    """An app over a store that can fail, and its tickets."""
    app, tickets, store = Flask("plain"), [], Spy(open_store("memory://"))
    Idempotency(app, store=store, scope=lambda: ALICE)
    app.register_blueprint(receipts.blueprint())
    app.post("/")(idempotent(in_flight="accepted")(lambda: jobs.hand_over(tickets.append)))
    yield app, store, tickets
    app.extensions["idempotency"].housekeeper.stop()


def test_a_store_that_fails_after_the_job_was_enqueued_does_not_fail_the_request(spied):
    app, store, tickets = spied
    store.fails("renew", StoreUnavailable(retry_after=1))

    assert app.test_client().post("/", headers={"Idempotency-Key": "1"}).status_code == 202
    assert len(tickets) == 1


def test_an_answer_that_could_not_be_stored_is_stored_later(spied):
    app, store, tickets = spied
    app.test_client().post("/", headers={"Idempotency-Key": "1"})
    store.fails("complete", StoreUnavailable(retry_after=1))
    with app.app_context(), pytest.raises(OutcomeUnknown):
        jobs.run(tickets[0], lambda: "done")
    store.heals()

    app.extensions["idempotency"].housekeeper._rounds_here()._leave()

    assert app.test_client().post("/", headers={"Idempotency-Key": "1"}).text == "done"


def test_a_request_that_is_handed_over_is_told_of(spied):
    app, _, _ = spied
    told: list[Any] = []
    with signals.handed_over.connected_to(lambda app, **facts: told.append(facts["reference"])):
        answer = app.test_client().post("/", headers={"Idempotency-Key": "1"})

    assert told == [answer.headers[REFERENCE]]
