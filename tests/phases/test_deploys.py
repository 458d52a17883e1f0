"""A deploy in the middle of a checkout: a version that does not know the way stops, and never begins it again."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from flask_idempotency import idempotent, phase
from flask_idempotency.core.lifecycle import TAKEOVERS
from tests.apps.checkout import db, take_step
from tests.apps.guarded_outside import is_first, is_replay
from tests.fixtures.gateway import Gateway
from tests.phases import faults
from tests.phases.faults import Books, Shop, make_tables, opened, refusal, served

OLD = ["order_placed", "charge", "order_paid"]
PATH = "/evolving-checkout"
UNKNOWN = (503, "checkpoint-unknown")
KEY = "order-1"

OTHERS = {  # by what a deploy has changed: the steps of the other version, and which of the old ones it stops at
    "renamed": (["order_made", "charge", "order_paid"], "order_placed"),
    "renamed later": (["order_placed", "charge_card", "order_paid"], "charge"),
    "removed": (["charge", "order_paid"], "order_placed"),
    "inserted": (["cart_checked", "order_placed", "charge", "order_paid"], "order_placed"),
    "inserted between": (["order_placed", "stock_reserved", "charge", "order_paid"], "charge"),
    "reordered": (["charge", "order_placed", "order_paid"], "order_placed"),
    "shortened": (["order_placed"], "charge"),
    "emptied": ([], "order_placed"),
}


class Versions:
    """Several versions of one app on one database."""

    def __init__(self, books: Books, make: Callable[..., Shop]) -> None:
        self.books, self._make = books, make
        self.old = make(OLD)

    def deploy(self, steps: list[str], **rules: Any) -> Shop:
        """Start a version with other steps."""
        return self._make(steps, **rules)

    def leave_in_the_middle(self, seam: str = "charge.answered") -> None:
        """Let the old version fail there: it ends its lease, and its checkpoints stay."""
        assert self.old.order(KEY, path=PATH, X_Raise_At=seam).status_code in (500, 503)

    def taken(self) -> list[str]:
        """Name the steps that are committed."""
        statement = 'SELECT text FROM receipts WHERE "order" = :key ORDER BY number'
        return [text for (text,) in self.books.ask(statement, key=KEY)]

    @property
    def charges(self) -> int:
        return len(self.books.gateway.charges(intent=KEY))


@pytest.fixture
def versions(store_url: str, gateway: Gateway) -> Iterator[Versions]:
    make_tables(store_url)
    with ExitStack() as ends:

        def make(steps: list[str], **options: Any) -> Shop:
            return ends.enter_context(opened(store_url, gateway, steps=steps, **options))

        yield Versions(Books(store_url, gateway), make)


def order(shop: Shop) -> Any:
    return shop.order(KEY, path=PATH)


@pytest.mark.parametrize("change", OTHERS)
def test_a_version_that_does_not_know_the_way_stops_and_begins_nothing_again(versions, caplog, change):
    steps, where = OTHERS[change]
    versions.leave_in_the_middle()
    before = versions.taken(), versions.charges, versions.books.progress(KEY)

    answer = order(versions.deploy(steps))

    assert before == (["order_placed"], 1, ["order_placed done", "charge sent"])
    assert refusal(answer) == UNKNOWN
    assert (versions.taken(), versions.charges, versions.books.progress(KEY)) == before
    critical = [record.getMessage() for record in caplog.records if record.levelname == "CRITICAL"]
    assert len(critical) == 1
    assert "checkpoint_unknown" in critical[0]
    assert f"'{where}'" in critical[0]
    record = versions.books.record(KEY)
    assert (record.state, record.is_held) == ("running", True)  # the lease is left to run out
    assert f"'{where}'" in record.reason


@pytest.mark.parametrize("change", OTHERS)
def test_the_old_version_finishes_what_it_has_begun_once_the_lease_of_the_other_has_passed(versions, change):
    versions.leave_in_the_middle()
    order(versions.deploy(OTHERS[change][0]))

    meanwhile = order(versions.old)
    versions.books.lapse(KEY)
    answer = order(versions.old)

    assert refusal(meanwhile) == (409, "request-in-flight")
    assert faults.is_first(answer)
    assert versions.taken() == ["order_placed", "order_paid"]
    assert versions.charges == 1
    assert faults.is_replay(order(versions.deploy(OTHERS[change][0])))  # an answer is an answer, whoever gave it


def test_an_effect_that_became_a_phase_of_the_same_name_is_not_taken_for_it(versions, caplog):
    versions.leave_in_the_middle()
    other = versions.deploy(OLD)
    other.app.view_functions["evolving_checkout"] = idempotent(required=True, guard="lease")(charge_in_a_phase)

    answer = order(other)

    assert refusal(answer) == UNKNOWN
    assert any(
        "phase 'charge' was called where an earlier attempt recorded effect 'charge'" in each
        for each in caplog.messages
    )
    assert versions.taken() == ["order_placed"]


def charge_in_a_phase() -> Any:

    return {"taken": [phase(name, take_step, name) for name in OLD]}, 201


def test_a_version_with_more_steps_at_the_end_goes_on(versions):
    versions.leave_in_the_middle("order_paid.after_commit")

    answer = order(versions.deploy([*OLD, "receipt_written"]))

    assert faults.is_first(answer)
    assert versions.taken() == ["order_placed", "order_paid", "receipt_written"]
    assert versions.charges == 1


def test_a_version_that_has_changed_the_guard_does_not_begin_again(versions):
    versions.leave_in_the_middle()
    before = versions.taken(), versions.charges, versions.books.progress(KEY)
    other = versions.deploy(OLD)
    other.app.view_functions["evolving_checkout"] = idempotent(required=True, guard="transaction")(write_at_once)

    answers = [order(other), order(other)]
    finished = order(versions.old)

    assert [refusal(answer) for answer in answers] == [UNKNOWN, UNKNOWN]
    assert before == (["order_placed"], 1, ["order_placed done", "charge sent"])
    assert faults.is_first(finished)
    assert versions.taken() == ["order_placed", "order_paid"]
    assert versions.charges == 1
    assert faults.is_replay(order(other))


def write_at_once() -> Any:
    """The checkout as one transaction."""

    taken = [take_step("all_at_once")]
    db.session.commit()
    return {"taken": taken}, 201


def test_after_five_takeovers_by_the_wrong_version_a_person_is_told_what_is_unknown(versions):
    versions.leave_in_the_middle()
    wrong = versions.deploy(OTHERS["inserted between"][0])

    answers = []
    for _ in range(TAKEOVERS + 1):
        answers.append(refusal(order(wrong)))
        versions.books.lapse(KEY)
    last, old = order(wrong), order(versions.old)

    assert set(answers) == {UNKNOWN}
    assert refusal(last) == refusal(old) == (409, "quarantined")
    record = versions.books.record(KEY)
    assert record.state == "quarantined"
    assert "'charge'" in record.reason
    assert "stock_reserved" in record.reason
    assert versions.taken() == ["order_placed"]
    assert versions.charges == 1


def test_the_wrong_version_does_nothing_even_where_it_could_finish_at_once(versions):
    versions.leave_in_the_middle("order_paid.after_commit")

    answer = order(versions.deploy(["order_placed", "charge"]))

    assert refusal(answer) == UNKNOWN
    assert versions.books.record(KEY).state == "running"
    versions.books.lapse(KEY)
    assert faults.is_first(order(versions.old))
    assert versions.charges == 1


# -- side by side ----------------------------------------------------------------------------------------------------


def test_two_versions_side_by_side_make_one_charge_for_every_key(postgres_url: str, gateway: Gateway, tmp_path: Path):
    server = {"workers": 2, "threads": 2}
    keys = [f"order-{uuid.uuid4()}" for _ in range(6)]
    seams = ["order_placed.after_commit", "charge.answered", "order_paid.after_commit"] * 2
    new = ["order_placed", "stock_reserved", "charge", "order_paid"]
    with (
        served(tmp_path / "old", postgres_url, gateway, server=server, checkout={"steps": OLD}, LEASE=1) as old_stand,
        served(tmp_path / "new", postgres_url, gateway, server=server, checkout={"steps": new}, LEASE=1) as new_stand,
    ):
        for key, seam in zip(keys, seams, strict=True):
            assert old_stand.order(key, path=PATH, X_Raise_At=seam).status in (500, 503)
        refused = [new_stand.order(key, path=PATH) for key in keys]
        fresh = [new_stand.finish(f"{key}-new", path=PATH) for key in keys]
        finished = [old_stand.finish(key, path=PATH) for key in keys]
        again = [new_stand.order(key, path=PATH) for key in keys]
        charges = [len(gateway.charges(intent=key)) for key in [*keys, *(f"{key}-new" for key in keys)]]
        log = new_stand.counter.server.log()

    # Where only the first step was done, both versions know the way up to there, and the new one goes its own on.
    assert {refusal(answer) for answer in refused if answer.status != 201} == {UNKNOWN}
    assert [answer.status for answer in refused] == [201, 503, 503] * 2
    assert all(map(is_first, fresh))
    assert [is_first(answer) for answer in finished] == [False, True, True] * 2
    assert all(map(is_replay, again))
    assert charges == [1] * len(charges)
    assert log.count("checkpoint_unknown") == 4
