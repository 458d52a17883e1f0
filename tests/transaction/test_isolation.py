"""PostgreSQL as the app has set it: levels of isolation, time-outs and commits that do not wait for the disk."""

from concurrent.futures import ThreadPoolExecutor
from itertools import count

import psycopg
import pytest
from sqlalchemy import make_url, text

from flask_idempotency import idempotent
from flask_idempotency.errors import ConfigError, WorkRefused
from flask_idempotency.stores import postgres_transaction
from flask_idempotency.stores.pipeline import converse
from tests.apps.shop import Gate
from tests.fixtures.processes import eventually, race

REPLAYED = "Idempotent-Replayed"
LEVELS = ["read committed", "repeatable read", "serializable"]
RACERS = 4


@pytest.fixture
def role_has(postgres_url):
    """`role_has(name="value")`: what every new connection of the app finds set."""
    name = make_url(postgres_url).database

    def alter(change):
        with psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute(f'ALTER ROLE CURRENT_USER IN DATABASE "{name}" {change}')

    def set_for_role(**settings):
        for setting, value in settings.items():
            alter(f"SET {setting} = '{value}'")

    yield set_for_role
    alter("RESET ALL")


@pytest.fixture(params=[(by, level) for by in ("engine", "role") for level in LEVELS], ids=" ".join)
def level_shop(request, make_postgres_shop, role_has):
    """`level_shop(**settings)`: a shop with a level of isolation that its engine, or its role, has chosen."""
    by, level = request.param
    if by == "role":
        role_has(default_transaction_isolation=level)

    def make(**settings):
        engine = {"isolation_level": level.upper()} if by == "engine" else {}
        shop = make_postgres_shop(engine={**engine, "pool_size": 10}, **settings)
        shop.level = level
        shop.begin()
        return shop

    return make


def count_visit_and_order(shop):
    """Read, change a row that every duplicate changes too, and add one."""
    user = shop.db.session.get(shop.db.User, 1)
    user.visits += 1
    order = shop.db.Order(note=user.name)
    shop.db.session.add(order)
    shop.db.session.commit()
    return {"id": order.id}, 201


# -- levels ------------------------------------------------------------------------------------------------------------


def test_the_view_works_at_the_level_that_the_app_chose(level_shop):
    shop = level_shop()

    def view():
        level = shop.db.session.scalar(text("SHOW transaction_isolation"))
        shop.db.session.commit()
        count_visit_and_order(shop)
        return level, 201

    shop.serve(view)

    first, second = shop.send(), shop.send()

    assert first.text == second.text == shop.level
    assert REPLAYED in second.headers
    assert shop.notes == ["Ada"]


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_in_the_engines_execution_options_holds_too(make_postgres_shop, level):
    shop = make_postgres_shop(engine={"execution_options": {"isolation_level": level.upper()}})
    shop.begin()

    def view():
        found = shop.db.session.scalar(text("SHOW transaction_isolation"))
        shop.db.session.commit()
        count_visit_and_order(shop)
        return found, 201

    shop.serve(view)

    first, second = shop.send(), shop.send()

    assert first.text == second.text == level
    assert REPLAYED in second.headers
    assert shop.notes == ["Ada"]


def test_a_level_that_was_chosen_for_the_engine_holds_for_a_session_used_before_the_view(make_postgres_shop):
    shop = make_postgres_shop(engine={"isolation_level": "SERIALIZABLE"})
    shop.app.before_request(lambda: shop.db.session.execute(text("SELECT 1")) and None)
    shop.begin()

    def view():
        count_visit_and_order(shop)
        return shop.db.session.scalar(text("SHOW transaction_isolation")), 201

    shop.serve(view)

    first, second = shop.send(), shop.send()

    assert first.text == second.text == "serializable"
    assert REPLAYED in second.headers
    assert shop.notes == ["Ada"]


def test_a_level_that_the_view_chooses_for_its_transaction_is_had_or_refused_but_never_half_had(make_postgres_shop):
    shop = make_postgres_shop()
    shop.begin()

    def view():
        shop.db.session.connection(execution_options={"isolation_level": "SERIALIZABLE"})
        level = shop.db.session.scalar(text("SHOW transaction_isolation"))
        count_visit_and_order(shop)
        return level, 201

    shop.serve(view)

    answer = shop.send()

    assert (answer.status_code, answer.text, shop.notes) == (201, "serializable", ["Ada"]) or (
        answer.status_code,
        shop.notes,
        shop.records,
    ) == (500, [], 0)
    with shop.engine.connect() as connection:
        assert connection.scalar(text("SHOW transaction_isolation")) == "read committed"
    assert shop.engine.pool.checkedout() == 0


def test_a_duplicate_of_a_request_under_way_is_refused_at_every_level(level_shop):
    shop, gate = level_shop(), Gate()

    def view():
        answer = count_visit_and_order(shop)
        gate.stop()
        return answer

    shop.serve(view)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(shop.send)
        gate.wait_for_view()

        duplicate, another_body = shop.send(), shop.send(data="another")
        gate.open()
        first = running.result(30)

    assert (duplicate.status_code, another_body.status_code) == (409, 422)
    assert first.status_code == 201
    assert shop.send().data == first.data
    assert shop.rows()["orders"] == [(1, None, "Ada")]


def test_a_duplicate_that_saw_nothing_before_it_got_the_locks_is_answered_like_the_first(level_shop, monkeypatch):
    shop, answers, say = level_shop(), [], postgres_transaction.open_with
    shop.serve(lambda: count_visit_and_order(shop))

    def be_overtaken(connection, messages, patience=0):
        """Begin, and see what there is; let a whole request come and go, and only then try for the locks."""
        monkeypatch.setattr(postgres_transaction, "open_with", say)
        begin, *rest = messages
        converse(connection, [begin, ("SELECT 1", {})])
        with ThreadPoolExecutor(1) as pool:
            answers.append(pool.submit(shop.send).result(30))
        return converse(connection, rest, patience)

    monkeypatch.setattr(postgres_transaction, "open_with", be_overtaken)
    answers.append(shop.send())

    assert [answer.status_code for answer in answers] == [201, 201]
    assert [REPLAYED in answer.headers for answer in answers] == [False, True]
    assert shop.notes == ["Ada"]


@pytest.mark.parametrize("in_flight", ["conflict", "wait"])
def test_of_duplicates_at_one_instant_one_takes_effect_at_every_level(level_shop, in_flight):
    shop = level_shop(in_flight=in_flight)
    shop.serve(lambda: count_visit_and_order(shop))
    shop.send(key="warm-up")

    for turn in range(3):
        answers = race(RACERS, lambda _, turn=turn: shop.send(key=f"turn-{turn}"))

        assert {answer.status_code for answer in answers} <= {201, 409}
        made = [answer for answer in answers if answer.status_code == 201]
        assert len({answer.data for answer in made}) == 1
        assert sum(REPLAYED not in answer.headers for answer in made) == 1

    assert shop.notes == ["Ada"] * 4
    assert shop.rows()["user"] == [(1, "Ada", 4)]
    assert shop.engine.pool.checkedout() == 0


@pytest.mark.parametrize("in_flight", ["conflict", "wait"])
def test_duplicates_of_attempts_that_fail_run_or_are_refused_as_duplicates(level_shop, in_flight):
    shop = level_shop(in_flight=in_flight)

    def view():
        shop.db.session.add(shop.db.Order(note="taken back"))
        shop.db.session.commit()
        return "no", 500

    shop.serve(view)
    shop.send(key="warm-up")

    answers = [each for turn in range(5) for each in race(RACERS, lambda _, turn=turn: shop.send(key=f"turn-{turn}"))]

    assert {answer.status_code for answer in answers} <= {500, 409}
    assert (shop.notes, shop.records) == ([], 0)


def test_a_duplicate_that_waits_gets_the_answer_at_every_level(level_shop):
    shop, gate = level_shop(in_flight="wait"), Gate()

    def view():
        gate.stop()
        return count_visit_and_order(shop)

    shop.serve(view)
    with ThreadPoolExecutor(3) as pool:
        running = pool.submit(shop.send)
        gate.wait_for_view()
        waiting = [pool.submit(shop.send) for _ in range(2)]
        eventually(lambda: waiters(shop) == 2, what="two duplicates that wait")
        gate.open()
        first, *others = [each.result(30) for each in (running, *waiting)]

    assert [answer.status_code for answer in (first, *others)] == [201, 201, 201]
    assert {answer.data for answer in others} == {first.data}
    assert shop.notes == ["Ada"]
    assert shop.rows()["user"] == [(1, "Ada", 1)]


def waiters(shop, for_longer_than="0 s"):
    """How many connections wait for an advisory lock, and have done so for a while."""
    statement = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'"
        " AND clock_timestamp() - query_start > CAST(:time AS interval)"
    )
    return shop.sql(statement, time=for_longer_than)[0][0]


def test_two_different_requests_that_contradict_each_other_are_not_both_committed(make_postgres_shop):
    shop = make_postgres_shop(engine={"isolation_level": "SERIALIZABLE"})
    shop.begin()
    gate, runs = Gate(), count(1)

    def view():
        seen = shop.db.session.query(shop.db.Order).count()
        shop.db.session.add(shop.db.Order(note=f"after {seen}"))
        shop.db.session.commit()
        if next(runs) <= 2:
            gate.stop()
        return "made", 201

    shop.serve(view)
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(shop.send, key=key) for key in ("one", "two")]
        gate.wait_for_view()
        gate.wait_for_view()
        gate.open()
        statuses = {key: each.result(30).status_code for key, each in zip(("one", "two"), running, strict=True)}
    loser = min(statuses, key=lambda key: -statuses[key])

    retried = shop.send(key=loser)

    assert sorted(statuses.values()) == [201, 503]
    assert (retried.status_code, REPLAYED in retried.headers) == (201, False)
    assert shop.notes == ["after 0", "after 1"]


# -- AUTOCOMMIT --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"execution_options": {"isolation_level": "AUTOCOMMIT"}}], ids=["", "option"])
def test_an_engine_that_commits_every_statement_is_refused_before_the_view_runs(make_shop, options):
    shop = make_shop(engine=options or {"isolation_level": "AUTOCOMMIT"})
    shop.begin()
    shop.serve(lambda: count_visit_and_order(shop))
    shop.app.testing = True

    with pytest.raises(ConfigError, match="AUTOCOMMIT"):
        shop.send()

    assert shop.notes == []
    assert shop.engine.pool.checkedout() == 0


def test_an_engine_that_commits_every_statement_will_do_for_the_lease_guard(make_postgres_shop):
    shop = make_postgres_shop(engine={"isolation_level": "AUTOCOMMIT"})
    shop.begin()
    shop.serve(idempotent(guard="lease")(lambda: count_visit_and_order(shop)))

    first, second = shop.send(), shop.send()

    assert (first.status_code, second.status_code) == (201, 201)
    assert shop.notes == ["Ada"]


def chooses_it_for_its_connection(shop):
    shop.db.session.connection(execution_options={"isolation_level": "AUTOCOMMIT"})
    return shop.db.session()


def chooses_it_on_the_connection(shop):
    connection = shop.db.session.connection()
    shop.db.session.commit()
    connection.execution_options(isolation_level="AUTOCOMMIT")
    return shop.db.session()


def chooses_it_for_a_second_session(shop):
    other = shop.db.session.session_factory()
    other.connection(execution_options={"isolation_level": "autocommit"})
    return other


def binds_a_second_session_to_an_engine_that_has_it(shop):
    engine = shop.db.engine.execution_options(isolation_level="AUTOCOMMIT")
    other = shop.db.session.session_factory()
    other.connection(bind_arguments={"bind": engine})
    return other


CHOICES = [
    chooses_it_for_its_connection,
    chooses_it_on_the_connection,
    chooses_it_for_a_second_session,
    binds_a_second_session_to_an_engine_that_has_it,
]


@pytest.mark.parametrize("is_caught", [False, True], ids=["raised", "caught"])
@pytest.mark.parametrize("choose", CHOICES, ids=lambda choose: choose.__name__)
def test_a_session_that_chooses_to_commit_every_statement_is_refused_before_anything_is_written(
    shop, choose, is_caught, caplog
):
    def view():
        try:
            session = choose(shop)
            session.add(shop.db.Order(note="one"))
            session.commit()
        except WorkRefused:
            if not is_caught:
                raise
        return "made", 201

    shop.serve(view)

    answers = [shop.send() for _ in range(2)]

    assert [answer.status_code for answer in answers] == [500, 500]
    assert (shop.notes, shop.records) == ([], 0)
    assert "guard='lease'" in caplog.text
    assert shop.engine.pool.checkedout() == 0


def test_a_session_that_commits_every_statement_since_before_the_claim_is_refused(make_shop, caplog):
    shop = make_shop()

    @shop.app.before_request
    def choose():
        chooses_it_for_its_connection(shop)

    shop.begin()
    shop.serve(lambda: count_visit_and_order(shop))

    answers = [shop.send() for _ in range(2)]

    assert [answer.status_code for answer in answers] == [500, 500]
    assert (shop.notes, shop.records) == ([], 0)
    assert "AUTOCOMMIT" in caplog.text


# -- what the role has set ---------------------------------------------------------------------------------------------


@pytest.fixture
def committed_with(make_postgres_shop):
    """`committed_with(shop)`: how the commits of records were made, as the server saw it in the middle of them."""

    def prepare(shop):
        shop.sql("CREATE TABLE noted (setting text)")
        shop.sql(
            "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN INSERT INTO noted VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$"
        )
        shop.sql(
            "CREATE CONSTRAINT TRIGGER noting AFTER INSERT OR UPDATE ON idempotency_record"
            " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note()"
        )
        return lambda: [setting for (setting,) in shop.sql("SELECT setting FROM noted")]

    return prepare


@pytest.mark.parametrize(("chosen", "wanted"), [("off", "on"), ("on", "on"), ("local", "local")])
def test_an_answer_that_is_given_is_on_the_disk_whatever_the_role_has_set(
    make_postgres_shop, role_has, committed_with, chosen, wanted
):
    role_has(synchronous_commit=chosen)
    shop = make_postgres_shop(engine={"pool_size": 1, "max_overflow": 0})
    shop.begin()
    noted = committed_with(shop)
    shop.serve(lambda: count_visit_and_order(shop))

    shop.send()

    assert noted() == [wanted]
    with shop.engine.connect() as connection:
        assert connection.scalar(text("SHOW synchronous_commit")) == chosen


def test_an_answer_in_the_place_of_an_expired_one_is_on_the_disk_too(make_postgres_shop, role_has, committed_with):
    role_has(synchronous_commit="off")
    shop = make_postgres_shop()
    shop.begin()
    shop.serve(lambda: count_visit_and_order(shop))
    shop.send()
    shop.sql("UPDATE idempotency_record SET expires_at = clock_timestamp() - interval '1 s'")
    noted = committed_with(shop)

    answer = shop.send()

    assert (answer.status_code, REPLAYED in answer.headers) == (201, False)
    assert noted() == ["on"]
    assert shop.notes == ["Ada", "Ada"]


@pytest.mark.parametrize("in_flight", ["conflict", "wait"])
@pytest.mark.parametrize("setting", ["lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"])
def test_the_time_outs_of_the_role_hold_in_the_view(make_postgres_shop, role_has, setting, in_flight):
    role_has(**{setting: "1234ms"})
    shop = make_postgres_shop(in_flight=in_flight)
    shop.begin()

    def view():
        count_visit_and_order(shop)
        return shop.db.session.scalar(text(f"SHOW {setting}")), 201

    shop.serve(view)

    first, second = shop.send(), shop.send()

    assert first.text == second.text == "1234ms"
    assert REPLAYED in second.headers


def test_a_role_that_has_no_bound_gets_the_lease_as_one_for_idle_views(make_postgres_shop):
    shop = make_postgres_shop(lease=7)
    shop.begin()
    shop.serve(lambda: (shop.db.session.scalar(text("SHOW idle_in_transaction_session_timeout")), 201))

    answer = shop.send()

    assert answer.text == "7s"


def test_the_roles_bound_for_locks_does_not_cut_the_wait_for_another_short(make_postgres_shop, role_has):
    role_has(lock_timeout="100ms")
    shop, gate = make_postgres_shop(in_flight="wait"), Gate()
    shop.begin()

    def view():
        gate.stop()
        return count_visit_and_order(shop)

    shop.serve(view)
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(shop.send)
        gate.wait_for_view()
        waiting = pool.submit(shop.send)
        eventually(lambda: waiters(shop, "300 ms") == 1, what="a duplicate that has waited three times as long")
        gate.open()
        first, second = running.result(30), waiting.result(30)

    assert (first.status_code, second.status_code) == (201, 201)
    assert REPLAYED in second.headers
    assert shop.notes == ["Ada"]


def test_a_role_that_bounds_every_statement_turns_a_wait_into_a_refusal(make_postgres_shop, role_has):
    role_has(statement_timeout="300ms")
    shop, gate = make_postgres_shop(in_flight="wait"), Gate()
    shop.begin()

    def view():
        gate.stop()
        return count_visit_and_order(shop)

    shop.serve(view)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(shop.send)
        gate.wait_for_view()

        second = shop.send()
        gate.open()
        first = running.result(30)

    assert (first.status_code, second.status_code) == (201, 409)
    assert shop.notes == ["Ada"]
    assert shop.engine.pool.checkedout() == 0
