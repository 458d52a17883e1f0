"""``python -m loadtests proof | chaos | failover``: floods the demo shop, breaks it, and judges the result.

Exit codes: 0 innocent, 1 guilty, 2 no verdict. With --expect: 0 if the verdict is the expected one.
"""

import argparse
import secrets
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadtests.staging.proof import Run

ROOT = Path(__file__).resolve().parent.parent
NAMES = {"postgres": "PostgreSQL", "sqlite": "SQLite", "mariadb": "MariaDB"}
LEASE = 2.0  # seconds: short, so that in chaos many run out
SLOW = 3.0  # seconds that a slow card takes in a proof: longer than a lease, which has to be renewed
RETENTION = 14.0  # seconds that ratings are remembered in a proof, if it is long enough for a key to come back
GATEWAY_TIMEOUT = 1.0  # seconds, in chaos: below the lease
INNOCENT, GUILTY, NO_VERDICT = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Gives the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for each in (signal.SIGINT, signal.SIGTERM):  # SIGINT too: a background job is started with it ignored
        signal.signal(each, _interrupt)
    try:
        if arguments[:1] == ["failover"]:
            from loadtests.cluster import failover

            return int(failover.main(arguments[1:]))
        return judge(read_options(arguments))
    except KeyboardInterrupt:
        return _sorry("Stopped before there was a verdict.")
    except ImportError as error:
        return _sorry(f"{error.name or error} is not installed; `make {next(iter(arguments), 'proof')}` installs all.")
    except Exception:  # noqa: BLE001 - whatever it is, it is no verdict, and Python's own exit code for it would be one
        return _sorry(f"There is no verdict, because the program itself failed.\n{traceback.format_exc()}")


def judge(options: argparse.Namespace) -> int:
    """Carry out a proof or a chaos run."""
    from loadtests.breaking import nemesis
    from loadtests.staging.progress import Progress
    from loadtests.staging.proof import run
    from loadtests.staging.stage import Trouble

    progress = Progress(sys.stdout)
    try:
        asked = plan(options)
        progress.say(f"{asked.title}, {options.seconds:g} s, {options.users} users, seed {asked.wave.seed}")
        if asked.acts:
            progress.say(f"The nemesis' schedule (repeat it with --schedule {asked.folder / 'schedule.json'}):")
            progress.say(nemesis.tell(asked.acts))
        verdict = run(asked, progress)
    except Trouble as trouble:
        progress.done()
        return _sorry(str(trouble))
    if options.expect is None:
        return GUILTY if verdict.is_guilty else INNOCENT
    is_as_expected = verdict.is_guilty == (options.expect == "guilty")
    progress.say(f"Expected: {options.expect}. {'It was.' if is_as_expected else 'It was not.'}")
    return 0 if is_as_expected else 1


def plan(options: argparse.Namespace) -> "Run":
    """Turn the options into a run. Raises Trouble if a schedule or a shape is invalid."""
    from loadtests.breaking import nemesis
    from loadtests.clients import shapes
    from loadtests.staging.flood import Wave
    from loadtests.staging.proof import SETTLED_WITHIN, Run
    from loadtests.staging.stage import Plan, Trouble

    is_chaos, seed, acts = options.what == "chaos", options.seed, list[nemesis.Act]()
    lease = options.lease or LEASE
    try:
        shapes.shape_named(options.shape)
        if is_chaos and options.schedule:
            seed, acts = nemesis.load(options.schedule)
        elif is_chaos:
            acts = nemesis.make_schedule(seed, options.seconds, lease, options.only)
    except OSError as error:
        raise Trouble(f"The schedule {options.schedule} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise Trouble(str(error)) from error
    if options.store == "sqlite":
        acts = [act for act in acts if act.kind not in nemesis.OF_THE_DATABASE]
    folder = (options.out or ROOT / "var" / "proof" / options.what).resolve()
    times = (
        {"gateway_timeout": GATEWAY_TIMEOUT, "gateway_hold": 3 * GATEWAY_TIMEOUT}
        if is_chaos
        else {"gateway_slow": SLOW}
    )
    # While the shop is down, clients may well stay away for longer than a short retention.
    retention = 0.0 if is_chaos or options.unprotected or options.seconds < 2 * RETENTION else RETENTION
    # Without protection, a gateway that fails each new key once would fail for ever.
    patience = options.settle or (5.0 if options.unprotected else SETTLED_WITHIN)
    return Run(
        f"{'Chaos' if is_chaos else 'Proof'} on {NAMES[options.store]}",
        Plan(folder, options.store, options.app, is_chaos, options.unprotected, lease, retention=retention, **times),
        Wave(options.seconds, options.users, seed, options.shape, retention, options.customers),
        acts,
        patience,
    )


def read_options(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtests", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    rooms = parser.add_subparsers(dest="what", required=True, metavar="proof | chaos | failover")
    rooms.add_parser("failover", help="lose the leader of a PostgreSQL cluster under load", add_help=False)
    for name, seconds, says in (
        ("proof", 30, "flood the shop with retries, and audit it"),
        ("chaos", 60, "the same while a nemesis kills, pauses and cuts"),
    ):
        room = rooms.add_parser(name, help=says, description=says)
        room.add_argument("--seconds", type=_positive, default=seconds, help=f"how long to flood; default: {seconds}")
        room.add_argument("--users", type=_count, default=40, help="clients at once; default: 40, some of each kind")
        room.add_argument(
            "--seed", type=int, default=secrets.randbelow(10**6), help="of all choices; printed if random"
        )
        room.add_argument(
            "--store", choices=["postgres", "sqlite", "mariadb"], default="postgres", help="the shop's database"
        )
        room.add_argument("--app", default="demo_shop.app:create_app()", help="what gunicorn serves as the shop")
        room.add_argument("--shape", default="steady", help="steady, ramp, spike or black-friday")
        room.add_argument("--customers", type=_names, default=(), help="only these kinds, such as Stumbler,Reviewer")
        room.add_argument("--lease", type=_positive, help="lease in seconds; default: 2")
        room.add_argument("--unprotected", action="store_true", help="switch the shop's protection off")
        room.add_argument("--settle", type=_positive, help="seconds until an open intent is given up; default: 90")
        room.add_argument("--out", type=Path, help="folder for diaries, logs and the report; default: var/proof/NAME")
        room.add_argument("--expect", choices=["guilty", "innocent"], help="exit with 0 if that is the verdict")
        if name == "chaos":
            room.add_argument("--schedule", type=Path, help="carry out the schedule in this file")
            room.add_argument("--only", type=_kinds, default=(), help="only these kinds of acts, separated by commas")
    return parser.parse_args(argv)


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 10**6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, such as 30")
    return number


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of users, such as 40")
    return int(text)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _kinds(text: str) -> tuple[str, ...]:
    from loadtests.breaking.nemesis import KINDS

    given = _names(text)
    if unknown := set(given) - set(KINDS):
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: choose from {', '.join(KINDS)}")
    return given


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _sorry(sentence: str) -> int:
    sys.stdout.flush()
    sys.stderr.write(f"{sentence}\n")
    return NO_VERDICT


if __name__ == "__main__":
    sys.exit(main())
