"""Runs the examples of README.md and docs as tests: each page is one story, told in a folder of its own."""

import os
import threading
from doctest import ELLIPSIS
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import DEFAULT, patch

import pytest
from flask import Flask
from sybil import Example, Sybil
from sybil.integration.pytest import SybilItem
from sybil.parsers.myst import PythonCodeBlockParser

from flask_idempotency.guards.housekeeping import Housekeeper


def _open_page(namespace: dict[str, Any]) -> None:
    """Begin a page in an empty folder: an example's instance folder, and its database, belong there."""
    folder = TemporaryDirectory(ignore_cleanup_errors=True)
    # Flask looks for the module that calls itself so, finds none, and takes the working folder for its own.
    calm = patch.multiple(Housekeeper, watch=DEFAULT, start=DEFAULT)
    namespace.update(__name__="example", _folder=folder, _came_from=Path.cwd(), _calm=calm)
    calm.start()  # no thread is left behind that would look for the page's database later on
    os.chdir(folder.name)


def _close_page(namespace: dict[str, Any]) -> None:
    """Close the connections that a page's apps have opened, and leave nothing behind."""
    for value in list(namespace.values()):
        if isinstance(value, Flask) and "idempotency" in value.extensions:
            value.extensions["idempotency"].store.close()
    namespace["_calm"].stop()
    assert not [each for each in threading.enumerate() if each.name == "flask-idempotency"], "a page left a thread"
    os.chdir(namespace["_came_from"])
    namespace["_folder"].cleanup()


class _Pages(Sybil):
    """Examples named so that a page's stay together, and in order, where tests are spread over processes."""

    def identify(self, example: Example) -> str:
        # pytest-xdist's "loadgroup" groups by what follows the last @ of a test's id.
        return f"{super().identify(example)}@{Path(example.path).name}"


pytest_collect_file = _Pages(
    parsers=[PythonCodeBlockParser(doctest_optionflags=ELLIPSIS)],
    patterns=["README.md", "docs/*.md", "docs/guide/*.md"],
    excludes=["*/README.md"],
    setup=_open_page,
    teardown=_close_page,
).pytest()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let a page add a view to an app that it has shown at work; a reader would start the app again."""
    if isinstance(item, SybilItem):
        for value in list(item.example.namespace.values()):
            if isinstance(value, Flask):
                value._got_first_request = False
