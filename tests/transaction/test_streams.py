"""A view that writes while it streams does so outside of the claim; a retry is not told that all of it took effect."""

import pytest
from flask import Response, stream_with_context
from sqlalchemy import select

from flask_idempotency import after_commit, idempotent

TOOK_EFFECT = "it took effect"
REPLAYED = "Idempotent-Replayed"
guards = pytest.mark.parametrize("guard", ["transaction", "lease"])


def add(shop, note):
    shop.db.session.add(shop.db.Order(note=note))
    shop.db.session.commit()


def serve(shop, guard, before=None, status=201):
    """Add a view that writes two rows while it streams, and perhaps one before."""

    def pieces():
        for note in ("one", "two"):
            add(shop, note)
            yield note

    def view():
        if before:
            add(shop, before)
        return Response(stream_with_context(pieces()), status)

    shop.serve(idempotent(guard=guard)(view))


@guards
def test_what_a_view_writes_while_it_streams_is_committed_as_without_a_key(shop, guard):
    serve(shop, guard, before="before")

    answer = shop.send()

    assert (answer.status_code, answer.data) == (201, b"onetwo")
    assert shop.notes == ["before", "one", "two"]
    assert shop.engine.pool.checkedout() == 0


@guards
def test_410_does_not_say_of_a_stream_that_it_took_effect(shop, guard):
    serve(shop, guard)
    left = shop.send(buffered=False)  # the client is gone after the first piece
    next(left.iter_encoded())
    left.close()

    retry = shop.send()

    assert shop.notes == ["one"]
    assert (retry.status_code, retry.json["code"], retry.json["original_status"]) == (410, "body-not-kept", 201)
    assert TOOK_EFFECT not in retry.json["detail"]
    assert "may be incomplete" in retry.json["detail"]
    assert shop.engine.pool.checkedout() == 0


@guards
def test_410_says_of_an_answer_that_was_too_large_that_it_took_effect(make_shop, guard):
    shop = make_shop(max_body=10)
    shop.begin()
    shop.serve(idempotent(guard=guard)(lambda: (add(shop, "one"), "x" * 11)[1]))
    shop.send()

    retry = shop.send()

    assert retry.status_code == 410
    assert TOOK_EFFECT in retry.json["detail"]


def test_a_stream_may_read_objects_that_the_view_has_loaded(shop):
    @shop.serve
    def view():
        shop.db.session.add(shop.db.Order(note="tea"))
        shop.db.session.commit()
        order = shop.db.session.scalars(select(shop.db.Order)).first()
        return Response((each.note for each in [order]), 201)

    answer = shop.send()

    assert (answer.status_code, answer.text) == (201, "tea")


# -- answers that are made piece by piece, and have a length -----------------------------------------------------------


class Trouble(Exception):
    """What a generator raises."""


class Stop(BaseException):
    """As a server stops a worker."""


def serve_with_a_length(shop, guard, *troubles):
    """Add a view that writes a row before its answer and one in it, and fails in the middle of it if it is told to."""
    left = list(troubles)

    def pieces():
        add(shop, "one")
        yield b"one"
        if left:
            raise left.pop()
        add(shop, "two")
        yield b"two"

    def view():
        add(shop, "before")
        return Response(stream_with_context(pieces()), 201, {"Content-Length": "6"})

    shop.serve(idempotent(guard=guard)(view))


@guards
def test_what_is_written_while_an_answer_with_a_length_is_made_is_there_with_the_answer(shop, guard):
    serve_with_a_length(shop, guard)

    answers = [shop.send() for _ in range(2)]

    assert [(each.status_code, each.data, REPLAYED in each.headers) for each in answers] == [
        (201, b"onetwo", False),
        (201, b"onetwo", True),
    ]
    assert shop.notes == ["before", "one", "two"]
    assert shop.engine.pool.checkedout() == 0


def test_an_answer_with_a_length_that_fails_in_the_middle_leaves_nothing_and_its_retry_runs(shop):
    serve_with_a_length(shop, "transaction", Trouble)

    first = shop.send()
    left = shop.notes, shop.records
    others = [shop.send() for _ in range(2)]

    assert (first.status_code, left) == (500, ([], 0))
    assert [(each.status_code, each.data, REPLAYED in each.headers) for each in others] == [
        (201, b"onetwo", False),
        (201, b"onetwo", True),
    ]
    assert shop.notes == ["before", "one", "two"]
    assert shop.engine.pool.checkedout() == 0


def test_under_a_lease_410_does_not_say_of_an_answer_that_failed_in_the_middle_that_it_took_effect(shop):
    serve_with_a_length(shop, "lease", Trouble)
    with pytest.raises(Trouble):
        shop.send()

    retry = shop.send()

    assert (retry.status_code, retry.json["code"], retry.json["original_status"]) == (410, "body-not-kept", 201)
    assert TOOK_EFFECT not in retry.json["detail"]
    assert shop.notes == ["before", "one"]


@guards
def test_a_worker_that_is_stopped_while_it_makes_an_answer_keeps_no_half_of_it(shop, guard):
    serve_with_a_length(shop, guard, Stop)
    with pytest.raises(Stop):
        shop.send()

    retry = shop.send()

    if guard == "transaction":
        assert (retry.status_code, retry.data, shop.notes) == (201, b"onetwo", ["before", "one", "two"])
    else:
        assert (retry.status_code, retry.json["code"]) == (410, "body-not-kept")
        assert TOOK_EFFECT not in retry.json["detail"]


def test_what_is_to_be_done_after_the_commit_may_be_said_while_the_answer_is_made(shop):
    done = []

    def pieces():
        after_commit(lambda: done.append(shop.notes))
        add(shop, "one")
        yield b"one"

    shop.serve(lambda: Response(stream_with_context(pieces()), 201, {"Content-Length": "3"}))

    answers = [shop.send() for _ in range(2)]

    assert [each.data for each in answers] == [b"one", b"one"]
    assert done == [["one"]]
