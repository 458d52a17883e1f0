"""Published rules: the page that the draft obliges a resource to have, and refusals that link to it."""

import re
from datetime import timedelta
from html.parser import HTMLParser

import pytest
from flask import Blueprint

from flask_idempotency import errors, rules, scopes
from flask_idempotency.settings import DOCS_URL
from tests.apps.shop import Gate

CODES = {kind.problem for kind in errors.RequestRefused.__subclasses__()}


class Page(HTMLParser):
    """The anchors of a page, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given["href"]] if tag == "a" else []

    def handle_data(self, data):
        self.text += data


@pytest.fixture
def make(make_shop):
    """`make(callers=…, **settings)`: a shop that publishes its rules."""

    def make(options=None, callers=None, **settings):
        shop = make_shop(options=options, **settings)
        shop.app.register_blueprint(rules.blueprint(callers=callers))
        return shop

    return make


def get(shop, accept="text/html", path="/idempotency"):
    return shop.send(path, key=None, method="GET", headers={"Accept": accept})


def test_the_page_has_one_anchor_for_each_refusal(make):
    answer = get(make())

    page = Page(answer.text)
    assert answer.mimetype == "text/html"
    assert {each for each in page.ids if each in CODES} == CODES
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)


def test_the_page_says_what_the_draft_obliges_to_publish(make):
    text = re.sub(
        r"\s+", " ", Page(get(make(retention=timedelta(hours=2), callers="A caller is an account.")).text).text
    )

    for said in (
        "Idempotency-Key",
        "1 to 255 characters",
        "A caller is an account.",
        "7200 seconds",
        "status from 200 to 499, except 401, 403, 408, 409, 425, 429",
        "frees the key",
    ):
        assert said in text


def test_programs_get_the_same_as_json(make):
    answer = get(make(), "application/json")

    assert answer.mimetype == "application/json"
    assert answer.json["header"] == "Idempotency-Key"
    assert {each["code"] for each in answer.json["refusals"]} == CODES
    assert answer.headers["Vary"] == "Accept"


@pytest.mark.parametrize("accept", ["*/*", "", "text/html,application/xhtml+xml,*/*;q=0.8", "image/png"])
def test_who_does_not_ask_for_json_gets_the_page(make, accept):
    assert get(make(), accept).mimetype == "text/html"


@pytest.mark.parametrize("key", ["", "k" * 300])
def test_a_refusal_links_to_the_apps_own_page(make, key):
    shop = make({"required": True})

    refusal = shop.send(key=key)

    url = f"http://localhost/idempotency#{refusal.json['code']}"
    assert refusal.json["type"] == url
    assert f'<{url}>; rel="describedby"; type="text/html"' in refusal.headers.getlist("Link")
    assert refusal.json["code"] in Page(get(shop).text).ids


def test_a_page_that_the_app_has_set_wins(make):
    shop = make(docs_url="https://shop.example/keys")

    assert shop.send(key="").json["type"] == "https://shop.example/keys#key-invalid"


def test_without_the_blueprint_refusals_link_to_this_documentation(make_shop):
    assert make_shop().send(key="").json["type"] == f"{DOCS_URL}#key-invalid"


@pytest.mark.parametrize("host", ['evil"><b>', "a b", "x>,<y", ""])
def test_a_host_that_could_break_out_of_the_link_is_not_repeated(make, host):
    refusal = make().send(key="", headers={"Host": host})

    assert refusal.status_code == 400
    assert all(">" not in link.strip("<").partition(">")[0] for link in refusal.headers.getlist("Link"))
    assert '"><b>' not in str(refusal.headers)


def test_in_stripes_dialect_the_page_has_stripes_statuses_and_the_envelope_links_to_it(make):
    shop = make(dialect="stripe")
    shop.send(json={"a": 1})

    refusal = shop.send(json={"a": 2})

    assert refusal.json["error"]["doc_url"] == "http://localhost/idempotency#key-reused"
    (reused,) = [each for each in get(shop, "application/json").json["refusals"] if each["code"] == "key-reused"]
    assert (reused["status"], refusal.status_code) == (400, 400)


@pytest.mark.parametrize(
    ("scope", "said"),
    [
        (scopes.credential, "same Authorization header"),
        (scopes.remote_addr, "IP address"),
        (scopes.everyone, "All callers share"),
        (scopes.session_field("user_id"), "session_field"),
    ],
    ids=["credential", "remote_addr", "everyone", "session_field"],
)
def test_who_shares_keys_is_said_of_every_ready_made_scope(make, scope, said):
    assert said in get(make(scope=scope), "application/json").json["callers"]


def test_what_an_app_says_of_its_callers_is_text_and_no_markup(make):
    assert "&lt;b&gt;" in get(make(callers="<b>")).text


@pytest.mark.parametrize("mode", ["conflict", "wait"])
def test_the_page_says_what_a_duplicate_gets(make, mode):
    text = Page(get(make(in_flight=mode, wait=7)).text).text

    assert ("It waits up to 7 seconds" in text) == (mode == "wait")
    assert "request-in-flight" in text


def test_rules_can_live_in_another_blueprint_and_be_registered_before_the_extension(make_shop):
    shop, docs = make_shop(), Blueprint("docs", __name__, url_prefix="/docs")
    docs.register_blueprint(rules.blueprint(url_prefix="/keys"))
    shop.app.register_blueprint(docs)

    assert shop.send(key="").json["type"] == "http://localhost/docs/keys#key-invalid"
    assert get(shop, path="/docs/keys").status_code == 200


def test_an_app_may_have_a_page_of_its_own_design(make, tmp_path):
    shop = make()
    (tmp_path / "flask_idempotency").mkdir()
    (tmp_path / "flask_idempotency" / "rules.html").write_text("{{ rules.callers }} Ours.")
    shop.app.jinja_loader.searchpath.append(str(tmp_path))

    assert get(shop).text.endswith("Ours.")


def test_a_refusal_while_the_first_runs_links_there_too(make):
    shop, gate = make(), Gate()
    shop.answer = lambda: (seen.append(shop.send().json["type"]), shop.create())[1]
    seen: list[str] = []
    gate.open()
    shop.send()

    assert seen == ["http://localhost/idempotency#request-in-flight"]


def test_outside_of_a_request_the_page_is_known_where_the_app_knows_its_name(make):
    shop = make()
    with shop.app.app_context():
        assert shop.idempotency.describe()["docs_url"] == DOCS_URL
    shop.app.config["SERVER_NAME"] = "shop.example"
    with shop.app.app_context():
        assert shop.idempotency.describe()["docs_url"] == "http://shop.example/idempotency"
