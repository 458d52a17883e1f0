"""The built pages: they build without a warning, and every link that the code gives out leads to a place in them."""

import subprocess
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urldefrag

import pytest

import flask_idempotency
from flask_idempotency import client, errors, scopes, signals, stores, testing
from flask_idempotency.core.lifecycle import TRANSITIONS
from flask_idempotency.settings import DOCS_URL, Settings

ROOT = Path(__file__).resolve().parent.parent.parent
NOUNS = (
    "key scope record fingerprint claim guard lease token phase checkpoint effect snapshot replay reference quarantine"
).split()
REFUSALS = errors.RequestRefused.__subclasses__()


class Page(HTMLParser):
    """The ids of a page and where its links lead."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.loaded = set(), [], []
        self.text = path.read_text("utf-8")
        self.feed(self.text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids.add(given.get("id"))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        self.loaded.append(given.get("src") or (given.get("href") if tag == "link" else None))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the pages as ``make docs`` does: a warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    build = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "-q",
        "-b",
        "html",
        "-d",
        folder / "doctrees",
        "docs",
        folder / "html",
    ]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    html = folder / "html"
    return {page.relative_to(html).as_posix(): Page(page) for page in html.rglob("*.html")}


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.problem)
def test_the_link_of_every_problem_leads_to_its_place_on_the_page(site, refusal):
    page = DOCS_URL.rpartition("/")[2]

    assert refusal.problem in site[page].ids


def test_a_code_without_a_place_would_be_noticed(site):
    assert "no-such-code" not in site["errors.html"].ids


@pytest.mark.parametrize("noun", NOUNS)
def test_every_noun_is_defined_at_an_anchor_of_its_own(site, noun):
    assert noun in site["concepts.html"].ids


@pytest.mark.parametrize("name", Settings.__dataclass_fields__)
def test_every_setting_can_be_linked_to(site, name):
    assert f"confval-IDEMPOTENCY_{name.upper()}" in site["config.html"].ids


@pytest.mark.parametrize(
    "module", [flask_idempotency, client, scopes, stores, testing], ids=lambda module: module.__name__
)
def test_every_public_name_is_on_the_api_page(site, module):
    assert {f"{module.__name__}.{name}" for name in module.__all__} <= site["api.html"].ids


def test_every_exception_is_on_the_api_page(site):
    raised = {f"{each.__module__}.{each.__name__}" for each in vars(errors).values() if isinstance(each, type)}

    assert {name for name in raised if name.startswith("flask_idempotency.")} <= site["api.html"].ids


def test_every_signal_is_on_the_page_for_operators(site):
    names = [name for name, value in vars(signals).items() if isinstance(value, signals.NamedSignal)]

    assert len(names) == 12
    assert [name for name in names if f">{name}</span>" not in site["guide/operating.html"].text] == []


def test_the_state_diagram_is_in_the_page(site):
    text = site["architecture.html"].text
    svg = ET.fromstring("<svg" + text.partition("<svg")[2].partition("</svg>")[0] + "</svg>")

    events = [label.get("data-event") for label in svg.iter("{http://www.w3.org/2000/svg}tspan")]

    assert sorted(events) == sorted(str(event) for _, event in TRANSITIONS)


def test_every_link_inside_the_site_leads_to_a_place(site):
    broken = []
    for name, page in site.items():
        for link in page.links:
            target, anchor = urldefrag(link)
            if target.startswith(("http:", "https:", "mailto:")) or name in ("404.html", "search.html"):
                continue
            parts = []
            for part in [*Path(name).parent.parts, *target.split("/")] if target else Path(name).parts:
                parts = parts[:-1] if part == ".." else [*parts, part]
            found = site.get("/".join(part for part in parts if part))
            if found is None or (anchor and anchor not in found.ids):
                broken.append(f"{name}: {link}")

    assert broken == []


def test_nothing_is_loaded_from_another_server(site):
    loaded = {address for page in site.values() for address in page.loaded if address}

    assert [address for address in loaded if address.startswith(("http:", "https:", "//"))] == []
