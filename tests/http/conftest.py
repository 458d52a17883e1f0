"""The shop, for every test of the wire."""

from tests.apps.shop import let_pass, make_shop, shop, shop_database, shop_url, sql

__all__ = ["let_pass", "make_shop", "shop", "shop_database", "shop_url", "sql"]
