"""The demo shop with a bug planted in the extension, for the flood and its auditor: can the proof fail?

Gunicorn serves it as ``tests.mutants:create_app('no fence')``. Planted in the process that asks for it, and nowhere
else: the extension has no setting for it.
"""

from flask import Flask

from tests.mutants.bugs import MUTANTS
from tests.mutants.planting import Bed

__all__ = ["MUTANTS", "create_app"]


def create_app(name: str) -> Flask:
    """Plant one bug, for good, and make the shop as the environment says. Raises NothingThere if there is no place."""
    MUTANTS[name](Bed())
    from demo_shop.app import create_app as make_shop

    return make_shop()
