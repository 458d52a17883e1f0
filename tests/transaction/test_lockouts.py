"""After 401, 403 and 429 what the view itself committed stays, without a record: a key switches no lockout off."""

import pytest
from flask import abort
from sqlalchemy import text

from flask_idempotency import after_commit, idempotent

REPLAYED = "Idempotent-Replayed"
ABOUT_THE_CALLER = [401, 403, 429]
STATUSES = pytest.mark.parametrize("status", ABOUT_THE_CALLER)


def count_one_more(shop):
    """As for a wrong PIN."""
    shop.db.session.execute(text('UPDATE "user" SET visits = visits + 1'))
    shop.db.session.commit()


def tries(shop):
    return shop.rows()["user"][0][2]


@pytest.mark.parametrize("keys", [["same"] * 5, list("abcde")], ids=["one key", "a key for each try"])
@STATUSES
def test_a_key_does_not_switch_a_lockout_off(shop, status, keys):
    def view():
        user = shop.db.session.get(shop.db.User, 1)
        if user.visits >= 3:
            return "locked", status
        user.visits += 1
        shop.db.session.commit()
        return "wrong PIN", 401

    shop.serve(idempotent(view))

    answers = [shop.send(key=key) for key in keys]

    assert [answer.text for answer in answers] == ["wrong PIN"] * 3 + ["locked"] * 2
    assert not any(REPLAYED in answer.headers for answer in answers)
    assert (tries(shop), shop.records) == (3, 0)
    assert shop.engine.pool.checkedout() == 0


def returned(status):
    return "no", status


@pytest.mark.parametrize("answer", [returned, abort], ids=["returned", "raised"])
@STATUSES
def test_what_the_view_has_not_committed_is_undone(shop, status, answer):
    def view():
        count_one_more(shop)
        shop.db.session.add(shop.db.Order(note="not committed"))
        shop.db.session.flush()
        return answer(status)

    shop.serve(idempotent(view))

    sent = shop.send()

    assert (sent.status_code, tries(shop), shop.notes, shop.records) == (status, 1, [], 0)


@STATUSES
def test_what_the_view_has_rolled_back_stays_undone(shop, status):
    def view():
        count_one_more(shop)
        shop.db.session.add(shop.db.Order(note="rolled back"))
        shop.db.session.flush()
        shop.db.session.rollback()
        return "no", status

    shop.serve(idempotent(view))

    shop.send()

    assert (tries(shop), shop.notes) == (1, [])


@STATUSES
def test_a_hook_may_count_instead_of_the_view(shop, status):
    shop.app.after_request(lambda response: (count_one_more(shop), response)[1])
    shop.serve(idempotent(lambda: ("no", status)))

    shop.send()

    assert (tries(shop), shop.records) == (1, 0)


def test_a_hook_that_raises_afterwards_takes_nothing_back(shop):
    shop.app.after_request(lambda response: 1 / 0)
    shop.serve(idempotent(lambda: (count_one_more(shop), ("no", 401))[1]))

    answer = shop.send()

    assert (answer.status_code, tries(shop), shop.records) == (500, 1, 0)


@STATUSES
def test_the_key_is_free_and_the_next_attempt_runs(shop, status):
    answers = iter([("no", status), ("made", 201)])
    shop.serve(idempotent(lambda: (count_one_more(shop), next(answers))[1]))

    first, second, third = shop.send(), shop.send(), shop.send()

    assert [each.status_code for each in (first, second, third)] == [status, 201, 201]
    assert [REPLAYED in each.headers for each in (first, second, third)] == [False, False, True]
    assert (tries(shop), shop.records) == (2, 1)


@pytest.mark.parametrize("status", [408, 409, 425, 500, 503])
def test_any_other_answer_that_is_not_kept_leaves_nothing(shop, status):
    shop.serve(idempotent(lambda: (count_one_more(shop), ("no", status))[1]))

    answer = shop.send()

    assert (answer.status_code, tries(shop), shop.records) == (status, 0, 0)


def test_a_count_before_an_answer_that_keep_leaves_out_is_undone_with_it(shop):
    shop.serve(idempotent(keep={201})(lambda: (count_one_more(shop), ("no", 400))[1]))

    answers = [shop.send() for _ in range(2)]

    assert [(each.status_code, REPLAYED in each.headers) for each in answers] == [(400, False), (400, False)]
    assert (tries(shop), shop.records) == (0, 0)


def test_a_count_before_an_answer_about_the_caller_stays_though_keep_leaves_it_out(shop):
    shop.serve(idempotent(keep={201})(lambda: (count_one_more(shop), ("no", 403))[1]))

    answers = [shop.send() for _ in range(2)]

    assert [(each.status_code, REPLAYED in each.headers) for each in answers] == [(403, False), (403, False)]
    assert (tries(shop), shop.records) == (2, 0)


def test_a_view_that_keeps_401_keeps_it_with_a_record(shop):
    shop.serve(idempotent(keep={401})(lambda: (count_one_more(shop), ("no", 401))[1]))

    first, second = shop.send(), shop.send()

    assert (first.status_code, second.status_code, second.headers[REPLAYED]) == (401, 401, "true")
    assert (tries(shop), shop.records) == (1, 1)


@STATUSES
@pytest.mark.parametrize("key", ["order-1", None], ids=["with a key", "without"])
def test_what_is_to_be_done_after_the_commit_is_done(shop, status, key):
    done = []

    def view():
        count_one_more(shop)
        after_commit(lambda: done.append(tries(shop)))
        return "no", status

    shop.serve(idempotent(view))

    shop.send(key=key)

    assert done == [1]


def defer_a_failure(shop):
    """Have the database refuse at COMMIT what the view has committed."""
    shop.sql("CREATE TABLE limb (id integer PRIMARY KEY, parent integer REFERENCES limb DEFERRABLE INITIALLY DEFERRED)")


@STATUSES
def test_a_commit_that_the_database_refuses_is_a_500(make_shop, status):
    shop = make_shop()
    shop.begin()
    defer_a_failure(shop)
    enforced = "PRAGMA foreign_keys = ON" if shop.engine.name == "sqlite" else "SELECT 1"

    @shop.app.before_request
    def enforce():
        shop.db.session.execute(text(enforced))
        shop.db.session.commit()

    def view():
        count_one_more(shop)
        shop.db.session.execute(text("INSERT INTO limb VALUES (1, 7)"))
        shop.db.session.commit()
        return "no", status

    shop.serve(idempotent(view))

    answer = shop.send()

    assert (answer.status_code, tries(shop), shop.records) == (500, 0, 0)
    assert shop.engine.pool.checkedout() == 0
    shop.sql("DROP TABLE limb")


@STATUSES
def test_a_commit_that_cannot_be_sent_is_a_503(make_postgres_shop, status):
    shop = make_postgres_shop()
    shop.begin()

    def view():
        count_one_more(shop)
        number = shop.db.session.scalar(text("SELECT pg_backend_pid()"))
        shop.sql("SELECT pg_terminate_backend(:number, 5000)", number=number)
        return "no", status

    shop.serve(idempotent(view))

    answer = shop.send()

    assert (answer.status_code, answer.json["retryable"]) == (503, True)
    assert (tries(shop), shop.records, shop.engine.pool.checkedout()) == (0, 0, 0)


def test_a_lease_leaves_what_the_view_committed_as_ever(shop):
    shop.serve(idempotent(guard="lease")(lambda: (count_one_more(shop), ("no", 401))[1]))

    shop.send()

    assert tries(shop) == 1
