"""Runs the examples of README.md and docs as tests: each page is one story, told in a folder of its own."""

import os
import threading
from doctest import ELLIPSIS
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import DEFAULT, patch

from flask import Flask
from sybil import Example, Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.myst import PythonCodeBlockParser

from flask_idempotency.guards.housekeeping import Housekeeper

pytest_plugins = ["tests.fixtures.connections"]


def _open_page(namespace: dict[str, Any]) -> None:
    """Begin a page in an empty folder: an example's instance folder, and its database, belong there."""
    folder = TemporaryDirectory(ignore_cleanup_errors=True)
    # Flask looks for the module that calls itself so, finds none, and takes the working folder for its own.
    calm = patch.multiple(Housekeeper, watch=DEFAULT, start=DEFAULT)
    namespace.update(__name__="example", _folder=folder, _came_from=Path.cwd(), _calm=calm)
    calm.start()  # no thread is left behind that would look for the page's database later on
    os.chdir(folder.name)


def _stop_apps(namespace: dict[str, Any]) -> None:
    """Close the connections that a page's apps have opened."""
    for value in list(namespace.values()):
        if isinstance(value, Flask) and "idempotency" in value.extensions:
            value.extensions["idempotency"].store.close()


def _close_page(namespace: dict[str, Any]) -> None:
    """Stop a page's apps, and leave nothing behind."""
    _stop_apps(namespace)
    namespace["_calm"].stop()
    assert not [each for each in threading.enumerate() if each.name == "flask-idempotency"], "a page left a thread"
    os.chdir(namespace["_came_from"])
    namespace["_folder"].cleanup()


class _File(PythonEvaluator):
    """Takes the code of a page for one file. Flask adds no view to an app that has served a request: where a page does,
    it must tell its readers to restart the app, and this does it as they would. What was typed into a shell is lost.
    """

    def __call__(self, example: Example) -> None:
        namespace = example.namespace
        written = namespace.setdefault("_written", [])
        try:
            super().__call__(example)
        except AssertionError as error:
            above = example.document.text[: example.start].rpartition("\n```\n")[2]
            if "can no longer be called" not in str(error) or "restart" not in above:
                raise
            _stop_apps(namespace)
            for name in [name for name in namespace if not name.startswith("_")]:
                del namespace[name]
            for each in [*written, example]:
                super().__call__(each)
        written.append(example)


class _PythonBlocks(PythonCodeBlockParser):
    """Blocks of a file, and blocks of a shell, which begin with ``>>>``."""

    def __init__(self) -> None:
        super().__init__(doctest_optionflags=ELLIPSIS)
        self.codeblock_parser = self.codeblock_parser_class("python", _File())


class _Pages(Sybil):
    """Examples named so that a page's stay together, and in order, where tests are spread over processes."""

    def identify(self, example: Example) -> str:
        # pytest-xdist's "loadgroup" groups by what follows the last @ of a test's id.
        return f"{super().identify(example)}@{Path(example.path).name}"


pytest_collect_file = _Pages(
    parsers=[_PythonBlocks()],
    patterns=["README.md", "docs/*.md", "docs/guide/*.md"],
    excludes=["*/README.md"],
    setup=_open_page,
    teardown=_close_page,
).pytest()
