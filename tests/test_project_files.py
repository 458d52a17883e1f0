"""Files that are read by other services are what those services accept. Running them is up to the services."""

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCHEMAS = {
    ".github/workflows/ci.yml": "vendor.github-workflows",
    ".github/dependabot.yml": "vendor.dependabot",
    ".github/ISSUE_TEMPLATE/config.yml": "vendor.github-issue-config",
    ".github/ISSUE_TEMPLATE/bug.yml": "vendor.github-issue-forms",
    ".github/ISSUE_TEMPLATE/twice.yml": "vendor.github-issue-forms",
    ".readthedocs.yaml": "vendor.readthedocs",
}


def validate(file, schema):
    tool = Path(sysconfig.get_path("scripts")) / "check-jsonschema"
    return subprocess.run([tool, "--builtin-schema", schema, file], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(("path", "schema"), SCHEMAS.items(), ids=list(SCHEMAS))
def test_a_file_for_a_service_is_what_the_service_accepts(path, schema):
    report = validate(ROOT / path, schema)

    assert report.returncode == 0, report.stdout + report.stderr


def test_a_file_that_a_service_would_not_accept_is_reported(tmp_path):
    spoilt = tmp_path / "ci.yml"
    spoilt.write_text((ROOT / ".github/workflows/ci.yml").read_text("utf-8").replace("runs-on:", "runs-at:"))

    report = validate(spoilt, "vendor.github-workflows")

    assert report.returncode == 1, report.stdout


def test_every_file_in_the_folder_of_a_service_is_checked():
    there = {path.relative_to(ROOT).as_posix() for path in (ROOT / ".github").rglob("*.yml")}

    assert there == {path for path in SCHEMAS if path.startswith(".github/")}


def test_hosted_ci_runs_the_other_pythons_that_the_classifiers_name():
    named = re.findall(r"Programming Language :: Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text("utf-8"))
    workflow = (ROOT / ".github/workflows/ci.yml").read_text("utf-8")

    assert f"python:{named[0]}-" in workflow
    assert re.findall(r'"(3\.\d+)"', workflow) == named[1:]
