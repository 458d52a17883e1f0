"""The page about other packages says what the apps in tests/ecosystem show: a row for each, and each with tests."""

import ast
from pathlib import Path

import pytest

from tests.docs.test_pages import ROOT, rows, text_of

ECOSYSTEM = ROOT / "tests" / "ecosystem"
APPS = sorted((ECOSYSTEM / "apps").glob("[a-z]*.py"))


def constants(module: Path) -> dict[str, str]:
    """Give the texts that a module assigns to names in capitals; nothing of it is imported."""
    found = {}
    for node in ast.parse(module.read_text("utf-8")).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))) if name.isupper():
                found[name] = text
    return found


def is_tested(module: Path) -> bool:
    """An app is tested by the shared suite if it has a class for it; a test module by its own tests."""
    for node in ast.parse(module.read_text("utf-8")).body:
        match node:
            case ast.ClassDef(bases=[ast.Name(id="Shop"), *_]) if module in APPS:
                return True
            case ast.FunctionDef(name=name) if name.startswith("test_"):
                return True
    return False


def claims() -> dict[str, str]:
    """Give what each module says its package takes."""
    found = {}
    for module in [*APPS, *sorted(ECOSYSTEM.glob("test_*.py"))]:
        said = constants(module)
        if "PACKAGE" in said and is_tested(module):
            found[said["PACKAGE"]] = said["STEP"]
    return found


def test_every_package_with_a_test_has_a_row_that_says_the_same_and_there_is_no_other():
    listed = dict(rows(text_of("works-with.md"), "package"))

    assert listed == claims()


def test_the_rows_are_in_alphabetical_order():
    listed = [package for package, _ in rows(text_of("works-with.md"), "package")]

    assert listed == sorted(listed, key=str.casefold)


@pytest.mark.parametrize("module", APPS, ids=lambda path: path.stem)
def test_every_app_names_its_package_and_is_tested(module):
    assert {"PACKAGE", "STEP"} <= constants(module).keys()
    assert is_tested(module)


def test_an_app_without_a_shop_does_not_count_as_tested(tmp_path):
    (tmp_path / "app.py").write_text('PACKAGE = "Flask-Nothing"\nclass Nothing: ...\n')

    assert not is_tested(tmp_path / "app.py")
