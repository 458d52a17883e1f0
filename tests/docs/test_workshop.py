"""The workshop's labs: what a page shows is what its code does, and a participant is told what is wrong."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.workshop.__main__ import main
from docs.workshop.checks import Broken
from docs.workshop.labs import HERE, LABS, checks_of


@pytest.fixture(autouse=True)
def a_folder_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("number", LABS)
def test_a_lab_begins_with_what_its_page_shows(number, capsys):
    assert main(["start", str(number)]) == 0

    shown = re.search(
        rf"\$ make workshop LAB={number}\n(.*?)\n```\n", (HERE / f"lab{number}.md").read_text("utf-8"), re.DOTALL
    )
    assert capsys.readouterr().out.rstrip() == shown[1]
    assert Path(f"workshop/lab{number}.py").read_bytes() == LABS[number].file("begin").read_bytes()


@pytest.mark.parametrize("number", LABS)
def test_the_index_names_every_lab_and_its_page_its_title(number):
    assert f"[{number}](lab{number}.md)" in (HERE / "index.md").read_text("utf-8")
    assert (HERE / f"lab{number}.md").read_text("utf-8").startswith(f"# Lab {number}: {LABS[number].title}\n")


def test_the_solution_of_the_first_lab_holds_and_ends_well(capsys):
    assert main(["check", "1", "--code", str(LABS[1].file("solution"))]) == 0
    assert capsys.readouterr().out.endswith("All promises hold.\n")


def test_what_a_lab_teaches_is_not_yet_in_its_code(capsys):
    main(["start", "1"])

    assert main(["check", "1"]) == 1
    assert "Broken: Another order under the same key is refused with 422" in capsys.readouterr().out


def test_a_participants_code_is_never_overwritten(capsys):
    Path("workshop").mkdir()
    Path("workshop/lab1.py").write_bytes(LABS[1].file("solution").read_bytes())

    assert main(["start", "1"]) == 0

    assert "Nothing is wrong with it any more." in capsys.readouterr().out
    assert Path("workshop/lab1.py").read_bytes() == LABS[1].file("solution").read_bytes()


def test_the_labs_are_listed_with_those_that_were_begun(capsys):
    main(["start", "2"])
    capsys.readouterr()

    main([])

    listed = capsys.readouterr().out
    assert [line.split()[0] for line in listed.splitlines()[: len(LABS)]] == [str(number) for number in LABS]
    assert re.findall(r"(\d) .* begun", listed) == ["2"]


def test_code_that_raises_is_shown_with_its_own_line(capsys):
    Path("mine.py").write_text("def create_app(database):\n    return database.nonsense\n", "utf-8")

    assert main(["check", "1", "--code", "mine.py"]) == 1

    told = capsys.readouterr().out
    assert "return database.nonsense" in told
    assert "AttributeError" in told
    assert "stage.py" not in told


def test_who_checks_before_beginning_is_told_how_to_begin(capsys):
    assert main(["check", "3"]) == 2
    assert "run make workshop LAB=3 first" in capsys.readouterr().err


def test_it_needs_nothing_but_what_the_shop_needs():
    known = (
        "import sys; from docs.workshop.__main__ import main; main([]);"
        " print([name for name in ('pytest', 'tests', 'playwright', 'locust', 'psycopg') if name in sys.modules])"
    )

    done = subprocess.run(
        [sys.executable, "-c", known], capture_output=True, text=True, cwd=HERE.parents[1], check=True
    )

    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("number", LABS)
def test_every_lab_asks_for_what_the_labs_before_it_have_asked_for(number):
    assert set(checks_of(number)) >= {check for lab in range(1, number + 1) for check in LABS[lab].checks}
    assert all(check.__doc__ for check in checks_of(number))


def test_the_picture_has_a_column_for_each_request():
    with pytest.raises(Broken) as caught:
        LABS[2].checks[0](LABS[2].file("begin"))

    first, *rest = caught.value.picture.splitlines()
    column = first.index("Ada's copy")
    assert any(line[column:].startswith("← 201") for line in rest)
    assert any("is stopped here by the system" in line[:column] for line in rest)
