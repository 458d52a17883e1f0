"""The hand-written pages say what the code says: defaults, ranges, codes, headers, commands, log messages."""

import ast
import json
import re
from datetime import timedelta
from pathlib import Path

import pytest

from flask_idempotency import errors
from flask_idempotency.cli import commands
from flask_idempotency.core.lifecycle import Event
from flask_idempotency.errors import ConfigError, KeyReused
from flask_idempotency.http.capture import Fate, fate_of
from flask_idempotency.http.dialects import open_dialect
from flask_idempotency.policy import Options
from flask_idempotency.settings import DOCS_URL, Settings, check

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGES.md", *sorted(DOCS.rglob("*.md"))]
PAGES = [page for page in PAGES if "_build" not in page.parts]
REFUSALS = errors.RequestRefused.__subclasses__()


def by_path(path):
    return path.relative_to(ROOT).as_posix()


def text_of(name):
    return (DOCS / name).read_text("utf-8")


def rows(page, title):
    """Give the rows of the table whose first line holds *title*, as lists of cells."""
    table = next(table for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE) if title in table.splitlines()[0])
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


# -- configuration -----------------------------------------------------------------------------------------------------

ENTRIES = dict(re.findall(r"(?ms)^````\{confval\} IDEMPOTENCY_(\w+)\n(.*?)^````$", text_of("config.md")))
UNITS = {"second": timedelta(seconds=1), "minute": timedelta(minutes=1), "day": timedelta(days=1)}


def duration(words):
    number, _, unit = words.partition(" ")
    return int(number) * UNITS[unit.rstrip("s")] if unit else timedelta(0)


def ranges():
    for name, entry in ENTRIES.items():
        if found := re.search(r"^:type: duration, (.+) to (.+)$", entry, re.MULTILINE):
            yield pytest.param(name, duration(found[1]), duration(found[2]), id=name)


def test_every_setting_has_one_entry_and_there_is_no_other():
    assert sorted(ENTRIES) == sorted(name.upper() for name in Settings.__dataclass_fields__)


@pytest.mark.parametrize("name", Settings.__dataclass_fields__)
def test_the_default_on_the_page_is_the_default_of_the_code(name):
    written = re.search(r"^:default: `(.+)`$", ENTRIES[name.upper()], re.MULTILINE)[1]

    value = eval(written, {"timedelta": timedelta})
    assert value == getattr(Settings(), name)


@pytest.mark.parametrize(("name", "shortest", "longest"), list(ranges()))
def test_the_range_on_the_page_is_the_range_of_the_code(name, shortest, longest):
    assert check(name, shortest) == shortest
    assert check(name, longest) == longest
    for outside in (shortest - timedelta(milliseconds=1), longest + timedelta(milliseconds=1)):
        with pytest.raises(ConfigError):
            check(name, outside)


def test_every_duration_states_its_range():
    durations = {
        name.upper() for name in Settings.__dataclass_fields__ if isinstance(getattr(Settings(), name), timedelta)
    }

    assert {param.id for param in ranges()} == durations


def test_every_option_of_the_decorator_is_listed():
    listed = [row[0].strip("`") for row in rows(text_of("api.md"), "option")]

    assert sorted(listed) == sorted(Options.__dataclass_fields__)


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.problem)
def test_a_refusal_is_explained_with_its_status_and_title_to_client_and_operator(refusal):
    page = text_of("errors.md")

    head = f"({refusal.problem})=\n## `{refusal.problem}` · {refusal.code}\n\n*{refusal.title}.*\n"
    assert head in page
    section = page.partition(head)[2].partition("\n(")[0]
    assert re.findall(r"^(\w.*)\n: ", section, re.MULTILINE) == ["What happened", "Client", "Operator"]


def test_the_document_on_the_page_is_one_that_the_code_makes():
    refusal = KeyReused()
    refusal.reference = "F62S-9GTZ-C05P"
    made = open_dialect("ietf", DOCS_URL).render(refusal)

    shown = re.search(r"```http\nHTTP/1.1 (.+?)\n(.+?)\n\n(.+?)```", text_of("errors.md"), re.DOTALL)

    assert shown[1] == made.status
    assert json.loads(shown[3]) == made.json
    headers = dict(line.split(": ", 1) for line in shown[2].splitlines())
    assert headers == {name: value for name, value in made.headers if name != "Content-Length"}


# -- the wire ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fate", Fate, ids=lambda fate: fate.name.lower())
def test_the_fate_of_every_header_on_the_page_is_its_fate_in_the_code(fate):
    (cell,) = (
        row[1] for row in rows(text_of("http.md"), "on a replay") if row[0].startswith(f"**{fate.name.lower()}**")
    )

    names = [name.replace("*", "-Report-Only") for name in re.findall(r"`([\w*-]+)`", cell)]
    assert len(names) > 4
    assert {name: fate_of(name) for name in names} == dict.fromkeys(names, fate)


# -- the inside --------------------------------------------------------------------------------------------------------


def test_every_event_of_the_lifecycle_is_explained():
    listed = [row[0] for row in rows(text_of("architecture.md"), "by whom")]

    assert sorted(listed) == sorted(str(event) for event in Event)


def test_every_command_is_explained_and_no_other():
    listed = [
        re.match(r"`flask idempotency (\w+)", row[0])[1] for row in rows(text_of("guide/operating.md"), "command")
    ]

    assert sorted(listed) == sorted(commands.commands)


def test_every_message_on_the_page_is_one_that_the_code_logs():
    listed = [(row[0].strip("`"), row[1]) for row in rows(text_of("guide/operating.md"), "message") if "`" in row[0]]

    logged = set()
    for module in (ROOT / "flask_idempotency").rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text("utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="log"), attr=level), args=[ast.Constant(str(text)), *_]
                ):
                    if found := re.match(r"(\w+): ", text):
                        logged.add((found[1], level))
    assert len(listed) > 4
    assert sorted(listed) == sorted(logged)


def test_the_numbers_of_the_decisions_have_no_gap():
    numbers = re.findall(r"^\(decision-(\d+)\)=\n## (\d+)\. ", text_of("decisions.md"), re.MULTILINE)

    assert numbers == [(str(number), str(number)) for number in range(1, len(numbers) + 1)]
    assert len(numbers) >= 14


def test_every_decision_has_a_situation_a_choice_and_a_price():
    for decision in text_of("decisions.md").split("\n## ")[1:]:
        assert re.findall(r"^(\w+)\n: ", decision, re.MULTILINE) == ["Situation", "Choice", "Price"], decision


# -- how the pages are written -----------------------------------------------------------------------------------------


def prose(page):
    """Give the lines that are neither code nor table."""
    text = re.sub(r"^(`{3,}|~{3,}).*?^\1`*$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    return [line for line in text.splitlines() if not line.startswith(("|", "%", "    "))]


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=by_path)
def test_the_source_has_one_sentence_a_line(page):
    lines = [re.sub(r"^(#+ \d+\.|\d+\.) ", "", line) for line in prose(page)]

    assert [line for line in lines if re.search(r"[\w`)*][.?!] [A-Z`]", line)] == []


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=by_path)
def test_every_link_has_a_text_so_that_pages_can_be_read_in_the_repository(page):
    assert re.findall(r"\[\]\([^)]*\)", page.read_text("utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=by_path)
def test_every_make_target_on_a_page_exists(page):
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)

    named = re.findall(r"(?:`|\$ )make ([a-z]+)", page.read_text("utf-8"))

    assert set(named) <= set(targets)
