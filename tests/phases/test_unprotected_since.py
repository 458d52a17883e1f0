"""A deploy takes the protection from a view, and requests to it were left in the middle: they are not run again and
again."""

import logging
from datetime import timedelta

import pytest
from flask import Flask
from flask_sqlalchemy import SQLAlchemy

from flask_idempotency import Idempotency, exempt, idempotent, scopes
from flask_idempotency.completing import complete_abandoned
from flask_idempotency.core.lifecycle import State
from flask_idempotency.core.reference import reference_of

REFUSED = (503, "running")


class Release:
    """One release of an app, whose view of PUT is decorated as it says."""

    def __init__(self, url, decorate):
        self.app = Flask("release")
        self.app.config.update(SQLALCHEMY_DATABASE_URI=url, IDEMPOTENCY_HOUSEKEEPING=False)
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
    release = deploy(idempotent(methods={"PUT"}, guard="lease", resumable=True))
    release.is_stopped = True
    with pytest.raises(SystemExit):
        release.send()
    release.is_stopped = False
    return release


@pytest.fixture(
    params=[lambda view: view, idempotent(guard="lease", resumable=True)], ids=["no decorator", "other methods"]
)
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
    assert lines == [f"checkpoint_unknown: {known} is to be resumed, and its view is not protected any more"]


def test_a_release_that_protects_it_again_finishes_it(left, unprotected):
    unprotected.complete()

    assert left.complete() == [(200, "finished")]
    assert left.n == 2


def test_a_client_that_comes_back_by_itself_is_served_like_anybody(left, unprotected):
    assert unprotected.send().status_code == 200
    assert unprotected.n == 1


def test_a_request_whose_view_has_become_exempt_is_run_once_at_most_and_given_to_a_person(left, deploy, tables, caplog):
    exempted = deploy(lambda view: exempt(lambda: view()))

    looks = [exempted.complete() for _ in range(3)]

    assert looks == [[(200, "quarantined")], [], []]
    assert exempted.n == 1
    assert "its view ran without a claim" in caplog.text


def test_an_exempt_view_that_opens_its_claim_inside_is_finished(left, deploy):
    def as_before(view):
        once = idempotent(methods={"PUT"}, guard="lease", resumable=True)(view)
        return exempt(lambda: once())

    assert deploy(as_before).complete() == [(200, "finished")]
