"""The report for machines: JSON with everything that was sent and answered, and JUnit for those who run tests."""

import json
from typing import Final
from xml.etree import ElementTree

from flask_idempotency.conformance.exchanges import Exchange, NoAnswer
from flask_idempotency.conformance.masking import Mask
from flask_idempotency.conformance.running import Report
from flask_idempotency.conformance.table import exchange_lines
from flask_idempotency.conformance.verdicts import Broken, Holds, NotShown, Verdict

MOST: Final = 4000  # characters of a body: an answer is there in full, a large request is not
NAMES: Final[dict[type[Verdict], str]] = {Holds: "holds", Broken: "broken", NotShown: "not shown"}


def to_json(report: Report, url: str, mask: Mask) -> str:
    """Give the report as a JSON document."""
    document = {
        "url": mask.text(url),
        "dialect": report.dialect.name,
        "requests": report.sent,
        "seconds": round(report.seconds, 3),
        "effects_counted": report.counts_effects,
        "holds": report.count(Holds),
        "broken": report.count(Broken),
        "not_shown": report.count(NotShown),
        "promises": [
            {
                "id": promise.id,
                "group": promise.group,
                "sentence": promise.sentence,
                "verdict": NAMES[type(verdict)],
                "reason": mask.text(verdict.reason),
                "evidence": [_exchange(each, mask) for each in verdict.evidence] if isinstance(verdict, Broken) else [],
            }
            for promise, verdict in report.verdicts
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _exchange(exchange: Exchange, mask: Mask) -> dict[str, object]:
    request, answer = exchange.request, exchange.answer
    received: dict[str, object] = (
        {"missing": answer.reason}
        if isinstance(answer, NoAnswer)
        else {
            "status": answer.status,
            "headers": [list(pair) for pair in mask.received(answer)],
            "body": mask.body(answer.body, MOST),
            "seconds": round(answer.seconds, 3),
        }
    )
    return {
        "request": {
            "method": request.method,
            "target": mask.text(request.target),
            "headers": [list(pair) for pair in mask.sent(request)],
            "body": mask.body(request.body, MOST),
            "manner": exchange.manner,
        },
        "answer": received,
    }


def to_junit(report: Report, url: str, mask: Mask) -> str:
    """Give the report as JUnit's XML: a test case for each promise; what was not shown counts as skipped."""
    counts = {"tests": len(report.verdicts), "failures": report.count(Broken), "skipped": report.count(NotShown)}
    attributes = {name: str(count) for name, count in counts.items()} | {"errors": "0", "time": f"{report.seconds:.3f}"}
    suites = ElementTree.Element("testsuites", attributes)
    suite = ElementTree.SubElement(suites, "testsuite", {"name": f"conformance of {mask.text(url)}", **attributes})
    for promise, verdict in report.verdicts:
        case = ElementTree.SubElement(suite, "testcase", {"classname": promise.group, "name": promise.id})
        if isinstance(verdict, Broken):
            failure = ElementTree.SubElement(case, "failure", {"message": _legal(mask.text(verdict.reason))})
            lines = [line for each in verdict.evidence for line in exchange_lines(each, mask)]
            failure.text = _legal("\n".join((promise.sentence, *lines)))
        elif isinstance(verdict, NotShown):
            ElementTree.SubElement(case, "skipped", {"message": _legal(mask.text(verdict.reason))})
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, "unicode", xml_declaration=True) + "\n"


def _legal(text: str) -> str:
    """Replace the characters that XML cannot hold."""
    return "".join(each if each.isprintable() or each in "\n\t" else "\N{REPLACEMENT CHARACTER}" for each in text)
