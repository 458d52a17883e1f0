"""Every app of `apps`, once for each database that it names, as the fixture `shop`; and `make_shop` for one of them."""

import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ecosystem.shop import Shop

MODULES = sorted(path.stem for path in Path(__file__).with_name("apps").glob("[a-z]*.py"))


def _every_app() -> Iterator[pytest.param]:
    for name in MODULES:
        module = importlib.import_module(f"tests.ecosystem.apps.{name}")
        for app in vars(module).values():
            if inspect.isclass(app) and issubclass(app, Shop) and app.__module__ == module.__name__:
                for database in app.databases:
                    marks = [pytest.mark.postgresql] if database == "postgresql" else []
                    yield pytest.param((app, database), id=f"{name}-{app.__name__}-{database}", marks=marks)


@pytest.fixture
def make_shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Shop]]:
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


@pytest.fixture(params=_every_app())
def shop(request: pytest.FixtureRequest, make_shop: Callable[..., Shop]) -> Shop:
    """Each app in turn."""
    return make_shop(*request.param)
