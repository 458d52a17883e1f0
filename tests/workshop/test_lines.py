"""Lines are joined only where nothing changes: whoever dies at one of them dies at all of them."""

from pathlib import Path

import pytest

from tests.fixtures.lines import contents, stretches


def write_twice(path: Path) -> None:
    path.touch()
    number = 1
    number += 1
    path.write_text("once")
    number += 1
    path.write_text("done")
    number += 1


def test_a_stretch_ends_where_a_byte_changes(tmp_path: Path):
    found = stretches(__file__, lambda: write_twice(tmp_path / "file"), lambda: contents(tmp_path))

    # The call itself is a line; then nothing, an empty file, four bytes, and four others.
    assert found == [range(1, 3), range(3, 6), range(6, 8), range(8, 9)]


def test_a_look_that_sees_nothing_joins_everything():
    found = stretches(__file__, lambda: [len("a"), len("b")], lambda: None)

    assert found == [range(1, 2)]


def test_whoever_fails_on_the_way_is_no_walk_of_all_lines(tmp_path: Path):
    with pytest.raises(AssertionError, match="FileNotFoundError"):
        stretches(__file__, lambda: write_twice(tmp_path / "no" / "file"), lambda: contents(tmp_path))
