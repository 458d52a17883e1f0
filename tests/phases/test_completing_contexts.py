"""What one caller's request leaves behind is not there for the next one that the completer goes on with."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
from flask import current_app, g, has_app_context, has_request_context, request, session
from flask_login import LoginManager, UserMixin, current_user

from flask_idempotency.guards.recovery import complete_abandoned
from tests.phases.conftest import Tables
from tests.phases.test_completer import BOB_S_SECRET, NOW, SECRET, Office


class Bank(Office):
    """An office that looks up a caller's card once for each request: in `g`, and on the session."""

    def __init__(self, tables: Tables, **options: Any) -> None:
        super().__init__(tables, **options)
        self.charged: list[tuple[str, str, str]] = []
        self.torn_down: list[str] = []
        self.app.teardown_appcontext(lambda _: self.torn_down.append(g.get("user")))

    def charge(self, key: str) -> str:
        if self.is_down:
            raise TimeoutError
        if "card" not in g:
            g.card = f"card of {g.user}"
        loaded = self.db.session.info.setdefault("loaded", f"account of {g.user}")
        self.charged.append((g.user, g.card, loaded))
        return "charged"

    def leave_two(self) -> None:
        """Leave a request of ada and one of bob in the middle."""
        assert self.send("k", secret=SECRET).status_code == 503
        assert self.send("k", secret=BOB_S_SECRET).status_code == 503
        self.is_down = False
        self.torn_down.clear()


EACH_THEIR_OWN = [("ada", "card of ada", "account of ada"), ("bob", "card of bob", "account of bob")]


@pytest.fixture
def bank(tables: Tables) -> Iterator[Bank]:
    bank = Bank(tables)
    yield bank
    bank.close()


@pytest.mark.parametrize(
    "around",
    [lambda _: nullcontext(), lambda app: app.app_context(), lambda app: app.test_request_context("/admin")],
    ids=["no context", "an app context", "an admin's request"],
)
def test_nothing_of_one_caller_is_there_for_the_next(bank, around):
    bank.leave_two()

    with around(bank.app):
        outcomes = bank.complete()

    assert outcomes == [(201, "finished")] * 2
    assert sorted(bank.charged) == EACH_THEIR_OWN


def test_nothing_of_one_caller_is_there_for_the_next_when_the_command_is_run(bank):
    bank.leave_two()

    result = bank.app.test_cli_runner().invoke(args=["idempotency", "complete", "--after", "0"])

    assert result.output.splitlines()[-1] == "Resumed 2 requests: 2 finished."
    assert sorted(bank.charged) == EACH_THEIR_OWN


def test_nothing_of_whoever_calls_the_completer_is_there_for_the_requests(bank):
    bank.leave_two()

    with bank.app.app_context():
        g.card, bank.db.session.info["loaded"] = "card of the admin", "account of the admin"
        bank.complete()

    assert sorted(bank.charged) == EACH_THEIR_OWN


def test_each_request_s_context_is_torn_down_before_the_next_begins(bank):
    bank.leave_two()

    with bank.app.app_context():
        torn_down = [list(bank.torn_down) for _ in complete_abandoned(bank.app, age=NOW)]

    assert [len(each) for each in torn_down] == [1, 2]
    assert sorted(torn_down[1]) == ["ada", "bob"]


def test_whoever_calls_the_completer_finds_everything_as_it_was(bank):
    bank.leave_two()

    with bank.app.test_request_context("/admin"):
        g.user, mine = "admin", bank.order(owner="admin")
        bank.db.session.add(mine)
        ours = bank.db.session()
        found = [
            (current_app.name, request.path, g.user, bank.db.session() is ours, mine in bank.db.session)
            for _ in complete_abandoned(bank.app, age=NOW)
        ]
        found.append((current_app.name, request.path, g.user, bank.db.session() is ours, mine in bank.db.session))

    assert found == [("office", "/admin", "admin", True, True)] * 3
    assert sorted(bank.orders()) == ["ada", "bob"]


def test_whoever_has_no_context_has_none_afterwards(bank):
    bank.leave_two()

    found = [(has_app_context(), has_request_context()) for _ in complete_abandoned(bank.app, age=NOW)]

    assert found == [(False, False)] * 2


class User(UserMixin):  # type: ignore[misc]  # Flask-Login has no types
    def __init__(self, name: str) -> None:
        self.id = name


def with_flask_login(tables: Tables) -> Bank:
    """A bank whose user is Flask-Login's."""

    def act_as(scope: str) -> None:
        session["_user_id"] = scope

    bank = Bank(tables, caller=act_as, scope=lambda: current_user.get_id())
    bank.app.secret_key = "test"
    bank.app.before_request_funcs[None].remove(bank.log_in)
    bank.app.before_request(lambda: setattr(g, "user", current_user.get_id()))
    login = LoginManager(bank.app)
    login.user_loader(User)
    users = {SECRET: "ada", BOB_S_SECRET: "bob"}
    login.request_loader(lambda request: User(users[request.headers["Authorization"]]))
    return bank


@pytest.mark.parametrize(
    "around", [lambda _: nullcontext(), lambda app: app.app_context()], ids=["no context", "an app context"]
)
def test_the_next_request_is_not_run_as_the_last_one_s_user(
    tables: Tables, around: Callable[..., AbstractContextManager[Any]]
) -> None:
    bank = with_flask_login(tables)
    bank.leave_two()

    with around(bank.app):
        bank.complete()

    assert sorted(bank.charged) == EACH_THEIR_OWN
    assert bank.send("k", secret=BOB_S_SECRET).json["for"] == "bob"
    bank.close()
