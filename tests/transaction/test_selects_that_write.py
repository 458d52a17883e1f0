"""A SELECT may write: it calls a function of the database's, or changes rows in a CTE. Beside another session it counts
as writing, so the rows are those of the same request without a key, or the request fails and leaves nothing."""

import pytest
from sqlalchemy import bindparam, func, insert, literal_column, select
from sqlalchemy.orm import column_property

from flask_idempotency.stores.words import Intent, intent_of
from tests.transaction.conftest import make_database
from tests.transaction.programs import PLACE_ORDER
from tests.transaction.test_several_sessions import add, read


@pytest.fixture
def shop(make_postgres_shop):
    """A shop on PostgreSQL: in SQLite no SELECT writes."""
    shop = make_postgres_shop()
    shop.begin()
    shop.sql(PLACE_ORDER)
    return shop


def calls_a_function(shop, session, note):
    session.scalar(select(func.place_order(note)))


def calls_a_function_by_its_full_name(shop, session, note):
    session.execute(select(func.public.place_order(note))).all()


def calls_a_function_in_a_condition(shop, session, note):
    session.scalars(select(shop.db.User).where(shop.db.User.id == func.place_order(note))).all()


def reads_from_a_function(shop, session, note):
    session.scalars(select(func.place_order(note).column_valued("id"))).all()


def calls_a_function_in_its_own_words(shop, session, note):
    session.scalar(select(literal_column(f"place_order ('{note}')")))


def calls_a_function_in_quotes(shop, session, note):
    session.scalar(select(literal_column(f"\"place_order\"('{note}')")))


def uses_the_older_query(shop, session, note):
    session.query(func.place_order(note)).all()


def inserts_in_a_cte(shop, session, note):
    orders = shop.db.Order.__table__
    made = insert(orders).values(note=note).returning(orders.c.id).cte("made")
    session.scalar(select(made.c.id))


def calls_a_function_for_several_values(shop, session, note):
    session.execute(select(func.place_order(bindparam("note"))), [{"note": note}, {"note": f"{note}, again"}])


WAYS = [
    calls_a_function,
    calls_a_function_by_its_full_name,
    calls_a_function_in_a_condition,
    reads_from_a_function,
    calls_a_function_in_its_own_words,
    calls_a_function_in_quotes,
    uses_the_older_query,
    inserts_in_a_cte,
    calls_a_function_for_several_values,
]
ways = pytest.mark.parametrize("write", WAYS, ids=lambda way: way.__name__)


def gives_up_behind_a_commit_of_the_other(shop, write, mine, other):
    write(shop, mine, "in vain")
    add(shop, other, "audit")
    other.commit()
    mine.rollback()


def commits_what_it_wrote_among_what_the_other_takes_back(shop, write, mine, other):
    read(shop, mine)
    add(shop, other, "in vain")
    write(shop, mine, "mine")
    other.rollback()
    mine.commit()


def commits_what_it_wrote_where_the_other_has_read_before(shop, write, mine, other):
    read(shop, other)
    read(shop, mine)
    write(shop, mine, "mine")
    other.rollback()
    mine.commit()


def takes_a_savepoint_back_behind_a_commit_of_the_other(shop, write, mine, other):
    inner = mine.begin_nested()
    write(shop, mine, "in vain")
    write(shop, other, "audit")
    other.commit()
    inner.rollback()
    mine.commit()


def never_commits_what_it_wrote_before_the_other(shop, write, mine, other):
    write(shop, mine, "in vain")
    write(shop, other, "audit")
    other.commit()


STORIES = [
    gives_up_behind_a_commit_of_the_other,
    commits_what_it_wrote_among_what_the_other_takes_back,
    commits_what_it_wrote_where_the_other_has_read_before,
    takes_a_savepoint_back_behind_a_commit_of_the_other,
    never_commits_what_it_wrote_before_the_other,
]


@ways
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_what_a_select_has_written_is_undone_and_kept_as_without_a_key_or_the_request_fails(shop, story, write):
    def view():
        with shop.db.session.session_factory() as other:
            story(shop, write, shop.db.session(), other)
        return "answered", 201

    shop.serve(view)

    unprotected, kept = shop.send(key=None), shop.notes
    shop.sql("DELETE FROM orders")
    answer = shop.send()

    assert unprotected.status_code == 201
    assert (answer.status_code, shop.notes) in [(201, kept), (500, [])]


def test_a_model_with_a_column_that_writes_is_not_taken_for_one_that_reads(make_postgres_shop):
    db = make_database()
    db.User.placed = column_property(func.place_order("in vain"))
    shop = make_postgres_shop(db=db)
    shop.begin()
    shop.sql(PLACE_ORDER)

    @shop.serve
    def view():
        mine, other = db.session(), db.session.session_factory()
        mine.get(db.User, 1)
        add(shop, other, "audit")
        other.commit()
        mine.rollback()
        return "answered", 201

    answer = shop.send()

    assert (answer.status_code, shop.notes) == (500, [])


def looks_up_a_user(shop, session):
    session.scalars(select(shop.db.User).where(shop.db.User.name.in_(["Ada", "Bob"]), shop.db.User.id > 0)).all()


def counts(shop, session):
    session.scalar(select(func.count(shop.db.Order.id), func.coalesce(func.max(func.lower(shop.db.Order.note)), "")))


def locks(shop, session):
    session.scalars(select(shop.db.User).with_for_update()).all()


def reads_through_a_subquery(shop, session):
    inner = select(shop.db.Order.id).order_by(func.now()).limit(1).subquery()
    common = select(shop.db.User.id).cte("common")
    session.scalars(
        select(shop.db.Order).where(shop.db.Order.id.in_(select(inner.c.id)), shop.db.Order.id.in_(select(common.c.id)))
    ).all()


def takes_a_number(shop, session):
    session.scalar(select(func.nextval("orders_id_seq")))


READS = [looks_up_a_user, counts, locks, reads_through_a_subquery, takes_a_number]


@pytest.mark.parametrize("look", READS, ids=lambda each: each.__name__)
def test_a_select_that_only_reads_is_no_reason_to_refuse_what_two_sessions_do(shop, look):
    @shop.serve
    def view():
        mine, other = shop.db.session(), shop.db.session.session_factory()
        look(shop, other)
        add(shop, mine, "mine")
        look(shop, other)
        add(shop, mine, "more")
        other.rollback()
        mine.commit()
        return "made", 201

    answer = shop.send()

    assert (answer.status_code, shop.notes) == (201, ["mine", "more"])


@pytest.mark.parametrize(
    ("statement", "intent"),
    [
        ("SELECT id FROM orders WHERE note = %(note_1)s AND (id > 1 OR id IN (2, 3))", Intent.READ),
        ("(SELECT count(*) FROM orders) UNION (VALUES (1))", Intent.READ),
        ("WITH made AS (SELECT 1) SELECT CAST(id AS VARCHAR(9)) FROM made FOR NO KEY UPDATE", Intent.READ),
        ("SELECT deleted, updated FROM orders;\n", Intent.READ),
        ("SELECT id FROM orders WHERE id IN (" + "1, " * 5000 + "1)", Intent.READ),
        ("SELECT Place_Order(%(note)s)", Intent.ASK),
        ("SELECT shop.count(1)", Intent.ASK),
        ("SELECT * FROM (SELECT 1) AS a, place (1)", Intent.ASK),
        ("EXPLAIN SELECT 1", Intent.ASK),
        ("EXPLAIN ANALYZE INSERT INTO orders DEFAULT VALUES", Intent.CHANGE),
        ("WITH made AS (UPDATE orders SET note = '' RETURNING id) SELECT id FROM made", Intent.CHANGE),
        ("SELECT 1; DROP TABLE orders", Intent.CHANGE),
        ("SELECT 1 INTO copied", Intent.CHANGE),
        ("CALL place_order()", Intent.CHANGE),
    ],
)
def test_a_statement_is_taken_for_what_its_words_say(statement, intent):
    assert intent_of(statement) is intent


def test_what_a_select_has_inserted_in_a_cte_and_nobody_commits_is_no_success(shop):
    shop.serve(lambda: inserts_in_a_cte(shop, shop.db.session(), "left") or ("answered", 201))

    answers = [shop.send() for _ in range(2)]

    assert ([answer.status_code for answer in answers], shop.notes, shop.records) == ([500, 500], [], 0)


def test_an_apps_own_function_is_not_taken_for_a_harmless_one_of_the_database():
    assert intent_of("SELECT log('paid')") is Intent.ASK
    assert intent_of("SELECT count(*), lower(name) FROM orders") is Intent.READ
