"""The drawings follow the code: what is added to it appears, what is taken away disappears."""

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from docs import drawings
from flask_idempotency.conformance.promises import PROMISES
from flask_idempotency.core.lifecycle import TRANSITIONS, State

SVG = "{http://www.w3.org/2000/svg}"
PACKAGE = Path(drawings.__file__).parent.parent / "flask_idempotency"

WITH_RESOLVE = {**TRANSITIONS, ("quarantined", "resolve"): "finished", ("quarantined", "forget"): "absent"}
WITHOUT_QUARANTINE = {key: state for key, state in TRANSITIONS.items() if state is not State.QUARANTINED}
ONE_LOOP = {("only", "again"): "only"}
TABLES = pytest.mark.parametrize(
    "table",
    [TRANSITIONS, WITH_RESOLVE, WITHOUT_QUARANTINE, ONE_LOOP],
    ids=["as it is", "with more", "with less", "one state"],
)


def drawn(table):
    figure = ET.fromstring(drawings.lifecycle(table))
    return figure.find(f"{SVG}svg")


def edges(svg):
    return [group for group in svg.iter(f"{SVG}g") if group.get("class") == "edge"]


def boxes(svg):
    """Give each state's box as left, top, right, bottom."""
    found = {}
    for group in svg.iter(f"{SVG}g"):
        if name := group.get("data-state"):
            x, y, width, height = (float(group.find(f"{SVG}rect").get(side)) for side in ("x", "y", "width", "height"))
            found[name] = (x, y, x + width, y + height)
    return found


def ends(path):
    """Give the points where a path begins and ends; H and V move along one axis."""
    x = y = start = None
    for command, numbers in re.findall(r"([MLHVQC])([^MLHVQC]*)", path):
        values = [float(number) for number in numbers.split()]
        match command:
            case "H":
                x = values[-1]
            case "V":
                y = values[-1]
            case _:
                x, y = values[-2:]
        start = start or (x, y)
    return start, (x, y)


def is_on_border(point, box):
    (x, y), (left, top, right, bottom) = point, box
    return (left <= x <= right and y in (top, bottom)) or (top <= y <= bottom and x in (left, right))


@TABLES
def test_the_drawing_shows_every_transition_of_the_table_and_no_other(table):
    svg = drawn(table)

    shown = {
        (edge.get("data-from"), label.get("data-event")): edge.get("data-to")
        for edge in edges(svg)
        for label in edge.iter(f"{SVG}tspan")
    }
    assert shown == {(str(source), str(event)): str(target) for (source, event), target in table.items()}


@TABLES
def test_every_state_has_one_box_and_no_two_boxes_touch(table):
    found = boxes(drawn(table))

    assert set(found) == {str(state) for (source, _), target in table.items() for state in (source, target)}
    for name, (left, top, right, bottom) in found.items():
        for other, box in found.items():
            assert name == other or right < box[0] or box[2] < left or bottom < box[1] or box[3] < top


@TABLES
def test_every_line_leads_from_the_box_it_names_to_the_box_it_names(table):
    svg = drawn(table)
    found = boxes(svg)

    for edge in edges(svg):
        start, end = ends(edge.find(f"{SVG}path").get("d"))
        assert is_on_border(start, found[edge.get("data-from")])
        assert is_on_border(end, found[edge.get("data-to")])


@TABLES
def test_nothing_lies_outside_of_the_picture(table):
    svg = drawn(table)
    _, _, width, height = (float(number) for number in svg.get("viewBox").split())

    for text in svg.iter(f"{SVG}text"):
        assert 0 < float(text.get("x")) < width
        assert 12 < float(text.get("y")) < height
    for left, top, right, bottom in boxes(svg).values():
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height


def test_those_who_cannot_see_the_drawing_are_told_the_same():
    words = drawn(TRANSITIONS).find(f"{SVG}desc").text

    for (source, event), target in TRANSITIONS.items():
        assert f"{source}, {event}: {target}" in words


def test_the_tree_names_every_module_of_the_package():
    listed = re.findall(r"- `([\w/.]+)`: \S", drawings.tree())

    modules = [path.name for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"]
    folders = [f"{path.parent.name}/" for path in PACKAGE.rglob("__init__.py")]
    assert sorted(listed) == sorted(modules + folders)


def test_the_floors_are_those_of_the_import_contract_with_nobody_left_out():
    floors = drawings.floors()

    rooms = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert set(re.findall("<code>(.+?)</code>", floors)) == rooms - {"__init__"}
    assert floors.index("<code>extension") < floors.index("<code>stores") < floors.index("<code>core")


# -- the conformance tester --------------------------------------------------------------------------------------------


def test_every_promise_of_the_tester_is_listed_with_its_sentence():
    listed = drawings.promises()

    for promise in PROMISES:
        assert f"| `{promise.id}` | {promise.sentence}" in listed


def test_what_the_tester_found_is_told_server_by_server():
    server = {"title": "shop", "versions": ["shop 1.2"], "remark": "", "requests": 7, "failed": None, "is_others": True}
    server |= {"holds": ["retry-status"], "broken": {"retry-body": "<seen>"}, "not_shown": {"other-path": "<why>"}}
    server |= {"beside": [{"what": "a cookie", "id": "retry-cookies", "reason": "again"}]}

    page = drawings.findings({"made": "2026-11-18", "python": "3.11.7", "command": "test it", "servers": [server]})

    assert "| shop: shop 1.2 | 1 | 1 | 1 | 7 |" in page
    assert "| `retry-body` | A retry gets the first answer's body, byte for byte. | &lt;seen&gt; |" in page
    assert "| With a cookie: again |" in page
    assert "Not shown: `other-path` (&lt;why&gt;)." in page


def test_what_the_tester_found_speaks_of_promises_that_there_are_and_ours_hold():
    found = json.loads(drawings.RESULTS.read_text("utf-8"))
    known = {promise.id for promise in PROMISES}

    for server in found["servers"]:
        assert {*server["holds"], *server["broken"], *server["not_shown"]} <= known
        if not server["is_others"]:
            assert not server["broken"]
            assert server["not_shown"].keys() <= {"key-unbalanced"}  # in Stripe's dialect a quote is a part of the key
    assert {server["is_others"] for server in found["servers"]} == {True, False}


def test_a_lab_shows_what_its_solution_changes_and_no_path_of_the_machine():
    shown = drawings.changes("compared", "claimed")

    assert '+                db.execute("INSERT INTO answers VALUES (?, ?, NULL)", [id, asked])' in shown.splitlines()
    assert str(PACKAGE.parent) not in shown
