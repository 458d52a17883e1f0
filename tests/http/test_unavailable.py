"""`unavailable="run"`: while the store is down, a view for low stakes runs unprotected, and says so; any other is
refused, and so is this one whenever the store has something to say about the request."""

import logging

import pytest
from flask import Blueprint, abort

from flask_idempotency import effect, idempotent, phase, reference, signals
from flask_idempotency.errors import ConfigError, IdempotencyError, KeyReused, StoreUnavailable
from flask_idempotency.stores.contract import StoreUndecided
from tests.apps.shop import REFERENCE, REPLAYED, Gate

UNPROTECTED = "Idempotency-Unprotected"
RUN = {"unavailable": "run"}


@pytest.fixture
def low(make_shop):
    """A shop whose decorated view runs while the store is down."""
    return make_shop(options=RUN)


def go_down(shop):
    shop.store.fails("claim", StoreUnavailable(retry_after=1))


def test_a_view_for_low_stakes_runs_while_the_store_is_down_and_its_answer_says_so(low):
    go_down(low)

    answers = [low.send() for _ in range(2)]

    assert [answer.json for answer in answers] == [{"id": 1}, {"id": 2}]
    assert [answer.headers.getlist(UNPROTECTED) for answer in answers] == [["true"], ["true"]]
    assert [answer.headers.get(name) for answer in answers for name in (REFERENCE, REPLAYED)] == [None] * 4
    assert low.records() == []


def test_any_other_view_is_refused(low):
    go_down(low)

    answer = low.send("/plain")

    assert (answer.status_code, answer.json["code"], low.n) == (503, "store-unavailable", 0)
    assert UNPROTECTED not in answer.headers


def test_while_the_store_is_there_nothing_is_different(low):
    answers = [low.send() for _ in range(2)]

    assert [answer.json for answer in answers] == [{"id": 1}, {"id": 1}]
    assert [REPLAYED in answer.headers for answer in answers] == [False, True]
    assert not any(UNPROTECTED in answer.headers for answer in answers)


def test_a_view_that_says_so_itself_is_not_believed(low):
    low.answer = lambda: ({"id": 1}, 201, {UNPROTECTED: "true"})

    answers = [low.send() for _ in range(2)]

    assert [UNPROTECTED in answer.headers for answer in answers] == [False, False]


def test_the_key_is_free_when_the_store_is_back(low):
    go_down(low)
    low.send()
    low.store.heals()

    answers = [low.send() for _ in range(2)]

    assert [answer.json for answer in answers] == [{"id": 2}, {"id": 2}]
    assert REPLAYED in answers[1].headers


@pytest.mark.parametrize("failure", [lambda: abort(503), lambda: 1 / 0], ids=["503", "exception"])
def test_a_failure_of_the_view_is_answered_as_without_a_key(low, failure):
    go_down(low)
    low.answer = failure

    answer = low.send()

    assert answer.status_code in (500, 503)
    assert (answer.headers[UNPROTECTED], REFERENCE in answer.headers) == ("true", False)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ({"key": "mal,formed"}, "key-invalid"),
        ({"headers": {"X-User": ""}}, "scope-unknown"),
        ({"data": b"x" * 21}, "body-too-large"),
        ({"key": None}, "key-missing"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_is_wrong_with_the_request_is_refused_all_the_same(make_shop, sent, code):
    shop = make_shop(options={**RUN, "required": True}, max_body=20)
    go_down(shop)

    answer = shop.send(**sent)

    assert (answer.json["code"], shop.n, UNPROTECTED in answer.headers) == (code, 0, False)


@pytest.mark.parametrize("refusal", [StoreUndecided(retry_after=1), KeyReused()], ids=["undecided", "reused"])
def test_a_store_that_was_reached_decides(low, refusal):
    low.store.fails("claim", refusal)

    answer = low.send()

    assert (answer.status_code, low.n, UNPROTECTED in answer.headers) == (refusal.code, 0, False)


def test_a_store_without_tables_is_a_mistake_and_no_outage(low):
    low.store.fails("prepare", ConfigError("The tables are missing: run flask idempotency init."))

    assert (low.send().json["code"], low.n) == ("store-unavailable", 0)


def test_whoever_waited_for_another_attempt_does_not_run_beside_it(make_shop, race_with):
    shop, gate = make_shop(options={**RUN, "in_flight": "wait"}), Gate()
    shop.answer = lambda: (gate.stop(), shop.create())[1]

    def second():
        gate.wait_for_view()
        shop.store.after["claim"] = lambda: go_down(shop)  # it hears that the first is running, and then no more
        try:
            return shop.send()
        finally:
            shop.store.heals()
            gate.open()

    refused = race_with(shop.send, second)

    assert (refused.json["code"], shop.n) == ("store-unavailable", 1)


@pytest.fixture
def race_with():
    """Run one call in a thread while another runs here; give what the latter gave."""
    from concurrent.futures import ThreadPoolExecutor

    def run(first, second):
        with ThreadPoolExecutor(1) as pool:
            beside = pool.submit(first)
            answer = second()
            assert beside.result(timeout=30).status_code == 201
            return answer

    return run


def test_it_is_logged_once_for_each_outage_with_the_endpoint(low, caplog):
    caplog.set_level(logging.WARNING, "flask_idempotency")
    for _ in range(2):
        go_down(low)
        low.send()
        low.send()
        low.store.heals()
        low.send(key="another")

    said = [line for line in caplog.messages if line.startswith(("ran_unprotected", "protected_again"))]
    assert [line.split(":")[0] for line in said] == ["ran_unprotected", "protected_again"] * 2
    assert all("'orders'" in line for line in said)


def test_it_is_told_by_a_signal(low):
    heard = []
    go_down(low)

    with signals.ran_unprotected.connected_to(lambda app, **facts: heard.append(facts), low.app):
        low.send()

    (facts,) = heard
    assert (facts["endpoint"], facts["guard"], len(facts["reference"])) == ("orders", "lease", 14)


def test_a_view_has_no_reference_while_it_runs_unprotected(low):
    go_down(low)
    low.answer = lambda: {"reference": reference()}

    assert low.send().json == {"reference": None}


def test_a_view_may_call_another_with_the_same_options(low):
    go_down(low)
    inner = idempotent(**RUN)(lambda: low.create())
    low.answer = inner

    assert low.send().status_code == 201


@pytest.mark.parametrize("is_down", [True, False])
@pytest.mark.parametrize("step", [lambda: phase("paid", dict), lambda: effect("charge", dict)], ids=["phase", "effect"])
def test_steps_are_refused_there_whether_the_store_is_down_or_not(make_shop, step, is_down):
    shop, said = make_shop(options={**RUN, "guard": "lease"}), []
    if is_down:
        go_down(shop)

    def view():
        with pytest.raises(IdempotencyError) as caught:
            step()
        said.append(str(caught.value))
        return "", 201

    shop.answer = view
    shop.send()

    (sentence,) = said
    assert "() cannot be used in a view with unavailable='run': while the store is down, " in sentence


def test_a_resumable_view_is_refused_at_start():
    with pytest.raises(ConfigError, match=r'^resumable=True needs unavailable="refuse": .*\.$'):
        idempotent(resumable=True, unavailable="run", guard="lease")


def test_a_resumable_view_in_a_blueprint_that_runs_is_refused_too(make_shop, caplog):
    shop, desk = make_shop(), Blueprint("desk", __name__)
    shop.idempotency.defaults(desk, unavailable="run")
    desk.post("/desk")(idempotent(resumable=True, guard="lease")(shop.create))
    shop.app.register_blueprint(desk)

    assert shop.send("/desk").status_code == 500
    assert "The decorator of 'desk.create': resumable=True needs unavailable=\"refuse\"" in caplog.text


def test_a_blueprint_can_have_it_for_all_of_its_views(make_shop):
    shop, desk = make_shop(), Blueprint("desk", __name__)
    shop.idempotency.defaults(desk, unavailable="run")
    desk.add_url_rule("/votes", "votes", lambda: shop.run(), methods=["POST"])
    orders = idempotent(unavailable="refuse")(lambda: shop.run())
    desk.add_url_rule("/orders", "orders", orders, methods=["POST"])
    shop.app.register_blueprint(desk, url_prefix="/desk")
    go_down(shop)

    assert [shop.send(path).status_code for path in ("/desk/votes", "/desk/orders")] == [201, 503]


def test_there_is_no_setting_for_the_whole_app(make_shop):
    with pytest.raises(ConfigError, match="IDEMPOTENCY_UNAVAILABLE is not a setting"):
        make_shop(unavailable="run")


def test_stripes_headers_are_on_it_too(make_shop):
    shop = make_shop(options={**RUN, "dialect": "stripe"})
    go_down(shop)

    answer = shop.send(key="k-1")

    assert (answer.headers["Idempotency-Key"], answer.headers[UNPROTECTED]) == ("k-1", "true")
    assert answer.headers["Request-Id"].startswith("req_")
