"""A view that writes while it streams does so outside of the claim; a retry is not told that all of it took effect."""

import pytest
from flask import Response, stream_with_context
from sqlalchemy import select

from flask_idempotency import idempotent

TOOK_EFFECT = "it took effect"
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
    assert "may not have happened" in retry.json["detail"]
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
