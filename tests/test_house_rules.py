"""The rules that no single module can keep alone. Each checker is shown a breach too, to know that it sees one."""

import ast
import dataclasses
import importlib
import io
import re
import shutil
import subprocess
import sys
import sysconfig
import tokenize
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import flask_idempotency
from flask_idempotency import errors
from flask_idempotency.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "flask_idempotency"
MODULES = sorted(PACKAGE.rglob("*.py"))
SOURCES = [*MODULES, *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "docs").glob("*.py"))]


def by_path(path):
    return path.relative_to(ROOT).as_posix()


# -- the public door ---------------------------------------------------------------------------------------------------


def test_all_is_sorted_and_names_exactly_what_the_package_exports():
    (door,) = [
        each for each in ast.parse((PACKAGE / "__init__.py").read_text("utf-8")).body if isinstance(each, ast.If)
    ]
    exported = {alias.name: each.module for each in door.body for alias in each.names}

    assert flask_idempotency.__all__ == sorted(exported)
    for name, module in exported.items():
        assert getattr(flask_idempotency, name) is getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("name", ["client", "errors", "scopes", "signals", "stores"])
def test_a_public_module_is_there_without_an_import_of_its_own(name):
    program = f"import flask_idempotency; print(flask_idempotency.{name}.__name__)"

    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert run.stdout == f"flask_idempotency.{name}\n"


def test_what_is_not_public_is_an_error_that_names_it():
    with pytest.raises(AttributeError, match="'idempotence'"):
        _ = flask_idempotency.idempotence


# -- import contracts --------------------------------------------------------------------------------------------------


@pytest.fixture
def copy_of_the_package(tmp_path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for package in ("flask_idempotency", "demo_shop", "loadtests"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def lint_imports(folder):
    """Check the contracts of the package in *folder*: it puts its working folder first on the path."""
    tool = Path(sysconfig.get_path("scripts")) / "lint-imports"
    return subprocess.run([tool, "--no-logo", "--no-cache"], cwd=folder, capture_output=True, text=True, timeout=60)


def test_the_import_contracts_hold(copy_of_the_package):
    report = lint_imports(copy_of_the_package)

    assert report.returncode == 0, report.stdout + report.stderr


@pytest.mark.parametrize(
    ("module", "added", "complaint"),
    [
        ("flask_idempotency/core/key.py", "import time", "flask_idempotency.core.key -> time"),
        ("flask_idempotency/core/key.py", "import flask", "flask_idempotency.core.key -> flask"),
        ("flask_idempotency/core/key.py", "import flask_idempotency.stores", "core.key -> flask_idempotency.stores"),
        ("flask_idempotency/stores/memory.py", "import werkzeug", "flask_idempotency.stores.memory -> werkzeug"),
        ("flask_idempotency/http/reading.py", "import flask_idempotency.stores", "http.reading -> flask_idempotency"),
        ("flask_idempotency/utils.py", "", "flask_idempotency.utils"),
        (
            "demo_shop/cart.py",
            "import flask_idempotency.guards.lease",
            "demo_shop.cart -> flask_idempotency.guards.lease",
        ),
        ("flask_idempotency/cli/__init__.py", "import demo_shop", "flask_idempotency.cli -> demo_shop"),
        ("loadtests/diary.py", "import demo_shop", "loadtests.diary -> demo_shop"),
        ("flask_idempotency/conformance/wire.py", "import flask", "flask_idempotency.conformance.wire -> flask"),
        (
            "flask_idempotency/conformance/keys.py",
            "import flask_idempotency.core.key",
            "flask_idempotency.errors -> werkzeug",
        ),
        ("flask_idempotency/conformance/verdicts.py", "import time", "flask_idempotency.conformance.verdicts -> time"),
        ("flask_idempotency/client/outbox.py", "import flask", "flask_idempotency.client.outbox -> flask"),
        (
            "flask_idempotency/client/policy.py",
            "import flask_idempotency.errors",
            "flask_idempotency.errors -> werkzeug",
        ),
        ("flask_idempotency/client/deciding.py", "import time", "flask_idempotency.client.deciding -> time"),
        ("loadtests/auditing/cases.py", "import time", "loadtests.auditing.cases -> time"),
    ],
    ids=[
        "clock in the core",
        "Flask in the core",
        "core above stores",
        "HTTP in a store",
        "store in http",
        "new room",
        "private name in the shop",
        "shop in the extension",
        "shop in the proof",
        "Flask in the tester",
        "refusals in the tester",
        "clock in the tester's judgement",
        "Flask in the client",
        "refusals in the client",
        "clock in the client's decisions",
        "clock in the auditor",
    ],
)
def test_a_broken_import_contract_is_reported(copy_of_the_package, module, added, complaint):
    with (copy_of_the_package / module).open("a") as source:
        source.write(f"\n{added}\n")

    report = lint_imports(copy_of_the_package)

    assert report.returncode == 1, report.stdout + report.stderr
    assert complaint in re.sub(r"\s+", " ", report.stdout)


# -- docstrings --------------------------------------------------------------------------------------------------------


def undocumented(tree: ast.Module) -> Iterator[str]:
    """Name what is public and has no docstring: the module, its functions and classes, their methods."""
    if not ast.get_docstring(tree):
        yield "the module"
    rooms = [("", tree)]
    while rooms:
        prefix, room = rooms.pop()
        for node in room.body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or node.name.startswith("_"):
                continue
            is_overload = any(isinstance(each, ast.Name) and each.id == "overload" for each in node.decorator_list)
            if not ast.get_docstring(node) and not is_overload:
                yield prefix + node.name
            if isinstance(node, ast.ClassDef):
                rooms.append((f"{prefix}{node.name}.", node))


@pytest.mark.parametrize("path", MODULES, ids=by_path)
def test_every_module_and_public_name_has_a_docstring(path):
    assert list(undocumented(ast.parse(path.read_text("utf-8")))) == []


def test_a_missing_docstring_is_seen_wherever_a_name_is_public():
    source = "def run(): ...\ndef _run(): ...\nclass Store:\n    def claim(self): ...\n    def __len__(self): ...\n"

    found = list(undocumented(ast.parse(source)))

    assert found == ["the module", "run", "Store", "Store.claim"]


# -- technologies ------------------------------------------------------------------------------------------------------

TECHNOLOGY = re.compile(r"sqlite|postgres|psycopg|mysql|mariadb|redis|valkey|dynamo|boto", re.IGNORECASE)
OUTBOX = PACKAGE / "client" / "outbox_file.py"  # a file of the client's own, on the other side of the wire
ABOVE_STORES = [path for path in MODULES if PACKAGE / "stores" not in path.parents and path != OUTBOX]


def technologies_in(tree: ast.Module) -> Iterator[str]:
    """Give what names a technology in code: an identifier, an import, a text that is neither docstring nor URL."""
    rooms = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, rooms) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name", "asname", "module"):
            if isinstance(name := getattr(node, field, None), str) and TECHNOLOGY.search(name):
                yield name
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            text = re.sub(r"[\w+]+://\S*", "", node.value)  # an example of what to write
            if TECHNOLOGY.search(text):
                yield text


@pytest.mark.parametrize("path", ABOVE_STORES, ids=by_path)
def test_nothing_above_the_stores_names_a_technology(path):
    assert list(technologies_in(ast.parse(path.read_text("utf-8")))) == []


@pytest.mark.parametrize(
    "source",
    [
        'is_embedded = dialect.name == "sqlite"',
        "import psycopg",
        "from redis.client import Redis",
        "import boto3",
        "from flask_idempotency.stores.postgres import open_url",
        "from flask_idempotency.stores import sqlite_file",
        "sqlite_path = 1",
        "found = error.sqlite_errorname",
        'def connect(mysql): "Connect."',
        'words = f"{name} of PostgreSQL"',
    ],
)
def test_a_technology_is_seen_wherever_code_names_it(source):
    assert list(technologies_in(ast.parse(source)))


def test_docstrings_comments_and_examples_of_urls_may_name_a_technology():
    source = '"""On SQLite."""\ndef f():\n    """As PostgreSQL."""\n    return "write postgresql://h/d"  # or redis\n'

    assert list(technologies_in(ast.parse(source))) == []


# -- the journal -------------------------------------------------------------------------------------------------------


def meddling(tree: ast.Module) -> Iterator[int]:
    """Give the lines that set an attribute of a journal, or touch a private one."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Attribute(attr="journal") | ast.Name(id="journal"), attr=name, ctx=context):
                if name.startswith("_") or not isinstance(context, ast.Load):
                    yield node.lineno


@pytest.mark.parametrize("path", [path for path in MODULES if path.name != "journal.py"], ids=by_path)
def test_nobody_but_the_journal_itself_writes_it(path):
    assert list(meddling(ast.parse(path.read_text("utf-8")))) == []


@pytest.mark.parametrize(
    "source",
    ["held.journal.done = 'charge'", "del self.journal.answered", "journal.misuse = error", "held.journal._busy"],
)
def test_a_write_to_the_journal_from_outside_is_seen(source):
    assert list(meddling(ast.parse(source))) == [1]


# -- nothing that a stored value could take over -----------------------------------------------------------------------

UNSAFE = {"pickle", "marshal", "shelve", "yaml"}
SQL = re.compile(
    r"\s*(SELECT|INSERT\s+INTO|UPDATE\s+\S+\s+SET|DELETE\s+FROM|WITH\s+\S+\s+AS|(CREATE|DROP|ALTER)\s+\w+|PRAGMA|WHERE|AND)\b"
)


def imported(tree: ast.Module) -> set[str]:
    """Name the top-level packages that are imported anywhere in *tree*."""
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    return {name.partition(".")[0] for name in names}


def sql_from_pieces(tree: ast.Module) -> list[int]:
    """Give the lines on which SQL is put together: by f-string, ``+``, ``%`` or ``format``."""
    lines = []
    for node in ast.walk(tree):
        match node:
            case ast.JoinedStr(values=[ast.Constant(value=text), *rest]) if rest:
                pass
            case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Add() | ast.Mod()):
                pass
            case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
                pass
            case _:
                continue
        if SQL.match(text):
            lines.append(node.lineno)
    return lines


@pytest.mark.parametrize("path", MODULES, ids=by_path)
def test_no_module_unpickles_or_builds_sql_from_pieces(path):
    tree = ast.parse(path.read_text("utf-8"))

    assert imported(tree) & UNSAFE == set()
    assert sql_from_pieces(tree) == []


@pytest.mark.parametrize(
    "source",
    ["import pickle", "from yaml import load", "def f():\n    import marshal as m", "import shelve.anything"],
)
def test_an_unsafe_import_is_seen_in_every_spelling(source):
    assert imported(ast.parse(source)) & UNSAFE


@pytest.mark.parametrize(
    "source",
    [
        'f"SELECT {column} FROM t"',
        '"DELETE FROM t WHERE id = " + id',
        '"UPDATE t SET a = %s" % value',
        '"INSERT INTO {} VALUES (1)".format(table)',
        'query + f" WHERE id = {id}"',
    ],
)
def test_sql_from_pieces_is_seen_in_every_spelling(source):
    assert sql_from_pieces(ast.parse(source)) == [1]


# -- settings and refusals are documented ------------------------------------------------------------------------------


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Settings)])
def test_every_setting_is_in_the_documentation(field):
    page = (ROOT / "docs" / "config.md").read_text("utf-8")

    assert re.search(rf"\bIDEMPOTENCY_{field.upper()}\b", page)


def refusals(root=errors.RequestRefused):
    for refusal in root.__subclasses__():
        if refusal.__module__ == errors.__name__:
            yield refusal
            yield from refusals(refusal)


def anchors(page: str) -> set[str]:
    """Name the places in a page that a link can lead to: targets, and headings that are one word."""
    found = re.findall(r"^\(([\w-]+)\)=$|^#+ `?([a-z-]+)`?$", page, re.MULTILINE)
    return {target or heading for target, heading in found}


@pytest.mark.parametrize("refusal", list(refusals()), ids=lambda refusal: refusal.__name__)
def test_the_link_in_every_problem_leads_somewhere(refusal):
    page = (ROOT / "docs" / "errors.md").read_text("utf-8")

    assert refusal.problem in anchors(page)


@pytest.mark.parametrize("refusal", list(refusals()), ids=lambda refusal: refusal.__name__)
def test_every_refusal_is_drawn_in_the_tree_with_its_status(refusal):
    drawn = re.findall(r"^[│ ]*[├└]── (\w+)(?: (\d{3}))?", errors.__doc__, re.MULTILINE)
    inherits = refusal.code == refusal.__base__.__dict__.get("code")

    assert (refusal.__name__, "" if inherits else str(refusal.code)) in drawn


# -- exceptions to the rules -------------------------------------------------------------------------------------------

EXCEPTION = re.compile(r"#\s*(?:(?:ruff|flake8):\s*)?noqa\b|#\s*type:\s*ignore\b", re.IGNORECASE)
EXPLAINED = re.compile(
    r"#\s*(?:(?:ruff:\s*)?noqa:\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*|type:\s*ignore\[[a-z-]+(?:,\s*[a-z-]+)*\])"
    r"\s+[#-]\s*\w+\W+\w+"  # a reason is at least two words
)


def unexplained(source: str) -> Iterator[str]:
    """Give each exception to a rule that does not name its code and a reason."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            for found in EXCEPTION.finditer(token.string):
                if not EXPLAINED.match(token.string, found.start()):
                    yield f"line {token.start[0]}: {token.string}"


@pytest.mark.parametrize("path", SOURCES, ids=by_path)
def test_every_exception_to_a_rule_names_its_code_and_a_reason(path):
    assert list(unexplained(path.read_text("utf-8"))) == []


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa",
        "# noqa: E501",
        "# noqa: E501, S101",
        "# ruff: noqa",
        "# type: ignore",
        "# type: ignore[arg-type]",
        "# type: ignore  # the stubs are wrong",
        "# noqa: E501 - a link cannot be broken  # type: ignore",
    ],
)
def test_an_unexplained_exception_is_seen(comment):
    assert len(list(unexplained(f"x = 1  {comment}\n"))) == 1


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa: E501 - a link cannot be broken",
        "# noqa: S101, E501  # a link cannot be broken",
        "# type: ignore[arg-type, return-value]  # the stubs are wrong",
    ],
)
def test_an_explained_exception_is_accepted(comment):
    assert list(unexplained(f"x = 1  {comment}\n")) == []


# -- what is shipped ---------------------------------------------------------------------------------------------------


def test_the_wheel_holds_the_package_with_its_types_statements_and_pages_and_nothing_else(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=60)

    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        shipped = set(archive.namelist())

    assert {re.split("[-/]", name)[0] for name in shipped} == {"flask_idempotency"}  # the package and its dist-info
    kinds = {".py", ".typed", ".sql", ".lua", ".html", ".css", ".svg"}
    wanted = {by_path(path) for path in PACKAGE.rglob("*") if path.suffix in kinds}
    assert {name for name in shipped if name.startswith("flask_idempotency/")} == wanted
    assert "flask_idempotency/py.typed" in shipped
    assert any(name.endswith(".sql") for name in shipped)
    assert any(name.endswith(".lua") for name in shipped)


def test_there_is_something_behind_every_extra():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    known = [*MODULES, *(ROOT / "demo_shop").rglob("*.py"), *(ROOT / "docs" / "guide").glob("*.md")]
    text = "\n".join(path.read_text() for path in known)

    named = {re.split(r"[\[>]", each)[0].lower() for extra in extras.values() for each in extra}
    wanted = {name.removesuffix("-api").replace("-", "_") for name in named}

    assert wanted
    assert {name for name in wanted if not re.search(rf"(import|from|-m\",) \"?{name}\b", text)} == set()
