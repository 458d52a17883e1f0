"""Random programs of one, two and three sessions leave the same rows with a key as without, or fail and leave nothing.

Without a key each session has a transaction of its own; a small model says what that leaves, and PostgreSQL confirms
it. On SQLite two sessions that write at once would lock each other out, so there the model speaks alone.
HYPOTHESIS_PROFILE chooses how many programs are run.
"""

from collections import Counter
from itertools import count

import pytest
from flask import request
from hypothesis import HealthCheck, given, settings

from tests.tiers import is_quick
from tests.transaction.programs import PLACE_ORDER, SESSIONS, Model, Program, Runner, programs

SHARE = 1 if is_quick() else 4  # of the profile's examples, for each number of sessions


class Stage:
    """A shop whose view runs the program of the day."""

    def __init__(self, shop):
        self.shop, self.program, self.runner, self.sessions = shop, Program((), (), 201), None, []
        self._keys = count()

        @shop.app.before_request
        def begin():
            factory = shop.db.session.session_factory
            self.sessions = [shop.db.session(), *(factory() for _ in range(SESSIONS - 1))]
            self.runner = Runner(shop.db, self.sessions)
            if request.headers.get("X-Runs"):
                self.runner.run(self.program.before)

        @shop.app.teardown_request
        def close(_):
            for session in self.sessions:
                session.close()

        shop.begin()
        if shop.engine.name == "postgresql":
            shop.sql(PLACE_ORDER)
        for number in range(SESSIONS):
            shop.sql("INSERT INTO \"user\" (id, name, visits) VALUES (:id, 'Ada', 0)", id=number + 2)

        def view():
            self.runner.run(self.program.acts)
            return "answered", self.program.status

        shop.serve(view)

    def run(self, program, *, has_key):
        """Run a program in empty tables, with a key twice; give the statuses, the rows and the number of records."""
        with self.shop.engine.begin() as connection:
            for statement in ("DELETE FROM orders", "DELETE FROM idempotency_record", 'UPDATE "user" SET visits = 0'):
                connection.exec_driver_sql(statement)
        self.program = program
        key = f"key-{next(self._keys)}" if has_key else None
        first = self.shop.send(key=key, headers={"X-Runs": "yes"})
        left = self._rows()
        if has_key and program.status != 500 and first.status_code != 500:
            again = self.shop.send(key=key)
            assert (again.status_code, again.headers.get("Idempotent-Replayed")) == (first.status_code, "true")
            assert self._rows() == left
        return first.status_code, left, self.shop.records

    def _rows(self):
        bumps = self.shop.sql('SELECT id - 2, visits FROM "user" WHERE visits > 0')
        return Counter(self.shop.notes) + Counter({f"bump {session}": visits for session, visits in bumps})


def check(stage, program):
    """Compare what a program leaves with a key with what it leaves without."""
    model = Model(program)
    if stage.shop.engine.name == "postgresql":
        assert stage.run(program, has_key=False) == (program.status, model.rows, 0)

    found = stage.run(program, has_key=True)

    refused = (500, Counter(), 0)
    if program.status == 500 or model.is_torn:
        assert found == refused
    elif model.leaves_something:
        assert found in (refused, (program.status, model.rows, 1))
    else:
        assert found == (program.status, model.rows, 1)


@pytest.mark.parametrize("sessions", range(1, SESSIONS + 1))
def test_the_rows_are_those_of_the_same_request_without_a_key_or_it_fails_and_leaves_nothing(make_shop, sessions):
    stage = Stage(make_shop())

    @settings(
        max_examples=settings.default.max_examples * SHARE,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors],
    )
    @given(programs(sessions))
    def run(program):
        check(stage, program)

    run()
