"""Can the proof fail? Each mutant breaks one rule, and the state machine must find a program that shows it.

The contract finds the same mutants sooner, so a few are searched for here; with TEST_LONG=1, all.
"""

import os
from functools import partial

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from flask_idempotency.errors import IdempotencyError
from tests.stores import mutants
from tests.stores.machine import StoreMachine
from tests.stores.mutants import MUTANTS
from tests.stores.test_mutants import each, world
from tests.stores.worlds import SqlWorld

__all__ = ["world"]

# Programs do not race, so they cannot see what only racers do; nor do they look at every kind of answer, count records,
# or forget all that a caller has.
SEEN_BY_THE_CONTRACT_ALONE = {
    mutants.LooksThenWrites,
    mutants.MergesHeaders,
    mutants.KeepsBodiesAsText,
    mutants.TakesEmptyForNotKept,
    mutants.CountsTheAgeOfEverything,
    mutants.CountsTheExpiredAsLive,
    mutants.ForgetsEverybody,
    mutants.ForgetsOneOfACaller,
}


SEARCHED_FOR = [mutant for mutant in MUTANTS if mutant not in SEEN_BY_THE_CONTRACT_ALONE]
IS_LONG = os.environ.get("TEST_LONG") == "1"


@each(SEARCHED_FOR if IS_LONG else [mutants.UsesApplicationClock, *SEARCHED_FOR[::8]])
def test_the_state_machine_finds_a_program_that_a_mutant_gets_wrong(world: SqlWorld):
    search = settings(
        max_examples=400,
        stateful_step_count=50,
        phases=[Phase.generate],  # one bad program is enough; it need not be the shortest
        derandomize=True,  # the same programs every time: a mutant that was found stays found
        database=None,
    )

    with pytest.raises((AssertionError, IdempotencyError)):
        run_state_machine_as_test(partial(StoreMachine, world), settings=search)
