"""What a process has seen: every outcome is counted once, by the minute, for a day; and drawn as bars."""

import threading
from collections import Counter

import pytest

from flask_idempotency import console, effect, signals
from flask_idempotency.console.plots import HEIGHT, WIDTH, round_up, stack
from flask_idempotency.console.tally import Tally, tally_of
from tests.apps.shop import Shop
from tests.console.conftest import Operator

HOUR = 3600


def totals(tally, minutes=60, columns=60):
    return sum((counts for _, counts in tally.columns(minutes, columns)), Counter())


def test_every_request_is_counted_once_by_its_outcome(shop, operator, stuck):
    shop.send(key="k")
    shop.send(key="k")
    shop.send(key="k", data="another")
    shop.send("/plain", key="\x7f")

    tally = tally_of(shop.app)

    assert totals(tally) == {"first": 1, "replayed": 1, "refused": 3}
    assert tally.refusals == {("orders", "quarantined"): 1, ("orders", "key-reused"): 1, ("plain", "key-invalid"): 1}
    assert tally.events == {"quarantined": 1, "effect undecided": 1}
    page = operator.see("/")
    assert "1 first answers 1 replays 3 refused" in page
    assert "plain key-invalid 1" in page


def test_a_refusal_in_a_view_is_counted_once(shop):
    def call(_):
        raise TimeoutError

    shop.answer = lambda: effect("charge", call)
    answer = shop.send()

    assert answer.json["code"] == "outcome-unknown"
    assert totals(tally_of(shop.app)) == {"refused": 1}


def test_a_run_without_the_store_is_counted(shop):
    tally = tally_of(shop.app)

    with shop.app.test_request_context("/orders"):
        signals.tell(signals.ran_unprotected, reference=None)

    assert totals(tally) == {"unprotected": 1}


def test_two_apps_in_one_process_are_counted_apart(make_shop):
    shops: list[Shop] = [make_shop(), make_shop()]

    shops[0].send()

    assert [totals(tally_of(each.app))["first"] for each in shops] == [1, 0]


def test_two_consoles_of_one_app_count_once(shop):
    first = tally_of(shop.app)
    shop.app.register_blueprint(console.blueprint(lambda: True, name="second", url_prefix="/second"))
    shop.send()

    assert tally_of(shop.app) is first
    assert totals(first) == {"first": 1}


def test_the_page_says_that_it_is_this_process_alone(shop):
    page = Operator(shop).see("/")

    assert "Only what process " in page
    assert "Other workers count for themselves, and a restart begins again" in page


def test_counts_stay_in_their_column_and_leave_after_a_day():
    now = [50 * 24 * HOUR]
    tally = Tally(clock=lambda: now[0])
    tally.end("first")
    now[0] += HOUR - 60
    tally.end("replayed")

    hour = [counts for _, counts in tally.columns(60, 60) if counts]
    day = [counts for _, counts in tally.columns(24 * 60, 24) if counts]
    now[0] += 24 * HOUR
    tally.end("refused")

    assert hour == [{"first": 1}, {"replayed": 1}]
    assert day == [{"first": 1, "replayed": 1}]
    assert totals(tally, 24 * 60, 24) == {"refused": 1}
    assert len(tally._minutes) == 1, "a process that lives for months keeps a day"


def test_threads_lose_no_count():
    tally, start = Tally(), threading.Barrier(4)

    def work():
        start.wait(10)
        for _ in range(500):
            tally.refuse("pay", "key-reused", 422)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert tally.refusals["pay", "key-reused"] == totals(tally)["refused"] == 2000


def test_a_duplicate_that_is_answered_with_a_receipt_is_not_refused():
    tally = Tally()

    tally.refuse("pay", "request-in-flight", 202)

    assert totals(tally) == {"accepted": 1}
    assert not tally.refusals


# -- bars --------------------------------------------------------------------------------------------------------------


def test_bars_are_stacked_from_the_ground_and_stay_inside():
    plot = stack([Counter(), Counter(first=3, refused=1), Counter(first=1)], ["first", "refused"])

    assert plot.top == 5
    assert [(bar.kind, bar.x, bar.y, bar.height) for bar in plot.bars] == [
        ("first", WIDTH / 3 + 1, HEIGHT * 0.4, HEIGHT * 0.6),
        ("refused", WIDTH / 3 + 1, HEIGHT * 0.2, HEIGHT * 0.2),
        ("first", WIDTH / 3 * 2 + 1, HEIGHT * 0.8, HEIGHT * 0.2),
    ]
    assert plot.totals == {"first": 4, "refused": 1}


@pytest.mark.parametrize(
    ("most", "top"), [(0, 1), (1, 1), (2, 2), (3, 5), (5, 5), (6, 10), (11, 20), (99, 100), (100, 100), (2001, 5000)]
)
def test_the_axis_ends_at_a_number_that_reads_well(most, top):
    assert round_up(most) == top
