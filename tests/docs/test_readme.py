"""README.md is read on a package index too: its links are absolute, and each leads to something in this tree."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
README = (ROOT / "README.md").read_text("utf-8")
PROJECT = "https://github.com/flask-idempotency/flask-idempotency"
PLACES = {  # what a link begins with, and what the rest of it must be
    f"{PROJECT}/blob/main/": Path.is_file,
    f"{PROJECT}/tree/main/": Path.is_dir,
    "https://raw.githubusercontent.com/flask-idempotency/flask-idempotency/main/": Path.is_file,
}
SITE = "https://flask-idempotency.readthedocs.io/en/latest/"
OURS = "flask-idempotency"


def links(text):
    """Give the targets of links and pictures, in Markdown and in HTML; code is no link."""
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)
    inline = re.findall(r"\]\(\s*<?([^)\s>]+)", text)
    defined = re.findall(r"^\[[^\]]+\]:\s*(\S+)", text, re.MULTILINE)
    return inline + defined + re.findall(r"""(?:href|src)=["']([^"']+)""", text)


def anchors(page):
    """Give the places of a page that a link can name: labels and headings."""
    text = page.read_text("utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r"^\(([\w-]+)\)=$", text, re.MULTILINE))


def leads_somewhere(link):
    """Say whether the link is absolute, and what it names is in this tree. Other sites are taken at their word."""
    for start, is_there in PLACES.items():
        if link.startswith(start):
            return is_there(ROOT / link.removeprefix(start))
    if link.startswith(SITE):
        name, _, anchor = (link.removeprefix(SITE) or "index.html").partition("#")
        page = ROOT / "docs" / f"{name.removesuffix('.html')}.md"
        return name.endswith(".html") and page.is_file() and (not anchor or anchor in anchors(page))
    return link.startswith("https://") and (OURS not in link or link == f"{PROJECT}/issues")


def test_every_link_is_absolute_and_leads_somewhere():
    found = links(README)

    assert len(found) > 30
    assert [link for link in found if not leads_somewhere(link)] == []


@pytest.mark.parametrize(
    "link",
    [
        "docs/cost.md",
        "#links",
        "http://example.org/",
        f"{PROJECT}/blob/main/docs/absent.md",
        f"{PROJECT}/blob/main/docs",
        f"{PROJECT}/blob/master/README.md",
        f"{PROJECT}/tree/main/README.md",
        "https://raw.githubusercontent.com/flask-idempotency/flask-idempotency/main/docs/_static/absent.png",
        f"{SITE}absent.html",
        f"{SITE}cost.md",
        f"{SITE}cost",
        f"{SITE}why.html#absent",
        "https://flask-idempotency.readthedocs.io/cost.html",
    ],
)
@pytest.mark.parametrize("form", ["[a]({})", "[![a](https://example.org/a.png)]({})", "[a]: {}", '<img src="{}">'])
def test_a_link_that_leads_nowhere_is_found(link, form):
    found = links(f"{README}\n{form.format(link)}\n")

    assert [each for each in found if not leads_somewhere(each)] == [link]


@pytest.mark.parametrize("page", ["", "why.html#cannot", "why.html#what-cannot-be-done", "guide/phases.html"])
def test_a_page_of_the_site_and_a_place_on_it_are_found(page):
    assert leads_somewhere(SITE + page)


def test_a_link_inside_of_code_is_not_followed():
    assert links("`[a](b.md)`\n\n```\n[c](d.md)\n```\n") == []


def test_the_readme_is_short_and_claims_no_more_than_it_may():
    assert len(README.splitlines()) <= 150
    assert "implements draft-ietf-httpapi-idempotency-key-header-07, an expired Internet-Draft" in README
    assert not re.search(r"\bRFC\b|standard|exactly[- ]once", README, re.IGNORECASE)


def test_the_first_screen_has_the_install_command_a_protected_view_a_picture_and_the_two_commands():
    first = README.partition("\n## ")[0]

    marks = ["$ pip install", "init_app(app, db=db)", "@idempotent(", "![The", "$ make demo", "$ make test"]
    places = [first.find(mark) for mark in marks]
    assert -1 not in places
    assert places == sorted(places)


def test_the_comparison_has_the_versions_and_figures_of_the_pages_behind_it():
    page, cost = ((ROOT / "docs" / name).read_text("utf-8") for name in ("comparison.md", "cost.md"))
    head = next(line for line in README.splitlines() if line.startswith("| | this extension"))
    row = next(line for line in README.splitlines() if line.startswith("| cost of a first run"))
    table = page.partition("\n## What it costs\n")[2].partition("\n## ")[0]

    versions, figures = re.findall(r"\d+\.\d+\.\d+", head), re.findall(r"\d+\.\d\d", row)

    assert len(versions) == 4
    assert [version for version in versions if f" {version}" not in page] == []
    assert set(figures) < set(re.findall(r"\| (\d+\.\d\d) \|", table)) < set(re.findall(r"\| (\d+\.\d\d) \|", cost))
