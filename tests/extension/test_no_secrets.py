"""Neither a key nor a body nor an answer nor a credential is ever told: not in logs, signals, problems or commands."""

import logging
from contextlib import ExitStack

import pytest
from flask import abort, request

from flask_idempotency import scopes, signals
from flask_idempotency.errors import OutcomeUnknown, StoreUnavailable

KEY, BODY, ANSWER, TOKEN = "canary-key", "canary-body", "canary-answer", "canary-token"
SIGNALS = [
    "claimed",
    "replayed",
    "refused",
    "completed",
    "released",
    "taken_over",
    "claim_lost",
    "quarantined",
    "reaped",
]


@pytest.fixture
def heard():
    """Everything that signals tell."""
    facts = []
    with ExitStack() as stack:
        for name in SIGNALS:

            def listen(app, **told):
                facts.append(told)

            stack.enter_context(getattr(signals, name).connected_to(listen))
        yield facts


def live_through_everything(shop, sql, let_pass):
    """Meet every outcome there is with the same key; give all answers but those the view made."""

    def send(**options):
        canaries = {"key": KEY, "json": {"secret": BODY}, "query_string": {"q": BODY}}
        headers = {"Authorization": f"Bearer {TOKEN}", "Cookie": f"session={TOKEN}"}
        return shop.send(**{**canaries, "headers": headers, **options})

    def answer():
        return {"secret": ANSWER, "got": request.json}, 201, {"X-Secret": ANSWER, "Location": f"/orders/{ANSWER}"}

    refused = [send(key=f"{KEY},"), send(key=f'"{KEY}'), send(key=KEY * 30)]
    shop.answer = lambda: abort(503)
    send()
    shop.answer = lambda: 1 / 0
    send()
    shop.store.fails("complete", OutcomeUnknown())
    shop.answer = answer
    refused.append(send())
    shop.store.heals()
    refused.append(send())
    let_pass(3600)
    send()
    send()
    refused.append(send(json={"another": BODY}))
    let_pass(60)
    sql("UPDATE idempotency_record SET body = :body", body=f"tampered {ANSWER}".encode())
    refused.append(send())
    sql("UPDATE idempotency_record SET state = 'quarantined'")
    refused.append(send())
    shop.store.fails("claim", StoreUnavailable())
    refused.append(send())
    shop.store.heals()
    return refused


def test_h16_canaries_occur_nowhere(make_shop, sql, let_pass, caplog, heard):
    caplog.set_level(logging.DEBUG)
    shop = make_shop(scope=scopes.credential)

    refused = live_through_everything(shop, sql, let_pass)
    commands = [
        shop.app.test_cli_runner().invoke(args=["idempotency", *arguments]).output
        for arguments in (["list"], ["show", refused[-1].json["reference"]], ["check"], ["routes"], ["reap"])
    ]

    logs = [record.getMessage() + str(record.exc_text) + str(record.__dict__) for record in caplog.records]
    problems = [answer.text + str(answer.headers) for answer in refused]
    assert len(heard) > 10
    assert {answer.status_code for answer in refused} >= {400, 409, 410, 422, 503}
    for place, texts in {"log": logs, "signals": map(str, heard), "problems": problems, "commands": commands}.items():
        for text in texts:
            for canary in (KEY, BODY, ANSWER, TOKEN):
                assert canary not in text, f"{canary} is in the {place}: {text}"


def test_the_key_is_not_stored_in_any_form_that_can_be_read(shop, sql):
    shop.send(key=KEY)

    row = str(
        [
            bytes(value) if isinstance(value, memoryview) else value
            for value in sql("SELECT * FROM idempotency_record")[0]
        ]
    )

    assert KEY not in row
    assert KEY.encode().hex() not in row


def test_the_body_of_a_request_is_not_stored(shop, sql):
    shop.send(json={"secret": BODY})

    assert BODY not in str(sql("SELECT * FROM idempotency_record"))
