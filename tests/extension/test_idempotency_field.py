"""`{{ idempotency_field() }}`: the hidden field that makes a form safe to send twice."""

import re

from flask import redirect, render_template_string, request

from tests.apps.shop import REPLAYED

FIELD = re.compile(r'<input type="hidden" name="_idempotency_key" value="([0-9a-f-]{36})">')
FORM = '<form method="post">{{ idempotency_field() }}<input name="item"></form>'


def test_a_page_has_a_field_with_a_fresh_key(shop):
    shop.app.add_url_rule("/form", "form", lambda: render_template_string(FORM))

    keys = [FIELD.search(shop.send("/form", None, method="GET").text)[1] for _ in range(2)]

    assert keys[0] != keys[1]


def test_several_forms_on_a_page_have_keys_of_their_own(shop):
    with shop.app.app_context():
        page = render_template_string(FORM * 2)

    assert len(set(FIELD.findall(page))) == 2


def test_a_double_click_buys_once(shop):
    shop.app.add_url_rule("/form", "form", lambda: render_template_string(FORM))
    shop.answer = lambda: redirect(f"/thanks/{request.form['item']}", 303)
    key = FIELD.search(shop.send("/form", None, method="GET").text)[1]
    form = {"_idempotency_key": key, "item": "tea"}

    clicks = [shop.send("/plain", None, data=form) for _ in range(2)]

    assert [click.headers["Location"] for click in clicks] == ["/thanks/tea"] * 2
    assert (clicks[1].headers[REPLAYED], shop.n) == ("true", 1)


def test_a_page_that_was_corrected_is_told_so(shop):
    form = {"_idempotency_key": "abc", "item": "tea"}
    shop.send("/plain", None, data=form)

    assert shop.send("/plain", None, data={**form, "item": "coffee"}).status_code == 422
