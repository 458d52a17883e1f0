"""The two tiers together have every test, and what is said of files is said of files that exist."""

import pytest

from tests.tiers import DEEPER_IN_SOAK, ROOT, SECOND, SOAK, tiers_of


@pytest.mark.parametrize("room", [*SOAK, *SECOND, *DEEPER_IN_SOAK])
def test_a_tier_names_what_is_there(room):
    assert (ROOT / room).exists()


@pytest.mark.parametrize(
    ("path", "parameters", "tiers"),
    [
        ("tests/http/test_methods.py", "sqlite", {"quick"}),
        ("tests/http/test_methods.py", "postgresql", {"soak"}),
        ("tests/guards/test_race.py", "sync-sqlite", {"soak"}),
        ("tests/guards/test_race.py", "sync-postgresql", {"quick"}),
        ("tests/guards/test_race.py", "sync-mariadb", {"soak"}),
        ("tests/demo_shop/test_browser_pages.py", "phone-cart", {"quick"}),
        ("tests/demo_shop/test_browser_pages.py", "desktop-cart", {"soak"}),
        ("tests/transaction/test_gallery.py", "sqlite", {"quick"}),
        ("tests/transaction/test_gallery.py", "postgresql", {"quick"}),
        ("tests/transaction/test_random_sessions.py", "postgresql", {"quick", "soak"}),
        ("tests/loadtests/test_mutants.py", "", {"soak"}),
        ("tests/loadtests/test_mutants_of_another_name.py", "", {"quick"}),
        ("tests/workshop/test_tiers.py", "", {"soak"}),
        ("README.md", "", {"quick"}),
    ],
)
def test_a_test_belongs_to_a_tier_by_its_file_and_its_database(path, parameters, tiers):
    assert tiers_of(path, parameters) == tiers
