"""The command line: what can be said, what it means, and sentences about what cannot be."""

import argparse
import re
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl

from flask_idempotency.conformance.bodies import FORM, BadBody, Body
from flask_idempotency.conformance.dialects import DIALECTS, Dialect
from flask_idempotency.conformance.exchanges import Header
from flask_idempotency.conformance.keys import Keys
from flask_idempotency.conformance.promises import PROMISES, Promise
from flask_idempotency.conformance.subject import Subject
from flask_idempotency.conformance.wire import BadAddress, Place

PROGRAM: Final = "python -m flask_idempotency.conformance"

DESCRIPTION: Final = """\
Test what any server promises about Idempotency-Key, in whatever language it is written.

The tester sends requests to one endpoint: first requests, retries, concurrent copies, other bodies, malformed
keys, other callers, clients that hang up. For each promise it reports that it holds, that it is broken (with
the requests and answers that show it), or that it could not be shown, and why.
The requests have real effects: use a test environment.
"""

EXAMPLES: Final = """\
examples:
  An endpoint on this machine, judged by its answers alone:
    {program} http://127.0.0.1:8000/orders --json '{{"tea": 2}}'

  With two callers, and the number of orders to count effects:
    {program} http://127.0.0.1:8000/orders --json '{{"tea": 2}}' \\
        --header 'Authorization: Bearer alice' --other-header 'Authorization: Bearer bob' \\
        --effects-url http://127.0.0.1:8000/orders/count

  A server elsewhere, in CI:
    {program} https://staging.example/orders --json '{{"tea": 2}}' \\
        --host-is-mine staging.example --junit conformance.xml

exit status:
  0  no promise is broken; promises that could not be shown are listed, and do not change this
  1  a promise is broken
  2  nothing could be shown: wrong options, no connection, or the endpoint does not take the request
"""

TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


class BadOption(Exception):
    """What was said cannot be done; the message says what to say instead."""


@dataclass(frozen=True)
class Options:
    """A command line that makes sense."""

    url: str
    place: Place
    subject: Subject
    promises: tuple[Promise, ...]
    dialect: Dialect | None
    effects_place: Place | None
    effects_target: str
    effects_command: str | None
    effects_path: tuple[str, ...]
    timeout: float
    time_limit: float
    max_requests: int
    json_report: str | None
    junit: str | None


def make_parser() -> argparse.ArgumentParser:
    """Describe all options."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        usage=f"{PROGRAM} URL --json BODY [options]\n       {PROGRAM} --list",
        description=DESCRIPTION,
        epilog=EXAMPLES.format(program=PROGRAM),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "url", metavar="URL", nargs="?", help="the endpoint; only hosts named on the command line are contacted"
    )
    parser.add_argument("--list", action="store_true", help="list the promises and exit")

    request = parser.add_argument_group("the request")
    request.add_argument("--json", metavar="BODY", help="a JSON body that the endpoint answers with success")
    request.add_argument("--form", metavar="BODY", help="a form body instead, such as 'tea=2&size=3'")
    request.add_argument("--method", default="POST", help="the endpoint's method (default: POST)")
    request.add_argument(
        "--header", metavar="'NAME: VALUE'", action="append", default=[], help="sent with each request; may be repeated"
    )

    more = parser.add_argument_group("to show more", "Each of these lets the tester judge more promises.")
    more.add_argument(
        "--other-header",
        metavar="'NAME: VALUE'",
        action="append",
        help="the credential of a second caller, instead of the --header of that name; may be repeated",
    )
    more.add_argument(
        "--other-json", metavar="BODY", help="another valid body (default: --json with one value changed)"
    )
    more.add_argument("--slow-json", metavar="BODY", help="a body for which the endpoint takes a second or more")
    more.add_argument("--failing-json", metavar="BODY", help="a body that the endpoint answers with a 5xx")
    more.add_argument("--other-path", metavar="PATH", help="another path of the same host that takes the body")
    more.add_argument("--other-method", default="PATCH", metavar="METHOD", help="default: PATCH, or POST for PATCH")
    more.add_argument("--effects-url", metavar="URL", help="a GET of this URL returns the number of effects so far")
    more.add_argument("--effects-command", metavar="CMD", help="a command that prints that number; run without a shell")
    more.add_argument(
        "--effects-path",
        metavar="PATH",
        help="where the number is in JSON, such as data.total; a list counts by length",
    )

    judging = parser.add_argument_group("judging")
    judging.add_argument(
        "--dialect",
        choices=["auto", *DIALECTS],
        default="auto",
        help="how refusals look: ietf (422, problem documents), stripe (400, error object) or auto, as it seems",
    )
    judging.add_argument("--only", metavar="ID,…", help="judge only these promises; see --list")
    judging.add_argument("--skip", metavar="ID,…", help="judge all but these")

    bounds = parser.add_argument_group("bounds")
    bounds.add_argument(
        "--host-is-mine",
        metavar="HOST",
        help="repeat the host of URL; required unless it is this machine, because the requests have real effects",
    )
    bounds.add_argument("--copies", type=int, default=5, metavar="N", help="requests of a burst, 3 to 50 (default: 5)")
    bounds.add_argument("--max-requests", type=int, default=250, metavar="N", help="in total (default: 250)")
    bounds.add_argument(
        "--timeout", type=float, default=15.0, metavar="S", help="seconds to wait for an answer (default: 15)"
    )
    bounds.add_argument(
        "--time-limit", type=float, default=300.0, metavar="S", help="seconds for the whole run (default: 300)"
    )

    reports = parser.add_argument_group("reports", "The table goes to standard output, progress to standard error.")
    reports.add_argument(
        "--json-report", metavar="FILE", help="write all results as JSON; - writes them instead of the table"
    )
    reports.add_argument(
        "--junit", metavar="FILE", help="write a JUnit test case for each promise; - writes them instead of the table"
    )
    return parser


def read_options(given: argparse.Namespace, seed: uuid.UUID | None = None) -> Options:
    """Check what was given. Raises BadOption with one sentence."""
    if given.url is None:
        raise BadOption("name the URL of an endpoint, or ask for --list")
    try:
        place, target = Place.of(given.url)
        subject = _subject(given, target, seed or uuid.uuid4())
        effects = Place.of(given.effects_url) if given.effects_url else None
    except (BadAddress, BadBody) as error:
        raise BadOption(str(error)) from None
    if effects is not None and given.effects_command is not None:
        raise BadOption("give --effects-url or --effects-command, not both")
    if given.effects_path and effects is None and given.effects_command is None:
        raise BadOption("--effects-path needs --effects-url or --effects-command")
    _check_hosts(place, effects[0] if effects else None, given.host_is_mine)
    _check_bounds(given)
    return Options(
        url=given.url,
        place=place,
        subject=subject,
        promises=_chosen(given.only, given.skip),
        dialect=DIALECTS.get(given.dialect),
        effects_place=effects[0] if effects else None,
        effects_target=effects[1] if effects else "",
        effects_command=given.effects_command,
        effects_path=tuple(given.effects_path.split(".")) if given.effects_path else (),
        timeout=given.timeout,
        time_limit=given.time_limit,
        max_requests=given.max_requests,
        json_report=_writable(given.json_report, "--json-report"),
        junit=_writable(given.junit, "--junit"),
    )


def _subject(given: argparse.Namespace, target: str, seed: uuid.UUID) -> Subject:
    if (given.json is None) == (given.form is None):
        raise BadOption("give the body of a request that succeeds, with --json or --form")
    if given.json is not None:
        body = Body.of_json(given.json)
    elif parse_qsl(given.form, keep_blank_values=True):
        body = Body(FORM, given.form)
    else:
        raise BadOption("--form is no form: write it as name=value&name=value")
    method = given.method.upper()
    other_method = given.other_method.upper()
    for name in (method, other_method):
        if not TOKEN.fullmatch(name):
            raise BadOption(f"{name!r} is no HTTP method")
    if given.other_path is not None and not re.fullmatch(r"/[!-~]*", given.other_path):
        raise BadOption("--other-path is no path: begin it with /, and encode what is not ASCII")

    def optional(name: str) -> Body | None:
        text = getattr(given, name)
        return None if text is None else Body.of_json(text, f"--{name.replace('_', '-')}")

    return Subject(
        method=method,
        target=target,
        body=body,
        keys=Keys(seed),
        headers=tuple(_header(each, "--header") for each in given.header),
        other_headers=tuple(_header(each, "--other-header") for each in given.other_header)
        if given.other_header is not None
        else None,
        other_body=optional("other_json"),
        slow_body=optional("slow_json"),
        failing_body=optional("failing_json"),
        other_target=given.other_path,
        other_method="POST" if other_method == method == "PATCH" else other_method,
        copies=given.copies,
    )


def _header(text: str, option: str) -> Header:
    name, colon, value = text.partition(":")
    if not colon or not TOKEN.fullmatch(name):
        raise BadOption(f"{option} is no header: write it as 'Name: value'")  # which may be a secret: not repeated
    if re.search(r"[\x00-\x08\x0a-\x1f\x7f]|[^\x00-\xff]", value):
        raise BadOption(f"the value of {option} {name} has a character that no header can have")
    if name.lower() in {"idempotency-key", "content-length", "transfer-encoding", "connection", "host"}:
        raise BadOption(f"{option} {name}: the tester sets this header itself")
    if name.lower() == "content-type":
        raise BadOption(f"{option} {name}: it follows from --json or --form")
    return name, value.strip()


def _check_hosts(place: Place, effects: Place | None, confirmed: str | None) -> None:
    for each in (place, effects):
        if each is not None and not each.is_this_machine and each.host != (confirmed or "").lower():
            raise BadOption(
                f"{each.host} is not this machine, and the requests have real effects;"
                f" to test it all the same, add --host-is-mine {each.host}"
            )


def _check_bounds(given: argparse.Namespace) -> None:
    if not 3 <= given.copies <= 50:
        raise BadOption("--copies is 3 to 50: two copies do not show what a third one breaks")
    if given.max_requests < 5:
        raise BadOption("--max-requests is at least 5: that many show whether a retry runs again")
    for name in ("timeout", "time_limit"):
        if not getattr(given, name) > 0:
            raise BadOption(f"--{name.replace('_', '-')} is a number of seconds above 0")


def _chosen(only: str | None, skip: str | None) -> tuple[Promise, ...]:
    known = {promise.id for promise in PROMISES}

    def names(text: str | None, option: str) -> set[str]:
        found = {name.strip() for name in (text or "").split(",") if name.strip()}
        for name in sorted(found - known):
            raise BadOption(f"{option}: there is no promise {name!r}; --list shows them all")
        return found

    wanted, unwanted = names(only, "--only"), names(skip, "--skip")
    chosen = tuple(each for each in PROMISES if (not wanted or each.id in wanted) and each.id not in unwanted)
    if not chosen:
        raise BadOption("--only and --skip leave no promise to judge")
    return chosen


def _writable(name: str | None, option: str) -> str | None:
    if name is not None and name != "-" and not Path(name).absolute().parent.is_dir():
        raise BadOption(f"{option}: there is no folder {str(Path(name).parent)!r}")
    return name
