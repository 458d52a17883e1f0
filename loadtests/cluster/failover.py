"""``python -m loadtests failover``: the shop's database loses its leader under load, and the auditor judges.

Three nodes of PostgreSQL under Patroni, one of them synchronous. The leader is killed, with all processes of
Patroni and PostgreSQL, and another takes over. Everything acknowledged must be there, and nothing may be charged twice.
"""

import argparse
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

import psycopg

from loadtests import diary
from loadtests.cluster.installed import CannotRun
from loadtests.cluster.patroni import Cluster, cluster
from loadtests.cluster.usurper import Loss, Usurper, count_acknowledged, describe_losses, gap, plan_blows
from loadtests.diary import Diary
from loadtests.staging import proof
from loadtests.staging.flood import Wave
from loadtests.staging.progress import Progress
from loadtests.staging.stage import Plan, Stage, Trouble
from tests.fixtures.postgres import PostgresServer
from tests.fixtures.processes import ROOT

SECONDS_PER_KILL = 45.0  # a calm start, the time until a leader counts as lost, and the time to be whole again


class ClusterStage(Stage):
    """A stage with a cluster as the shop's database; the gateway has a PostgreSQL of its own."""

    cluster: Cluster
    is_synchronous = True

    def _open_databases(self) -> str:
        (self.plan.folder / "data").mkdir(parents=True, exist_ok=True)
        self._tell("starting etcd, and PostgreSQL three times under Patroni")
        try:
            logs = self.plan.folder / "logs"
            self.cluster = self._ends.enter_context(cluster(logs, is_synchronous=self.is_synchronous))
        except CannotRun as error:
            raise Trouble(str(error)) from error
        with psycopg.connect(self.cluster.url(), autocommit=True) as connection:
            connection.execute("CREATE DATABASE shop")
        self.shop_url = self.cluster.url("shop")
        of_gateway = self._ends.enter_context(PostgresServer())
        self.gateway_url = of_gateway.url(of_gateway.create_database())
        return self.shop_url


class AsynchronousStage(ClusterStage):
    """The same with a cluster that acknowledges commits before any standby has them: this run must be found guilty."""

    is_synchronous = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the command's options."""
    parser.add_argument("--seconds", type=float, default=60.0, help="of load (default: 60)")
    parser.add_argument("--users", type=int, default=20, help="(default: 20)")
    parser.add_argument("--kills", type=int, default=1, help="leaders to lose, one after the other (default: 1)")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--out", type=Path, help="folder for diaries, logs and report; default: var/proof/failover")
    parser.add_argument(
        "--asynchronous",
        action="store_true",
        help="acknowledge commits before any standby has them: orders get lost, and the verdict must be guilty",
    )


def run(options: argparse.Namespace) -> int:
    """Run it. Gives the exit code: 0 innocent, 1 guilty, 2 no verdict."""
    if options.kills < 1 or options.users < 1 or options.seconds < SECONDS_PER_KILL * options.kills:
        return _sorry(f"A run needs at least one user, one kill and {SECONDS_PER_KILL:g} s for each kill.")
    progress = Progress(sys.stdout)
    try:
        return _judge(options, progress)
    except Trouble as trouble:
        progress.done()
        return _sorry(str(trouble))


def _judge(options: argparse.Namespace, progress: Progress) -> int:
    """Run an ordinary proof, with a cluster on the stage and a usurper that kills its leaders."""
    folder = (options.out or ROOT / "var" / "proof" / "failover").resolve()
    title = f"Failover of a{'n asynchronous' if options.asynchronous else ' synchronous'} PostgreSQL cluster"
    asked = proof.Run(title, Plan(folder), Wave(options.seconds, options.users, options.seed))
    blows = plan_blows(options.seed, options.seconds, options.kills, always_isolated=options.asynchronous)
    losses: list[Loss] = []

    def send_usurper(stage: Stage, book: Diary) -> Usurper:
        assert isinstance(stage, ClusterStage), "only a cluster has a leader"
        return Usurper(stage.cluster, blows, losses, book, progress)

    progress.say(f"{title}, {options.seconds:g} s, {options.users} users, seed {options.seed}")
    set_stage = AsynchronousStage if options.asynchronous else ClusterStage
    judged = proof.run(asked, progress, set_stage=set_stage, breaker=send_usurper)
    history = diary.read(asked.diary)
    progress.say("")
    for line in describe_losses(history, losses):
        progress.say(line)
    progress.say(
        f"Acknowledged: {count_acknowledged(history):,} intents; lost: {judged.figures.lost};"
        f" with more than one effect: {judged.figures.duplicates}."
    )
    if len(losses) < len(blows):
        raise Trouble(f"Time ran out after {len(losses)} of {len(blows)} kills; allow more --seconds.")
    if any(gap(history, loss) is None for loss in losses):
        progress.say("GUILTY: after a failover, nothing new took effect.")
        return 1
    return 1 if judged.is_guilty else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Read the command line and run it."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtests failover",
        description="Kill the leader of a PostgreSQL cluster under load, and audit the result.",
    )
    add_arguments(parser)
    return run(parser.parse_args(argv))


def _sorry(sentence: str) -> int:
    sys.stdout.flush()
    sys.stderr.write(f"{sentence}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
