"""stripe-node, unchanged, against an API in Stripe's dialect; installed from its lock file into a temporary folder."""

import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.apps.shop import REPLAYED
from tests.fixtures.processes import needs, on_ci
from tests.interop.stripe_outside import new_name

HERE = Path(__file__).parent / "node"
NPM, NODE = shutil.which("npm"), shutil.which("node")
INSTALL = "ci", "--ignore-scripts", "--no-audit", "--no-fund"

pytestmark = [
    pytest.mark.xdist_group("interop stripe-node"),  # one server for all, and one installation
    needs(NODE and NPM, "nodejs and npm"),
    pytest.mark.timeout(300),  # the installation asks a registry
]


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """The script that calls the SDK, beside an installation of it."""
    assert NPM
    folder = tmp_path_factory.mktemp("node")
    for name in ("package.json", "package-lock.json", "call.cjs"):
        shutil.copy(HERE / name, folder)
    done = subprocess.run([NPM, *INSTALL], cwd=folder, capture_output=True, text=True, timeout=240)
    if done.returncode and not on_ci():
        pytest.skip(f"did NOT run: npm could not install stripe-node: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stderr
    return folder / "call.cjs"


class Sdk:
    """Has stripe-node make calls: each a method, its arguments, and perhaps a key and the content of a file."""

    def __init__(self, script, port):
        self._script, self._port = script, port

    def __call__(self, *calls, at_once=False, timeout=30):
        assert NODE
        told = {"port": self._port, "timeout": timeout * 1000, "at_once": at_once, "calls": calls}
        environment = {name: value for name, value in os.environ.items() if name.upper() != "NODE_OPTIONS"}
        done = subprocess.run(
            [NODE, self._script],
            input=json.dumps(told),
            capture_output=True,
            text=True,
            timeout=120,
            env=environment,
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line, object_hook=lambda each: SimpleNamespace(**each)) for line in done.stdout.splitlines()]


@pytest.fixture
def sdk(script, stripe_like):
    return Sdk(script, stripe_like.port)


@pytest.fixture
def wired(script, wire):
    """The same behind the proxy."""
    return Sdk(script, wire.port)


@pytest.fixture
def name():
    return new_name()


@pytest.fixture
def threads():
    with ThreadPoolExecutor(max_workers=2) as pool:
        yield pool


CHARGE, INTENT, WAITING, DESTINATION = (
    "charges.create", "paymentIntents.create", "setupIntents.create", "v2.core.eventDestinations.create"
)  # fmt: skip


def form(name, how="", method=CHARGE, key=None, **more):
    params = {"amount": 250, "currency": "eur", "description": name, "metadata": {"how": how, "a": "1"}, **more}
    return {"method": method, "args": [params], **({} if key is None else {"key": key})}


def json_of(name, how="", key=None):
    params = {
        "name": name,
        "description": how,
        "type": "webhook_endpoint",
        "enabled_events": [],
        "event_payload": "thin",
    }
    return {"method": DESTINATION, "args": [params], **({} if key is None else {"key": key})}


def upload(name, key=None):
    params = {"purpose": name}
    return {"method": "files.create", "args": [params], "file": "x" * 1000, **({} if key is None else {"key": key})}


def header(answer, name):
    return getattr(answer.headers, name.lower(), None)


# -- first answers and replays -----------------------------------------------------------------------------------------


def test_keys_of_its_own_are_actions_of_their_own(stripe_like, sdk, name):
    results = sdk(form(name), form(name), json_of(name), json_of(name))

    assert len({result.made.id for result in results}) == 4
    assert stripe_like.runs(name) == 4


def test_a_replay_names_its_key_and_the_request_it_repeats(stripe_like, sdk, name):
    first, second = sdk(form(name, key=f"key-{name}"), form(name, key=f"key-{name}"))

    assert first.made.id == second.made.id
    assert first.answer.idempotencyKey == second.answer.idempotencyKey == f"key-{name}"
    assert second.answer.requestId != first.answer.requestId
    assert header(second.answer, "Original-Request") == first.answer.requestId
    assert header(second.answer, REPLAYED) == "true"
    assert stripe_like.runs(name) == 1


@pytest.mark.parametrize("request_of", [json_of, upload], ids=["v2 JSON", "file upload"])
def test_what_is_sent_again_is_the_same_request(stripe_like, sdk, name, request_of):
    first, second = sdk(request_of(name, key=f"key-{name}"), request_of(name, key=f"key-{name}"))

    assert (first.made.id, stripe_like.runs(name)) == (second.made.id, 1)
    assert header(second.answer, REPLAYED) == "true"


def test_version_2_sends_a_key_with_delete(stripe_like, sdk, name):
    delete = {"method": "v2.core.eventDestinations.del", "args": [name, {}], "key": f"key-{name}"}

    first, second = sdk(delete, delete)

    assert (first.made.id, second.made.id, stripe_like.runs(name)) == (name, name, 1)


# -- answers that are lost ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_of", "sent"),
    [(form, b"currency=eur"), (json_of, b"webhook_endpoint"), (upload, b"x" * 1000)],
    ids=["v1 form", "v2 JSON", "file upload"],
)
def test_an_answer_that_is_lost_is_asked_for_again_and_there_is_one_effect(
    stripe_like, wire, wired, name, request_of, sent
):
    before, lost = stripe_like.things(), wire.cut_after(sent)

    (result,) = wired(request_of(name))

    assert lost.is_set()
    assert header(result.answer, REPLAYED) == "true"
    assert (stripe_like.runs(name), stripe_like.things()) == (1, before + 1)


def test_an_answer_that_is_cut_in_the_middle_is_replayed_to_whoever_asks_again(stripe_like, wire, wired, name):
    cut = wire.cut_within(b"currency=eur", withheld=20)

    first, second = wired(form(name, key=name), form(name, key=name))

    assert cut.is_set()
    assert first.error.type in ("StripeAPIError", "StripeConnectionError")  # it asks no second time
    assert (second.made.amount, header(second.answer, REPLAYED)) == (250, "true")
    assert stripe_like.runs(name) == 1


# -- in flight ---------------------------------------------------------------------------------------------------------


def test_a_conflict_is_retried_until_the_first_is_done(stripe_like, sdk, name, threads):
    refused = stripe_like.entries("refused")
    both = threads.submit(sdk, *[form(name, "wait", INTENT, key=name)] * 2, at_once=True)
    held = stripe_like.gate.next()
    stripe_like.wait_for("refused", refused + 1)
    held.say("201")

    assert len({result.made.id for result in both.result()}) == 1
    assert sorted(header(result.answer, REPLAYED) or "" for result in both.result()) == ["", "true"]
    assert stripe_like.runs(name) == 1


def test_a_conflict_that_stays_is_an_error_after_three_attempts(stripe_like, sdk, name, threads):
    refused = stripe_like.entries("refused")
    first = threads.submit(sdk, form(name, "wait", INTENT, key=name))
    held = stripe_like.gate.next()

    (second,) = sdk(form(name, "wait", INTENT, key=name))

    held.say("201")
    assert (second.error.statusCode, second.error.code) == (409, "idempotency_key_in_use")
    assert stripe_like.entries("refused") == refused + 3
    assert first.result()[0].made.amount == 250


def test_four_at_once_all_get_the_same_object_where_duplicates_wait(stripe_like, sdk, name, threads):
    four = threads.submit(sdk, *[form(name, "wait", WAITING, key=name)] * 4, at_once=True)
    stripe_like.gate.next().say("201")

    assert len({result.made.id for result in four.result()}) == 1
    assert stripe_like.runs(name) == 1


# -- refusals and failures ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_of", [form, json_of], ids=["v1", "v2"])
def test_a_reused_key_is_the_error_that_the_sdk_has_for_it(stripe_like, sdk, name, request_of):
    refused = stripe_like.entries("refused")

    _, reused = sdk(request_of(name, key=f"key-{name}"), request_of(name, "other", key=f"key-{name}"))

    assert (reused.error.type, reused.error.statusCode) == ("StripeIdempotencyError", 400)
    assert "with other parameters" in reused.error.message
    assert reused.error.requestId.startswith("req_")
    assert stripe_like.entries("refused") == refused + 1


def test_a_malformed_key_is_a_request_that_is_invalid(stripe_like, sdk, name):
    (long, comma) = sdk(form(name, key="x" * 256), form(name, key="one,two"))

    assert [each.error.type for each in (long, comma)] == ["StripeInvalidRequestError"] * 2
    assert [each.error.code for each in (long, comma)] == ["idempotency_key_invalid"] * 2
    assert stripe_like.runs(name) == 0


def test_a_500_that_the_view_returns_is_replayed_once_and_not_asked_for_again(stripe_like, sdk, name):
    before, replayed = stripe_like.things(), stripe_like.entries("replayed")

    (result,) = sdk(form(name, "return 500"))

    assert (result.error.statusCode, result.error.message) == (500, "The card network is down.")
    assert header(result.error, "Stripe-Should-Retry") == "false"
    assert (stripe_like.runs(name), stripe_like.things()) == (1, before + 1)
    assert stripe_like.entries("replayed") == replayed + 1


@pytest.mark.parametrize("how", ["raise once", "be unavailable once"])
def test_a_failure_that_is_not_kept_is_asked_for_again_and_done(stripe_like, sdk, name, how):
    before = stripe_like.things()

    (result,) = sdk(form(name, how))

    assert header(result.answer, REPLAYED) is None
    assert (stripe_like.runs(name), stripe_like.things()) == (2, before + 1)
