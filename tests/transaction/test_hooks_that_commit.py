"""A hook that commits what the view did, and fails: nothing is kept, and nobody is told 201 for no row."""

from contextlib import suppress

import pytest
from flask import after_this_request, session
from flask.sessions import SecureCookieSessionInterface
from sqlalchemy import event, text
from sqlalchemy.exc import IntegrityError, PendingRollbackError

from flask_idempotency import idempotent

REPLAYED = "Idempotent-Replayed"


class Trouble(Exception):
    """What a hook raises."""


class Hook:
    """Commits after the view, as the guide has it; but the first time it fails in the way that the test has said."""

    def __init__(self, shop, fail):
        self._shop, self._fail = shop, fail

    def __call__(self, response):
        if response.status_code == 201:
            fail, self._fail = self._fail, None
            answer = fail(self._shop) if fail else None
            if answer is not None:
                return answer
            self._shop.db.session.commit()
        return response


def is_refused_by_the_database(shop):
    shop.db.session.add_all([shop.db.Order(number="taken"), shop.db.Order(number="taken")])
    shop.db.session.commit()


def raises_before_its_commit(shop):
    raise Trouble


def has_rolled_back_and_answers_500(shop):
    shop.db.session.rollback()
    return shop.app.make_response(("could not be saved", 500))


def answers_500_at_once(shop):
    return shop.app.make_response(("could not be saved", 500))


FAILURES = [
    is_refused_by_the_database,
    raises_before_its_commit,
    has_rolled_back_and_answers_500,
    answers_500_at_once,
]


def adds(shop):
    shop.db.session.add(shop.db.Order(note="one"))


def flushes(shop):
    adds(shop)
    shop.db.session.flush()


def commits_another_thing_first(shop):
    shop.db.session.execute(text('UPDATE "user" SET visits = visits + 1'))
    shop.db.session.commit()
    adds(shop)


def commits_another_thing_and_flushes(shop):
    commits_another_thing_first(shop)
    shop.db.session.flush()


WORKS = [adds, flushes, commits_another_thing_first, commits_another_thing_and_flushes]


def after_request(shop, hook):
    shop.app.after_request(hook)


def after_this(shop, hook):
    shop.app.before_request(lambda: after_this_request(hook) and None)


@pytest.mark.parametrize("register", [after_request, after_this], ids=lambda each: each.__name__)
@pytest.mark.parametrize("work", WORKS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("fail", FAILURES, ids=lambda each: each.__name__)
def test_what_a_hook_was_to_commit_and_did_not_is_not_answered_as_done(make_shop, fail, work, register):
    shop = make_shop()
    shop.begin()
    register(shop, Hook(shop, fail))
    shop.serve(idempotent(lambda: (work(shop), ("made", 201))[1]))

    first = shop.send()
    left = shop.notes, shop.records
    second, third = shop.send(), shop.send()

    assert (first.status_code, left) == (500, ([], 0))
    assert [(answer.status_code, REPLAYED in answer.headers) for answer in (second, third)] == [
        (201, False),
        (201, True),
    ]
    assert shop.notes == ["one"]
    assert shop.rows()["user"] in ([(1, "Ada", 0)], [(1, "Ada", 1)])


def test_what_the_view_has_committed_itself_stands_whatever_a_hook_raises(make_shop):
    shop = make_shop()
    shop.begin()
    shop.app.after_request(Hook(shop, raises_before_its_commit))
    shop.serve(idempotent(lambda: (adds(shop), shop.db.session.commit(), ("made", 201))[2]))

    first, second = shop.send(), shop.send()

    assert (first.status_code, second.status_code) == (500, 201)
    assert second.headers[REPLAYED] == "true"
    assert shop.notes == ["one"]


def test_what_a_view_did_elsewhere_is_not_done_again_because_a_hook_raises(make_shop):
    shop, sent = make_shop(), []
    shop.begin()
    shop.app.after_request(Hook(shop, raises_before_its_commit))
    shop.serve(idempotent(lambda: (sent.append("a letter"), ("made", 201))[1]))

    first, second = shop.send(), shop.send()

    assert (first.status_code, second.status_code) == (500, 201)
    assert second.headers[REPLAYED] == "true"
    assert sent == ["a letter"]


def test_what_was_left_to_a_hook_is_missed_though_the_session_was_emptied_meanwhile(make_shop):
    shop, troubles = make_shop(), [Trouble, Trouble]
    shop.begin()
    shop.serve(idempotent(lambda: (commits_another_thing_first(shop), ("made", 201))[1]))

    @shop.app.after_request
    def fail(response):
        if troubles:
            raise troubles.pop()  # also when Flask runs the hooks again, over the page that it makes of the first
        shop.db.session.commit()
        return response

    shop.send()
    left = shop.notes, shop.records
    second = shop.send()

    assert left == ([], 0)
    assert (second.status_code, REPLAYED in second.headers) == (201, False)
    assert shop.notes == ["one"]


def test_an_answer_that_goes_out_as_a_success_is_never_undone_for_being_another_than_is_kept(make_shop):
    shop = make_shop()
    shop.begin()
    shop.serve(idempotent(keep={201})(lambda: (adds(shop), shop.db.session.commit(), ("made", 201))[2]))

    @shop.app.after_request
    def wrap(response):
        response.status_code = 200
        return response

    answer = shop.send()

    assert answer.status_code == 200
    assert shop.notes == ["one"]


def test_a_hook_that_always_fails_to_commit_never_leaves_an_answer(make_shop):
    shop = make_shop()
    shop.begin()
    shop.serve(idempotent(lambda: (adds(shop), ("made", 201))[1]))

    @shop.app.after_request
    def commit(response):
        if response.status_code == 201:
            with pytest.raises(IntegrityError):
                is_refused_by_the_database(shop)
            raise Trouble
        return response

    answers = [shop.send() for _ in range(2)]

    assert [answer.status_code for answer in answers] == [500, 500]
    assert (shop.notes, shop.records) == ([], 0)


# -- hooks that make light of it ---------------------------------------------------------------------------------------


class Swallowing(Hook):
    """As Hook, but it fails without anybody hearing of it."""

    def __call__(self, response):
        if self._fail is None:
            return super().__call__(response)
        fail, self._fail = self._fail, None
        fail(self._shop)
        return response


def commits_and_rolls_back(shop):
    try:
        is_refused_by_the_database(shop)
    except IntegrityError:
        shop.db.session.rollback()


def commits_and_forgets(shop):
    with suppress(IntegrityError):
        is_refused_by_the_database(shop)


def flushes_and_commits_the_rest(shop):
    shop.db.session.add_all([shop.db.Order(number="taken"), shop.db.Order(number="taken")])
    with suppress(IntegrityError):
        shop.db.session.flush()
    with suppress(PendingRollbackError):
        shop.db.session.commit()


def fails_and_commits_something_else(shop):
    commits_and_rolls_back(shop)
    shop.db.session.execute(text('UPDATE "user" SET visits = visits + 1'))
    shop.db.session.commit()


def commits_in_a_block(shop):
    session = shop.db.session()
    with suppress(IntegrityError), session.get_transaction() or session.begin():
        shop.db.session.add_all([shop.db.Order(number="taken"), shop.db.Order(number="taken")])


def is_stopped_by_a_listener(shop):
    try:
        is_stopped(shop, "before_flush")
    except Trouble:
        shop.db.session.rollback()


def rolls_back_later(shop):
    commits_and_forgets(shop)
    shop.db.session.rollback()


def is_stopped_and_rolls_back_later(shop):
    is_stopped_and_forgets(shop)
    shop.db.session.rollback()


def is_stopped_and_forgets(shop):
    with suppress(Trouble):
        is_stopped(shop, "before_flush")


def is_stopped_before_its_commit_and_rolls_back_later(shop):
    with suppress(Trouble):
        is_stopped(shop, "before_commit")
    shop.db.session.rollback()


def is_stopped(shop, moment):
    def refuse(*_):
        raise Trouble

    event.listen(shop.db.session(), moment, refuse, once=True)
    shop.db.session.add(shop.db.Order(note="more"))
    shop.db.session.commit()


SWALLOWED = [
    rolls_back_later,
    is_stopped_and_rolls_back_later,
    is_stopped_and_forgets,
    is_stopped_before_its_commit_and_rolls_back_later,
    commits_and_rolls_back,
    commits_and_forgets,
    flushes_and_commits_the_rest,
    fails_and_commits_something_else,
    commits_in_a_block,
    is_stopped_by_a_listener,
]


@pytest.mark.parametrize("work", WORKS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("fail", SWALLOWED, ids=lambda each: each.__name__)
def test_a_late_commit_that_fails_is_no_success_though_the_hook_makes_light_of_it(make_shop, fail, work, caplog):
    shop = make_shop()
    shop.begin()
    shop.app.after_request(Swallowing(shop, fail))
    shop.serve(idempotent(lambda: (work(shop), ("made", 201))[1]))

    first = shop.send()
    left = shop.notes, shop.records
    second, third = shop.send(), shop.send()

    assert (first.status_code, left) == (500, ([], 0))
    assert "an error after the view rolled them back" in caplog.text
    assert [(answer.status_code, REPLAYED in answer.headers) for answer in (second, third)] == [
        (201, False),
        (201, True),
    ]
    assert shop.notes == ["one"]


def test_a_session_of_the_same_request_that_the_view_did_not_use_may_fail(make_shop):
    shop = make_shop()
    shop.begin()

    @shop.app.after_request
    def audit(response):
        with suppress(IntegrityError), shop.db.session.session_factory() as another:
            another.add_all([shop.db.Order(number="taken"), shop.db.Order(number="taken")])
            another.commit()
        shop.db.session.commit()
        return response

    shop.serve(idempotent(lambda: (flushes(shop), ("made", 201))[1]))

    answers = [shop.send() for _ in range(2)]

    assert [(answer.status_code, REPLAYED in answer.headers) for answer in answers] == [(201, False), (201, True)]
    assert shop.notes == ["one"]


def commits(shop):
    adds(shop)
    shop.db.session.commit()


def looks_up(shop):
    commits(shop)
    shop.db.session.execute(text("SELECT 1"))


@pytest.mark.parametrize("work", [commits, looks_up], ids=lambda each: each.__name__)
@pytest.mark.parametrize("fail", SWALLOWED, ids=lambda each: each.__name__)
def test_what_the_view_has_committed_itself_stands_whatever_a_hook_fails_to_commit(make_shop, fail, work):
    shop = make_shop()
    shop.begin()
    shop.app.after_request(Swallowing(shop, fail))
    shop.serve(idempotent(lambda: (work(shop), ("made", 201))[1]))

    answers = [shop.send() for _ in range(2)]

    assert [(answer.status_code, REPLAYED in answer.headers) for answer in answers] == [(201, False), (201, True)]
    assert shop.notes == ["one"]


@pytest.mark.parametrize("work", WORKS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("fail", SWALLOWED, ids=lambda each: each.__name__)
def test_what_a_hook_has_committed_stands_whatever_another_fails_to_commit(make_sqlite_shop, fail, work):
    shop = make_sqlite_shop()
    shop.begin()
    shop.app.after_request(Swallowing(shop, fail))
    shop.app.after_request(lambda response: (shop.db.session.commit(), response)[1])  # which runs before
    shop.serve(idempotent(lambda: (work(shop), ("made", 201))[1]))

    answers = [shop.send() for _ in range(2)]

    assert [(answer.status_code, REPLAYED in answer.headers) for answer in answers] == [(201, False), (201, True)]
    assert shop.notes == ["one"]


def test_a_hook_may_take_back_on_purpose_what_the_view_has_left(make_shop):
    shop = make_shop()
    shop.begin()
    shop.app.after_request(lambda response: (shop.db.session.rollback(), response)[1])
    shop.serve(idempotent(lambda: (flushes(shop), ("tried", 200))[1]))

    answers = [shop.send() for _ in range(2)]

    assert [(answer.status_code, REPLAYED in answer.headers) for answer in answers] == [(200, False), (200, True)]
    assert shop.notes == []


def test_a_savepoint_of_a_hook_may_fail(make_shop):
    shop = make_shop()
    shop.begin()

    @shop.app.after_request
    def commit(response):
        with suppress(IntegrityError), shop.db.session.begin_nested():
            shop.db.session.add_all([shop.db.Order(number="taken"), shop.db.Order(number="taken")])
        shop.db.session.commit()
        return response

    shop.serve(idempotent(lambda: (flushes(shop), ("made", 201))[1]))

    answers = [shop.send() for _ in range(2)]

    assert [(answer.status_code, REPLAYED in answer.headers) for answer in answers] == [(201, False), (201, True)]
    assert shop.notes == ["one"]


# -- hooks in whatever order -------------------------------------------------------------------------------------------


class CommittingSessions(SecureCookieSessionInterface):
    """Sessions on the server, as Flask-Session keeps them in a database: to save one commits ``db.session``."""

    def __init__(self, shop):
        self._shop = shop

    def save_session(self, app, session, response):
        self._shop.db.session.execute(text('UPDATE "user" SET visits = visits + 1'))
        self._shop.db.session.commit()
        super().save_session(app, session, response)


def before_init_app(shop, commit):
    shop.app.after_request(commit)
    shop.begin()


def after_init_app(shop, commit):
    shop.begin()
    shop.app.after_request(commit)


def where_the_session_is_saved(shop, commit):
    class Sessions(CommittingSessions):
        def save_session(self, app, session, response):
            commit(response)
            super().save_session(app, session, response)

    shop.begin()
    shop.app.secret_key = "a secret"
    shop.app.session_interface = Sessions(shop)


PLACES = [before_init_app, after_init_app, where_the_session_is_saved]
places = pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)


def flushes_and_uses_the_session(shop):
    flushes(shop)
    session["last"] = "one"


@places
def test_what_a_hook_commits_is_there_with_the_answer(make_shop, place):
    shop = make_shop()
    place(shop, lambda response: (shop.db.session.commit(), response)[1])
    shop.serve(idempotent(lambda: (flushes_and_uses_the_session(shop), ("made", 201))[1]))
    shop.app.secret_key = "a secret"

    first = shop.send()
    left = shop.notes, shop.records
    second = shop.send()

    assert (first.status_code, left) == (201, (["one"], 1))
    assert (second.status_code, second.headers[REPLAYED], shop.notes) == (201, "true", ["one"])


@places
def test_a_commit_of_a_hook_that_fails_is_never_replayed_as_a_success(make_shop, place):
    shop = make_shop()
    troubles = [Trouble, Trouble]  # Flask runs the hooks again, over the page that it makes of the first

    def commit(response):
        if troubles:
            raise troubles.pop()
        shop.db.session.commit()
        return response

    place(shop, commit)
    shop.serve(idempotent(lambda: (flushes_and_uses_the_session(shop), ("made", 201))[1]))
    shop.app.secret_key = "a secret"

    first = shop.send()
    left = shop.notes, shop.records
    second, third = shop.send(), shop.send()

    assert (first.status_code, left) == (500, ([], 0))
    assert [(answer.status_code, REPLAYED in answer.headers) for answer in (second, third)] == [
        (201, False),
        (201, True),
    ]
    assert shop.notes == ["one"]


@places
def test_what_a_hook_writes_besides_is_undone_with_an_attempt_that_fails(make_shop, place):
    shop = make_shop()

    def count_visits(response):
        shop.db.session.execute(text('UPDATE "user" SET visits = visits + 1'))
        shop.db.session.commit()
        return response

    place(shop, count_visits)
    shop.serve(idempotent(lambda: (adds(shop), shop.db.session.commit(), ("failed", 500))[2]))

    answer = shop.send()

    assert (answer.status_code, shop.notes, shop.records) == (500, [], 0)
    assert shop.rows()["user"] == [(1, "Ada", 0)]


def test_the_session_cookie_goes_out_and_is_not_stored(make_shop):
    shop = make_shop()
    shop.begin()
    shop.app.secret_key = "a secret"
    shop.serve(idempotent(lambda: (flushes_and_uses_the_session(shop), shop.db.session.commit(), ("made", 201))[2]))

    first, second = shop.send(), shop.send()

    assert "session=" in first.headers["Set-Cookie"]
    assert "Set-Cookie" not in second.headers
    assert second.headers[REPLAYED] == "true"
