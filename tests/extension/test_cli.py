"""`flask idempotency …`: what each command says, and the one sentence for each trouble."""

import re
from datetime import timedelta

import pytest
from flask import Flask, abort

from flask_idempotency import Idempotency, exempt, idempotent, reference, scopes, signals
from flask_idempotency.errors import StoreUnavailable
from flask_idempotency.stores import open_store
from flask_idempotency.stores.memory import MemoryStore
from tests.apps.shop import REFERENCE, Shop


def run(shop, *arguments):
    """Run a command; give its exit code and its lines."""
    result = shop.app.test_cli_runner().invoke(args=["idempotency", *arguments])
    return result.exit_code, result.output.splitlines()


@pytest.fixture
def bare(shop_url):
    """A shop whose store has not been made."""
    store = open_store(shop_url)
    yield Shop(store)
    store.close()


def is_postgres(shop_url):
    return shop_url.startswith("postgresql")


# -- init and check ----------------------------------------------------------------------------------------------------


def test_init_makes_the_store_and_is_harmless_afterwards(bare):
    assert [run(bare, "init") for _ in range(2)] == [(0, ["The store is ready."])] * 2
    assert bare.send().status_code == 201


def test_check_says_that_the_store_can_be_used(shop):
    code, (usable, *warnings) = run(shop, "check")

    assert (code, usable) == (0, "The store can be used.")
    assert all(line.startswith("Warning: ") for line in warnings)  # of how the tests' own server is set up


def test_check_says_what_is_missing(bare, shop_url):
    expected = (0, ["The store can be used."])  # a file makes itself
    if is_postgres(shop_url):
        expected = (1, ["Error: The table idempotency_record does not exist; make it with: flask idempotency init"])

    assert run(bare, "check") == expected


def test_check_says_that_the_table_is_of_another_version(shop, sql):
    sql("ALTER TABLE idempotency_record RENAME COLUMN attempt TO tries")

    code, lines = run(shop, "check")

    assert (code, len(lines)) == (1, 1)
    assert "is of another version, without attempt;" in lines[0]


@pytest.mark.parametrize("command", [["check"], ["init"], ["list"], ["reap"], ["show", "7D3F-92AB-1C4E"]], ids=str)
def test_a_store_that_cannot_be_reached_is_one_sentence(shop, command):
    for verb in ("check", "create", "prepare", "browse", "reap"):
        shop.store.fails(verb, StoreUnavailable())

    assert run(shop, *command) == (
        1,
        ["Error: The store cannot be reached: check its URL, and that its server is running."],
    )


@pytest.mark.parametrize("command", [["list"], ["reap"], ["show", "7D3F-92AB-1C4E"]], ids=str)
def test_a_store_that_was_never_made_is_one_sentence(bare, shop_url, command):
    code, lines = run(bare, *command)

    if is_postgres(shop_url):
        expected = "Error: The table idempotency_record does not exist; make it with: flask idempotency init"
        assert (code, lines) == (1, [expected])
    else:  # a file makes itself
        assert code == (1 if command[0] == "show" else 0)


# -- show and list -----------------------------------------------------------------------------------------------------


def test_show_says_what_a_person_may_know(shop):
    known = shop.send("/orders/1/pay", "canary", json={"canary": 1}).headers[REFERENCE]

    code, lines = run(shop, "show", known)

    assert code == 0
    facts = dict(re.split(r":\s+", line, maxsplit=1) for line in lines)
    assert {name: facts[name] for name in ("reference", "state", "scope", "method", "path", "attempt", "status")} == {
        "reference": known, "state": "finished", "scope": "alice", "method": "POST", "path": "/orders/1/pay",
        "attempt": "1", "status": "201",
    }  # fmt: skip
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", facts["created"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", facts["expires"])
    assert "canary" not in "".join(lines)


@pytest.mark.parametrize(
    "spell",
    [
        str.lower,
        lambda text: text.replace("-", ""),
        lambda text: " ".join(text),
        lambda text: text.replace("0", "o").replace("1", "l"),
    ],
    ids=["lower case", "no hyphens", "spaces", "look-alikes"],
)
def test_show_reads_a_reference_as_people_type_it(shop, spell):
    known = shop.send().headers[REFERENCE]

    code, lines = run(shop, "show", spell(known))

    assert (code, lines[0].split()) == (0, ["reference:", known])


@pytest.mark.parametrize("typed", ["rubbish", "", "'; DROP TABLE idempotency_record; --", "7D3F-92AB-1C4"])
def test_show_says_what_is_wrong_with_a_reference(shop, typed):
    words = "A reference is 12 letters and digits, such as 7D3F-92AB-1C4E; compare it with the original."

    assert run(shop, "show", typed) == (1, [f"Error: {words}"])


def test_show_says_that_there_is_no_such_record(shop):
    words = "There is no record 7D3F-92AB-1C4E; it may have expired and been reaped."

    assert run(shop, "show", "7d3f92ab1c4e") == (1, [f"Error: {words}"])


def test_show_tells_the_states_apart(shop, sql, let_pass):
    shop.answer = lambda: abort(503)
    ended = shop.send(key="ended").headers[REFERENCE]
    shop.answer = lambda: iter(["stream"])
    streamed = shop.send(key="streamed").headers[REFERENCE]
    seen = []
    shop.answer = lambda: (seen.append(run(shop, "show", reference())), "ok")[1]
    shop.send(key="running")
    shop.answer = shop.create
    lost = shop.send(key="lost").headers[REFERENCE]
    sql("UPDATE idempotency_record SET state = 'quarantined', reason = 'too many owners died' WHERE status = 201")

    assert "lease:      ended; the next attempt runs" in run(shop, "show", ended)[1]
    assert "status:     200 (body not kept)" in run(shop, "show", streamed)[1]
    assert any(line.startswith("lease:      until ") for line in seen[0][1])
    assert "state:      quarantined" in run(shop, "show", lost)[1]
    assert any(line.startswith("reason:     too many owners died") for line in run(shop, "show", lost)[1])


def test_show_says_that_a_lease_has_passed(shop, let_pass):
    seen = []

    def answer():
        let_pass(3600)
        seen.extend(run(shop, "show", reference())[1])
        return "ok"

    shop.answer = answer
    shop.send()

    assert any(line.endswith("(expired; the next attempt takes over)") for line in seen)


def test_list_shows_records_newest_first(shop, let_pass):
    older = shop.send("/orders", "one").headers[REFERENCE]
    let_pass(60)
    newer = shop.send("/plain", "two").headers[REFERENCE]

    code, lines = run(shop, "list")

    assert code == 0
    assert lines[0].split() == ["Reference", "State", "Method", "Path", "Status", "Attempt", "Created"]
    assert [line.split()[:6] for line in lines[2:]] == [
        [newer, "finished", "POST", "/plain", "201", "1"],
        [older, "finished", "POST", "/orders", "201", "1"],
    ]


@pytest.mark.parametrize(("state", "found"), [("running", 1), ("finished", 2), ("quarantined", 0)])
def test_list_can_be_narrowed_to_a_state(shop, state, found):
    shop.send(key="one")
    shop.send(key="two")
    shop.answer = lambda: abort(503)
    shop.send(key="three")

    assert len(run(shop, "list", "--state", state)[1]) == 2 + found


def test_list_can_be_limited(shop):
    for number in range(4):
        shop.send(key=str(number))

    assert len(run(shop, "list", "--limit", "3")[1]) == 2 + 3
    assert run(shop, "list", "--limit", "0")[0] == 2
    assert run(shop, "list", "--state", "absent")[0] == 2


# -- reap --------------------------------------------------------------------------------------------------------------


def test_reap_deletes_what_expired_longer_ago_than_the_grace(shop, let_pass):
    heard = []

    def listen(app, count):
        heard.append((app, count))

    signals.reaped.connect(listen)
    for number in range(3):
        shop.send(key=f"old {number}".replace(" ", "-"))
    let_pass(86400 + 3601)
    shop.send(key="expired")
    let_pass(86400 + 1)
    shop.send(key="live")

    code, lines = run(shop, "reap", "--batch", "2")

    signals.reaped.disconnect(listen)
    assert (code, lines[-1]) == (0, "3 expired and 0 abandoned records deleted; 0 quarantined.")
    assert len(shop.records()) == 2
    assert heard == [(shop.app, 3)]


def test_reap_deletes_what_refused_strangers_have_left_behind(shop, let_pass):
    shop.answer = lambda: abort(401)
    for number in range(5):
        shop.send(key=f"stranger-{number}")
    let_pass(86400)
    within_the_grace = run(shop, "reap")[1][-1]
    let_pass(3601)

    code, lines = run(shop, "reap", "--batch", "2")

    assert within_the_grace == "0 expired and 0 abandoned records deleted; 0 quarantined."
    assert (code, lines[-1]) == (0, "0 expired and 5 abandoned records deleted; 0 quarantined.")
    assert shop.records() == []


def test_reap_waits_as_long_as_the_longest_retention_of_any_view(make_shop, let_pass):
    shop = make_shop(options={"retention": timedelta(days=10)})
    shop.answer = lambda: abort(401)
    shop.send("/plain")
    let_pass(86400 * 9)
    early = run(shop, "reap")[1][-1]
    let_pass(86400 * 2)

    late = run(shop, "reap")[1][-1]

    assert early == "0 expired and 0 abandoned records deleted; 0 quarantined."
    assert late == "0 expired and 1 abandoned records deleted; 0 quarantined."


# -- routes ------------------------------------------------------------------------------------------------------------


def test_routes_shows_which_view_is_protected_and_how():
    app = Flask("routes", static_folder=None)
    app.config.update(IDEMPOTENCY_RETENTION=3600, IDEMPOTENCY_IN_FLIGHT="wait")
    Idempotency(app, scope=scopes.everyone, store=MemoryStore())
    app.add_url_rule("/a", "optional", lambda: "ok", methods=["GET", "POST", "PUT"])
    app.add_url_rule("/b", "required", idempotent(required=True, lease=60)(lambda: "ok"), methods=["POST"])
    app.add_url_rule("/c", "exempt", exempt(lambda: "ok"), methods=["POST"])
    app.add_url_rule(
        "/d/<int:id>", "deleting", idempotent(methods={"DELETE"})(lambda id: "ok"), methods=["DELETE", "PATCH"]
    )
    app.add_url_rule("/e", endpoint="without a view", methods=["POST"])

    result = app.test_cli_runner().invoke(args=["idempotency", "routes"])

    assert result.exit_code == 0
    assert [re.split(r"\s{2,}", line) for line in result.output.splitlines()[2:]] == [
        ["optional", "POST", "/a", "before the view", "optional", "lease", "0:00:30", "1:00:00", "wait"],
        ["optional", "PUT", "/a", "no: PUT is not covered"],
        ["required", "POST", "/b", "@idempotent", "required", "lease", "0:01:00", "1:00:00", "wait"],
        ["exempt", "POST", "/c", "no: @exempt"],
        ["deleting", "DELETE", "/d/<int:id>", "@idempotent", "optional", "lease", "0:00:30", "1:00:00", "wait"],
        ["deleting", "PATCH", "/d/<int:id>", "no: PATCH is not covered"],
    ]


def test_an_app_without_routes_has_an_empty_table():
    app = Flask("routes", static_folder=None)
    Idempotency(app, scope=scopes.everyone, store=MemoryStore())

    assert len(app.test_cli_runner().invoke(args=["idempotency", "routes"]).output.splitlines()) == 2


def test_every_command_says_what_it_does(shop):
    code, lines = run(shop, "--help")

    assert code == 0
    for command in ("init", "check", "show", "list", "reap", "routes"):
        assert any(re.match(rf"  {command} +[A-Z]", line) for line in lines)
