"""Threads of one request that asyncio.to_thread() has begun, at once: each statement belongs to its own session."""

import asyncio
import threading
from contextvars import copy_context

import pytest
from sqlalchemy import event, insert
from sqlalchemy.orm import Session

from flask_idempotency import idempotent
from flask_idempotency.errors import IdempotencyError

WAIT = 10  # seconds; far more than it takes


def session_of_the_engine(shop):
    return Session(shop.db.engine)


def session_of_the_app(shop):
    return shop.db.session.session_factory()


@pytest.mark.parametrize("make_session", [session_of_the_engine, session_of_the_app], ids=lambda make: make.__name__)
def test_what_one_thread_rolls_back_takes_nothing_of_another_with_it(make_shop, make_session):
    shop = make_shop()
    shop.begin()
    has_begun, has_written, has_committed = threading.Event(), threading.Event(), threading.Event()

    def pause(_: object, __: object, ___: object, parameters: object, *____: object) -> None:
        """Between the moment when SQLAlchemy asks for a cursor and the statement that it executes with it."""
        if "kept" in str(parameters):
            has_begun.set()
            assert has_written.wait(WAIT)

    def commit() -> None:
        with make_session(shop) as session:
            session.execute(insert(shop.db.Order).values(note="kept"))
            session.commit()
        has_committed.set()

    def roll_back() -> None:
        assert has_begun.wait(WAIT)
        with make_session(shop) as session:
            session.execute(insert(shop.db.Order).values(note="undone"))
            has_written.set()
            assert has_committed.wait(WAIT)
            session.rollback()

    @idempotent
    async def view():
        await asyncio.gather(asyncio.to_thread(commit), asyncio.to_thread(roll_back))
        return "made", 201

    shop.serve(view)
    event.listen(shop.engine, "before_cursor_execute", pause)

    answer = shop.send()

    assert (answer.status_code, shop.notes) in [(201, ["kept"]), (500, [])]


@pytest.mark.parametrize("make_session", [session_of_the_engine, session_of_the_app], ids=lambda make: make.__name__)
def test_many_threads_at_once_leave_the_rows_that_they_leave_without_a_key_or_none(make_shop, make_session):
    shop = make_shop()
    shop.begin()
    start = threading.Barrier(4)

    def work(number: int) -> None:
        start.wait(WAIT)
        for turn in range(3):
            with make_session(shop) as session:
                session.execute(insert(shop.db.Order).values(note=f"{number}.{turn}"))
                session.rollback() if (number + turn) % 3 == 0 else session.commit()

    @idempotent
    async def view():
        await asyncio.gather(*(asyncio.to_thread(work, number) for number in range(4)))
        return "made", 201

    shop.serve(view)
    expected = sorted(f"{number}.{turn}" for number in range(4) for turn in range(3) if (number + turn) % 3)

    for attempt in range(8):
        answer = shop.send(key=f"order-{attempt}")

        assert (answer.status_code, sorted(shop.notes)) in [(201, expected), (500, [])]
        shop.sql("DELETE FROM orders")


@pytest.mark.parametrize("make_session", [session_of_the_engine, session_of_the_app], ids=lambda make: make.__name__)
def test_a_thread_that_nobody_waited_for_writes_nothing_into_the_next_request(make_shop, make_session):
    """Its connection is the next request's by then, in which its row would be committed, or lost."""
    shop = make_shop()
    shop.begin()
    has_begun, may_go_on, failures = threading.Event(), threading.Event(), []

    def pause(_: object, __: object, ___: object, parameters: object, *____: object) -> None:
        if "late" in str(parameters):
            has_begun.set()
            assert may_go_on.wait(WAIT)

    def write_late() -> None:
        try:
            with make_session(shop) as session:
                session.execute(insert(shop.db.Order).values(note="late"))
                session.commit()
        except IdempotencyError as error:
            failures.append(str(error))

    threads: list[threading.Thread] = []

    @idempotent
    def leave():
        threads.append(threading.Thread(target=copy_context().run, args=(write_late,)))
        threads[0].start()
        assert has_begun.wait(WAIT)
        return "made", 201

    @idempotent
    def follow():
        shop.db.session.execute(insert(shop.db.Order).values(note="next"))
        may_go_on.set()
        threads[0].join(WAIT)
        shop.db.session.commit()
        return "made", 201

    shop.serve(leave, "/leave")
    shop.serve(follow, "/follow")
    event.listen(shop.engine, "before_cursor_execute", pause)

    answers = [shop.send(path, key=path[1:]).status_code for path in ("/leave", "/follow")]

    assert (answers, shop.notes) == ([201, 201], ["next"])
    assert ["a request that has ended" in failure for failure in failures] == [True]
