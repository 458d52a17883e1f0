"""Two tiers of tests. `make test` runs the first in minutes, and covers every promise once; `make soak` runs the rest.

A new test belongs to the first tier unless it is named here. What belongs to neither alone, random searches and faults
at sampled positions, runs in both: a little in the first, as much as there is time for in the second.
A pytest plugin; `--tier quick | soak | all`, and all is the default.
"""

import os
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parents[1]

# Why each can wait: the first tier shows the same promise in a smaller way, or somebody's tools are tested, not ours.
SOAK: Final = {
    "tests/client/test_thousand_actions.py": "a thousand actions; test_against_servers.py has one of each fault",
    "tests/conformance/test_planted_alone.py": "nothing else is named; test_planted_faults.py shows that the fault is",
    "tests/conformance/test_real_servers_stripe.py": "the other dialect; test_real_servers.py has the draft's",
    "tests/docs/test_workshop_solutions.py": "every line of every solution; test_workshop.py shows the first",
    "tests/demo_shop/test_browser_console.py": "the console, in a browser; console/ has it without one",
    "tests/demo_shop/test_browser_lab.py": "every switch of the lab; test_browser.py clicks through a purchase",
    "tests/demo_shop/test_browser_plain.py": "a purchase without JavaScript; test_rooms.py posts the same forms",
    "tests/demo_shop/test_events_served.py": "events between real processes; test_events.py has them in one",
    "tests/demo_shop/test_launcher.py": "how the demo is started and stopped",
    "tests/demo_shop/test_browser_moments.py": "how pages look in the middle of something",
    "tests/demo_shop/test_browser_trouble.py": "every kind of trouble, in a browser; test_rooms.py has it without one",
    "tests/demo_shop/test_launcher_real.py": "the same, with real processes",
    "tests/guards/test_clocks.py": "worker clocks an hour off; the contract shows that the database's counts",
    "tests/guards/test_database_dies.py": "a killed database under load; stores/test_postgres_faults.py kills one too",
    "tests/guards/test_deployments.py": "gunicorn, gevent and uWSGI as the docs set them up; others have gunicorn",
    "tests/guards/test_server_stops.py": "graceful stops and reloads of gunicorn",
    "tests/guards/test_shadow_in_processes.py": "two workers; extension/test_shadow.py has shadow mode in one process",
    "tests/guards/test_store_faults.py": "a store that dies under gunicorn; http/ and stores/ have the faults",
    "tests/guards/test_sqlite_faults.py": "a locked and a full file, under gunicorn",
    "tests/interop/test_stripe_node.py": "Stripe's other SDK, installed by npm; http/test_stripe_* has the dialect",
    "tests/interop/test_stripe_python.py": "its pauses take seconds; http/test_stripe_* has the dialect",
    "tests/loadtests/test_chaos.py": "`make chaos` is the same, for longer",
    "tests/loadtests/test_mutants.py": "every planted bug is convicted",
    "tests/loadtests/test_proof.py": "`make proof` is the same, for longer; and the shop without protection is guilty",
    "tests/loadtests/test_stage.py": "the stage of the load tests",
    "tests/loadtests/test_users_page.py": "clients in several processes",
    "tests/loadtests/test_users_recipe.py": "the recipe for endpoints of one's own",
    "tests/loadtests/test_users_run.py": "a run from its start to its verdict",
    "tests/loadtests/test_users_shop.py": "the clients of the shop",
    "tests/model/test_protocol.py": "every state of the protocol's model",
    "tests/phases/test_gateway.py": "the payment gateway that other tests use",
    "tests/phases/test_gateway_down.py": "an outage of minutes with eager clients",
    "tests/stores/test_dynamodb_at_random.py": "random programs over HTTP; test_state_machine.py has those of others",
    "tests/stores/test_dynamodb_contract.py": "the contract over HTTP; test_dynamodb.py has what is special there",
    "tests/stores/test_dynamodb_faults.py": "every verb whose answer is lost; test_dynamodb.py loses that of a claim",
    "tests/stores/test_dynamodb_mutants.py": "every weakened condition is found by the contract",
    "tests/stores/test_mariadb_deeper.py": "MariaDB at length; transaction/test_mariadb.py is shorter",
    "tests/stores/test_mariadb_faults.py": "a killed MariaDB; transaction/test_mariadb.py cuts connections to one",
    "tests/phases/test_jobs_in_processes.py": "killed and paused workers; test_jobs.py has them in one process",
    "tests/runs/test_killed_workers.py": "killed workers; test_once.py stops them by exceptions that nothing handles",
    "tests/stores/test_mutants.py": "every weakened store is found by the contract",
    "tests/stores/test_mutants_at_random.py": "and by the state machine",
    "tests/stores/test_redis_faults.py": "a killed, paused and full server; test_redis_server.py has the refusals",
    "tests/stores/test_redis_cluster.py": "the contract on a cluster and behind Sentinels, and a failover",
    "tests/stores/test_redis_mutants.py": "every weakened script is found by the contract",
    "tests/stores/test_partitioned_contract.py": "the contracts once more; test_partitions_in_short.py has it in short",
    "tests/stores/test_partitions.py": "a database for each test, whose clock is moved by days",
    "tests/stores/test_partitions_under_load.py": "the same while others work",
    "tests/stores/test_sealed_contract.py": "the contract once more; test_sealed.py reads back what was encrypted",
    "tests/transaction/test_database_killed.py": "a killed database under load; test_kills.py kills workers",
    "tests/transaction/test_writers_under_gevent.py": "a process of its own; test_claims_on_sqlite.py has the line",
    "tests/workshop": "the test tools themselves",
}

# What one database shows over HTTP, with real processes, or of what views, hooks and commands are told, the others show
# in the second tier; so does the second screen. What a session, a statement or a lock does is tested on both at once.
SECOND: Final = {
    "tests/conformance": "postgresql",
    "tests/demo_shop/test_browser_pages.py": "desktop",
    "tests/demo_shop": "postgresql",
    "tests/extension/test_prometheus.py": "postgresql preloaded",
    "tests/extension": "postgresql",
    "tests/guards": "sqlite mariadb",
    "tests/http": "postgresql",
    "tests/peers": "postgresql",
    "tests/phases/test_at_most_once.py": "sqlite",
    "tests/phases/test_deploys.py": "sqlite",
    "tests/phases/test_gateway_faults.py": "sqlite",
    "tests/phases/test_keeping.py": "postgresql",
    "tests/phases/test_killed_workers.py": "sqlite mariadb",
    "tests/phases/test_left_uncommitted.py": "postgresql",
    "tests/phases/test_misuse.py": "postgresql",
    "tests/phases/test_resolving.py": "postgresql",
    "tests/phases/test_resuming.py": "postgresql",
    "tests/phases/test_unprotected_since.py": "postgresql",
    "tests/phases/test_zombies.py": "sqlite mariadb",
    "tests/runs/test_refusals.py": "postgresql",
    "tests/transaction/test_a_transaction_per_test.py": "postgresql",
    "tests/transaction/test_forks.py": "sqlite",
    "tests/transaction/test_gallery.py": "mariadb",
    "tests/transaction/test_hooks_that_commit.py": "postgresql",
    "tests/transaction/test_kills.py": "sqlite mariadb",
    "tests/transaction/test_mariadb.py": "COMMITTED",
    "tests/transaction/test_taking_part.py": "postgresql",
}

# Random searches, and faults at sampled positions: more of them in the second tier.
DEEPER_IN_SOAK: Final = (
    "tests/client/test_outbox_crashes.py",
    "tests/core",
    "tests/http/test_fuzz.py",
    "tests/phases/test_crash_at_every_line.py",
    "tests/phases/test_wire_cuts.py",
    "tests/stores/test_state_machine.py",
    "tests/transaction/test_crash_at_every_line.py",
    "tests/transaction/test_random_sessions.py",
    "tests/transaction/test_wire_cuts.py",
)

VARIABLE = "TEST_TIER"  # set by the option: modules ask for it while they are imported


def is_quick() -> bool:
    """Say whether only the first tier runs, which has little time for each search."""
    return os.environ.get(VARIABLE) == "quick"


def is_in(path: str, rooms: "tuple[str, ...] | dict[str, str]") -> str | None:
    """Give the entry that names a file or the folder it is in."""
    return next((room for room in rooms if path == room or path.startswith(f"{room}/")), None)


def tiers_of(path: str, parameters: str) -> set[str]:
    """Name the tiers of a test, by its file and by the id of its parameters."""
    second = SECOND.get(is_in(path, SECOND) or "", "").split()
    if is_in(path, SOAK) or any(word in parameters for word in second):
        return {"soak"}
    return {"quick", "soak"} if is_in(path, DEEPER_IN_SOAK) else {"quick"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=["quick", "soak", "all"], default="all", help="which tests to run; default all")


def pytest_configure(config: pytest.Config) -> None:
    os.environ[VARIABLE] = config.getoption("--tier")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import a file of which this tier has nothing: that takes as long as a hundred tests."""
    tier = config.getoption("--tier")
    if tier == "all" or collection_path.suffix != ".py" or not collection_path.is_relative_to(ROOT):
        return None
    path = collection_path.relative_to(ROOT).as_posix()
    is_soaks_alone = is_in(path, SOAK) is not None
    is_quicks_alone = not (is_soaks_alone or is_in(path, SECOND) or is_in(path, DEEPER_IN_SOAK))
    return (is_soaks_alone if tier == "quick" else is_quicks_alone) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what belongs to the other tier."""
    tier = config.getoption("--tier")
    if tier == "all":
        return
    kept, left = [], []
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "id", "")
        is_ours = tier in tiers_of(item.location[0], parameters)
        (kept if is_ours else left).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left)
