"""Who may use the console: whoever is refused gets 403 and learns nothing, and forms are taken from its own pages."""

import pytest
from flask import Blueprint, Flask, abort

from flask_idempotency import Idempotency, console, scopes
from flask_idempotency.console import entrance
from flask_idempotency.errors import ConfigError
from flask_idempotency.stores.memory import MemoryStore
from tests.apps.shop import REFERENCE
from tests.console.conftest import HERE, PREFIX, Operator, quarantine, token_in, words

UNKNOWN = "7D3F-92AB-1C4E"
ACTS = ["reopen", "answer", "release", "forget"]


@pytest.mark.parametrize("allow", [None, "ada", lambda user: True], ids=["none", "a name", "with an argument"])
def test_a_console_without_a_function_that_says_who_may_use_it_is_refused_at_start(allow):
    with pytest.raises(ConfigError, match=r"^The console needs allow=, a function without arguments that [^.]+\.$"):
        console.blueprint(allow)


@pytest.mark.parametrize("nobody", [None, False, ""], ids=repr)
def test_whoever_is_refused_gets_the_same_answer_everywhere_and_the_store_is_not_asked(shop, users, stuck, nobody):
    known, operator = shop.send(key="paid").headers[REFERENCE], Operator(shop)
    users.append(nobody)
    shop.store.calls.clear()

    found = [
        operator.client.get(PREFIX + path)
        for reference in (stuck, known, UNKNOWN, "rubbish")
        for path in (
            "/",
            "/records",
            "/static/console.css",
            f"/record?reference={reference}",
            f"/records/{reference}",
            *(f"/records/{reference}/{act}" for act in (*ACTS, "unheard-of")),
        )
    ]
    found += [
        operator.press(path, token="x", scope="alice", key="paid")
        for path in ("/record", f"/records/{stuck}/reopen", f"/records/{UNKNOWN}/reopen")
    ]

    assert {(answer.status_code, answer.data, str(answer.headers)) for answer in found} == {
        (403, found[0].data, str(found[0].headers))
    }
    assert shop.store.calls == []


def test_somebody_whom_allow_turns_away_by_itself_gets_its_answer(shop, stuck):
    other = Flask("other")
    other.secret_key = "x"
    Idempotency(other, store=MemoryStore(), scope=scopes.everyone)
    other.register_blueprint(console.blueprint(lambda: abort(401)))

    assert other.test_client().get(f"{PREFIX}/").status_code == 401


def test_what_is_neither_a_name_nor_yes_nor_no_lets_nobody_in(shop, users, operator):
    users.append(object())  # an anonymous user of most login packages is true
    shop.app.testing = True

    with pytest.raises(TypeError, match=r"^allow= returned a value of type object; return the user's name or True"):
        operator.client.get(f"{PREFIX}/")


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("Ada Lovelace", "answered by Ada Lovelace on "),
        (True, "answered by somebody in the console on "),
        ("ada\nquarantined: \x1b[31m 7D3F", "answered by ada quarantined: [31m 7D3F on "),
        ("a" * 200, f"answered by {'a' * 80} on "),
        (" \n", "answered by somebody in the console on "),
    ],
    ids=["a name", "unnamed", "a line of a log", "long", "blank"],
)
def test_whoever_settles_a_record_is_stored_with_the_time_and_logged_in_one_line(
    shop, users, operator, stuck, caplog, name, stored
):
    users.append(name)

    operator.confirm(f"/records/{stuck}/answer", status="201", kind="text/plain", body="done")

    assert stored in shop.records()[0].reason
    assert stored.removesuffix(" on ") in caplog.messages[-1]
    assert len(caplog.messages[-1].splitlines()) == 1


# -- forged forms ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
    ],
    ids=str,
)
def test_a_form_from_another_place_is_refused_even_with_a_token(shop, operator, stuck, headers):
    token = token_in(operator.press(f"/records/{stuck}/reopen", refuted="mail"))

    answer = operator.press(f"/records/{stuck}/reopen", headers=headers, token=token)

    assert answer.status_code == 403
    assert [str(record.state) for record in shop.records()] == ["quarantined"]


@pytest.mark.parametrize("headers", [HERE, {"Sec-Fetch-Site": "same-origin"}, {}], ids=["origin", "fetch", "neither"])
def test_a_form_of_the_console_itself_is_taken(shop, operator, stuck, headers):
    token = token_in(operator.press(f"/records/{stuck}/reopen", refuted="mail"))

    answer = operator.press(f"/records/{stuck}/reopen", headers=headers, token=token)

    assert answer.status_code == 303
    assert [str(record.state) for record in shop.records()] == ["running"]


@pytest.mark.parametrize("token", ["", "x", "W10.x.y"])
def test_a_form_without_a_token_of_the_console_does_nothing(shop, operator, stuck, token):
    answer = operator.press(f"/records/{stuck}/reopen", token=token, refuted="mail")

    assert answer.status_code == 403
    assert [str(record.state) for record in shop.records()] == ["quarantined"]


def test_a_token_is_good_for_its_operator_alone(shop, users, operator, stuck):
    token = token_in(operator.press(f"/records/{stuck}/reopen", refuted="mail"))
    users.append("mallory")

    assert operator.press(f"/records/{stuck}/reopen", token=token).status_code == 403


def test_a_token_is_good_for_its_record_alone(shop, operator, stuck):
    other = quarantine(shop, "order-2")
    token = token_in(operator.press(f"/records/{stuck}/reopen", refuted="mail"))

    assert operator.press(f"/records/{other}/reopen", token=token).status_code == 403


def test_a_token_is_good_for_what_was_confirmed_alone(shop, operator, stuck):
    token = token_in(operator.press(f"/records/{stuck}/reopen", refuted="mail"))

    answer = operator.press(f"/records/{stuck}/answer", token=token, status="201")

    assert answer.status_code == 409
    assert [str(record.state) for record in shop.records()] == ["quarantined"]


def test_a_token_is_good_for_half_an_hour(shop, operator, stuck, monkeypatch):
    token = token_in(operator.press(f"/records/{stuck}/reopen", refuted="mail"))
    monkeypatch.setattr(entrance, "VALID", -1)

    assert operator.press(f"/records/{stuck}/reopen", token=token).status_code == 403


def test_a_console_without_a_key_to_sign_with_says_so_to_its_operator(shop, operator, stuck):
    shop.app.secret_key = None

    answer = operator.press(f"/records/{stuck}/reopen", refuted="mail")

    assert answer.status_code == 500
    assert "The console signs its forms: set SECRET_KEY" in words(answer)


def test_the_forms_carry_the_token_of_the_apps_own_extension_too(shop, operator, stuck):
    shop.app.jinja_env.globals["csrf_token"] = lambda: "the app's own"
    forms = [
        operator.client.get(f"{PREFIX}/").text,
        operator.client.get(f"{PREFIX}/records/{stuck}/answer").text,
        operator.press(f"/records/{stuck}/reopen", refuted="mail").text,
    ]

    assert [page.count('name="csrf_token" value="the app&#39;s own"') for page in forms] == [1, 1, 1]


def test_the_consoles_own_forms_need_no_idempotency_key(make_shop):
    shop = make_shop(required=True)
    operator, stuck = Operator(shop), quarantine(shop)

    answer = operator.confirm(f"/records/{stuck}/reopen", refuted="mail")

    assert answer.status_code == 303


# -- how it is mounted -------------------------------------------------------------------------------------------------


def test_a_browser_may_run_nothing_frame_nothing_and_keep_nothing(shop, operator):
    answer = operator.client.get(f"{PREFIX}/")

    policy = answer.headers["Content-Security-Policy"].split("; ")
    assert policy[0] == "default-src 'none'"
    assert {"style-src 'self'", "form-action 'self'", "frame-ancestors 'none'"} <= set(policy)
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Referrer-Policy"] == "same-origin"
    assert " style=" not in answer.text
    assert "<style" not in answer.text
    assert "<script" not in answer.text


def test_an_app_may_have_two_consoles_one_of_them_inside_a_blueprint(shop):
    admin = Blueprint("admin", __name__, url_prefix="/admin")
    admin.register_blueprint(console.blueprint(lambda: "grace", name="records", url_prefix="/records"))
    shop.app.register_blueprint(admin)
    stuck, operator = quarantine(shop), Operator(shop)

    pages = [operator.client.get(path).text for path in (f"{PREFIX}/", "/admin/records/")]

    assert [page.count(f'href="{PREFIX}/records/{stuck}"') for page in pages] == [1, 0]
    assert f'href="/admin/records/records/{stuck}"' in pages[1]


def test_a_console_of_an_app_without_the_extension_says_what_to_do():
    app = Flask("bare")
    app.secret_key = "x"
    app.register_blueprint(console.blueprint(lambda: True))

    answer = app.test_client().get(f"{PREFIX}/")

    assert answer.status_code == 500
    assert "Idempotency is not set up for this app" in words(answer)
