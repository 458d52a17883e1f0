"""The examples on the pages are run, and a wrong one is found; the store contract is tried as a reader would."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def run_pytest(folder, *arguments):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def test_an_example_that_does_not_say_what_is_true_is_found(tmp_path):
    shutil.copy(ROOT / "conftest.py", tmp_path)
    (tmp_path / "docs" / "guide").mkdir(parents=True)
    (tmp_path / "docs" / "guide" / "right.md").write_text("```python\n>>> 1 + 1\n2\n```\n")
    (tmp_path / "docs" / "wrong.md").write_text("```python\n>>> 1 + 1\n3\n```\n")
    (tmp_path / "README.md").write_text("```python\nassert False\n```\n")

    report = run_pytest(tmp_path, "README.md", "docs", f"--override-ini=pythonpath={ROOT}").stdout

    assert "1 passed" in report
    assert re.findall(r"^FAILED ([\w./]+)", report, re.MULTILINE) == ["README.md", "docs/wrong.md"]


def test_examples_leave_nothing_in_the_folder_they_were_started_in(tmp_path):
    shutil.copy(ROOT / "conftest.py", tmp_path)
    shutil.copy(ROOT / "README.md", tmp_path)

    report = run_pytest(tmp_path, "README.md", f"--override-ini=pythonpath={ROOT}")

    assert report.returncode == 0, report.stdout
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {"README.md", "conftest.py"}


def test_every_page_with_python_in_it_is_run():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    wanted = {page.name for page in pages if "_build" not in page.parts and blocks(page)}

    report = run_pytest(ROOT, "--collect-only", "README.md", "docs")

    assert set(re.findall(r"^(?:\S+/)?([\w-]+\.md)::", report.stdout, re.MULTILINE)) == wanted


def test_the_tests_on_the_testing_page_can_be_run_as_they_stand(tmp_path):
    page = blocks(ROOT / "docs" / "guide" / "testing.md")
    (contract,) = (block for block in page if "StoreContract" in block)
    (with_flask,) = (block for block in page if "live_server" in block)
    (tmp_path / "test_contract.py").write_text(contract)
    (tmp_path / "test_with_flask.py").write_text(with_flask)
    # Without a clean stop: where SIGINT is ignored, as in a shell's background, the server would not hear it.
    settings = f"--override-ini=pythonpath={ROOT}", "-o", "live_server_scope=function", "--no-live-server-clean-stop"

    report = run_pytest(tmp_path, "-rp", *settings)

    assert report.returncode == 0, report.stdout
    assert len(re.findall(r"^PASSED test_contract.py::", report.stdout, re.MULTILINE)) > 50
    assert re.findall(r"^PASSED test_with_flask.py::(\w+)$", report.stdout, re.MULTILINE) == [
        "test_a_retry_is_replayed_and_another_body_is_refused",
        "test_the_same_over_http",
    ]


ADDING = """
```python
from flask import Flask

app = Flask(__name__)
app.add_url_rule("/", "home", lambda: "home")
```

```python
>>> app.test_client().get("/").text
'home'
```

{words}

```python
app.add_url_rule("/more", "more", lambda: "more")
```

```python
>>> app.test_client().get("/more").text
'more'
```
"""


def test_a_page_that_adds_a_view_to_an_app_at_work_must_tell_its_readers_to_restart_it(tmp_path):
    shutil.copy(ROOT / "conftest.py", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "right.md").write_text(ADDING.format(words="Add a view, and restart the app:"))
    (tmp_path / "docs" / "wrong.md").write_text(ADDING.format(words="Add a view:"))

    report = run_pytest(tmp_path, "docs", f"--override-ini=pythonpath={ROOT}").stdout

    assert set(re.findall(r"^FAILED ([\w./]+)", report, re.MULTILINE)) == {"docs/wrong.md"}
    assert "can no longer be called" in report
