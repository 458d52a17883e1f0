"""Shadow mode: a live API is observed, and no answer of it changes by a byte, whatever fails or is slow meanwhile."""

import json
import sqlite3
import time
from contextlib import closing
from io import BytesIO

import pytest
from flask import Flask, Response, abort, request, session, stream_with_context

from flask_idempotency import Idempotency, after_commit, effect, idempotent, observing, phase, reference
from flask_idempotency.errors import ConfigError, IdempotencyError
from flask_idempotency.stores import observations
from flask_idempotency.stores.memory import MemoryStore
from tests.fixtures.processes import race

ALICE = {"X-User": "alice"}
KEY = {**ALICE, "Idempotency-Key": "order-1"}
JSON = {"Content-Type": "application/json"}


class Untouched(MemoryStore):
    """A store that must not be asked for anything."""

    def fail(self, *_, **__):
        raise AssertionError("the store was asked")

    claim = find = prepare = create = reap = fail


def caller():
    return request.headers.get("X-User")


class Api:
    """An API with views of many kinds, observed or without the extension."""

    def __init__(self, folder, *, is_observed=True, scope=caller, options=None, **settings):
        self.app = Flask("api", instance_path=str(folder))
        self.app.secret_key = "a secret of the shop"
        self.app.config.update({f"IDEMPOTENCY_{name.upper()}": value for name, value in settings.items()})
        if is_observed:
            self.app.config.setdefault("IDEMPOTENCY_MODE", "shadow")
            Idempotency(self.app, store=Untouched(), scope=scope)
        self.n = 0
        self.answer = self.count
        mark = idempotent(**(options or {})) if is_observed else lambda view: view
        for name, view in {"orders": mark(lambda: self.answer()), "plain": lambda: self.answer()}.items():
            self.app.add_url_rule(f"/{name}", name, view, methods=["POST", "PUT"])

    def count(self):
        """Answer with the body and a new number."""
        self.n += 1
        return {"n": self.n, "got": request.get_data(as_text=True)}, 201

    def send(self, path="/orders", *, headers=KEY, **options):
        client = self.app.test_client(use_cookies=False)
        return client.open(path, **{"method": "POST", "headers": headers, "buffered": True, **options})

    def run(self, *arguments):
        """Run the report; give its exit code and what it says."""
        done = self.app.test_cli_runner().invoke(args=["idempotency", "report", *arguments])
        return done.exit_code, done.output

    def report(self, *arguments):
        """The numbers that are not zero, of the only endpoint, or of each."""
        code, output = self.run("--json", *arguments)
        assert code == 0, output
        found = [{name: value for name, value in each.items() if value} for each in json.loads(output)["endpoints"]]
        return found[0] if len(found) == 1 else found


@pytest.fixture
def make_api(tmp_path, monkeypatch):
    monkeypatch.setattr(observing, "SLOW", 60)  # whatever else the machine does
    made = []

    def make(**options):
        made.append(Api(tmp_path / f"instance-{len(made)}", **options))
        return made[-1]

    yield make
    for api in made:
        if state := api.app.extensions.get("idempotency"):
            state.observations.flush()


@pytest.fixture
def api(make_api):
    return make_api()


# -- no answer changes -------------------------------------------------------------------------------------------------


def piecewise():
    return Response(stream_with_context(piece for piece in iter(lambda: request.stream.read(2), b"")))


def reading_lines():
    return b"|".join(request.environ["wsgi.input"].readlines())


def using_the_session():
    session["cart"] = "tea"
    return "", 201


def answering_by_the_form():
    return {"form": sorted(request.form.items()), "files": [each.read().decode() for each in request.files.values()]}


def claiming_our_headers():
    return "", 201, {"Idempotent-Replayed": "yes", "Idempotency-Reference": "mine", "Idempotency-Unprotected": "x"}


VIEWS = {
    "json": lambda: request.get_json(force=True, silent=True) or {},
    "form": answering_by_the_form,
    "stream": piecewise,
    "raw lines": reading_lines,
    "without reading": lambda: ("", 204),
    "session": using_the_session,
    "our headers": claiming_our_headers,
    "401": lambda: abort(401),
    "an exception": lambda: 1 / 0,
    "by the rest": lambda: (request.stream.read(1), request.get_data())[1],
}
FILE = b'--b\r\nContent-Disposition: form-data; name="a"; filename="a.txt"\r\n\r\ncontent\r\n--b--\r\n'
REQUESTS = {
    "a key": lambda: {"data": b'{"a": 1}', "headers": {**KEY, **JSON}},
    "no key": lambda: {"data": b'{"a": 1}', "headers": {**ALICE, **JSON}},
    "a malformed key": lambda: {"data": b"{}", "headers": {**ALICE, "Idempotency-Key": "a,b"}},
    "nobody": lambda: {"data": b"{}", "headers": {"Idempotency-Key": "k"}},
    "a large body": lambda: {"data": b"x" * 100, "headers": KEY},
    "no body": lambda: {"headers": KEY},
    "a form": lambda: {"data": {"a": "1", "_idempotency_key": "k"}, "headers": ALICE},
    "a file": lambda: {"data": FILE, "headers": {**KEY, "Content-Type": "multipart/form-data; boundary=b"}},
    "a short body": lambda: {"data": b"{", "headers": {**KEY, "Content-Length": "5"}},
    "lines": lambda: {"data": b"one\ntwo\n", "headers": KEY},
    "chunks": lambda: {
        "input_stream": BytesIO(b"chunks\nof two lines"),
        "environ_overrides": {"wsgi.input_terminated": True, "HTTP_TRANSFER_ENCODING": "chunked"},
    },
}


def without_time(header):
    """A signed cookie says when it was signed."""
    name, value = header
    return name, value.partition(".")[0] if name == "Set-Cookie" else value


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("path", ["/orders", "/plain"])
def test_every_answer_is_byte_for_byte_what_it_is_without_the_extension(make_api, view, path):
    observed = make_api(options={"required": True, "in_flight": "wait"}, required=True, max_body=50)
    bare = make_api(is_observed=False)

    for make_options in REQUESTS.values():
        told = {}
        for api in (bare, observed):
            api.answer = VIEWS[view]
            answers = [api.send(path, **make_options()) for _ in range(2)]
            told[api] = [(answer.status, sorted(map(without_time, answer.headers)), answer.data) for answer in answers]
        assert told[observed] == told[bare]


def test_a_hook_that_reads_the_form_before_is_no_obstacle(make_api):
    api = make_api()
    api.app.before_request_funcs.setdefault(None, []).append(lambda: request.form.get("csrf_token") and None)

    for _ in range(2):
        api.send("/plain", data={"csrf_token": "x", "_idempotency_key": "k"}, headers=ALICE)

    assert (api.report()["replayed"], api.report()["with_key"]) == (1, 2)


def test_the_store_is_not_asked_for_anything_and_no_view_has_a_reference(make_api):
    api, told = make_api(), []
    api.answer = lambda: (told.append(reference()), after_commit(lambda: told.append("after")))[0] or ("", 201)

    api.send()

    assert told == [None, "after"]


# -- what is observed --------------------------------------------------------------------------------------------------


def test_retries_reuse_and_malformed_keys_are_counted(make_api):
    api = make_api()
    api.send(data="tea")
    api.send(data="tea")
    api.send(data="milk")
    api.send(data="tea", headers={**ALICE, "Idempotency-Key": "a,b"})
    api.send(data="tea", headers={"Idempotency-Key": "k"})
    api.send(data="tea", headers={**ALICE, "Idempotency-Key": "other"})

    assert api.report() == {
        "endpoint": "orders",
        "method": "POST",
        "requests": 6,
        "with_key": 6,
        "callers": 1,
        "callers_with_key": 1,
        "refused": {"key-invalid": 1, "scope-unknown": 1},
        "reused": 1,
        "replayed": 1,
        "replayed_but_answered_differently": 1,
        "repeated_with_new_key": 1,
    }


def test_a_retry_that_gets_the_same_answer_is_not_called_a_second_effect(make_api):
    api = make_api()
    api.answer = lambda: ("same", 201)

    api.send(), api.send()

    assert (api.report()["replayed"], "replayed_but_answered_differently" in api.report()) == (1, False)


def test_duplicates_of_a_running_request_are_counted(make_api):
    api = make_api()
    from threading import Barrier

    together = Barrier(2, timeout=30)
    api.answer = lambda: (together.wait(), ("", 201))[1]

    race(2, lambda _: api.send())

    assert api.report()["in_flight"] == 1


def test_retries_without_a_key_are_guessed(make_api):
    api = make_api()
    for body in ("tea", "tea", "milk"):
        api.send("/plain", data=body, headers=ALICE)

    assert (api.report()["repeated_without_key"], api.report("--window", "0").get("repeated_without_key")) == (1, None)


def test_a_key_that_is_required_and_missing_is_counted(make_api):
    api = make_api(options={"required": True})

    api.send(headers=ALICE), api.send(headers=ALICE)

    assert (api.report()["refused"], api.report()["repeated_without_key"]) == ({"key-missing": 2}, 1)


def test_a_body_that_is_too_large_is_counted(make_api):
    api = make_api(max_body=10)

    assert (api.send(data=b"x" * 11).status_code, api.report()["refused"]) == (201, {"body-too-large": 1})


def test_a_body_that_the_view_did_not_read_is_not_compared(make_api):
    api = make_api()
    api.answer = lambda: ("", 201)

    api.send(data="tea"), api.send(data="tea")

    assert (api.report()["not_compared"], "replayed" in api.report()) == (1, False)


def test_the_view_may_have_a_key_and_a_fingerprint_of_its_own(make_api):
    options = {"key": lambda asked: asked.get_json()["id"], "fingerprint": lambda asked: asked.get_json()["kind"]}
    api = make_api(options=options)
    for sent in (1, 2):
        api.send(json={"id": "e-1", "kind": "paid", "sent": sent}, headers=ALICE)

    assert api.report()["replayed"] == 1


def test_methods_that_are_not_covered_are_not_observed(make_api):
    api = make_api()

    api.send(method="PUT")

    code, output = api.run()
    assert (code, "Nothing has been observed yet: set IDEMPOTENCY_MODE" in output) == (1, True)


def test_one_caller_can_be_asked_for_by_name(make_api):
    api = make_api(namespace="shop")
    for user in ("alice", "bob", "bob"):
        api.send(headers={"X-User": user, "Idempotency-Key": "k"})

    assert [api.report("--scope", name)["requests"] for name in ("alice", "bob")] == [1, 2]
    assert api.run("--scope", "carol")[1] == "No request has been observed.\n"


def test_the_report_says_in_plain_words_what_enforcing_would_change(make_api):
    api = make_api(options={"required": True})
    for body in ("tea", "tea", "milk"):
        api.send(data=body)
    api.send(data="tea", headers=ALICE)

    code, output = api.run()

    first, _, *lines = output.splitlines()
    replayed, reused = lines.pop(2), lines.pop(2)
    assert (code, first[:15]) == (0, "4 requests from")
    assert lines == [
        "POST orders",
        "  4 requests, 3 with a key; 1 of 1 caller sent keys",
        "  - 1 request had no key, which is required, and would get 400 (key-missing).",
    ]
    assert replayed.startswith("  - 1 retry would get the first answer again. Today 1 of them got another answer than")
    assert reused.startswith("  - 1 request had the key of another request, and would get 422 (key-reused): find")


def test_an_endpoint_where_nothing_would_change_says_so(make_api):
    api = make_api()
    api.send()

    assert api.run()[1].splitlines()[-1] == "  - Enforcing would change nothing."


def test_neither_keys_nor_bodies_nor_callers_are_in_the_file_or_the_report(make_api):
    api = make_api()
    for _ in range(2):
        api.send(data="canary-body", headers={"X-User": "canary-user", "Idempotency-Key": "canary-key"})

    said = api.run()[1] + api.run("--json")[1]

    assert "canary" not in said
    assert b"canary" not in api.app.extensions["idempotency"].observations.path.read_bytes()


def test_nobody_else_may_read_the_file(make_api):
    api = make_api()
    api.send()
    api.run()

    path = api.app.extensions["idempotency"].observations.path
    assert path.stat().st_mode & 0o077 == 0


def test_the_file_keeps_only_the_last_requests(make_api, monkeypatch):
    monkeypatch.setattr(observations, "MOST", 3)
    api = make_api()
    for number in range(5):
        api.send(data=str(number))
        api.app.extensions["idempotency"].observations.flush()

    assert api.report()["requests"] == 3


def test_the_file_forgets_after_a_week(make_api, monkeypatch):
    api = make_api()
    api.send()
    api.report()
    monkeypatch.setattr(
        observing, "time", type("Later", (), {"time": lambda: time.time() + 8 * 86400, "monotonic": time.monotonic})
    )
    monkeypatch.setattr(observations, "time", observing.time)
    api.send()

    assert api.report()["requests"] == 1


# -- nothing reaches a request -----------------------------------------------------------------------------------------


def is_said_once(caplog, beginning):
    return [line.startswith(beginning) for line in caplog.messages].count(True) == 1


def broken():
    raise RuntimeError("the scope function is broken")


def test_a_scope_function_that_fails_is_told_of_once_and_counted(make_api, caplog):
    api = make_api(scope=broken)

    assert [api.send().status_code for _ in range(2)] == [201, 201]
    assert api.report()["refused"] == {"error": 2}
    assert "would fail with 500" in api.run()[1]
    assert is_said_once(caplog, "shadow_error: enforced, a request to 'orders' would fail: The scope function raised")


def test_a_scope_function_that_refuses_the_caller_refuses_nobody(make_api):
    api = make_api(scope=lambda: abort(401))

    assert (api.send().status_code, api.report()["refused"]) == (201, {"scope-unknown": 1})


def test_whatever_else_fails_is_told_of_once(make_api, caplog):
    def fail(_):
        raise MemoryError

    api = make_api(options={"fingerprint": fail})

    assert [api.send().status_code for _ in range(2)] == [201, 201]
    assert is_said_once(caplog, "shadow_skipped: a request to 'orders' could not be observed, because of MemoryError")


def test_a_folder_that_cannot_be_written_is_told_of_once(make_api, caplog):
    api = make_api()
    path = api.app.extensions["idempotency"].observations.path
    path.parent.write_text("a file in its place")

    for _ in range(2):
        assert api.send().status_code == 201
        api.app.extensions["idempotency"].observations.flush()

    assert is_said_once(caplog, f"shadow_skipped: requests are not observed, because of {path}: ")


def test_a_damaged_file_is_one_sentence(make_api, caplog):
    api = make_api()
    path = api.app.extensions["idempotency"].observations.path
    path.parent.mkdir()
    path.write_bytes(b"this is no database, whatever its name says" * 50)

    assert api.send().status_code == 201
    code, output = api.run()
    assert (code, "cannot be read" in output, "delete it, and observe again." in output) == (1, True, True)


def test_a_file_that_another_process_has_locked_keeps_no_request_waiting(make_api, monkeypatch):
    monkeypatch.setattr(observations, "BUSY", 0.05)
    api = make_api()
    api.send()
    api.report()
    with closing(sqlite3.connect(api.app.extensions["idempotency"].observations.path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert [api.send().status_code for _ in range(3)] == [201] * 3
        api.app.extensions["idempotency"].observations.flush()

    assert api.report()["requests"] == 1


def test_after_a_slow_observation_there_is_a_pause(make_api, monkeypatch, caplog):
    asked, clock = [], [0.0]
    monkeypatch.setattr(observing, "SLOW", 0.5)
    monkeypatch.setattr(observing, "time", type("Clock", (), {"time": time.time, "monotonic": lambda: clock[0]}))

    def slow():
        asked.append(True)
        clock[0] += 1.0
        return "alice"

    api = make_api(scope=slow)
    api.send(), api.send()
    clock[0] += observing.PAUSE + 1
    api.send()

    assert (len(asked), api.report()["requests"]) == (2, 2)
    assert is_said_once(caplog, "shadow_slow: observing a request to 'orders'")


def test_a_keep_function_does_not_consume_a_stream(make_api):
    api, pieces = make_api(options={"keep": lambda response: bool(response.get_data())}), iter(["one", "two", "three"])
    api.answer = lambda: Response(pieces)

    answer = api.send(buffered=False)

    assert next(pieces) == "two"  # the client has asked for the first
    answer.close()


def test_a_queue_that_is_full_drops_what_comes(make_api, monkeypatch, caplog):
    monkeypatch.setattr(observations, "QUEUED", 0)
    api = make_api()

    assert [api.send().status_code for _ in range(2)] == [201, 201]
    assert is_said_once(caplog, "shadow_skipped: requests are not observed")


def test_what_would_be_refused_at_start_or_at_the_first_request_is_only_logged(make_api, caplog):
    api = make_api(options={"guard": "transaction"})

    assert [api.send().status_code for _ in range(2)] == [201, 201]
    assert "The decorator of 'orders': guard=\"transaction\" needs the app's own database" in caplog.text


# -- what is enforced beside it ----------------------------------------------------------------------------------------


def test_one_view_of_an_enforced_app_can_be_observed(tmp_path, make_api):
    api = make_api(mode="enforce", options={"mode": "shadow"})

    assert [api.send().json["n"] for _ in range(2)] == [1, 2]
    assert api.report()["replayed"] == 1


def test_one_view_of_an_observed_app_can_be_enforced(tmp_path):
    app = Flask("api", instance_path=str(tmp_path / "instance"))
    app.config.update(IDEMPOTENCY_MODE="shadow", IDEMPOTENCY_HOUSEKEEPING=False)
    Idempotency(app, store=MemoryStore(), scope=caller)
    numbers = iter(range(9))
    app.post("/orders")(idempotent(mode="enforce")(lambda: {"n": next(numbers)}))

    answers = [app.test_client().post("/orders", headers=KEY) for _ in range(2)]

    assert [answer.json for answer in answers] == [{"n": 0}, {"n": 0}]
    assert answers[1].headers["Idempotent-Replayed"] == "true"


@pytest.mark.parametrize("step", [lambda: phase("paid", dict), lambda: effect("charge", dict)], ids=["phase", "effect"])
def test_steps_are_refused_because_nothing_is_recorded(make_api, step):
    api, said = make_api(), []

    def view():
        with pytest.raises(IdempotencyError) as caught:
            step()
        said.append(str(caught.value))
        return "", 201

    api.answer = view
    api.send()

    assert said[0].endswith(
        '() cannot be used in shadow mode, where nothing is recorded: give this view mode="enforce".'
    )


def test_the_file_is_for_its_owner_only(make_api):
    api = make_api()
    api.send()
    kept = api.app.extensions["idempotency"].observations
    kept.flush()

    assert kept.path.stat().st_mode & 0o077 == 0


def test_an_app_that_enforces_observes_nothing(tmp_path):
    app = Flask("api", instance_path=str(tmp_path / "instance"))
    app.config["IDEMPOTENCY_HOUSEKEEPING"] = False
    Idempotency(app, store=MemoryStore(), scope=caller)
    app.post("/orders")(idempotent(lambda: ("", 201)))

    app.test_client().post("/orders", headers=KEY)

    assert not (tmp_path / "instance").exists()
    assert not app.extensions["idempotency"].observations.is_on


def test_routes_and_rules_say_that_it_is_only_observed(make_api):
    api = make_api()

    listed = api.app.test_cli_runner().invoke(args=["idempotency", "routes"]).output

    assert [line.split("  ")[-1].strip() for line in listed.splitlines() if line.startswith(("orders", "plain"))] == [
        "no: only observed"
    ] * 4
    with pytest.raises(ConfigError, match="IDEMPOTENCY_MODE must be 'enforce' or 'shadow'"):
        make_api(mode="observe")
