"""A request's trace says what became of it and where its time went, and never whose it was."""

import sys
from contextlib import suppress

import pytest
from blinker import NamedSignal
from flask import Flask, abort, request
from flask_sqlalchemy import SQLAlchemy
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from flask_idempotency import Idempotency, effect, idempotent, jobs, phase, receipts, scopes, steps, telemetry
from flask_idempotency.errors import ConfigError, NeedsPerson, OutcomeUnknown, StoreUnavailable
from flask_idempotency.http import exchange
from flask_idempotency.telemetry import tracing
from tests.apps.shop import KEY, REFERENCE, REPLAYED

OURS = "idempotency."


class Traces:
    """The spans that have ended, and the instrumentation that starts one for each request."""

    def __init__(self, **options):
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(**options)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("a test")

    def instrument(self, app):
        """Start a span for each request, in the trace that its client names, as OpenTelemetry does."""
        wsgi_app = app.wsgi_app

        def serve(environ, start_response):
            theirs = TraceContextTextMapPropagator().extract({"traceparent": environ.get("HTTP_TRACEPARENT", "")})
            with self.tracer.start_as_current_span("request", theirs, record_exception=False):
                return wsgi_app(environ, start_response)

        app.wsgi_app = serve

    @property
    def spans(self):
        return self.exporter.get_finished_spans()

    def named(self, name):
        return [span for span in self.spans if span.name == name]

    @property
    def told(self):
        """Our attributes of each request's span, in turn."""
        return [ours(span) for span in self.named("request")]

    def steps(self):
        """The names of the spans of steps."""
        return [span.name.removeprefix("idempotency ") for span in self.spans if span.name.startswith("idempotency ")]


def ours(span):
    return {name.removeprefix(OURS): value for name, value in span.attributes.items() if name.startswith(OURS)}


@pytest.fixture
def traces():
    made = Traces()
    yield made
    made.provider.shutdown()


@pytest.fixture
def traced(make_shop, traces):
    """`traced(**options)`: a shop whose requests are traced."""

    def make(**options):
        shop = make_shop(**options)
        telemetry.opentelemetry(shop.app, traces.provider)
        traces.instrument(shop.app)
        return shop

    return make


@pytest.fixture
def checkout(traces, tmp_path):
    """`checkout(view)`: a traced app with a database, whose view may have phases and effects; gives its client."""
    app = Flask("checkout")
    app.config.update(IDEMPOTENCY_HOUSEKEEPING=False, SQLALCHEMY_DATABASE_URI=f"sqlite:///{tmp_path / 'shop.db'}")
    db = SQLAlchemy(app)

    def make(view, **options):
        Idempotency(app, db=db, scope=scopes.everyone)
        telemetry.opentelemetry(app, traces.provider)
        traces.instrument(app)
        app.add_url_rule("/checkout", "checkout", idempotent(**options)(view), methods=["POST"])
        with app.app_context():
            db.create_all()
        return lambda: app.test_client().post("/checkout", headers={"Idempotency-Key": KEY})

    yield make
    with app.app_context():
        db.engine.dispose()


# -- the request's span ------------------------------------------------------------------------------------------------


def test_the_span_of_a_first_run_and_of_its_replay_say_so(traced, traces):
    shop = traced()

    known, _ = (shop.send().headers[REFERENCE] for _ in range(2))

    about = {"guard": "lease", "reference": known, "state": "finished"}
    assert traces.told == [{**about, "outcome": "first"}, {**about, "outcome": "replayed"}]


def test_a_run_that_is_not_kept_leaves_a_running_record_under_a_lease(traced, traces):
    shop = traced()
    shop.answer = lambda: abort(503)

    shop.send()

    assert (traces.told[0]["outcome"], traces.told[0]["state"]) == ("not_kept", "running")


def test_under_the_transaction_guard_a_run_that_is_not_kept_leaves_no_record(checkout, traces):
    checkout(lambda: abort(503), guard="transaction")()

    assert traces.told[0]["outcome"] == "not_kept"
    assert "state" not in traces.told[0]


def test_a_refusal_is_named_by_its_code_and_its_record_by_its_state(traced, traces):
    shop = traced()
    shop.send()
    shop.send(json={"another": "body"})
    shop.send(key="a,b")
    shop.store.fails("claim", StoreUnavailable())
    shop.send(key="another")

    told = [(about["outcome"], about.get("state"), "reference" in about) for about in traces.told[1:]]
    assert told == [("key-reused", None, True), ("key-invalid", None, False), ("store-unavailable", None, True)]


def test_a_duplicate_of_a_running_request_is_in_flight(traced, traces):
    shop = traced()
    shop.answer = lambda: shop.send() and shop.create()

    shop.send()

    assert [(about["outcome"], about["state"]) for about in traces.told] == [
        ("request-in-flight", "running"),
        ("first", "finished"),
    ]


def test_an_answer_that_could_not_be_kept_is_a_finished_record(traced, traces):
    shop = traced()
    shop.answer = lambda: iter(["stream"])
    shop.send()

    shop.send()

    assert (traces.told[1]["outcome"], traces.told[1]["state"]) == ("body-not-kept", "finished")


def test_an_effect_in_doubt_is_the_outcome_and_then_its_record_is_quarantined(traced, traces):
    shop = traced()

    def charge(key):
        raise TimeoutError if shop.n == 1 else NeedsPerson("nobody knows")

    shop.answer = lambda: effect("charge", charge)

    shop.send()
    shop.send()

    assert [about["outcome"] for about in traces.told] == ["outcome-unknown", "quarantined"]
    assert traces.told[1]["state"] == "quarantined"


def test_a_takeover_is_the_second_attempt_and_the_claim_it_cost_a_replay(traced, traces, let_pass):
    shop = traced()

    def run():
        if shop.n == 1:
            let_pass(3600)
            shop.send()
        return shop.create()

    shop.answer = run
    shop.send()

    told = [(about.get("attempt"), about["outcome"], about["state"]) for about in traces.told]
    assert told == [(2, "first", "finished"), (None, "replayed", "finished")]


def test_a_request_without_a_key_is_not_told_of(traced, traces):
    traced().send(key=None)

    assert traces.told == [{}]
    assert traces.steps() == []


@pytest.mark.parametrize("is_early", [True, False], ids=["before init_app", "after init_app"])
@pytest.mark.parametrize("is_decorated", [True, False], ids=["decorated", "undecorated"])
def test_the_requests_own_span_is_meant_in_whatever_span_the_view_is(traces, is_early, is_decorated):
    app = Flask("shop")
    app.config.update(IDEMPOTENCY_STORE="memory://", IDEMPOTENCY_HOUSEKEEPING=False)
    calls = [lambda: telemetry.opentelemetry(app, traces.provider), lambda: Idempotency(app, scope=scopes.everyone)]
    for call in calls if is_early else reversed(calls):
        call()

    @app.before_request  # as FlaskInstrumentor does
    def start():
        request.environ["a span"] = traces.tracer.start_as_current_span("request")
        request.environ["a span"].__enter__()

    @app.teardown_request
    def end(error):
        request.environ["a span"].__exit__(None, None, None)

    def view():
        return "", 201

    view = traces.tracer.start_as_current_span("the view")(idempotent(view) if is_decorated else view)
    app.add_url_rule("/orders", "orders", view, methods=["POST"])

    for _ in range(2):
        app.test_client().post("/orders", headers={"Idempotency-Key": KEY})

    assert [about["outcome"] for about in traces.told] == ["first", "replayed"]
    assert [ours(span) for span in traces.named("the view")] == [{}] * (2 if is_decorated else 1)


# -- steps -------------------------------------------------------------------------------------------------------------


def test_a_claim_and_a_commit_have_spans_in_the_requests(traced, traces):
    traced().send()

    (whole,) = traces.named("request")
    assert traces.steps() == ["claim", "commit"]
    assert {span.parent.span_id for span in traces.spans if span is not whole} == {whole.context.span_id}


def test_a_replay_is_a_claim_alone_and_a_failed_run_ends_with_a_release(traced, traces):
    shop = traced()
    shop.answer = lambda: abort(503)
    shop.send()
    assert traces.steps() == ["claim", "release"]
    shop.answer = shop.create
    shop.send()
    traces.exporter.clear()

    shop.send()

    assert traces.steps() == ["claim"]


def test_phases_and_effects_have_spans_around_what_they_call(checkout, traces):
    def charge(key):
        with traces.tracer.start_as_current_span("gateway"):
            return {"paid": True}

    def place():
        with traces.tracer.start_as_current_span("insert"):
            return 7

    def view():
        phase("order_placed", place)
        return effect("charge", charge), 201

    checkout(view, guard="lease")()

    parents = {span.context.span_id: span.name for span in traces.spans}
    inside = {span.name: parents[span.parent.span_id] for span in traces.spans if span.parent}
    assert inside == {
        "idempotency claim": "request",
        "idempotency phase order_placed": "request",
        "insert": "idempotency phase order_placed",
        "idempotency effect charge": "request",
        "gateway": "idempotency effect charge",
        "idempotency commit": "request",
    }


def test_a_step_that_was_recorded_has_no_span_when_the_request_is_resumed(checkout, traces):
    runs = []

    def view():
        phase("order_placed", lambda: 7)
        runs.append(1)
        return ("", 503) if len(runs) == 1 else ("", 201)

    send = checkout(view, guard="lease")
    send()
    traces.exporter.clear()

    send()

    assert traces.steps() == ["claim", "commit"]


def test_a_step_that_fails_is_marked_with_the_class_of_its_exception_alone(traced, traces):
    shop = traced()

    def charge(key):
        raise TimeoutError("a secret of the gateway")

    shop.answer = lambda: effect("charge", charge)

    shop.send()

    failed = {span.name: span for span in traces.spans if not span.status.is_ok}
    assert failed.keys() == {"idempotency effect charge"}
    (span,) = failed.values()
    assert span.status.description == span.attributes["error.type"] == "OutcomeUnknown"
    assert span.events == ()


def test_a_store_that_fails_marks_the_claim_and_an_answer_that_is_not_stored_the_commit(traced, traces):
    shop = traced()
    shop.store.fails("claim", StoreUnavailable())
    shop.send()
    shop.store.heals()
    shop.store.fails("complete", OutcomeUnknown())

    shop.send()

    failed = [(span.name, span.status.description) for span in traces.spans if not span.status.is_ok]
    assert failed == [("idempotency claim", "StoreUnavailable"), ("idempotency commit", "OutcomeUnknown")]


def test_after_a_step_the_view_is_in_the_requests_span_again(traced, traces):
    shop = traced()
    names = []

    def answer():
        names.append(trace.get_current_span().name)
        effect("charge", lambda key: names.append(trace.get_current_span().name))
        names.append(trace.get_current_span().name)
        return "", 201

    shop.answer = answer
    shop.send()

    assert names == ["request", "idempotency effect charge", "request"]


@pytest.fixture
def job(traces):
    """`job(work)`: hand a request over to a job, and run it in a span of its own."""

    def run(work):
        app, tickets = Flask(__name__), []
        app.config.update(IDEMPOTENCY_STORE="memory://", IDEMPOTENCY_HOUSEKEEPING=False)
        Idempotency(app, scope=scopes.everyone)
        app.register_blueprint(receipts.blueprint())
        app.add_url_rule("/exports", "exports", lambda: jobs.hand_over(tickets.append), methods=["POST"])
        telemetry.opentelemetry(app, traces.provider)
        traces.instrument(app)
        app.test_client().post("/exports", headers={"Idempotency-Key": KEY})
        with app.app_context(), traces.tracer.start_as_current_span("job", record_exception=False):
            jobs.run(tickets[0], work)

    return run


def test_a_job_tells_its_own_span(job, traces):
    job(lambda: effect("export", lambda key: "done"))

    (span,) = traces.named("job")
    assert (traces.told[0]["outcome"], traces.told[0]["state"]) == ("handed_over", "running")
    assert (ours(span)["outcome"], ours(span)["state"]) == ("first", "finished")
    inside = [each.name for each in traces.spans if each.parent and each.parent.span_id == span.context.span_id]
    assert inside == ["idempotency effect export", "idempotency commit"]


def test_a_release_after_a_failure_has_not_failed_itself(job, traces):
    with pytest.raises(ZeroDivisionError):
        job(lambda: 1 / 0)

    (release,) = traces.named("idempotency release")
    assert release.status.is_ok


@pytest.mark.parametrize("error", [SystemExit, ZeroDivisionError])
def test_a_run_that_is_stopped_says_nothing_to_a_span_that_has_ended(traced, traces, caplog, error):
    shop = traced()

    def stop():
        raise error

    shop.answer = stop
    with suppress(SystemExit):
        shop.send()

    assert [line for line in caplog.messages if "ended span" in line or "detach" in line] == []
    assert len(traces.named("request")) == 1


# -- the link ----------------------------------------------------------------------------------------------------------


def linked(span):
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def test_a_replay_is_linked_to_the_span_of_the_run_that_made_its_answer(traced, traces):
    shop = traced()

    for _ in range(2):
        shop.send()

    first, replay = traces.named("request")
    assert first.context.trace_id != replay.context.trace_id
    assert (linked(first), linked(replay)) == ([], [(first.context.trace_id, first.context.span_id)])


def test_what_the_link_is_made_of_is_never_sent_and_a_views_own_is_dropped(traced, traces):
    shop = traced()
    forged = f"00-{'a' * 32}-{'b' * 16}-01"
    shop.answer = lambda: ({"id": shop.n}, 201, {"Idempotency-Trace": forged})

    answers = [shop.send(headers={"Idempotency-Trace": forged}) for _ in range(2)]

    first, replay = traces.named("request")
    assert answers[1].headers[REPLAYED] == "true"
    assert f"{first.context.trace_id:032x}" not in str(answers[1].headers)
    assert linked(replay) == [(first.context.trace_id, first.context.span_id)]


def test_a_client_can_choose_only_the_trace_of_its_own_requests(traced, traces):
    shop = traced()
    chosen = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}

    shop.send(headers={**chosen, "X-User": "mallory"})
    shop.send(headers={"X-User": "mallory"})
    shop.send(headers={"X-User": "alice"})
    shop.send(headers={"X-User": "alice"})

    mallorys, again, alices, replay = traces.named("request")
    assert linked(again) == [(int("a" * 32, 16), mallorys.context.span_id)]
    assert linked(replay) == [(alices.context.trace_id, alices.context.span_id)]


@pytest.mark.parametrize(
    "stored", ["", "garbage", f"00-{'a' * 32}-{'b' * 16}-01, more", f"00-{'A' * 32}-{'b' * 16}-01", "\xb3" * 55]
)
def test_a_stored_value_that_names_no_trace_is_ignored(traced, traces, stored):
    shop = traced()

    def answer():
        exchange.peek(request.environ).trace = stored  # as only another version could write it
        return shop.create()

    shop.answer = answer

    assert [shop.send().status_code for _ in range(2)] == [201, 201]
    assert [linked(span) for span in traces.named("request")] == [[], []]


def test_a_run_whose_trace_is_not_sampled_is_linked_to_by_none(make_shop, traces):
    shop, unsampled = make_shop(), Traces(sampler=ALWAYS_OFF)
    telemetry.opentelemetry(shop.app, unsampled.provider)
    unsampled.instrument(shop.app)
    shop.send()

    assert "Idempotency-Trace" not in str(shop.records())


# -- cost and privacy --------------------------------------------------------------------------------------------------


def called(shop):
    """The files of the functions that a first run with an effect and its replay call."""
    files = set()

    def note(frame, event, _):
        files.add(frame.f_code.co_filename)

    for _ in range(2):
        sys.setprofile(note)
        try:
            shop.send()
        finally:
            sys.setprofile(None)
    return files


@pytest.mark.parametrize("is_on", [True, False])
def test_without_tracing_nothing_of_it_is_called(traced, make_shop, monkeypatch, is_on):
    monkeypatch.setattr(steps, "begun", NamedSignal("begun"))  # other tests have traced their apps
    shop = (traced if is_on else make_shop)()
    shop.answer = lambda: effect("charge", lambda key: 1) and shop.create()

    files = {file for file in called(shop) if file in (steps.__file__, tracing.__file__)}

    assert bool(files) == is_on


def test_no_span_names_a_key_a_scope_a_body_or_an_answer(traced, traces):
    shop = traced(scope=lambda: "canary-scope")
    shop.answer = lambda: effect("charge", lambda key: {"answer": "canary-answer"}) and ({"a": "canary-answer"}, 201)

    for body in ("canary-body", "canary-body", "canary-other"):
        shop.send(key="canary-key", json={"a": body}, headers={"Authorization": "canary-token"})
    shop.answer = lambda: effect("charge", lambda key: {}["canary-error"])
    shop.send(key="canary-second")

    texts = [span.to_json() for span in traces.spans]
    assert len(texts) >= 10
    assert [text for text in texts if "canary" in text] == []


def test_a_tracer_that_fails_changes_no_answer(make_shop, traces, caplog):
    class Broken(TracerProvider):
        def get_tracer(self, *args, **options):
            return self

        def start_span(self, *args, **options):
            raise RuntimeError("no span")

    shop = make_shop()
    telemetry.opentelemetry(shop.app, Broken())
    traces.instrument(shop.app)

    assert [shop.send().status_code for _ in range(2)] == [201, 201]
    assert "the signal begun failed" in caplog.text


# -- set-up ------------------------------------------------------------------------------------------------------------


def test_tracing_twice_is_refused():
    app = Flask(__name__)
    telemetry.opentelemetry(app)

    with pytest.raises(ConfigError, match="call it once"):
        telemetry.opentelemetry(app)


def test_without_the_api_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "flask_idempotency.telemetry.tracing", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)

    with pytest.raises(ConfigError, match=r"pip install flask-idempotency\[otel\]"):
        telemetry.opentelemetry(Flask(__name__))


def test_only_the_apps_own_requests_are_traced(traced, make_shop, traces):
    traced()
    other = make_shop()
    traces.instrument(other.app)

    other.send()

    assert traces.told == [{}]
    assert traces.steps() == []
