"""Every app of `apps`, once for each database that it names, as the fixture `shop`; and `make_shop` for one of them."""

import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ecosystem.shop import Shop

# Warnings are errors, also other people's, save these: each is one package's about another, given when imported.
OTHERS_WARNINGS = [
    "ignore:Accessing jsonschema.draft4_format_checker:DeprecationWarning",  # connexion 2.15, of jsonschema
    "ignore:jsonschema.RefResolver:DeprecationWarning",  # the same
    "ignore:jsonschema.exceptions.RefResolutionError:DeprecationWarning",  # the same
    "ignore:'get_engine' is deprecated:DeprecationWarning",  # Flask-Migrate's env.py, of Flask-SQLAlchemy
]


def pytest_configure(config: pytest.Config) -> None:
    """Let other packages' own warnings pass, in this folder only."""
    for line in OTHERS_WARNINGS:
        config.addinivalue_line("filterwarnings", line)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test that takes a `shop` each app in turn."""
    if "shop" in metafunc.fixturenames:
        metafunc.parametrize("shop", list(_every_app()), indirect=True)


def _every_app() -> Iterator[Any]:
    for path in sorted(Path(__file__).with_name("apps").glob("[a-z]*.py")):
        module = importlib.import_module(f"tests.ecosystem.apps.{path.stem}")
        for app in vars(module).values():
            if inspect.isclass(app) and issubclass(app, Shop) and app.__module__ == module.__name__:
                for database in app.databases:
                    yield pytest.param((app, database), id=f"{path.stem}-{app.__name__}-{database}")


@pytest.fixture
def make_shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """`make_shop(app, database="sqlite")`: one of the apps over an empty database, closed after the test."""
    shops: list[Shop] = []

    def make(app: type[Shop], database: str = "sqlite") -> Shop:
        is_sqlite = database == "sqlite"
        url = f"sqlite:///{tmp_path / 'shop.db'}" if is_sqlite else str(request.getfixturevalue("postgres_url"))
        shops.append(app(url))
        return shops[-1]

    yield make

    for shop in shops:
        shop.close()


@pytest.fixture
def shop(request: pytest.FixtureRequest, make_shop: Callable[..., Any]) -> Any:
    """Each app in turn; see `pytest_generate_tests`."""
    return make_shop(*request.param)
