"""The command line: what it refuses, what it shows, where it never sends, and what it ends with."""

import json
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from flask_idempotency.conformance import __main__ as command
from flask_idempotency.conformance.__main__ import main
from flask_idempotency.conformance.promises import PROMISES
from tests.conformance.planted import serving

QUICK = ["--only", "retry-runs-once,other-value,other-caller", "--dialect", "ietf"]
SECRET, OTHER_SECRET = "Bearer alice-has-a-key", "Bearer bob-has-another"
AS_ALICE = ["--json", '{"tea": 2}', "--header", f"Authorization: {SECRET}"]
AS_BOTH = [*AS_ALICE, "--other-header", f"Authorization: {OTHER_SECRET}"]


def test_all_hold_is_0_and_a_table(capsys):
    with serving() as url:
        status = main([f"{url}/orders", *AS_BOTH, *QUICK])

    told = capsys.readouterr()
    assert status == 0
    assert "holds      retry-runs-once  A retry does not run again." in told.out
    assert "3 hold, 0 broken, 0 not shown; dialect ietf" in told.out
    assert "At most " in told.err


def test_a_broken_promise_is_1_with_its_evidence_and_without_secrets(capsys):
    with serving("shares keys between callers") as url:
        status = main([f"{url}/orders", *AS_BOTH, *QUICK])

    told = capsys.readouterr().out
    assert status == 1
    assert "BROKEN     other-caller" in told
    assert "the other caller got the first caller's answer" in told
    assert "Authorization: ***\n" in told
    assert "Authorization: *** (the other caller's)\n" in told
    assert "→ 201" in told
    assert "has-a-key" not in told
    assert "has-another" not in told


def test_the_bound_is_told_before_anything_is_sent_and_kept(capsys):
    with serving() as url:
        main([f"{url}/orders", *AS_BOTH, "--max-requests", "9", "--json-report", "-"])

    told = capsys.readouterr()
    report = json.loads(told.out)
    assert told.err.startswith("At most 9 requests to 127.0.0.1:")
    assert report["requests"] <= 9
    assert "--max-requests 9 does not leave enough" in json.dumps(report)


def test_reports_for_machines(tmp_path, capsys):
    with serving("shares keys between callers") as url:
        reports = ["--json-report", str(tmp_path / "report.json"), "--junit", str(tmp_path / "report.xml")]
        main([f"{url}/orders", *AS_BOTH, "--only", "retry-runs-once,other-caller,other-path", *reports])

    document = json.loads((tmp_path / "report.json").read_text())
    assert [document[name] for name in ("holds", "broken", "not_shown")] == [1, 1, 1]
    (broken,) = [each for each in document["promises"] if each["verdict"] == "broken"]
    assert broken["id"] == "other-caller"
    sent = dict(map(tuple, broken["evidence"][1]["request"]["headers"]))
    assert sent["Authorization"] == "*** (the other caller's)"
    assert sent["Idempotency-Key"]
    assert broken["evidence"][1]["answer"]["status"] == 201
    cookies = dict(map(tuple, broken["evidence"][0]["answer"]["headers"]))["Set-Cookie"]
    assert cookies == "basket=***"
    suite = ElementTree.parse(tmp_path / "report.xml").getroot().find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    assert suite.find(".//testcase[@name='other-caller']/failure").get("message")
    assert "3 promises" not in capsys.readouterr().out


def test_junit_holds_only_what_xml_can(tmp_path):
    with serving("takes a key that is control") as url:
        main([f"{url}/orders", *AS_ALICE, "--only", "key-control", "--junit", str(tmp_path / "report.xml")])

    failure = ElementTree.parse(tmp_path / "report.xml").getroot().find(".//failure")
    assert "accepted as a key" in failure.get("message")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "name the URL"),
        (["shop.example/orders", "--json", "{}"], "is not a URL"),
        (["http://a:b@127.0.0.1/", "--json", "{}"], "send credentials with --header"),
        (["http://127.0.0.1/"], "with --json or --form"),
        (["http://127.0.0.1/", "--json", "{}", "--form", "a=1"], "with --json or --form"),
        (["http://127.0.0.1/", "--json", "{tea: 2}"], "--json is not JSON"),
        (["http://127.0.0.1/", "--form", ""], "--form is no form"),
        (["http://127.0.0.1/", "--json", "{}", "--slow-json", "x"], "--slow-json is not JSON"),
        (["http://127.0.0.1/", "--json", "{}", "--header", "nonsense"], "write it as 'Name: value'"),
        (["http://127.0.0.1/", "--json", "{}", "--header", "A: b\r\nC: d"], "no header can have"),
        (["http://127.0.0.1/", "--json", "{}", "--header", "Idempotency-Key: k"], "sets this header itself"),
        (["http://127.0.0.1/", "--json", "{}", "--method", "PO ST"], "no HTTP method"),
        (["http://127.0.0.1/", "--json", "{}", "--other-path", "http://x.example/"], "--other-path is no path"),
        (["http://127.0.0.1/", "--json", "{}", "--only", "burst"], "no promise 'burst'"),
        (["http://127.0.0.1/", "--json", "{}", "--only", "retry-body", "--skip", "retry-body"], "no promise to judge"),
        (["http://127.0.0.1/", "--json", "{}", "--copies", "2"], "3 to 50"),
        (["http://127.0.0.1/", "--json", "{}", "--max-requests", "1"], "at least 5"),
        (["http://127.0.0.1/", "--json", "{}", "--timeout", "0"], "seconds above 0"),
        (["http://127.0.0.1/", "--json", "{}", "--timeout", "nan"], "seconds above 0"),
        (["http://127.0.0.1/", "--json", "{}", "--effects-path", "a"], "needs --effects-url"),
        (["http://127.0.0.1/", "--json", "{}", "--junit", "/nonexistent/x.xml"], "there is no folder"),
        (["https://shop.example/", "--json", "{}"], "add --host-is-mine shop.example"),
        (["https://shop.example/", "--json", "{}", "--host-is-mine", "shop"], "add --host-is-mine shop.example"),
        (
            ["http://127.0.0.1/", "--json", "{}", "--effects-url", "https://shop.example/"],
            "add --host-is-mine shop.example",
        ),
        (["http://127.0.0.1:9/", "--json", "{}"], "did not answer"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_2(arguments, sentence, capsys):
    status = main(arguments)

    told = capsys.readouterr().err.splitlines()
    assert status == 2
    assert sentence in told[-1]


def test_a_bad_header_is_not_repeated(capsys):
    main(["http://127.0.0.1/", "--json", "{}", "--header", "my secret"])

    assert "my secret" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--json", '{"tea": 2}'], "does not accept the request: 401"),
        ([*AS_ALICE, "--effects-url", "URL/nothing"], "two requests had 0 effects"),
        ([*AS_ALICE, "--effects-url", "URL/count"], "name the member with --effects-path"),
        ([*AS_ALICE, "--effects-url", "URL/count", "--effects-path", "orders.lost"], "no number at 'orders.lost'"),
        ([*AS_ALICE, "--effects-command", "echo 7"], "two requests had 0 effects"),
        ([*AS_ALICE, "--effects-command", "false"], "ended with 1"),
        ([*AS_ALICE, "--effects-command", "/nonexistent"], "could not be run"),
    ],
)
def test_where_nothing_can_be_shown_it_says_why(arguments, sentence, capsys):
    with serving() as url:
        status = main([f"{url}/orders", *(each.replace("URL", url) for each in arguments), *QUICK])

    assert status == 2
    assert sentence in capsys.readouterr().err


def test_a_redirection_is_not_followed(capsys):
    with serving(redirects_to="http://127.0.0.1:9/elsewhere") as url:
        main([f"{url}/moved", *AS_ALICE, "--only", "retry-status", "--dialect", "ietf"])

    assert "holds      retry-status" in capsys.readouterr().out


def test_a_form_can_be_tested_too(capsys):
    with serving() as url:
        arguments = [
            "--form",
            "tea=2&size=3",
            "--header",
            f"Authorization: {SECRET}",
            "--only",
            "member-order,other-value",
        ]
        status = main([f"{url}/orders", *arguments])

    assert status == 0
    assert "2 hold" in capsys.readouterr().out


def test_a_server_that_wants_quoted_keys_gets_them(capsys):
    with serving("wants quoted keys") as url:
        status = main([f"{url}/orders", *AS_ALICE, "--only", "retry-runs-once,key-quoted,key-case"])

    told = capsys.readouterr().out
    assert status == 0
    assert "3 hold" in told


def test_the_list_names_every_promise_once(capsys):
    assert main(["--list"]) == 0

    listed = capsys.readouterr().out
    for promise in PROMISES:
        assert listed.count(f"  {promise.id} ") == 1
        assert promise.sentence in listed


def test_the_time_limit_is_kept(capsys):
    with serving() as url:
        status = main([f"{url}/orders", *AS_ALICE, "--time-limit", "0.001", "--skip", "explained"])

    assert status == 0
    assert "--time-limit 0.001 was reached" in capsys.readouterr().out


def test_neither_flask_nor_a_database_is_imported():
    program = (
        "import sys\n"
        "from flask_idempotency.conformance.__main__ import main\n"
        "main(['--list'])\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'flask', 'werkzeug', 'sqlalchemy', 'click'}))"
    )

    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    assert run.stdout.splitlines()[-1] == "[]"


def test_a_fault_of_its_own_does_not_look_like_a_broken_promise(capsys, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr(command, "test", fail)

    assert main(["http://127.0.0.1:1/", "--json", "{}"]) == 2
    assert "ZeroDivisionError" in capsys.readouterr().err
