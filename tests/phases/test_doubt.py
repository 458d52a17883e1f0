"""A COMMIT whose end nobody told, in a phase and around an effect: the truth is found out, or nobody goes on."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from flask_idempotency.stores import pipeline
from flask_idempotency.stores import postgres as module
from tests.fixtures.gateway import Gateway
from tests.fixtures.postgres import PostgresServer
from tests.fixtures.processes import eventually
from tests.fixtures.proxy import Proxy
from tests.phases.faults import (
    ONE,
    Books,
    Found,
    Shop,
    id_of,
    is_first,
    is_replay,
    make_tables,
    opened,
    refusal,
)
from tests.stores.others import meanwhile
from tests.transaction.test_doubt import cancel_the_wait, ghost, mortal, waiting_for_ghost

__all__ = ["ghost", "mortal"]  # fixtures

KEY = "order-1"
UNKNOWN, IN_FLIGHT = (503, "outcome-unknown"), (409, "request-in-flight")
PHASES = ["order_placed", "order_paid", "receipt_written"]
# By the point of an effect's checkpoint, a checkout that commits it by itself.
CHECKPOINTS = {"charge sent": "/checkout", "charge done": "/asking-checkout"}
ALL_DONE = ["order_placed done", "charge done", "order_paid done", "receipt_written done"]
PLACED = Found(1, 0, 0, 0, "running", 0)


@pytest.fixture
def books(postgres_url: str, gateway: Gateway) -> Books:
    make_tables(postgres_url)
    return Books(postgres_url, gateway)


@pytest.fixture
def near(books: Books) -> Iterator[Shop]:
    """A shop beside the proxy, for what others do."""
    with opened(books.url, books.gateway) as shop:
        yield shop


@pytest.fixture
def shop(books: Books, proxy: Proxy) -> Iterator[Shop]:
    """A shop behind the proxy, warm."""
    with opened(proxy.through(books.url), books.gateway) as shop:
        assert is_first(shop.order("warm"))
        yield shop


@pytest.fixture
def looks(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What the shop has found out about a COMMIT in doubt: where the record stood."""
    return listen(shop, lambda: None, monkeypatch)


def nothing() -> None:
    """Do it."""


def listen(
    shop: Shop, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch, afterwards: Callable[[], object] = nothing
) -> list[object]:
    """Have something done just before the shop asks what became of its COMMIT, and after; give what it learns."""
    store = shop.app.extensions["idempotency"].store.inner
    position, found = store.position, []

    def look(claim: Any) -> Any:
        act()
        found.append("began")
        try:
            found.append(position(claim))
        finally:
            afterwards()
        return found[-1]

    monkeypatch.setattr(store, "position", look)
    return found


def seals(name: str) -> Callable[[bytes], bool]:
    """Know the message that commits a phase, by the name of its checkpoint."""
    return lambda piece: b"COMMIT" in piece and name.encode() in piece


def marks(point: str) -> Callable[[bytes], bool]:
    """Know the message that writes an effect's checkpoint, by the point that it moves the record to."""
    return lambda piece: point.encode() in piece and b"UPDATE" not in piece


# -- the connection is reset: a phase --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PHASES)
def test_a_phase_whose_commit_lost_its_answer_is_found_to_be_done_and_the_run_goes_on(shop, proxy, books, looks, name):
    cut = proxy.cut_after(seals(name))

    answer = shop.order(KEY)

    assert cut.wait(5)
    assert looks == ["began", name]
    assert is_first(answer)
    assert books.of(KEY) == ONE
    assert books.progress(KEY) == ALL_DONE
    assert len(books.gateway.requests(intent=KEY)) == 1
    again = shop.order(KEY)
    assert is_replay(again)
    assert again.data == answer.data


@pytest.mark.parametrize("name", PHASES)
def test_a_phase_whose_commit_never_arrived_is_done_again(shop, proxy, books, looks, name):
    cut = proxy.cut_before(seals(name))

    answer = shop.order(KEY)

    assert cut.wait(5)
    assert looks[0] == "began"
    assert looks[1] != name
    assert is_first(answer)
    assert books.of(KEY) == ONE
    assert books.progress(KEY) == ALL_DONE  # the answer that went with a lost phase goes with it again
    assert len(books.gateway.requests(intent=KEY)) == 1
    assert is_replay(shop.order(KEY))


@pytest.mark.parametrize("arrives", [True, False], ids=["arrived", "never arrived"])
def test_a_phase_in_doubt_that_was_taken_over_meanwhile_is_answered_like_a_duplicate(
    shop, near, proxy, books, monkeypatch, arrives
):
    others = []

    def overtake() -> None:
        eventually(lambda: books.lapse(KEY), what="the end of the lost transaction")
        others.append(near.order(KEY))

    listen(shop, overtake, monkeypatch)
    (proxy.cut_after if arrives else proxy.cut_before)(seals("order_paid"))

    answer = shop.order(KEY)

    assert is_first(others[0])
    assert is_replay(answer)
    assert answer.data == others[0].data
    assert books.of(KEY) == ONE


@contextlib.contextmanager
def holding_the_row(books: Books) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    """`hold()`: be a transaction that has the record's row, as the one in doubt may still have it; `let_go()`."""
    with psycopg.connect(books.url.replace("+psycopg", "")) as connection:

        def hold() -> None:
            # It waits until the lost transaction has let go.
            connection.execute("SELECT 1 FROM idempotency_record WHERE id = %s FOR UPDATE", [id_of(KEY)])

        yield hold, connection.rollback


def test_while_a_phase_may_still_be_committed_nobody_goes_on_and_the_lease_is_left(
    shop, near, proxy, books, monkeypatch
):
    proxy.cut_before(seals("order_paid"))
    with holding_the_row(books) as (hold, let_go):
        looks = listen(shop, hold, monkeypatch, let_go)

        answer = shop.order(KEY)

    assert refusal(answer) == UNKNOWN
    assert looks == ["began"]
    assert books.record(KEY).is_held  # whoever comes next waits until it is certain
    assert refusal(near.order(KEY)) == IN_FLIGHT
    assert books.lapse(KEY)
    assert is_first(near.order(KEY))
    assert books.of(KEY) == ONE


# -- the connection is reset: an effect's checkpoints, the claim, the completion -------------------------------------


@pytest.fixture
def statements(shop: Shop) -> list[str]:
    """What the shop's store has sent, by the point that it was to move a record to."""
    store, points = shop.app.extensions["idempotency"].store.inner, []
    execute = store._execute

    def listen(connection: Any, messages: Any) -> Any:
        points.extend(str(values["point"]) for _, values in messages[:1] if "progress" in values)
        return execute(connection, messages)

    store._execute = listen
    return points


@pytest.mark.parametrize(("point", "path"), CHECKPOINTS.items(), ids=CHECKPOINTS)
@pytest.mark.parametrize("arrives", [True, False], ids=["arrived", "never arrived"])
def test_a_checkpoint_of_an_effect_in_doubt_is_written_once_and_the_run_goes_on(
    shop, proxy, books, statements, point, path, arrives
):
    cut = (proxy.cut_after if arrives else proxy.cut_before)(marks(point))

    answer = shop.order(KEY, path=path)

    assert cut.wait(5)
    assert statements.count(point) == 2
    assert is_first(answer)
    assert books.of(KEY) == ONE
    assert len(books.gateway.requests(intent=KEY)) == 1
    assert books.progress(KEY) == ALL_DONE


@pytest.mark.parametrize(("point", "path"), CHECKPOINTS.items(), ids=CHECKPOINTS)
@pytest.mark.parametrize("arrives", [True, False], ids=["arrived", "never arrived"])
def test_a_checkpoint_in_doubt_and_a_store_that_is_gone_leave_the_outcome_unknown(
    shop, near, proxy, books, monkeypatch, point, path, arrives
):
    monkeypatch.setattr(module, "CONNECT_TIMEOUT", 1)
    is_mark = marks(point)

    def and_nothing_else(piece: bytes) -> bool:
        if not is_mark(piece):
            return False
        proxy._loop.create_task(proxy._refuse_new())
        return True

    monkeypatch.setattr(Proxy, "_refuse_new", stop_listening, raising=False)
    cut = (proxy.cut_after if arrives else proxy.cut_before)(and_nothing_else)

    answer = shop.order(KEY, path=path)
    assert cut.wait(5)
    left = books.of(KEY)
    proxy.pass_through()
    assert books.lapse(KEY)
    final = near.order(KEY, path=path)

    assert refusal(answer) == UNKNOWN
    assert left == Found(1, 0, 0, 0, "running", 1 if point == "charge done" else 0)
    assert is_first(final)
    assert books.of(KEY) == ONE


async def stop_listening(proxy: Proxy) -> None:
    """Refuse new connections, and leave those that are open."""
    if proxy._listener is not None:
        proxy._listener.close()
        proxy._listener = None


@pytest.mark.parametrize("arrives", [True, False], ids=["arrived", "never arrived"])
@pytest.mark.parametrize("what", [b"everyone", b"j["], ids=["claim", "completion"])
def test_a_claim_or_completion_in_doubt_is_asked_for_again(shop, proxy, books, what, arrives):
    scope = {b"everyone": id_of(KEY)}.get(what, what)  # j stands for a JSON answer
    cut = (proxy.cut_after if arrives else proxy.cut_before)(lambda piece: scope in piece)

    answer = shop.order(KEY)

    assert cut.wait(5)
    assert is_first(answer)
    assert books.of(KEY) == ONE
    assert is_replay(shop.order(KEY))


# -- a standby that does not answer ----------------------------------------------------------------------------------


@pytest.fixture
def mortal_books(mortal: PostgresServer, gateway: Gateway) -> Books:  # it is the fixture of that name
    url = mortal.url(mortal.create_database())
    make_tables(url)
    return Books(url, gateway)


def haunt(shop: Shop, ghost: Callable[[bool], None], seam: str) -> threading.Event:  # as above
    """Have commits wait for a standby from a seam on; the event is set when they do."""
    haunted = threading.Event()

    def act(at: str) -> None:
        if at == seam:
            ghost(True)
            haunted.set()

    shop.app.config["MEANWHILE"] = act
    return haunted


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait for long."""
    monkeypatch.setattr(pipeline, "ANSWER_TIMEOUT", 1.0)


@pytest.mark.parametrize("seam", ["order_placed.before_commit", "order_paid.before_commit"])
def test_a_phase_cut_off_while_commit_waits_for_a_standby_is_known_to_nobody(
    mortal,
    mortal_books,
    ghost,
    hurried,
    seam,  # as above
):
    with (
        Proxy(mortal.host, mortal.port) as proxy,
        opened(proxy.through(mortal_books.url), mortal_books.gateway) as shop,
        opened(mortal_books.url, mortal_books.gateway) as near,
    ):
        shop.order("warm")
        near.order("warm")
        haunted = haunt(shop, ghost, seam)

        with meanwhile(lambda: shop.order(KEY)) as given:
            assert haunted.wait(10)
            eventually(lambda: waiting_for_ghost(mortal), what="a COMMIT that waits")
            proxy.cut()
        seen_meanwhile, duplicate = mortal_books.of(KEY), near.order(KEY)
        ghost(False)
        eventually(lambda: mortal_books.lapse(KEY), what="the end of the lost transaction")
        is_held = mortal_books.record(KEY).is_held
        final = near.order(KEY)

        assert refusal(given[0]) == UNKNOWN
        # A read proves nothing: the phase is not to be seen, and it is committed later.
        assert (seen_meanwhile.orders, seen_meanwhile.payments) == ((0, 0) if "placed" in seam else (1, 0))
        assert refusal(duplicate) == IN_FLIGHT
        assert is_held
        assert is_first(final)
        assert mortal_books.of(KEY) == ONE


def test_a_phase_that_gave_up_waiting_for_its_standby_is_looked_for_before_it_counts(
    mortal,
    mortal_books,
    ghost,
    monkeypatch,  # as above
):
    with opened(mortal_books.url, mortal_books.gateway) as shop:
        shop.order("warm")
        looks = listen(shop, lambda: ghost(False), monkeypatch)
        haunted = haunt(shop, ghost, "order_paid.before_commit")

        with meanwhile(lambda: shop.order(KEY)) as given:
            assert haunted.wait(10)
            cancel_the_wait(mortal)

        assert looks == ["began", "order_paid"]
        assert is_first(given[0])
        assert mortal_books.of(KEY) == ONE
        assert is_replay(shop.order(KEY))


def test_a_phase_that_gave_up_waiting_and_cannot_be_looked_for_is_unknown(
    mortal,
    mortal_books,
    ghost,
    monkeypatch,
    hurried,  # as above
):
    with opened(mortal_books.url, mortal_books.gateway) as shop, holding_the_row(mortal_books) as (hold, let_go):
        shop.order("warm")
        looks = listen(shop, hold, monkeypatch, let_go)
        haunted = haunt(shop, ghost, "order_paid.before_commit")

        with meanwhile(lambda: shop.order(KEY)) as given:
            assert haunted.wait(10)
            cancel_the_wait(mortal)
        ghost(False)

        assert refusal(given[0]) == UNKNOWN
        assert looks == ["began"]
        assert mortal_books.record(KEY).is_held
    eventually(lambda: mortal_books.lapse(KEY))
    with opened(mortal_books.url, mortal_books.gateway) as shop:
        assert is_first(shop.order(KEY))
        assert mortal_books.of(KEY) == ONE


@pytest.mark.parametrize(
    ("seam", "path"),
    [("order_placed.after_commit", "/checkout"), ("charge.answered", "/asking-checkout")],
    ids=CHECKPOINTS,
)
def test_a_checkpoint_whose_wait_for_a_standby_was_cancelled_is_no_success(
    mortal,
    mortal_books,
    ghost,
    hurried,
    seam,
    path,  # as above
):
    with opened(mortal_books.url, mortal_books.gateway) as shop:
        shop.order("warm")
        haunted = haunt(shop, ghost, seam)

        with meanwhile(lambda: shop.order(KEY, path=path)) as given:
            assert haunted.wait(10)
            cancel_the_wait(mortal)
        charged = len(mortal_books.gateway.charges(intent=KEY))
        ghost(False)
        shop.app.config["MEANWHILE"] = None
        eventually(lambda: mortal_books.lapse(KEY))
        final = shop.order(KEY, path=path)

        assert refusal(given[0]) == UNKNOWN
        assert charged == (seam == "charge.answered")  # nothing is sent on a checkpoint that a failover may undo
        assert is_first(final)
        assert mortal_books.of(KEY) == ONE
