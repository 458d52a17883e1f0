"""Real servers and real signals: whoever dies in a checkout is followed by one who goes on from where it stood."""

import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.apps.guarded_outside import STORES, is_conflict, is_first, is_replay, kill
from tests.fixtures.gateway import Gateway
from tests.fixtures.processes import eventually
from tests.phases.faults import LOST, NOTHING, ONE, Found, Stand, lend, served, stand

LEASE = 1  # second; gunicorn's own time-out is far above
ASKING = "/asking-checkout"  # under the policy "query"
STEPS = ("order_placed", "order_paid", "receipt_written")
BEGUN = ["order_placed done", "charge sent"]
CHARGED = ["order_placed done", "charge done"]
PAID = [*CHARGED, "order_paid done"]
LEFT = {  # by the seam of a worker's death: how far it had come, how many steps have run, and whether it had charged
    "signal.claimed": ([], 0, 0),
    "order_placed.before_commit": ([], 1, 0),
    "order_placed.after_commit": (["order_placed done"], 1, 0),
    "charge.sent": (BEGUN, 1, 0),
    "charge.answered": (BEGUN, 1, 1),
    "charge.done": (BEGUN, 1, 1),  # what was answered goes down with the next phase
    "order_paid.before_commit": (BEGUN, 2, 1),
    "order_paid.after_commit": (PAID, 2, 1),
    "receipt_written.before_commit": (PAID, 3, 1),
    "receipt_written.after_commit": ([*PAID, "receipt_written done"], 3, 1),
    "finish.before_commit": ([*PAID, "receipt_written done"], 3, 1),
}


@pytest.fixture(scope="module", params=STORES)
def standing(request: pytest.FixtureRequest) -> Iterator[Stand]:
    yield from stand(request.param, request, server={"workers": 2, "threads": 8}, LEASE=LEASE)


@pytest.fixture
def shop(standing: Stand, request: pytest.FixtureRequest) -> Iterator[Stand]:
    yield from lend(standing, request)


@pytest.fixture
def key() -> str:
    return f"order-{uuid.uuid4()}"


def keys_sent(gateway: Gateway, key: str) -> set[str]:
    """The keys under which the gateway was asked for one intent."""
    return {request["key"] for request in gateway.requests(intent=key)}


# -- killed at a seam ------------------------------------------------------------------------------------------------


def test_a_worker_killed_before_the_claim_leaves_nothing_and_the_retry_is_a_first_request(shop, key):
    with pytest.raises(LOST):
        shop.order(key, X_Die_At="claim.before")
    left = shop.books.of(key)

    answer = shop.order(key)

    assert left == NOTHING
    assert is_first(answer)
    assert shop.ledger.counts("run", "taken_over", intent=key) == (1, 0)
    assert shop.books.of(key) == ONE


@pytest.mark.parametrize("seam", LEFT)
def test_a_worker_killed_before_it_finished_is_followed_by_one_who_goes_on_from_there(shop, key, seam):
    progress, ran, charges = LEFT[seam]

    with pytest.raises(LOST):
        shop.order(key, X_Die_At=seam)
    meanwhile = shop.order(key)  # at once: the lease is short
    left, stood, done = shop.books.of(key), shop.books.progress(key), shop.ledger.count("ran", intent=key)
    assert shop.books.lapse(key)
    answer = shop.order(key)

    assert is_conflict(meanwhile)
    assert (stood, done) == (progress, ran)
    assert (left.state, left.charges) == ("running", charges)
    assert is_first(answer)
    assert shop.books.of(key) == ONE
    assert shop.ledger.counts("run", "completed", intent=key) == (1 if seam == "signal.claimed" else 2, 1)
    assert shop.ledger.count("taken_over", intent=key, attempt=2) == 1
    assert len(keys_sent(shop.gateway, key)) == 1
    assert len(shop.gateway.requests(intent=key)) == 1 + (stood == BEGUN and charges)
    # What was committed is not run again, and what was not is.
    assert shop.ledger.count("ran", intent=key) == 3 + seam.endswith("before_commit") - (seam == "finish.before_commit")
    again = shop.order(key)
    assert is_replay(again)
    assert again.body == answer.body


@pytest.mark.parametrize("seam", ["charge.done", "order_paid.before_commit"])
def test_a_worker_killed_after_the_answer_asks_again_under_the_same_key_and_there_is_one_charge(shop, key, seam):
    with pytest.raises(LOST):
        shop.order(key, X_Die_At=seam)
    asked = len(shop.gateway.requests(intent=key))
    assert shop.books.lapse(key)

    answer = shop.order(key)

    assert is_first(answer)
    assert (asked, len(shop.gateway.requests(intent=key))) == (1, 2)
    assert len(keys_sent(shop.gateway, key)) == 1
    assert shop.books.of(key) == ONE
    assert shop.books.progress(key) == [*PAID, "receipt_written done"]


@pytest.mark.parametrize("seam", ["charge.done", "order_paid.before_commit"])
def test_a_worker_killed_after_an_answer_that_is_written_at_once_is_not_asked_for_again(shop, key, seam):
    with pytest.raises(LOST):
        shop.order(key, path=ASKING, X_Die_At=seam)
    stood = shop.books.progress(key)
    assert shop.books.lapse(key)

    answer = shop.order(key, path=ASKING)

    assert stood == CHARGED
    assert is_first(answer)
    assert len(shop.gateway.requests(intent=key)) == 1
    assert shop.ledger.count("looked_up", intent=key) == 0
    assert shop.books.of(key) == ONE


@pytest.mark.parametrize("seam", ["signal.completed", "respond.before"])
def test_a_worker_killed_after_it_finished_has_answered_for_good(shop, key, seam):
    with pytest.raises(LOST):
        shop.order(key, X_Die_At=seam)
    left = shop.books.of(key)

    answer = shop.finish(key)

    assert left == ONE
    assert is_replay(answer)
    assert shop.ledger.count("run", intent=key) == 1
    assert shop.books.of(key) == ONE


def test_whoever_follows_may_die_too_at_every_seam_that_is_left(shop, key):
    for seam in ("order_placed.after_commit", "charge.answered", "signal.taken_over", "order_paid.before_commit"):
        eventually(lambda seam=seam: has_died(shop, key, seam), within=10, what=f"a death at {seam}")

    answer = shop.finish(key)

    assert is_first(answer)
    assert shop.books.of(key) == ONE
    assert shop.ledger.count("run", intent=key) == 4  # one has died before it ran
    assert shop.ledger.count("completed", intent=key) == 1
    assert len(keys_sent(shop.gateway, key)) == 1


def has_died(shop: Stand, key: str, seam: str) -> bool:
    """Send an order that dies at a seam; False as long as somebody else's lease is in the way."""
    try:
        assert is_conflict(shop.order(key, X_Die_At=seam))
    except LOST:
        return True
    return False


def test_a_worker_killed_when_it_has_ended_its_lease_delays_nobody(shop, key):
    with pytest.raises(LOST):
        shop.order(key, X_Raise_At="order_paid.before_commit", X_Die_At="signal.released")

    answer = shop.order(key)

    assert is_first(answer)
    assert shop.ledger.count("taken_over", intent=key) == 0
    assert shop.books.of(key) == ONE


def test_a_worker_killed_in_a_replay_changes_nothing(shop, key):
    answer = shop.order(key)

    with pytest.raises(LOST):
        shop.order(key, X_Die_At="signal.replayed")

    assert shop.order(key).body == answer.body
    assert shop.books.of(key) == ONE


# -- killed while the gateway is at it -------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["hold_before", "hold_during", "hold_after"])
def test_a_worker_killed_while_the_gateway_is_at_it_charges_once(shop, key, moment):
    shop.gateway.mode(moment, times=1)
    first = shop.order_in_background(key)
    shop.gateway.wait_for_held()

    kill(shop.ledger.entries("called", intent=key)[0]["pid"])
    with pytest.raises(LOST):
        first.result(10)
    if moment != "hold_before":
        shop.gateway.release()  # what is on its way arrives later than the next attempt's
    answer = shop.finish(key)
    shop.gateway.release()

    assert is_first(answer)
    assert shop.books.of(key) == ONE
    assert len(shop.gateway.requests(intent=key)) == 2
    assert len(keys_sent(shop.gateway, key)) == 1


# -- the whole host --------------------------------------------------------------------------------------------------


def test_when_the_whole_host_dies_every_key_comes_to_one_charge(shop, key):
    seams = ["order_placed.after_commit", "charge.sent", "charge.answered", "charge.done", "order_paid.after_commit"]
    begun = [f"{key}-{seam}" for seam in seams]
    done = shop.order(key)
    answers = [shop.order_in_background(each, X_Gate_At=seam) for each, seam in zip(begun, seams, strict=True)]
    for _ in begun:
        shop.gate.next()

    shop.counter.server.kill()
    shop.counter.server.start()
    retried = [shop.finish(each) for each in begun]
    again = shop.order(key)

    assert all(isinstance(answer.exception(10), LOST) for answer in answers)
    assert all(map(is_first, retried))
    assert again.body == done.body
    assert {shop.books.of(each) for each in [key, *begun]} == {ONE}


# -- gunicorn's own time-out -----------------------------------------------------------------------------------------

TIMEOUT = 2  # seconds


@pytest.fixture(scope="module", params=STORES)
def impatient_standing(request: pytest.FixtureRequest) -> Iterator[Stand]:
    server = {"workers": 2, "worker_class": "sync", "options": ["--timeout", str(TIMEOUT)]}
    yield from stand(request.param, request, server=server, checkout={"gateway_timeout": 30}, LEASE=30)


@pytest.fixture
def impatient_shop(impatient_standing: Stand, request: pytest.FixtureRequest) -> Iterator[Stand]:
    yield from lend(impatient_standing, request)


def order_in_vain(shop: Stand, key: str, **headers: str) -> None:
    """Send an order whose worker gunicorn stops; whether there is an answer left to give is gunicorn's business."""
    with suppress(*LOST):
        assert shop.order(key, **headers).status == 500


def test_a_worker_stopped_by_gunicorn_while_the_gateway_is_at_it_leaves_its_checkpoints(impatient_shop, key):
    shop = impatient_shop
    shop.gateway.mode("hold_after", times=1)

    order_in_vain(shop, key)
    left, stood, record = shop.books.of(key), shop.books.progress(key), shop.books.record(key)
    answer = shop.order(key)

    assert stood == BEGUN
    assert left == Found(1, 0, 0, 0, "running", 1)
    assert not record.is_held  # its lease was ended, or the retry would have waited for thirty seconds
    assert is_first(answer)
    assert shop.books.of(key) == ONE
    assert len(keys_sent(shop.gateway, key)) == 1


def test_a_worker_stopped_by_gunicorn_in_a_phase_leaves_nothing_of_it(impatient_shop, key):
    shop = impatient_shop

    order_in_vain(shop, key, X_Gate_At="order_paid.before_commit")
    left, stood = shop.books.of(key), shop.books.progress(key)
    answer = shop.order(key)

    assert stood == CHARGED
    assert left == Found(1, 0, 0, 0, "running", 1)
    assert is_first(answer)
    assert shop.books.of(key) == ONE


def test_a_worker_with_threads_is_not_stopped_by_gunicorn_and_answers_late(
    gateway: Gateway, postgres_url: str, tmp_path: Path, key: str
):
    server = {"workers": 2, "threads": 2, "options": ["--timeout", str(TIMEOUT)]}
    with served(tmp_path, postgres_url, gateway, server=server, checkout={"gateway_timeout": 30}, LEASE=1) as shop:
        gateway.mode("hold_after", times=1, seconds=TIMEOUT * 1.5)

        answer = shop.order(key)

        assert is_first(answer)
        assert shop.ledger.counts("run", "taken_over", intent=key) == (1, 0)
        assert shop.books.of(key) == ONE
