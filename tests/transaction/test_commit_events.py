"""SQLAlchemy's after_commit events and Flask-SQLAlchemy's models_committed come once, after the real COMMIT."""

import pytest
from flask_sqlalchemy.track_modifications import models_committed
from sqlalchemy import event

from flask_idempotency import idempotent, phase


@pytest.fixture
def mails():
    return []


def order(shop, note="tea"):
    shop.db.session.add(shop.db.Order(note=note))
    shop.db.session.commit()


def test_a_listener_is_called_once_and_sees_the_committed_row_from_outside(shop, mails):
    event.listen(shop.db.session, "after_commit", lambda session: mails.append(shop.notes))

    @shop.serve
    def view():
        order(shop)
        return {}, 201

    shop.send()
    shop.send()  # a replay

    assert mails == [["tea"]]


def test_a_listener_is_not_called_for_work_that_is_rolled_back_with_its_attempt(shop, mails):
    event.listen(shop.db.session, "after_commit", lambda session: mails.append(shop.notes))
    statuses = iter([503, 201])

    @shop.serve
    def view():
        order(shop)
        return {}, next(statuses)

    assert shop.send().status_code == 503
    assert mails == []
    assert shop.send().status_code == 201
    assert mails == [["tea"]]


def test_a_listener_added_by_the_view_itself_is_called_after_the_commit(shop, mails):
    @shop.serve
    def view():
        shop.db.session.execute(shop.db.select(shop.db.User)).all()

        @event.listens_for(shop.db.session(), "after_commit", once=True)
        def mail(session):
            mails.append(shop.notes)

        order(shop)
        assert mails == []
        return {}, 201

    shop.send()

    assert mails == [["tea"]]


def test_a_listener_that_fails_does_not_take_the_answer_back(shop, caplog):
    @event.listens_for(shop.db.session, "after_commit")
    def mail(session):
        raise RuntimeError("no mail today")

    @shop.serve
    def view():
        order(shop)
        return {}, 201

    assert shop.send().status_code == 201
    assert shop.notes == ["tea"]
    assert "an after_commit listener failed" in caplog.text


def test_without_a_key_events_come_with_every_commit(shop, mails):
    event.listen(shop.db.session, "after_commit", lambda session: mails.append(shop.notes))

    @shop.serve
    def view():
        order(shop)
        assert mails == [["tea"]]
        order(shop, "milk")
        return {}, 201

    shop.send(key=None)

    assert mails == [["tea"], ["tea", "milk"]]


def test_a_released_savepoint_is_not_announced_as_a_commit(shop, mails):
    event.listen(shop.db.session, "after_commit", lambda session: mails.append("committed"))

    @shop.serve
    def view():
        with shop.db.session.begin_nested():
            shop.db.session.add(shop.db.Order(note="never"))
        shop.db.session.rollback()
        return {}, 201

    shop.send()

    assert mails == []


def test_models_committed_names_what_was_committed_and_nothing_that_was_rolled_back(make_shop, mails):
    shop = make_shop()
    shop.app.config["SQLALCHEMY_TRACK_MODIFICATIONS"] = True
    shop.db._app_engines.pop(shop.app, None)
    del shop.app.extensions["sqlalchemy"]
    shop.db.init_app(shop.app)
    shop.begin()

    @shop.serve
    def view():
        order(shop)
        shop.db.session.add(shop.db.Order(note="never"))
        shop.db.session.flush()
        shop.db.session.rollback()
        order(shop, "milk")
        return {}, 201

    def note(sender, changes):
        mails.append(sorted((each.note, how, shop.notes) for each, how in changes))

    with models_committed.connected_to(note, shop.app):
        shop.send()

    assert mails == [[("milk", "insert", ["tea", "milk"]), ("tea", "insert", ["tea", "milk"])]]


def test_a_phase_announces_its_commit_once_it_is_made(shop, mails):
    event.listen(shop.db.session, "after_commit", lambda session: mails.append(shop.notes))

    @shop.serve
    @idempotent(guard="lease")
    def view():
        phase("order", lambda: shop.db.session.add(shop.db.Order(note="tea")))
        return {}, 201

    shop.send()

    assert mails == [["tea"]]


def test_a_phase_that_fails_announces_nothing(shop, mails):
    event.listen(shop.db.session, "after_commit", lambda session: mails.append(shop.notes))

    def step():
        shop.db.session.add(shop.db.Order(note="tea"))
        shop.db.session.commit()
        raise RuntimeError("the step fails")

    @shop.serve
    @idempotent(guard="lease")
    def view():
        phase("order", step)
        return {}, 201

    assert shop.send().status_code == 500
    assert mails == []
