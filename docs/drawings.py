"""What the pages show of the code, made from the code itself, so that neither can drift from the other.

Every function here gives Markdown; the directive of its name puts it into a page. Nothing but the code is read, and
what the conformance tester has found.
"""

import ast
import dataclasses
import json
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from difflib import unified_diff
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from flask_idempotency import errors, signals
from flask_idempotency.conformance.promises import PROMISES
from flask_idempotency.core.checkpoint import Checkpoint, Kind, Progress
from flask_idempotency.core.lifecycle import TRANSITIONS
from flask_idempotency.policy import Options
from flask_idempotency.settings import DOCS_URL, Settings

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "flask_idempotency"

# -- the lifecycle -----------------------------------------------------------------------------------------------------

BOX_WIDTH, BOX_HEIGHT = 128, 46
COLUMN, ROW = 278, 104  # from one box to the next, across and down
LOOP = 52  # how far a loop rises above its box
LANE = 40  # between the lines that lead back, above or below everything else
CORNER = 14

Transitions = Mapping[tuple[str, str], str]
Point = tuple[float, float]


def lifecycle(transitions: Transitions = TRANSITIONS) -> str:
    """Draw the states of a record and what leads from one to the next."""
    edges: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (source, event), target in transitions.items():
        edges[str(source), str(target)].append(str(event))
    boxes = _places(edges)
    columns, rows = 1 + max(x for x, _ in boxes.values()), 1 + max(y for _, y in boxes.values())
    loops = any(source == target for source, target in edges)
    back = [edge for edge in edges if boxes[edge[1]][0] < boxes[edge[0]][0]]
    above = [edge for edge in back if boxes[edge[0]][1] == 0]
    below = [edge for edge in back if edge not in above]
    top = 24 + LANE * len(above) + (LOOP + 24) * loops
    width = COLUMN * (columns - 1) + BOX_WIDTH + 8
    height = top + ROW * (rows - 1) + BOX_HEIGHT + LANE * len(below) + 8

    centre = {
        state: (4 + BOX_WIDTH / 2 + COLUMN * x, top + BOX_HEIGHT / 2 + ROW * y) for state, (x, y) in boxes.items()
    }
    parts = []
    for (source, target), events in edges.items():
        start, end = centre[source], centre[target]
        if source == target:
            path, label, anchor = _loop(start)
        elif (source, target) in above:
            lane = top - (LOOP + 24) * loops - LANE * above.index((source, target)) - 10
            path, label, anchor = _back(start, end, lane, -1)
        elif (source, target) in below:
            lane = top + ROW * (rows - 1) + BOX_HEIGHT + LANE * (1 + below.index((source, target))) - 14
            path, label, anchor = _back(start, end, lane, 1)
        elif start[0] == end[0]:
            path, label, anchor = _down(start, end)
        else:
            path, label, anchor = _forward(start, end)
        names = " · ".join(f'<tspan data-event="{escape(event)}">{escape(event)}</tspan>' for event in events)
        parts.append(
            f'<g class="edge" data-from="{escape(source)}" data-to="{escape(target)}"><path d="{path}"/>'
            f'<text x="{label[0]:g}" y="{label[1]:g}" text-anchor="{anchor}">{names}</text></g>'
        )
    for state, (x, y) in centre.items():
        parts.append(
            f'<g class="state state-{escape(state)}" data-state="{escape(state)}">'
            f'<rect x="{x - BOX_WIDTH / 2:g}" y="{y - BOX_HEIGHT / 2:g}" '
            f'width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="9"/>'
            f'<text x="{x:g}" y="{y + 5:g}" text-anchor="middle">{escape(state)}</text></g>'
        )
    words = "; ".join(f"{source}, {event}: {target}" for (source, event), target in transitions.items())
    drawing = "\n".join(parts)  # without an empty line: there the Markdown reader would take over again
    return f"""\
<figure class="lifecycle">
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="states transitions">
<title id="states">The states of a record</title>
<desc id="transitions">{escape(words)}</desc>
<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">
<path d="M0 1 10 5 0 9z"/></marker></defs>
{drawing}
</svg>
</figure>"""


def _places(edges: Mapping[tuple[str, str], Sequence[str]]) -> dict[str, tuple[int, int]]:
    """Give each state a column, as many steps as it is away from the first, and a row of its own in it."""
    first = next(iter(edges))[0]
    depth, line = {first: 0}, [first]
    for state in line:
        for source, target in edges:
            if source == state and target not in depth:
                depth[target] = depth[state] + 1
                line.append(target)
    for state in (state for edge in edges for state in edge if state not in depth):
        depth[state] = max(depth.values()) + 1  # nothing leads there; it is shown all the same
    rows: dict[int, int] = defaultdict(int)
    places = {}
    for state, column in depth.items():
        places[state] = (column, rows[column])
        rows[column] += 1
    return places


def _loop(at: Point) -> tuple[str, Point, str]:
    x, y = at[0], at[1] - BOX_HEIGHT / 2
    path = f"M{x - 24:g} {y:g} C{x - 52:g} {y - LOOP:g} {x + 52:g} {y - LOOP:g} {x + 24:g} {y:g}"
    return path, (x, y - LOOP + 4), "middle"


def _forward(start: Point, end: Point) -> tuple[str, Point, str]:
    (x1, y1), (x2, y2) = (start[0] + BOX_WIDTH / 2, start[1]), (end[0] - BOX_WIDTH / 2, end[1])
    if y1 == y2:
        return f"M{x1:g} {y1:g} L{x2:g} {y2:g}", ((x1 + x2) / 2, y1 - 9), "middle"
    bend = x1 + 34
    turn = CORNER if y2 > y1 else -CORNER
    path = (
        f"M{x1:g} {y1:g} H{bend - CORNER:g} Q{bend:g} {y1:g} {bend:g} {y1 + turn:g} "
        f"V{y2 - turn:g} Q{bend:g} {y2:g} {bend + CORNER:g} {y2:g} H{x2:g}"
    )
    return path, ((bend + x2) / 2 + 2, y2 - 9), "middle"


def _down(start: Point, end: Point) -> tuple[str, Point, str]:
    half = BOX_HEIGHT / 2 if end[1] > start[1] else -BOX_HEIGHT / 2
    path = f"M{start[0]:g} {start[1] + half:g} L{end[0]:g} {end[1] - half:g}"
    return path, (start[0] + 9, (start[1] + end[1]) / 2 + 5), "start"


def _back(start: Point, end: Point, lane: float, side: int) -> tuple[str, Point, str]:
    (x1, y1), (x2, y2) = ((x, y + side * BOX_HEIGHT / 2) for x, y in (start, end))
    path = (
        f"M{x1:g} {y1:g} V{lane - side * CORNER:g} Q{x1:g} {lane:g} {x1 - CORNER:g} {lane:g} "
        f"H{x2 + CORNER:g} Q{x2:g} {lane:g} {x2:g} {lane - side * CORNER:g} V{y2:g}"
    )
    return path, ((x1 + x2) / 2, lane - 9), "middle"


# -- a checkout's recovery points --------------------------------------------------------------------------------------

STEP = 62  # from one point to the next
_CHARGE = Checkpoint("charge", Kind.EFFECT, 2)
CHECKOUT = [  # what happens, where the record stands after it, and what a crash in the middle of it leads to
    ("the request is claimed", "–", "the retry is a first request"),
    ("phase: place_order", Checkpoint("order_placed", Kind.PHASE, 1).point, "rolled back; place_order runs again"),
    ("sent is recorded", dataclasses.replace(_CHARGE, state=Progress.SENT).point, "continues with the charge"),
    ("the gateway charges", "", "sends the same key again, or looks it up"),
    ("phase: mark_paid", Checkpoint("order_paid", Kind.PHASE, 3).point, "rolled back; same key again, then mark_paid"),
    ("the answer is stored", "finished", "no step runs again; the view answers again"),
    ("the answer is sent", "finished", "the retry is a replay"),
]


def recovery() -> str:
    """Draw a checkout from top to bottom: every commit, and what follows a crash between two of them."""
    top = 64
    parts = [f'<path class="line" d="M190 {top - 14} V{top + STEP * (len(CHECKOUT) - 1) + 14}"/>']
    for x, anchor, title in (
        (166, "end", "what happens"),
        (210, "start", "commit, point"),
        (380, "start", "after a crash here"),
    ):
        parts.append(f'<text class="title" x="{x}" y="22" text-anchor="{anchor}">{title}</text>')
    for row, (does, point, after) in enumerate(CHECKOUT):
        y = top + STEP * row
        is_last = row == len(CHECKOUT) - 1
        parts.append(f'<text class="does" x="166" y="{y + 5}" text-anchor="end">{escape(does)}</text>')
        if point and not is_last:
            parts.append(f'<circle cx="190" cy="{y + 30}" r="7"/>')
            parts.append(f'<text class="point" x="210" y="{y + 35}">{escape(point)}</text>')
        parts.append(f'<text class="after" x="380" y="{y + 5}">{escape(after)}</text>')
    height = top + STEP * (len(CHECKOUT) - 1) + 24
    drawing = "\n".join(parts)
    return f"""\
<figure class="lifecycle recovery">
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {height}" role="img" aria-labelledby="recovery">
<title id="recovery">A checkout, its commits, and what happens after a crash between two of them</title>
{drawing}
</svg>
<figcaption>Each dot is a commit. The right column shows what the next attempt finds and does.</figcaption>
</figure>"""


# -- tables ------------------------------------------------------------------------------------------------------------


def _table(titles: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def settings() -> str:
    """List every setting with its default, and whether a view may choose for itself."""
    options = {option.name for option in dataclasses.fields(Options)}

    def rows() -> Iterator[Sequence[str]]:
        for setting in dataclasses.fields(Settings):
            name = f"IDEMPOTENCY_{setting.name.upper()}"
            own = f"`{setting.name}=`" if setting.name in options else ""
            yield f"{{confval}}`{name}`", as_written(setting.default), own

    return _table(["setting", "default", "option of `@idempotent`"], rows())


def as_written(value: Any) -> str:
    """Spell a default as a person would write it into a configuration."""
    match value:
        case timedelta():
            hours, seconds = divmod(value.total_seconds(), 3600)
            return f"`timedelta(hours={hours:g})`" if not seconds else f"`timedelta(seconds={value.total_seconds():g})`"
        case frozenset():
            return "`{" + ", ".join(f'"{each}"' for each in sorted(value, reverse=True)) + "}`"
        case str() if value == DOCS_URL:
            return "this documentation’s [](errors.md)"
        case str():
            return f'`"{value}"`'
        case int() if value > 1024 and value % 1024**2 == 0:
            return f"`{value // 1024**2} * 1024 * 1024`"
        case _:
            return f"`{value}`"


def refusals() -> str:
    """List every refusal, and what a client should do with it."""

    def rows() -> Iterator[Sequence[str]]:
        for refusal in sorted(errors.RequestRefused.__subclasses__(), key=lambda each: each.code):
            code = f"[`{refusal.problem}`](#{refusal.problem})"
            answers = ("yes" if refusal.retryable else "no", "yes" if refusal.safe_new_key else "**no**")
            yield str(refusal.code), code, *answers, refusal.detail

    return _table(["status", "`code`", "`retryable`", "`safe_new_key`", "what to do"], rows())


def outcomes() -> str:
    """List every signal with its sentence."""

    def rows() -> Iterator[Sequence[str]]:
        for name, signal in vars(signals).items():
            if isinstance(signal, signals.NamedSignal):
                meaning, _, facts = (signal.__doc__ or "").partition(" With: ")
                yield f"`{name}`", meaning, ", ".join(f"`{fact}`" for fact in _facts(facts))

    return _table(["signal", "sent when", "with"], rows())


def _facts(text: str) -> list[str]:
    return [fact.removesuffix(" or None") for fact in text.rstrip(".").split(", ")]


# -- the conformance tester --------------------------------------------------------------------------------------------

RESULTS = ROOT / "tests" / "conformance" / "peers" / "results.json"


def promises() -> str:
    """List what the conformance tester judges."""

    def rows() -> Iterator[Sequence[str]]:
        group = ""
        for promise in PROMISES:
            only = f" Only in the dialect {promise.only_in}." if promise.only_in else ""
            yield promise.group if promise.group != group else "", f"`{promise.id}`", promise.sentence + only
            group = promise.group

    return _table(["", "id", "promise"], rows())


def findings(results: Mapping[str, Any] | None = None) -> str:
    """Show what the conformance tester has found, server by server."""
    found = results or json.loads(RESULTS.read_text("utf-8"))
    counts = _table(
        ["server", "hold", "broken", "not shown", "requests"],
        (
            (
                _titled(server),
                *(str(len(server[each])) for each in ("holds", "broken", "not_shown")),
                str(server["requests"]),
            )
            for server in found["servers"]
        ),
    )
    intro = f"On {found['made']}, with Python {found['python']}. Each server was tested with this command:"
    command = f"```console\n$ {found['command']}\n```"
    others = [_finding(server) for server in found["servers"] if server["is_others"]]
    return "\n\n".join([intro, command, counts, *others])


def _titled(server: Mapping[str, Any]) -> str:
    remark = f"; {server['remark']}" if server["remark"] else ""
    return f"{server['title']}: {', '.join(server['versions'])}{remark}"


def _finding(server: Mapping[str, Any]) -> str:
    """Show the promises that one server breaks, and those that could not be shown."""
    sentences = {promise.id: promise.sentence for promise in PROMISES}
    beside = [(each["id"], f"With {each['what']}: {each['reason']}") for each in server["beside"]]
    rows = (
        (f"`{name}`", sentences[name], escape(seen, quote=False)) for name, seen in (*server["broken"].items(), *beside)
    )
    parts = [f"**{', '.join(server['versions'])}**"]
    if server["failed"]:
        parts.append(f"The tester stopped: {escape(server['failed'], quote=False)}")
    parts.append(_table(["broken", "promise", "what was seen"], rows))
    if hidden := [f"`{name}` ({escape(reason, quote=False)})" for name, reason in server["not_shown"].items()]:
        parts.append(f"Not shown: {'; '.join(hidden)}.")
    return "\n\n".join(parts)


# -- the house ---------------------------------------------------------------------------------------------------------


def tree(folder: Path = PACKAGE) -> str:
    """List every module with the sentence it opens with; a folder speaks through its ``__init__``."""
    return "\n".join(_branches(folder, ""))


def _branches(folder: Path, indent: str) -> Iterator[str]:
    yield f"{indent}- `{folder.name}/`: {_opening(folder / '__init__.py')}"
    for module in sorted(folder.glob("*.py")):
        if module.name != "__init__.py":
            yield f"{indent}  - `{module.name}`: {_opening(module)}"
    for inner in sorted(each for each in folder.iterdir() if (each / "__init__.py").exists()):
        yield from _branches(inner, f"{indent}  ")


def _opening(module: Path) -> str:
    docstring = ast.get_docstring(ast.parse(module.read_text("utf-8"))) or ""
    return docstring.partition("\n\n")[0].replace("\n", " ").replace("``", "`")


def floors() -> str:
    """Show the layers as the import contract in pyproject.toml has them, the topmost first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    lines = ['<div class="floors" role="list">']
    for layer in layers:
        rooms = "".join(f"<code>{escape(room.strip())}</code>" for room in layer.split(":"))
        lines.append(f'<div role="listitem">{rooms}</div>')
    return "\n".join([*lines, "</div>"])


# -- into the page -----------------------------------------------------------------------------------------------------

DRAWINGS: dict[str, Callable[[], str]] = {
    each.__name__: each
    for each in (lifecycle, recovery, settings, refusals, outcomes, promises, findings, tree, floors)
}


def changes(before: str, after: str) -> str:
    """Show what a lab of the workshop changes in its code; where the code is, is of no interest."""
    steps = ROOT / "docs" / "workshop" / "steps"
    old, new = ((steps / f"{name}.py").read_text("utf-8").splitlines() for name in (before, after))
    lines = list(unified_diff(old, new, lineterm="", n=2))[2:]
    return "\n".join(["```diff", *("…" if line.startswith("@@") else line for line in lines), "```"])


class Changes(SphinxDirective):
    """Show what a lab changes, by the names of its code before and after."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        self.env.note_reread()
        return self.parse_text_to_nodes(changes(*self.arguments))


class Drawing(SphinxDirective):
    """Put what the function of the directive's name says into the page."""

    def run(self) -> list[nodes.Node]:
        self.env.note_reread()  # the code may have changed since, though the page has not
        return self.parse_text_to_nodes(DRAWINGS[self.name]())


def setup(app: Sphinx) -> dict[str, object]:
    """Announce the directives to Sphinx."""
    for name in DRAWINGS:
        app.add_directive(name, Drawing)
    app.add_directive("changes", Changes)
    return {"parallel_read_safe": True}
