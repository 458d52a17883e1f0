"""A shop of a few lines, for tests that are about its clients."""

from collections.abc import Callable, Iterator

import pytest

from tests.loadtests.stubs import Answers, Shop, promised


@pytest.fixture
def serve() -> Iterator[Callable[..., Shop]]:
    """`serve(answers)`: a shop that answers so; every one is stopped after the test."""
    shops: list[Shop] = []

    def start(answers: Answers = promised) -> Shop:
        shops.append(Shop(answers))
        return shops[-1]

    yield start

    for shop in shops:
        shop.stop()
