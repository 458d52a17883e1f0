"""A view sends a request to its own app: one that would work in the transaction of another is refused at once, before
anything is claimed; one that would not is served."""

import pytest

from flask_idempotency import after_commit, idempotent, phase
from flask_idempotency.errors import IdempotencyError

REPLAYED = "Idempotent-Replayed"
SENTENCE = r"^A protected request was sent from inside another in the same process, [^.]+\.$"
GUARDS = ["lease", "transaction"]


def order(shop, note):
    shop.db.session.add(shop.db.Order(note=note))


@pytest.fixture(params=GUARDS)
def inner(shop, request):
    """A protected view that places an order; its guard."""

    def phased():
        phase("placed", order, shop, "inner")
        return "inner", 201

    def joined():
        order(shop, "inner")
        shop.db.session.commit()
        return "inner", 201

    view = {"lease": phased, "transaction": joined}[request.param]
    shop.serve(idempotent(guard=request.param, required=True)(view), "/inner")
    return request.param


def send_inner(shop):
    return shop.send("/inner", "inner-1")


def is_served(answer, *, replayed=False):
    return (answer.status_code, answer.text, REPLAYED in answer.headers) == (201, "inner", replayed)


def serve_outer(shop, send, status=201):
    """Serve a view that places an order and commits it, sends, and places another."""

    def view():
        order(shop, "outer")
        shop.db.session.commit()
        send()
        order(shop, "outer again")
        shop.db.session.commit()
        return "outer", status

    shop.serve(idempotent(guard="transaction")(view))


def refused(shop):
    """Send the inner request and see it refused, with the sentence."""
    with pytest.raises(IdempotencyError, match=SENTENCE):
        send_inner(shop)


def test_it_is_refused_with_a_sentence_and_the_work_of_the_other_is_unharmed(shop, inner):
    shop.app.testing = True
    serve_outer(shop, lambda: refused(shop))

    answers = [shop.send() for _ in range(2)]

    assert [(each.status_code, each.headers.get(REPLAYED)) for each in answers] == [(201, None), (201, "true")]
    assert shop.notes == ["outer", "outer again"]


def test_nothing_was_claimed_and_it_can_be_sent_when_the_other_has_ended(shop, inner):
    shop.app.testing = True
    serve_outer(shop, lambda: refused(shop))
    shop.send()
    records = shop.records

    answers = [send_inner(shop) for _ in range(2)]

    assert records == 1
    assert is_served(answers[0])
    assert is_served(answers[1], replayed=True)
    assert shop.notes == ["outer", "outer again", "inner"]


def test_a_failure_of_the_other_leaves_no_answer_behind_whose_work_is_gone(shop, inner, caplog):
    seen = []
    serve_outer(shop, lambda: seen.append(send_inner(shop)), status=500)

    statuses = [shop.send().status_code for _ in range(2)]

    assert statuses == [500, 500]
    assert [each.status_code for each in seen] == [500, 500]
    assert "A protected request was sent from inside another" in caplog.text
    assert (shop.notes, shop.records) == ([], 0)
    assert is_served(send_inner(shop))


def test_it_is_refused_where_the_other_has_only_flushed(shop, inner):
    shop.app.testing = True

    def view():
        order(shop, "outer")
        shop.db.session.flush()
        refused(shop)
        shop.db.session.commit()
        return "outer", 201

    shop.serve(view)

    assert shop.send().status_code == 201
    assert shop.notes == ["outer"]


def test_it_is_refused_where_the_other_has_not_used_its_session_yet(shop, inner):
    shop.app.testing = True

    def view():
        refused(shop)
        order(shop, "outer")
        shop.db.session.commit()
        return "outer", 201

    shop.serve(view)

    assert shop.send().status_code == 201
    assert (shop.notes, shop.records) == (["outer"], 1)


def test_a_request_without_a_key_works_in_the_transaction_of_the_other(shop):
    seen, statuses = [], [201, 500]
    shop.serve(lambda: (order(shop, "inner"), shop.db.session.commit(), ("inner", 201))[2], "/inner")

    def view():
        seen.append(shop.send("/inner", key=None).status_code)
        return "outer", statuses.pop()

    shop.serve(idempotent(guard="transaction")(view))

    assert (shop.send().status_code, shop.notes) == (500, [])
    assert (shop.send().status_code, shop.notes) == (201, ["inner"])
    assert seen == [201, 201]


def test_it_is_refused_inside_of_a_phase_and_the_phase_is_unharmed(shop, inner):
    shop.app.testing = True

    def step():
        order(shop, "outer")
        shop.db.session.flush()
        refused(shop)

    def view():
        phase("placed", step)
        return "outer", 201

    shop.serve(idempotent(guard="lease")(view))

    assert shop.send().status_code == 201
    assert shop.notes == ["outer"]
    assert shop.records == 1


def test_it_is_served_outside_of_a_phase(shop, inner):
    seen = []

    def view():
        shop.db.session.query(shop.db.Order).all()
        seen.append(send_inner(shop))
        phase("placed", order, shop, "outer")
        seen.append(send_inner(shop))
        return "outer", 201

    shop.serve(idempotent(guard="lease")(view))

    answers = [shop.send() for _ in range(2)]

    assert is_served(seen[0])
    assert is_served(seen[1], replayed=True)
    assert len(seen) == 2
    assert [(each.status_code, each.headers.get(REPLAYED)) for each in answers] == [(201, None), (201, "true")]
    assert shop.notes == ["inner", "outer"]


def test_what_was_served_outside_of_a_phase_stays_where_the_other_fails(shop, inner):
    def view():
        phase("placed", order, shop, "outer")
        assert is_served(send_inner(shop))
        return "outer", 500

    shop.serve(idempotent(guard="lease")(view))

    assert shop.send().status_code == 500
    assert shop.notes == ["outer", "inner"]
    assert is_served(send_inner(shop), replayed=True)


def test_it_is_served_once_the_other_is_committed(shop, inner):
    seen = []

    def view():
        after_commit(lambda: seen.append(send_inner(shop)))
        order(shop, "outer")
        shop.db.session.commit()
        return "outer", 201

    shop.serve(view)

    assert shop.send().status_code == 201
    assert [is_served(each) for each in seen] == [True]
    assert shop.notes == ["outer", "inner"]
