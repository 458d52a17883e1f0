"""The dashboard and the alerts ask for what is measured, and every alert says what to do."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from ruamel.yaml import YAML

from flask_idempotency import errors
from flask_idempotency.telemetry.counting import Metrics
from flask_idempotency.telemetry.measuring import Gauges
from flask_idempotency.telemetry.outcomes import OUTCOMES, outcome_of
from tests.fixtures.processes import needs

ROOT = Path(__file__).resolve().parent.parent.parent
ALERTS, DASHBOARD = (ROOT / "docs" / "monitoring" / name for name in ("alerts.yml", "dashboard.json"))
PAGE = (ROOT / "docs" / "guide" / "operating.md").read_text("utf-8")
PROMTOOL = shutil.which("promtool")

GAUGES = {gauge.name for gauge in Gauges().describe()}
OUTCOME_WORDS = {
    *OUTCOMES.values(),
    outcome_of("", 202),
    *(refusal.problem for refusal in errors.RequestRefused.__subclasses__()),
}

RULES = YAML(typ="safe").load(ALERTS.read_text("utf-8"))["groups"][0]["rules"]
BOARD = json.loads(DASHBOARD.read_text("utf-8"))
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
QUERIES = {
    **{rule["alert"]: rule["expr"] for rule in RULES},
    **{f"{panel['title']} {each['refId']}": each["expr"] for panel in PANELS for each in panel["targets"]},
}


def known():
    """Give each name that a query may ask for, with the labels that it has."""
    found = {name: set() for name in GAUGES}
    for metric in vars(Metrics(CollectorRegistry())).values():
        for each in metric.values() if isinstance(metric, dict) else [metric]:
            (family,), labels = each.describe(), set(each._labelnames)
            names = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"], "gauge": [""]}[family.type]
            found |= {family.name + end: labels | ({"le"} if end == "_bucket" else set()) for end in names}
    return found


def asked_for(query):
    """Give each metric that a query names with the labels that it is selected by, and the labels it is summed by."""
    selected = re.findall(r"\b(idempotency_\w+)(?:\{([^}]*)\})?", query)
    by = {label for group in re.findall(r"\bby \(([^)]*)\)", query) for label in group.split(", ")}
    return [(name, re.findall(r"(\w+)\s*[=!]~?", inside)) for name, inside in selected], by


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_a_query_asks_for_metrics_and_labels_that_exist(query):
    metrics = known()
    selected, by = asked_for(query)

    assert selected
    for name, labels in selected:
        assert name in metrics, f"there is no {name}"
        assert {*labels, *by} <= metrics[name] | {"job"}, f"{name} has no such labels"  # Prometheus adds the job


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_a_query_names_outcomes_that_exist(query):
    named = {word for words in re.findall(r'outcome[=!]~?"([^"]*)"', query) for word in words.split("|")}

    assert named <= OUTCOME_WORDS


@pytest.mark.parametrize(
    ("query", "wrong"),
    [
        ("max(idempotency_gone)", "there is no"),
        ('idempotency_requests_total{colour="red"}', "no such"),
        ("sum by (outcome) (idempotency_takeovers_total)", "no such"),
        ("idempotency_guard_seconds", "there is no"),
    ],
)
def test_a_query_for_what_does_not_exist_is_found(query, wrong):
    with pytest.raises(AssertionError, match=wrong):
        test_a_query_asks_for_metrics_and_labels_that_exist(query)


def test_every_metric_is_on_the_dashboard():
    shown = {name for query in QUERIES.values() for name, _ in asked_for(query)[0]}

    families = {re.sub("_(bucket|sum|count)$", "", name) for name in known()}
    assert {name for name in families if not any(each.startswith(name) for each in shown)} == set()


def test_every_metric_is_on_the_page_with_its_labels():
    rows = re.findall(r"^\| `(idempotency_\w+)` \|.*\| (.*?) ?\|$", PAGE, re.MULTILINE)
    listed = {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}

    families = {re.sub("_(bucket|sum|count)$", "", name): labels - {"le"} for name, labels in known().items()}
    counted = {name: labels for name, labels in families.items() if name not in GAUGES}
    assert {name: listed.get(name) for name in counted} == counted


# -- the dashboard -----------------------------------------------------------------------------------------------------


def test_every_panel_has_a_place_of_its_own_and_says_what_it_shows():
    taken = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    assert [panel["title"] for panel in PANELS if not panel["description"]] == []


def test_the_data_source_and_the_endpoint_are_chosen_on_the_dashboard():
    sources = {each["datasource"]["uid"] for panel in PANELS for each in [panel, *panel["targets"]]}
    variables = {each["name"]: each for each in BOARD["templating"]["list"]}

    assert sources == {"${datasource}"}
    assert variables["endpoint"]["definition"] == "label_values(idempotency_requests_total, endpoint)"
    assert set(re.findall(r"\$(\w+)", " ".join(QUERIES.values()))) == {"endpoint", "__rate_interval"}


# -- the alerts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_leads_to_a_section_that_says_what_to_do(rule):
    anchor = rule["annotations"]["runbook_url"].partition("/en/latest/guide/operating.html#")[2]

    assert anchor == rule["alert"].lower()
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"]["summary"]
    section = PAGE.partition(f"\n### {rule['alert']}\n")[2].partition("\n### ")[0].partition("\n## ")[0]
    assert f"**{rule['labels']['severity'].capitalize()}.**" in section
    assert len(section.split()) > 20


def test_every_section_about_an_alert_has_one():
    assert re.findall(r"^### (Idempotency\w+)$", PAGE, re.MULTILINE) == [rule["alert"] for rule in RULES]


# -- as Prometheus reads them ------------------------------------------------------------------------------------------


def promtool(*arguments):
    run = subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=60, check=False)
    return run.returncode, run.stdout + run.stderr


@needs(PROMTOOL, "prometheus")
def test_prometheus_accepts_the_rules_and_each_fires_for_what_it_says():
    assert promtool("check", "rules", ALERTS)[0] == 0

    status, told = promtool("test", "rules", ROOT / "tests" / "monitoring" / "alerts.test.yml")

    assert status == 0, told


@needs(PROMTOOL, "prometheus")
def test_prometheus_understands_the_queries_of_the_dashboard(tmp_path):
    chosen = {"$__rate_interval": "5m", "$endpoint": ".*"}
    rules = []
    for number, query in enumerate(QUERIES.values()):
        for name, value in chosen.items():
            query = query.replace(name, value)
        rules.append({"record": f"query:{number}", "expr": query})
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))

    status, told = promtool("check", "rules", tmp_path / "rules.yml")

    assert status == 0, told


def test_every_alert_is_seen_firing():
    tested = (ROOT / "tests" / "monitoring" / "alerts.test.yml").read_text("utf-8")

    fired = set(re.findall(r'alertname="(\w+)", alertstate="firing"', tested))
    assert fired == {rule["alert"] for rule in RULES}
