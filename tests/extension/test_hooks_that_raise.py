"""The hook of another that raises after the view: the effect stands, the retry replays, the view ran once."""

import pytest
from flask import Blueprint, abort, after_this_request, copy_current_request_context, request
from flask.sessions import SecureCookieSessionInterface
from werkzeug.exceptions import NotFound

from flask_idempotency import idempotent, signals
from flask_idempotency.errors import StoreUnavailable
from tests.apps.shop import REPLAYED


class Broken(Exception):
    """What the hook raises."""


class Hook:
    """A hook that raises until it is mended."""

    mended = False

    def __call__(self, response=None):
        if not self.mended:
            raise Broken
        return response


def in_the_app(shop, hook):
    shop.app.after_request_funcs[None].append(hook)


def in_the_blueprint(shop, hook):
    shop.app.after_request_funcs.setdefault("api", []).append(hook)


def asked_for_by_another_hook(shop, hook):
    shop.app.before_request_funcs[None].append(lambda: (after_this_request(hook), None)[1])


def where_the_session_is_saved(shop, hook):
    class Sessions(SecureCookieSessionInterface):
        def save_session(self, app, session, response):
            hook(response)
            super().save_session(app, session, response)

    shop.app.session_interface = Sessions()


def asked_for_by_the_view(shop, hook):
    answer = shop.answer
    shop.answer = lambda: (after_this_request(hook), answer())[1]


PLACES = [
    in_the_app,
    in_the_blueprint,
    asked_for_by_another_hook,
    asked_for_by_the_view,
    where_the_session_is_saved,
]


@pytest.fixture
def office(shop):
    blueprint = Blueprint("api", __name__)
    blueprint.add_url_rule("/decorated", "decorated", idempotent(shop.run), methods=["POST"])
    blueprint.add_url_rule("/undecorated", "undecorated", lambda: shop.run(), methods=["POST"])
    shop.app.register_blueprint(blueprint, url_prefix="/api")
    return shop


def send_and_break(shop, path, propagates, **options):
    if propagates:
        with pytest.raises(Broken):
            shop.send(path, **options)
    else:
        assert shop.send(path, **options).status_code == 500


@pytest.mark.parametrize("testing", [True, False], ids=["TESTING", "not TESTING"])
@pytest.mark.parametrize("path", ["/api/decorated", "/api/undecorated"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("form", [False, True], ids=["header", "form field"])
def test_the_effect_stands_and_the_retry_replays(office, testing, path, place, form):
    office.app.testing = testing
    hook = Hook()
    place(office, hook)
    sent = {"key": None, "data": {"_idempotency_key": "abc"}} if form else {}
    send_and_break(office, path, testing, **sent)
    hook.mended = True

    retry = office.send(path, **sent)

    assert (retry.status_code, retry.headers.get(REPLAYED), office.n) == (201, "true", 1)
    assert retry.json == {"id": 1}


@pytest.mark.parametrize("testing", [True, False], ids=["TESTING", "not TESTING"])
@pytest.mark.parametrize("place", PLACES)
def test_a_hook_that_aborts_is_no_answer_of_the_view(office, testing, place):
    office.app.testing = testing
    mended = []
    place(office, lambda response: response if mended else abort(404))
    if testing:
        with pytest.raises(NotFound):
            office.send("/api/decorated")
    else:
        assert office.send("/api/decorated").status_code == 500
    mended.append(True)

    retry = office.send("/api/decorated")

    assert (retry.status_code, retry.headers.get(REPLAYED), office.n) == (201, "true", 1)


@pytest.mark.parametrize("place", PLACES)
def test_while_the_hook_stays_broken_nothing_runs_again(office, place):
    place(office, Hook())

    statuses = [office.send("/api/decorated").status_code for _ in range(3)]

    assert (statuses[0], office.n) == (500, 1)


@pytest.mark.parametrize("place", PLACES)
def test_an_answer_that_is_not_kept_is_not_kept_because_a_hook_raises(office, place):
    office.answer = lambda: ("later", 503)
    hook = Hook()
    place(office, hook)
    office.send("/api/decorated")
    hook.mended = True
    office.answer = office.create

    assert office.send("/api/decorated").status_code == 201
    assert office.n == 2


@pytest.mark.parametrize("place", PLACES)
def test_a_worker_that_is_stopped_inside_a_hook_has_done_its_work(office, place):
    stop = [True]

    def hook(response):
        if stop:
            raise SystemExit
        return response

    place(office, hook)
    with pytest.raises(SystemExit):
        office.send("/api/decorated")
    stop.clear()

    assert office.send("/api/decorated").headers[REPLAYED] == "true"
    assert office.n == 1


@pytest.mark.parametrize("testing", [True, False])
@pytest.mark.parametrize("fails", ["in the view", "in a hook"])
def test_a_teardown_function_that_raises_does_not_keep_a_run_from_being_settled(shop, testing, fails):
    shop.app.testing = testing
    hook = Hook()
    hook.mended = fails == "in the view"
    in_the_app(shop, hook)
    shop.app.teardown_request(lambda error: 1 / 0 if error else None)
    if fails == "in the view":
        shop.answer = lambda: (_ for _ in ()).throw(Broken)
    with pytest.raises((Broken, ZeroDivisionError)):
        shop.send()
    hook.mended, shop.answer = True, shop.create

    retry = shop.send()

    assert retry.status_code == 201
    assert shop.n == (2 if fails == "in the view" else 1)


@pytest.mark.parametrize("raises", [False, True])
def test_a_copy_of_the_context_that_ends_early_does_not_end_the_run(shop, raises):
    seen = []

    def work():
        if raises:
            raise Broken

    def run():
        job = copy_current_request_context(work)
        if raises:
            with pytest.raises(Broken):
                job()
        else:
            job()
        seen.append(shop.send().status_code)
        return shop.create()

    shop.answer = run
    first = shop.send()

    assert (first.status_code, seen, shop.n) == (201, [409], 1)
    assert shop.send().headers[REPLAYED] == "true"


def test_an_environ_handed_on_to_another_app_is_left_alone(shop, make_shop):
    inner, seen = make_shop(methods=()), []
    inner.answer = lambda: ("inner", 503)

    def delegate():
        seen.append(b"".join(inner.app.wsgi_app(request.environ, lambda *_: None)))
        seen.append(shop.send("/plain").status_code)
        return shop.create()

    shop.answer = delegate
    first = shop.send("/plain")

    assert (first.status_code, seen) == (201, [b"inner", 409])
    assert shop.send("/plain").headers[REPLAYED] == "true"


def test_a_broken_hook_and_a_broken_store_together_do_not_hide_the_hooks_error(shop, caplog):
    shop.app.testing = True
    hook = Hook()
    in_the_app(shop, hook)
    shop.store.fails("complete", StoreUnavailable())

    with pytest.raises(Broken):
        shop.send()

    hook.mended = True
    shop.store.heals()
    assert "outcome_unknown" in caplog.text
    assert (shop.send().status_code, shop.n) == (409, 1)


def test_a_broken_hook_of_a_run_that_was_taken_over_does_no_harm(shop, let_pass):
    shop.app.testing = True
    hook = Hook()
    hook.mended = True
    in_the_app(shop, hook)

    def run():
        if shop.n == 1:
            let_pass(3600)
            shop.send()
            hook.mended = False
        return shop.create()

    shop.answer = run
    with pytest.raises(Broken):
        shop.send()
    hook.mended = True

    assert (shop.send().json, shop.n) == ({"id": 2}, 2)


def test_whatever_goes_wrong_while_a_run_is_abandoned_is_logged_and_no_more(shop, caplog, monkeypatch):
    shop.app.testing = True
    in_the_app(shop, Hook())
    monkeypatch.setattr("flask_idempotency.request.take_down", lambda *_: 1 / 0)

    with pytest.raises(Broken):
        shop.send()

    assert "could not settle" in caplog.text


def test_signals_of_a_run_that_a_hook_broke_are_sent_all_the_same(shop):
    hook, told = Hook(), []
    in_the_app(shop, hook)
    listen = lambda app, **facts: told.append(facts["status"])  # noqa: E731  # blinker keeps it only as long as we do
    signals.completed.connect(listen, shop.app)

    shop.send()

    assert told == [201]
