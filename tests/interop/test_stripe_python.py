"""stripe-python, unchanged, against an API in Stripe's dialect: section 9, synchronous and asynchronous.

`StripeClient` resends nothing unless it is told to; here it is told twice, as its users are advised.
"""

import asyncio
import io
from concurrent.futures import ThreadPoolExecutor

import pytest
import stripe

from tests.apps.shop import REPLAYED
from tests.interop.stripe_outside import new_name

pytestmark = [
    pytest.mark.xdist_group("interop stripe-python"),  # one server for all
    pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning"),  # how the SDK calls httpx
]


class Sdk:
    """Calls a method of a client by its name, with a client of its own for each call."""

    def __init__(self, address, *, is_async, timeout=30, prefix=""):
        self.address, self.is_async, self.timeout = address + prefix, is_async, timeout

    def __call__(self, method, params, key=None, *, id=None):
        options = {} if key is None else {"idempotency_key": key}
        arguments = [*([] if id is None else [id]), params, options]
        if not self.is_async:
            http = stripe.RequestsClient(timeout=self.timeout)
            try:
                return self._find(self._client(http), method)(*arguments)
            finally:
                http.close()

        async def call():
            http = stripe.HTTPXClient(timeout=self.timeout)
            try:
                return await self._find(self._client(http), f"{method}_async")(*arguments)
            finally:
                await http.close_async()

        return asyncio.run(call())

    def _client(self, http):
        return stripe.StripeClient(
            "sk_test_alice",
            base_addresses={"api": self.address, "files": self.address},
            max_network_retries=2,
            http_client=http,
        )

    @staticmethod
    def _find(found, path):
        for name in path.split("."):
            found = getattr(found, name)
        return found


@pytest.fixture(params=[False, True], ids=["requests", "async httpx"])
def is_async(request):
    return request.param


@pytest.fixture
def sdk(stripe_like, is_async):
    return Sdk(stripe_like.url, is_async=is_async)


@pytest.fixture
def wired(wire, is_async):
    """The same behind the proxy."""
    return Sdk(f"http://127.0.0.1:{wire.port}", is_async=is_async)


@pytest.fixture
def name():
    return new_name()


@pytest.fixture
def threads():
    with ThreadPoolExecutor(max_workers=6) as pool:
        yield pool


def form(name, how="", **more):
    return {"amount": 250, "currency": "eur", "description": name, "metadata": {"how": how, "a": "1"}, **more}


def raised_by(call, *arguments, kind=stripe.StripeError, **options):
    with pytest.raises(kind) as caught:
        call(*arguments, **options)
    return caught.value


def code_of(error):
    """Not every class of the SDK's errors has the code as an attribute."""
    return error.json_body["error"]["code"]


CHARGE, INTENT, WAITING, DESTINATION = (
    "v1.charges.create", "v1.payment_intents.create", "v1.setup_intents.create", "v2.core.event_destinations.create"
)  # fmt: skip


def json_of(name, how=""):
    return {"name": name, "description": how, "type": "webhook_endpoint", "enabled_events": [], "event_payload": "thin"}


# -- first answers and replays -----------------------------------------------------------------------------------------


def test_keys_of_its_own_are_actions_of_their_own(stripe_like, sdk, name):
    charges = [sdk(CHARGE, form(name)) for _ in range(3)]

    assert len({charge.id for charge in charges}) == 3
    assert [charge.amount for charge in charges] == [250] * 3
    assert stripe_like.runs(name) == 3


def test_a_replay_names_its_key_and_the_request_it_repeats(stripe_like, sdk, name):
    first, second = (sdk(CHARGE, form(name), f"key-{name}") for _ in range(2))

    headers = second.last_response.headers
    assert first.id == second.id
    assert second.last_response.idempotency_key == first.last_response.idempotency_key == f"key-{name}"
    assert second.last_response.request_id != first.last_response.request_id
    assert headers["Original-Request"] == first.last_response.request_id
    assert headers[REPLAYED] == "true"
    assert stripe_like.runs(name) == 1


def test_parameters_in_another_order_are_the_same_request(stripe_like, sdk, name):
    params = form(name)
    shuffled = {**dict(reversed(params.items())), "metadata": dict(reversed(params["metadata"].items()))}

    first, second = sdk(CHARGE, params, name), sdk(CHARGE, shuffled, name)

    assert (first.id, stripe_like.runs(name)) == (second.id, 1)


def test_a_file_that_is_uploaded_again_is_the_same_request(stripe_like, sdk, name):
    first, second = (
        sdk("v1.files.create", {"purpose": name, "file": io.BytesIO(b"\x00\xff" * 500)}, f"key-{name}")
        for _ in range(2)
    )

    assert (first.id, first.size, stripe_like.runs(name)) == (second.id, 1000, 1)
    assert second.last_response.headers[REPLAYED] == "true"


def test_version_2_sends_json_and_keys_of_its_own(stripe_like, sdk, name):
    first = sdk(DESTINATION, json_of(name))
    again = [sdk(DESTINATION, json_of(name), f"key-{name}") for _ in range(2)]

    assert again[0].id == again[1].id != first.id
    assert again[1].last_response.headers[REPLAYED] == "true"
    assert stripe_like.runs(name) == 2


def test_version_2_sends_a_key_with_delete(stripe_like, sdk, name):
    answers = [sdk("v2.core.event_destinations.delete", {}, f"key-{name}", id=name) for _ in range(2)]

    assert [answer.id for answer in answers] == [name, name]
    assert stripe_like.runs(name) == 1


# -- answers that are lost ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "params", "sent"),
    [(CHARGE, form, b"currency=eur"), (INTENT, form, b"currency=eur"), (DESTINATION, json_of, b"webhook_endpoint")],
    ids=["transaction", "lease", "v2"],
)
def test_an_answer_that_is_lost_is_asked_for_again_and_there_is_one_effect(
    stripe_like, wire, wired, name, method, params, sent
):
    before, lost = stripe_like.things(), wire.cut_after(sent)

    made = wired(method, params(name))

    assert lost.is_set()
    assert made.last_response.headers[REPLAYED] == "true"
    assert (stripe_like.runs(name), stripe_like.things()) == (1, before + 1)


def test_an_upload_whose_answer_is_lost_is_done_once(stripe_like, wire, wired, name):
    lost = wire.cut_after(name.encode())

    made = wired("v1.files.create", {"purpose": name, "file": io.BytesIO(b"content")})

    assert lost.is_set()
    assert made.last_response.headers[REPLAYED] == "true"
    assert stripe_like.runs(name) == 1


def test_an_answer_that_is_cut_in_the_middle_is_replayed_to_whoever_asks_again(stripe_like, wire, wired, name):
    """The asynchronous client does so itself; the other raises, and its caller has the key."""
    cut = wire.cut_within(b"currency=eur", withheld=20)

    if wired.is_async:
        made = wired(CHARGE, form(name), name)
    else:
        raised_by(wired, CHARGE, form(name), name, kind=stripe.APIConnectionError)
        made = wired(CHARGE, form(name), name)

    assert cut.is_set()
    assert (made.amount, made.last_response.headers[REPLAYED]) == (250, "true")
    assert stripe_like.runs(name) == 1


# -- in flight ---------------------------------------------------------------------------------------------------------


def test_a_conflict_is_retried_until_the_first_is_done(stripe_like, sdk, name, threads):
    refused = stripe_like.entries("refused")
    first = threads.submit(sdk, INTENT, form(name, "wait"), name)
    held = stripe_like.gate.next()
    second = threads.submit(sdk, INTENT, form(name, "wait"), name)
    stripe_like.wait_for("refused", refused + 1)
    held.say("201")

    assert first.result().id == second.result().id
    assert second.result().last_response.headers[REPLAYED] == "true"
    assert stripe_like.runs(name) == 1


def test_a_conflict_that_stays_is_an_error_after_three_attempts(stripe_like, sdk, name, threads):
    refused = stripe_like.entries("refused")
    first = threads.submit(sdk, INTENT, form(name, "wait"), name)
    held = stripe_like.gate.next()

    error = raised_by(sdk, INTENT, form(name, "wait"), name, kind=stripe.APIError)

    held.say("201")
    assert (error.http_status, code_of(error)) == (409, "idempotency_key_in_use")
    assert "still running" in error.user_message
    assert stripe_like.entries("refused") == refused + 3
    assert first.result().id == sdk(INTENT, form(name, "wait"), name).id


def test_four_clients_all_get_the_same_object_where_duplicates_wait(stripe_like, sdk, name, threads):
    calls = [threads.submit(sdk, WAITING, form(name, "wait"), name) for _ in range(4)]
    stripe_like.gate.next().say("201")

    assert len({call.result().id for call in calls}) == 1
    assert stripe_like.runs(name) == 1


def test_a_client_that_gives_up_too_early_gets_an_error_where_duplicates_are_refused(
    stripe_like, is_async, name, threads
):
    impatient, patient = (Sdk(stripe_like.url, is_async=is_async, timeout=timeout) for timeout in (1, 30))
    refused = stripe_like.entries("refused")
    call = threads.submit(impatient, INTENT, form(name, "wait"), name)
    held = stripe_like.gate.next()

    error = call.exception()

    held.say("201")
    assert (error.http_status, stripe_like.entries("refused")) == (409, refused + 2)
    assert patient(INTENT, form(name, "wait"), name).amount == 250
    assert stripe_like.runs(name) == 1


def test_a_client_that_gives_up_too_early_gets_the_object_where_duplicates_wait(stripe_like, is_async, name, threads):
    impatient = Sdk(stripe_like.url, is_async=is_async, timeout=1)
    call = threads.submit(impatient, WAITING, form(name, "wait"), name)
    held = stripe_like.gate.next()
    stripe_like.wait_for("arrived", 2, key=name)

    held.say("201")

    assert call.result().last_response.headers[REPLAYED] == "true"
    assert stripe_like.runs(name) == 1


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "other", "message"),
    [
        ((CHARGE, form), (CHARGE, lambda name: form(name, amount=1)), "with other parameters"),
        ((CHARGE, form), (INTENT, form), "to another endpoint"),
        ((DESTINATION, json_of), (DESTINATION, lambda name: json_of(name, "other")), "with other parameters"),
    ],
    ids=["v1 parameters", "v1 endpoint", "v2 parameters"],
)
def test_a_reused_key_is_the_error_that_the_sdk_has_for_it(stripe_like, sdk, name, first, other, message):
    sdk(first[0], first[1](name), f"key-{name}")
    refused = stripe_like.entries("refused", problem="key-reused")

    error = raised_by(sdk, other[0], other[1](name), f"key-{name}", kind=stripe.IdempotencyError)

    assert error.http_status == 400
    assert message in error.user_message
    assert "Reference: " in error.user_message
    assert error.headers["Request-Id"] == error.request_id
    assert stripe_like.entries("refused", problem="key-reused") == refused + 1


@pytest.mark.parametrize("key", ["x" * 256, "one,two"], ids=["256 characters", "comma"])
def test_a_malformed_key_is_a_request_that_is_invalid(stripe_like, sdk, name, key):
    error = raised_by(sdk, CHARGE, form(name), key, kind=stripe.InvalidRequestError)

    assert (error.http_status, code_of(error)) == (400, "idempotency_key_invalid")
    assert stripe_like.runs(name) == 0


def test_a_key_with_an_accent_is_malformed_too(stripe_like, name):
    """httpx does not send it."""
    sdk = Sdk(stripe_like.url, is_async=False)

    error = raised_by(sdk, CHARGE, form(name), f"clé-{name}", kind=stripe.InvalidRequestError)

    assert code_of(error) == "idempotency_key_invalid"
    assert stripe_like.runs(name) == 0


def test_what_a_person_must_settle_is_not_asked_for_again(stripe_like, sdk, name):
    sdk(CHARGE, form(name), name)
    stripe_like.quarantine_all()
    refused = stripe_like.entries("refused", problem="quarantined")

    error = raised_by(sdk, CHARGE, form(name), name, kind=stripe.APIError)

    assert (error.http_status, code_of(error)) == (409, "idempotency_quarantined")
    assert stripe_like.entries("refused", problem="quarantined") == refused + 1


def test_a_problem_document_is_nothing_the_sdk_understands(stripe_like, is_async, name):
    """Why this dialect has no other envelope."""
    draft = Sdk(stripe_like.url, is_async=is_async, prefix="/drafts")
    draft(CHARGE, form(name), name)

    error = raised_by(draft, CHARGE, form(name, amount=1), name, kind=stripe.APIError)

    assert error.http_status == 422
    assert "Invalid response object" in str(error)


# -- failures ----------------------------------------------------------------------------------------------------------


def test_a_500_that_the_view_returns_is_replayed_once_and_not_asked_for_again(stripe_like, sdk, name):
    before, replayed = stripe_like.things(), stripe_like.entries("replayed")

    error = raised_by(sdk, CHARGE, form(name, "return 500"), name, kind=stripe.APIError)

    assert (error.http_status, error.user_message) == (500, "The card network is down.")
    assert error.headers["Stripe-Should-Retry"] == "false"
    assert error.headers[REPLAYED] == "true"
    assert (stripe_like.runs(name), stripe_like.things()) == (1, before + 1)
    assert stripe_like.entries("replayed") == replayed + 1


@pytest.mark.parametrize("how", ["raise once", "be unavailable once"])
@pytest.mark.parametrize(("method", "params"), [(CHARGE, form), (DESTINATION, json_of)], ids=["v1", "v2"])
def test_a_failure_that_is_not_kept_is_asked_for_again_and_done(stripe_like, sdk, name, method, params, how):
    before = stripe_like.things()

    made = sdk(method, params(name, how), name)

    assert REPLAYED not in made.last_response.headers
    assert (stripe_like.runs(name), stripe_like.things()) == (2, before + 1)


def test_a_429_is_not_asked_for_again(stripe_like, sdk, name):
    raised_by(sdk, CHARGE, form(name, "answer 429"), name)

    assert stripe_like.runs(name) == 1
