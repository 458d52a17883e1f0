"""``make workshop``: list the labs, begin one, or check what a participant has written.

A participant's code is ``workshop/labN.py``; nothing here overwrites it.
"""

import argparse
import logging
import shutil
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path

from docs.workshop.checks import Broken, Check
from docs.workshop.labs import HERE, LABS, checks_of

MINE = Path("workshop")
ROOT = HERE.parents[1]


def main(arguments: list[str] | None = None) -> int:
    """Run the command; give the exit code."""
    parser = argparse.ArgumentParser(prog="python -m docs.workshop", description="The labs of the workshop.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.add_parser("list", help="list the labs (the default)")
    start = commands.add_parser("start", help="copy a lab's code to workshop/, and show what is wrong with it")
    check = commands.add_parser("check", help="check your code; exits with 1 if it breaks a promise")
    for command in (start, check):
        command.add_argument("lab", type=int, choices=LABS, metavar="LAB", help=f"1 to {len(LABS)}")
        command.add_argument("--code", type=Path, metavar="FILE", help="look at this file; default workshop/labN.py")
    given = parser.parse_args(arguments)
    if given.command is None or given.command == "list":
        return show_list()
    logging.disable()  # what the extension says of a retry is for an operator; the picture shows it too
    try:
        if given.command == "start":
            return begin(given.lab, given.code)
        return judge(given.lab, given.code or mine(given.lab))
    finally:
        logging.disable(logging.NOTSET)


def mine(number: int) -> Path:
    """Say where a participant's code of a lab is."""
    return MINE / f"lab{number}.py"


def show_list() -> int:
    """List the labs, and which of them have been begun."""
    for number, lab in LABS.items():
        print(f"  {number}  {lab.title:34} {'begun' if mine(number).exists() else ''}".rstrip())
    print("\nmake workshop LAB=1 begins the first; docs/workshop/lab1.md is its page.")
    return 0


def begin(number: int, given: Path | None) -> int:
    """Copy a lab's code unless it is there, and show the first promise that it breaks."""
    code = given or mine(number)
    if not code.exists():
        code.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(LABS[number].file("begin"), code)
    title = LABS[number].title.removesuffix("?")
    print(f"Lab {number}: {title}. Your code is {code}.\n")
    for check in LABS[number].checks:
        if found := outcome(check, code):
            print(f"The promise: {check.__doc__}\n\n{found}\n")
            print(f"Change {code} so that this cannot happen, then run: make workshop CHECK={number}")
            return 0
    print(f"Nothing is wrong with it any more. To begin again, delete {code}; the next lab is", end=" ")
    print(f"make workshop LAB={number + 1}." if number + 1 in LABS else "your own app.")
    return 0


def judge(number: int, code: Path) -> int:
    """Check a participant's code, and show the first promise that it breaks."""
    if not code.exists():
        print(f"There is no {code} yet: run make workshop LAB={number} first.", file=sys.stderr)
        return 2
    failed = list(broken(checks_of(number), code))
    if failed:
        check, found = failed[0]
        print(f"\nBroken: {check.__doc__}\n\n{found}")
        return 1
    print("\nAll promises hold.")
    return 0


def broken(checks: Iterable[Check], code: Path) -> Iterable[tuple[Check, str]]:
    """Try each promise, say whether it holds, and give those that do not."""
    for check in checks:
        found = outcome(check, code)
        print("broken" if found else "holds ", check.__doc__, flush=True)
        if found:
            yield check, found


def outcome(check: Check, code: Path) -> str:
    """Say how the code breaks a promise; nothing if it holds."""
    try:
        check(code)
    except Broken as found:
        return f"{found.picture}\n\n{found}"
    except Exception as error:  # noqa: BLE001  # a participant's code may raise anything
        lines = traceback.format_exception(error)
        return "".join(line for line in lines if str(HERE) not in line).rstrip()
    return ""


if __name__ == "__main__":
    sys.exit(main())
