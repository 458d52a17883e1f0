"""What becomes of the view's work at each end of a request, beyond what the gallery shows."""

import logging
from contextlib import suppress
from itertools import count

import pytest
from flask import abort
from sqlalchemy import event, text
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from flask_idempotency import after_commit, exempt, idempotent, phase
from flask_idempotency.errors import IdempotencyError

REPLAYED = "Idempotent-Replayed"


def add(shop, note):
    """Add an order, and commit."""
    shop.db.session.add(shop.db.Order(note=note))
    shop.db.session.commit()


def on_first_run(act):
    """A function that does something the first time only."""
    runs = count(1)

    def run():
        if next(runs) == 1:
            return act()
        return None

    return run


def crash():
    raise LookupError("the view failed")


ENDS = {
    "exception": crash,
    "500": lambda: ("no", 500),
    "503": lambda: ("no", 503),
    "409": lambda: ("no", 409),
    "abort(408)": lambda: abort(408),
    "abort(502)": lambda: abort(502),
}


# -- what is not kept --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_failed_attempt_leaves_nothing_not_even_what_it_committed(shop, end):
    def view():
        add(shop, "one")
        add(shop, "two")
        return end()

    shop.serve(view)

    answer = shop.send()

    assert answer.status_code >= 400
    assert shop.notes == []
    assert shop.records == 0


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_the_retry_of_a_failed_attempt_runs_and_is_kept(shop, end):
    fail = on_first_run(end)

    def view():
        add(shop, "one")
        return fail() or ("made", 201)

    shop.serve(view)
    shop.send()

    retried, replayed = shop.send(), shop.send()

    assert (retried.status_code, REPLAYED in retried.headers) == (201, False)
    assert (replayed.status_code, REPLAYED in replayed.headers) == (201, True)
    assert shop.notes == ["one"]


def test_an_exception_in_debug_mode_leaves_nothing_too(make_shop):
    shop = make_shop()
    shop.app.debug = True
    shop.begin()

    def view():
        add(shop, "one")
        crash()

    shop.serve(view)

    with pytest.raises(LookupError):
        shop.send()

    assert shop.notes == []
    assert shop.records == 0
    assert shop.engine.pool.checkedout() == 0


def test_in_debug_mode_a_request_is_committed_and_replayed_as_ever(make_shop):
    shop = make_shop()
    shop.app.debug = True
    shop.begin()

    def view():
        add(shop, "one")
        return "made", 201

    shop.serve(view)

    first, second = shop.send(), shop.send()

    assert (first.status_code, second.status_code) == (201, 201)
    assert REPLAYED in second.headers
    assert shop.notes == ["one"]


@pytest.mark.parametrize("status", [400, 404, 410, 422])
def test_a_refusal_that_is_kept_keeps_what_was_committed_and_nothing_else(shop, status):
    def view():
        add(shop, "committed")
        shop.db.session.add(shop.db.Order(note="not committed"))
        shop.db.session.flush()
        return "no", status

    shop.serve(view)

    first, second = shop.send(), shop.send()

    assert (first.status_code, second.status_code) == (status, status)
    assert REPLAYED in second.headers
    assert shop.notes == ["committed"]


def test_a_hook_that_fails_after_the_view_does_not_undo_a_success(shop):
    def view():
        add(shop, "one")
        return "made", 201

    shop.serve(view)
    fail = on_first_run(crash)

    @shop.app.after_request
    def hook(response):
        fail()
        return response

    first, second = shop.send(), shop.send()

    assert first.status_code == 500
    assert (second.status_code, second.data) == (201, b"made")
    assert REPLAYED in second.headers
    assert shop.notes == ["one"]


# -- what the database will not have -----------------------------------------------------------------------------------


def fails_and_is_swallowed(shop):
    """Add an order, and run into an error that nobody hears of."""
    shop.db.session.execute(text("INSERT INTO orders (note) VALUES ('one')"))
    with suppress(SQLAlchemyError):
        shop.db.session.execute(text("SELECT 1 FROM a_table_that_is_not_there"))


def test_a_failed_statement_that_the_view_swallowed_is_no_success(make_postgres_shop, caplog):
    shop = make_postgres_shop()
    shop.begin()
    swallow = on_first_run(lambda: fails_and_is_swallowed(shop))

    def view():
        swallow()
        shop.db.session.commit()
        return "made", 201

    shop.serve(view)

    answers = [shop.send() for _ in range(3)]

    assert [answer.status_code for answer in answers] == [500, 201, 201]
    assert [REPLAYED in answer.headers for answer in answers] == [False, False, True]
    assert shop.notes == []
    assert "did not commit what the view did" in caplog.text


def test_what_follows_a_swallowed_failure_and_its_commit_is_not_kept_either(make_postgres_shop):
    shop = make_postgres_shop()
    shop.begin()

    def view():
        fails_and_is_swallowed(shop)
        shop.db.session.commit()
        add(shop, "two")
        return "made", 201

    shop.serve(view)

    answer = shop.send()

    assert answer.status_code == 500
    assert shop.notes == []
    assert shop.records == 0
    assert shop.engine.pool.checkedout() == 0


def test_a_swallowed_failure_is_not_healed_by_whoever_tries_again_and_rolls_back(make_postgres_shop):
    shop = make_postgres_shop()
    shop.begin()

    def view():
        fails_and_is_swallowed(shop)
        shop.db.session.commit()
        for _ in range(3):
            try:
                add(shop, "two")
                break
            except SQLAlchemyError:
                shop.db.session.rollback()
        return "made", 201

    shop.serve(view)

    answers = [shop.send() for _ in range(2)]

    assert [answer.status_code for answer in answers] == [500, 500]
    assert (shop.notes, shop.records) == ([], 0)


def test_a_swallowed_failure_that_is_never_committed_is_discarded_like_any_other_work(make_postgres_shop):
    shop = make_postgres_shop()
    shop.begin()

    def view():
        add(shop, "committed before")
        fails_and_is_swallowed(shop)
        return "made", 201

    shop.serve(view)

    first, second = shop.send(), shop.send()

    assert (first.status_code, second.status_code) == (201, 201)
    assert REPLAYED in second.headers
    assert shop.notes == ["committed before"]


def test_a_lock_that_is_not_to_be_had_when_an_object_is_read_again_can_be_survived(make_postgres_shop):
    shop = make_postgres_shop()
    shop.begin()

    def view():
        user = shop.db.session.get(shop.db.User, 1)
        add(shop, "one")
        try:
            shop.db.session.refresh(user, with_for_update={"nowait": True})
        except OperationalError:
            shop.db.session.rollback()
            add(shop, "the user is busy")
        return "made", 202

    shop.serve(view)
    holder = shop.engine.connect()
    holder.execute(text('SELECT * FROM "user" FOR UPDATE'))

    first, second = shop.send(), shop.send()
    holder.close()

    assert (first.status_code, second.status_code) == (202, 202)
    assert REPLAYED in second.headers
    assert shop.notes == ["one", "the user is busy"]


@pytest.fixture
def orphanage(make_shop):
    """A shop whose view adds an orphan the first time: the database complains at COMMIT, not before."""
    shop = make_shop()
    if shop.url.startswith("sqlite"):
        event.listen(shop.engine, "connect", lambda connection, _: connection.execute("PRAGMA foreign_keys = ON"))
    shop.begin()
    shop.sql("CREATE TABLE child (parent integer REFERENCES orders (id) DEFERRABLE INITIALLY DEFERRED)")
    add_orphan = on_first_run(lambda: shop.db.session.execute(text("INSERT INTO child (parent) VALUES (99)")))

    def view():
        add(shop, "one")
        add_orphan()
        shop.db.session.commit()
        after_commit(lambda: shop.told.append("committed"))
        return "made", 201

    shop.told = []
    shop.serve(view)
    return shop


def test_work_that_fails_at_commit_is_no_success_though_the_view_was_told_so(orphanage, caplog):
    answer = orphanage.send()

    assert answer.status_code == 500
    assert b"made" not in answer.data
    assert REPLAYED not in answer.headers
    assert (orphanage.notes, orphanage.sql("SELECT * FROM child"), orphanage.records) == ([], [], 0)
    assert orphanage.told == []
    assert orphanage.engine.pool.checkedout() == 0
    assert "did not commit what the view did" in caplog.text


UNBALANCED = """
CREATE FUNCTION weigh() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'not balanced' USING errcode = '{}'; END $$
"""
WEIGH = """
CREATE CONSTRAINT TRIGGER weigh AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION weigh()
"""


@pytest.mark.parametrize("code", ["P0001", "22012", "23514", "42501", "ZZ001"])
def test_what_a_trigger_refuses_at_commit_is_a_certain_failure_whatever_it_calls_it(make_postgres_shop, code):
    shop, runs = make_postgres_shop(), []
    shop.begin()
    shop.sql(UNBALANCED.format(code))
    shop.sql(WEIGH)
    shop.serve(lambda: (runs.append("ran"), add(shop, "one"), ("made", 201))[2])
    shop.serve(
        idempotent(guard="lease")(
            lambda: (phase("work", lambda: (runs.append("ran"), add(shop, "one"))[0]), "made")[1]
        ),
        "/phase",
    )

    refused = [shop.send(), shop.send("/phase", key="order-2")]
    left = shop.notes, len(runs)
    shop.sql("DROP FUNCTION weigh CASCADE")
    done = [shop.send(), shop.send("/phase", key="order-2")]

    assert [answer.status_code for answer in refused] == [500, 500]
    assert left == ([], 2)
    assert [answer.status_code for answer in done] == [201, 200]
    assert shop.notes == ["one", "one"]


def test_the_retry_of_work_that_failed_at_commit_runs(orphanage):
    orphanage.send()

    second, third = orphanage.send(), orphanage.send()

    assert (second.status_code, third.status_code) == (201, 201)
    assert [REPLAYED in answer.headers for answer in (second, third)] == [False, True]
    assert orphanage.notes == ["one"]


def test_the_apps_own_page_is_shown_for_work_that_failed_at_commit(orphanage):
    @orphanage.app.errorhandler(500)
    def page(error):
        return f"our page for {type(error.original_exception).__name__}", 500

    answer = orphanage.send()

    assert (answer.status_code, answer.text) == (500, "our page for WorkRefused")


# -- other databases and other ways ------------------------------------------------------------------------------------


def test_a_view_under_the_lease_guard_commits_as_it_goes(shop):
    @idempotent(guard="lease")
    def view():
        add(shop, "one")
        shop.seen = shop.notes
        crash()

    shop.serve(view)

    shop.send()

    assert shop.seen == ["one"]
    assert shop.notes == ["one"]


def test_views_under_either_guard_live_in_one_app(shop):
    @idempotent(guard="lease")
    def leased():
        add(shop, "leased")
        return "leased", 201

    def joined():
        add(shop, "joined")
        return "joined", 201

    shop.serve(leased, "/leased")
    shop.serve(joined, "/joined")

    answers = [shop.send(path, key=path) for path in ("/leased", "/joined", "/joined", "/leased")]

    assert [answer.text for answer in answers] == ["leased", "joined", "joined", "leased"]
    assert [REPLAYED in answer.headers for answer in answers] == [False, False, True, True]
    assert shop.notes == ["leased", "joined"]


@pytest.mark.parametrize("ways", ["no key", "exempt", "GET"])
def test_what_is_not_protected_commits_as_it_goes(shop, ways):
    def view():
        add(shop, "one")
        shop.seen = shop.notes
        crash()

    shop.serve(exempt(view) if ways == "exempt" else view, methods=["GET", "POST"])

    shop.send(key=None if ways == "no key" else "key", method="GET" if ways == "GET" else "POST")

    assert shop.seen == ["one"]
    assert shop.notes == ["one"]


def test_a_protected_view_inside_another_is_part_of_its_transaction(shop):
    @idempotent
    def inner():
        add(shop, "inner")
        return "inner", 201

    fail = on_first_run(crash)

    @idempotent
    def outer():
        add(shop, "outer")
        answer = inner()
        fail()
        return answer

    shop.serve(outer)

    assert (shop.send().status_code, shop.notes) == (500, [])
    assert (shop.send().status_code, shop.notes) == (201, ["outer", "inner"])


def test_a_protected_view_inside_another_with_other_options_is_refused_and_leaves_nothing(shop):
    @idempotent(retention=60)
    def inner():
        add(shop, "inner")
        return "inner", 201

    @idempotent
    def outer():
        add(shop, "outer")
        return inner()

    shop.serve(outer)
    shop.app.testing = True

    with pytest.raises(IdempotencyError, match="a request can hold only one claim"):
        shop.send()

    assert shop.notes == []
    assert shop.engine.pool.checkedout() == 0


def test_nobody_sees_what_the_view_commits_before_the_end(shop):
    def view():
        add(shop, "one")
        shop.seen = shop.notes
        return "made", 201

    shop.serve(view)

    shop.send()

    assert shop.seen == []
    assert shop.notes == ["one"]


# -- after_commit ------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["transaction", "lease", "no key"])
def told(request, shop):
    """A shop whose view adds an order, asks for something to be done, and ends as ``shop.end()`` does; each way."""
    shop.told = []
    shop.end = lambda: ("made", 201)
    shop.act = lambda: shop.told.append(shop.notes)
    shop.key = None if request.param == "no key" else "key"

    def view():
        after_commit(shop.act)
        add(shop, "one")
        shop.told_early = list(shop.told)
        return shop.end()

    shop.serve(idempotent(guard="lease")(view) if request.param == "lease" else view)
    return shop


def test_what_is_to_be_done_after_the_commit_is_done_once_and_finds_the_rows(told):
    told.send(key=told.key)

    assert told.told_early == []
    assert told.told == [["one"]]


def test_what_is_to_be_done_after_the_commit_is_not_done_by_a_replay(told):
    first, second = told.send(key="key"), told.send(key="key")

    assert REPLAYED in second.headers
    assert first.data == second.data
    assert len(told.told) == 1


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_what_is_to_be_done_after_the_commit_is_not_done_after_a_failure(told, end):
    told.end = end

    answer = told.send(key=told.key)

    assert answer.status_code >= 400
    assert told.told == []


def test_what_is_to_be_done_after_the_commit_is_done_for_a_refusal_that_is_kept(told):
    told.end = lambda: ("no", 422)

    told.send(key=told.key)

    assert told.told == [["one"]]


def test_a_failure_after_the_commit_is_logged_and_changes_nothing(told, caplog):
    told.act = crash

    with caplog.at_level(logging.ERROR):
        first = told.send(key=told.key)

    assert (first.status_code, first.data) == (201, b"made")
    assert "the view failed" in caplog.text
    assert told.notes == ["one"]


def test_things_to_be_done_after_the_commit_are_done_in_order_though_one_fails(shop):
    done = []

    def view():
        for act in (lambda: done.append(1), crash, lambda: done.append(3)):
            after_commit(act)
        return "made", 201

    shop.serve(view)

    answer = shop.send()

    assert answer.status_code == 201
    assert done == [1, 3]


def test_what_is_done_after_the_commit_may_use_the_session(shop):
    def enqueue():
        shop.db.session.add(shop.db.Order(note="a job"))
        shop.db.session.commit()

    def view():
        after_commit(enqueue)
        add(shop, "one")
        return "made", 201

    shop.serve(view)

    shop.send()
    shop.send()

    assert shop.notes == ["one", "a job"]
    assert shop.engine.pool.checkedout() == 0


# -- what the driver prepares ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("forgets", [{1}, {2}, {1, 2, 3}], ids=str)
def test_a_view_whose_driver_forgets_what_was_prepared_is_answered_like_any_other(shop, forgets):
    runs = count(1)

    def view():
        if next(runs) in forgets:
            nested = shop.db.session.begin_nested()
            for n in range(8):  # enough for psycopg to prepare it
                shop.db.session.execute(text("SELECT :n"), {"n": n})
            nested.rollback()  # after which it has the server forget everything, ours too
        add(shop, "one")
        return "made", 201

    shop.serve(view)

    answers = [shop.send(key=f"order-{n}") for n in range(3)]

    assert [each.status_code for each in answers] == [201, 201, 201]
    assert shop.notes == ["one"] * 3
    assert shop.records == 3


# -- what the app has open before --------------------------------------------------------------------------------------


def test_a_savepoint_that_is_open_before_the_claim_is_refused_with_a_sentence(shop, caplog):
    @idempotent
    def protected():
        add(shop, "one")
        return "made", 201

    @exempt
    def view():
        with shop.db.session.begin_nested():
            shop.db.session.execute(text("SELECT 1"))
            return protected()

    shop.serve(view)

    answer = shop.send()

    assert answer.status_code == 500
    assert "put @idempotent above whatever calls begin_nested()" in caplog.text
    assert shop.records == 0


def test_a_session_that_outlives_a_failed_attempt_forgets_what_was_rolled_back(shop):
    """As in tests that push an app context: the retry's row may get the id of the one that is gone."""
    ends, kept = iter([503, 201]), []

    @shop.serve
    def view():
        order = shop.db.Order(note="tea")
        shop.db.session.add(order)
        shop.db.session.commit()
        kept.append(order)
        return {"order": order.id}, next(ends)

    with shop.app.app_context():
        ada = shop.db.session.get(shop.db.User, 1)
        answers = [shop.send(), shop.send()]
        found = shop.db.session.get(shop.db.Order, answers[1].get_json()["order"])

        assert [answer.status_code for answer in answers] == [503, 201]
        assert found is kept[1]
        assert kept[0] not in shop.db.session
        assert (ada in shop.db.session, ada.name) == (True, "Ada")
