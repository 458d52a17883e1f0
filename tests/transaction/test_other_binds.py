"""Only the default database takes part in a request's transaction: what a session does on other binds stays its own."""

import pytest
import sqlalchemy
from flask import g
from sqlalchemy import select, text
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from flask_idempotency import idempotent
from flask_idempotency.errors import IdempotencyError
from tests.transaction.conftest import make_database


class Audited:
    """Makes shops with a second bind, whose table ``audit`` has an engine of its own."""

    def __init__(self, make_shop, url):
        self._make_shop, self._url = make_shop, url
        self._outside = sqlalchemy.create_engine(url, poolclass=NullPool)

    def __call__(self, before=None, **options):
        """Make one whose hook does something before the claim."""
        db = make_database()

        class Audit(db.Model):
            __bind_key__ = "audit"
            id = db.Column(db.Integer, primary_key=True)
            entry = db.Column(db.String)

        db.Audit = Audit
        shop = self._make_shop(db=db, binds={"audit": self._url}, **options)
        if before is not None:
            shop.app.before_request(lambda: before(shop))
        shop.begin()
        shop.entries = self.entries
        return shop

    def entries(self):
        with self._outside.connect() as connection:
            return list(connection.scalars(text("SELECT entry FROM audit ORDER BY id")))


@pytest.fixture
def make_audited_shop(make_shop, tmp_path):
    return Audited(make_shop, f"sqlite:///{tmp_path / 'audit.db'}")


def test_of_several_binds_only_the_default_is_joined(make_audited_shop):
    shop = make_audited_shop()

    def view():
        shop.db.session.add_all([shop.db.Order(note="order"), shop.db.Audit(entry="audit")])
        shop.db.session.commit()
        shop.seen = (shop.notes, shop.entries())
        raise LookupError

    shop.serve(view)

    answer = shop.send()

    assert answer.status_code == 500
    assert shop.seen == ([], ["audit"])
    assert (shop.notes, shop.entries()) == ([], ["audit"])


def test_with_several_binds_a_success_is_in_all_of_them_once(make_audited_shop):
    shop = make_audited_shop()

    def view():
        shop.db.session.add_all([shop.db.Order(note="order"), shop.db.Audit(entry="audit")])
        shop.db.session.commit()
        shop.db.session.add_all([shop.db.Order(note="goes"), shop.db.Audit(entry="goes")])
        shop.db.session.flush()
        shop.db.session.rollback()
        return "made", 201

    shop.serve(view)

    first, second = shop.send(), shop.send()

    assert (first.status_code, second.status_code) == (201, 201)
    assert (shop.notes, shop.entries()) == (["order"], ["audit"])


# -- before the claim --------------------------------------------------------------------------------------------------


def from_the_app(shop):
    return shop.db.session.session_factory()


def by_tables(shop):
    """A session that has no bind of its own, and finds one for each model."""
    return Session(binds={shop.db.Order: shop.db.engine, shop.db.Audit: shop.db.engines["audit"]})


def open_two_sessions(shop, make_session):
    """Read with two sessions; the second also writes to the other bind, and commits nothing."""
    shop.db.session.scalars(select(shop.db.User)).all()
    g.other = make_session(shop)
    g.other.scalars(select(shop.db.Order)).all()
    g.other.add(shop.db.Audit(entry="before"))
    g.other.flush()


def commits(shop):
    g.other.add(shop.db.Order(note="view's"))
    g.other.commit()


def commits_nothing_here(_):
    g.other.commit()


def gives_up(shop):
    g.other.add(shop.db.Order(note="in vain"))
    g.other.flush()
    g.other.rollback()


@pytest.mark.parametrize("make_session", [from_the_app, by_tables])
@pytest.mark.parametrize(
    ("end", "left"),
    [(commits, (["view's"], ["before"])), (commits_nothing_here, ([], ["before"])), (gives_up, ([], []))],
)
@pytest.mark.parametrize("key", ["order-1", None], ids=["with a key", "without a key"])
def test_what_a_second_session_has_written_elsewhere_before_the_claim_is_kept_or_undone_by_the_view(
    make_audited_shop, make_session, end, left, key
):
    shop = make_audited_shop(before=lambda shop: open_two_sessions(shop, make_session))

    def view():
        end(shop)
        g.other.close()
        return "made", 201

    shop.serve(idempotent(view))

    assert shop.send(key=key).status_code == 201
    assert (shop.notes, shop.entries()) == left


@pytest.mark.parametrize("key", ["order-1", None], ids=["with a key", "without a key"])
def test_a_session_alone_that_finds_its_bind_by_table_takes_part(make_audited_shop, key):
    def open_session(shop):
        g.other = by_tables(shop)
        g.other.scalars(select(shop.db.Order)).all()
        g.other.add(shop.db.Audit(entry="before"))
        g.other.flush()

    shop = make_audited_shop(before=open_session)

    def view():
        commits(shop)
        g.other.close()
        return "made", 201

    shop.serve(idempotent(view))

    assert shop.send(key=key).status_code == 201
    assert (shop.notes, shop.entries()) == (["view's"], ["before"])


def test_a_second_session_with_a_savepoint_open_on_two_binds_is_refused_and_leaves_nothing(make_audited_shop):
    def open_in_savepoint(shop):
        shop.db.session.scalars(select(shop.db.User)).all()
        g.other = from_the_app(shop)
        g.other.scalars(select(shop.db.Order)).all()
        g.other.begin_nested()
        g.other.add(shop.db.Audit(entry="before"))
        g.other.flush()

    shop = make_audited_shop(before=open_in_savepoint)
    shop.app.testing = True
    shop.serve(idempotent(lambda: ("made", 201)))

    with pytest.raises(IdempotencyError, match=r"^Two sessions were in use when @idempotent claimed this request"):
        shop.send()
    assert (shop.notes, shop.entries(), shop.records) == ([], [], 0)


# -- after the answer --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["order-1", None], ids=["with a key", "without a key"])
def test_what_was_written_elsewhere_can_be_committed_when_the_request_is_torn_down(make_audited_shop, key):
    shop = make_audited_shop()
    shop.app.teardown_request(lambda _: shop.db.session.commit())

    def view():
        shop.db.session.add(shop.db.Order(note="order"))
        shop.db.session.commit()
        shop.db.session.scalars(select(shop.db.Order)).all()
        shop.db.session.add(shop.db.Audit(entry="late"))
        shop.db.session.flush()
        return "made", 201

    shop.serve(idempotent(view))

    assert shop.send(key=key).status_code == 201
    assert (shop.notes, shop.entries()) == (["order"], ["late"])
