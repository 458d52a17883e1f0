"""A deploy takes the protection from a view, and requests to it were left in the middle: they are not run again and
again."""

import logging
from datetime import timedelta
from functools import wraps

import pytest
from flask import Flask, abort, redirect, session
from flask_sqlalchemy import SQLAlchemy

from flask_idempotency import Idempotency, exempt, idempotent, scopes, signals
from flask_idempotency.core.lifecycle import State
from flask_idempotency.core.reference import reference_of
from flask_idempotency.guards.recovery import complete_abandoned

REFUSED = (503, "running")
PROTECT = idempotent(methods={"PUT"}, guard="lease", resumable=True)


class Release:
    """One release of an app, whose view of PUT is decorated as it says."""

    def __init__(self, url, decorate):
        self.app = Flask("release")
        self.app.config.update(SQLALCHEMY_DATABASE_URI=url, IDEMPOTENCY_HOUSEKEEPING=False, SECRET_KEY="secret")
        self.db = SQLAlchemy(self.app)
        self.n, self.is_stopped = 0, False
        Idempotency(self.app, db=self.db, scope=scopes.everyone, caller=lambda scope: None)
        self.app.add_url_rule("/things/1", "thing", decorate(self.view), methods=["PUT"])

    def view(self):
        self.n += 1
        if self.is_stopped:
            raise SystemExit
        return {"thing": 1}, 200

    def send(self):
        return self.app.test_client().put("/things/1", headers={"Idempotency-Key": "intent-1"}, json={"tea": 2})

    def complete(self):
        return [(each.status, each.outcome) for each in complete_abandoned(self.app, age=timedelta(0))]

    def close(self):
        with self.app.app_context():
            self.db.engine.dispose()
        self.app.extensions["idempotency"].store.close()


@pytest.fixture
def deploy(tables):
    """`deploy(decorate)`: a release of the app on the test's database."""
    releases = []

    def start(decorate):
        releases.append(Release(tables.url, decorate))
        return releases[-1]

    yield start
    for each in releases:
        each.close()


@pytest.fixture
def left(deploy):
    """A request that was left in the middle, by a release that protected it; gives that release."""
    release = deploy(PROTECT)
    release.is_stopped = True
    with pytest.raises(SystemExit):
        release.send()
    release.is_stopped = False
    return release


UNPROTECTED = {
    "no decorator": lambda view: view,
    "other methods": idempotent(guard="lease", resumable=True),
    "exempt": lambda view: exempt(lambda: view()),
    "exempt, with a claim inside": lambda view: exempt(lambda: PROTECT(view)()),
}


@pytest.fixture(params=UNPROTECTED.values(), ids=UNPROTECTED)
def unprotected(request, deploy):
    """The next release, whose decorator says nothing of PUT, or which has none."""
    return deploy(request.param)


def test_a_resumed_request_never_reaches_a_view_that_is_not_protected_any_more(left, unprotected, tables):
    looks = [unprotected.complete() for _ in range(3)]

    assert looks == [[REFUSED]] * 3
    assert unprotected.n == 0
    assert tables.record("intent-1").state is State.RUNNING


def test_somebody_is_told_which_request_it_is(left, unprotected, tables, caplog):
    known = reference_of(tables.record("intent-1").asked.id)
    with caplog.at_level(logging.CRITICAL, "flask_idempotency"):
        unprotected.complete()

    lines = [line.getMessage() for line in caplog.records if line.levelno == logging.CRITICAL]
    advice = "put its @idempotent back until the request is finished"
    assert lines == [
        f"checkpoint_unknown: {known} cannot be resumed, because its view is no longer protected; {advice}"
    ]


def test_a_release_that_protects_it_again_finishes_it(left, unprotected):
    unprotected.complete()

    assert left.complete() == [(200, "finished")]
    assert left.n == 2


def test_a_client_that_comes_back_by_itself_is_served_like_anybody(left, unprotected):
    assert unprotected.send().status_code == 200
    assert unprotected.n == 1


# -- answers of others, before the view --------------------------------------------------------------------------------


def log_in_first(answer):
    """A decorator like Flask-Login's: whoever is not signed in is answered by it."""

    def decorate(view):
        @wraps(view)
        def checked(*args, **kwargs):
            return view(*args, **kwargs) if session.get("user") else answer()

        return checked

    return decorate


ANSWERS = {
    "a redirect": (lambda: redirect("/login"), 302),
    "a page": (lambda: "Please sign in.", 200),
    "a refusal": (lambda: abort(401), 401),
}


@pytest.fixture(params=ANSWERS.values(), ids=ANSWERS)
def answer(request):
    return request.param


def test_a_decorator_that_answers_in_the_place_of_the_view_leaves_the_request_for_the_next_look(
    left, deploy, tables, answer
):
    make, status = answer
    release = deploy(lambda view: log_in_first(make)(PROTECT(view)))

    looks = [release.complete() for _ in range(2)]

    assert looks == [[(status, "running")]] * 2
    assert release.n == 0
    assert left.complete() == [(200, "finished")]


def test_a_hook_that_answers_in_the_place_of_the_view_leaves_the_request_for_the_next_look(left, deploy, answer):
    make, status = answer
    release = deploy(PROTECT)
    release.app.before_request(make)

    looks = [release.complete() for _ in range(2)]

    assert looks == [[(status, "running")]] * 2
    assert release.n == 0
    assert left.complete() == [(200, "finished")]


def test_a_middleware_that_redirects_leaves_the_request_for_the_next_look(left, deploy):
    release = deploy(PROTECT)
    release.app.wsgi_app = redirect("https://localhost/things/1")

    assert [release.complete() for _ in range(2)] == [[(302, "running")]] * 2
    assert left.complete() == [(200, "finished")]


def test_a_success_of_another_app_that_is_mounted_there_is_given_to_a_person_and_not_repeated(left, deploy, caplog):
    release, other, runs = deploy(PROTECT), Flask("other"), []
    other.add_url_rule("/things/1", "thing", lambda: (runs.append(1), "done")[1], methods=["PUT"])
    release.app.wsgi_app = other.wsgi_app

    told = []
    with signals.quarantined.connected_to(lambda sender, **facts: told.append(sender)):
        looks = [release.complete() for _ in range(3)]

    assert looks == [[(200, "quarantined")], [], []]
    assert (runs, told) == ([1], [release.app])
    assert "it was resumed, and something outside of this app answered 200 without a claim" in caplog.text
