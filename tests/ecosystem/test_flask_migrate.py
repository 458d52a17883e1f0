"""Flask-Migrate: our tables come with a migration, and no later one touches them."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.ecosystem.apps.flask_migrate import Migrated
from tests.ecosystem.shop import REPLAYED

pytestmark = pytest.mark.parametrize("database", ["sqlite", "postgresql"])


def test_the_first_migration_makes_our_tables_and_the_second_proposes_nothing(
    make_shop: Callable[..., Any], database: str
) -> None:
    shop = make_shop(Migrated, database)
    (first,) = shop.migrations.glob("versions/*.py")

    second = shop.migrate()

    assert "'idempotency_record'" in first.read_text()
    assert "'idempotency_checkpoint'" in first.read_text()
    assert second == ""


def test_a_key_is_remembered_over_a_migration(make_shop: Callable[..., Any], database: str) -> None:
    shop = make_shop(Migrated, database)
    shop.send("tea")
    shop.Order.__table__.append_column(shop.db.Column("note", shop.db.String(40)))

    proposed = shop.migrate()

    assert "note" in proposed
    assert "idempotency" not in proposed
    assert shop.send("tea").headers[REPLAYED] == "true"
    assert shop.orders == ["tea"]
