"""What each lab's code must do. A check's docstring is the promise; it raises Broken where the promise is broken."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

from docs.workshop.stage import LEASE, ORDER, Answer, Stage, stage

HOUR: Final = 3600
ANOTHER = {"tea": "Darjeeling", "cups": 6}
CREATED = 201

Check = Callable[[Path], None]


class Broken(Exception):
    """A promise is broken. The argument says how, and the picture shows it."""

    def __init__(self, how: str, on: Stage) -> None:
        super().__init__(how)
        self.picture = on.timeline.draw()


def retry(code: Path) -> None:
    """A retry gets the first answer, and places no second order."""
    with stage(code) as shop:
        first, second = shop.send("Ada"), shop.send("Ada's retry")
        expect(shop, first.status == CREATED, f"The order was answered with {first.status}.")
        expect(shop, second == first, "The retry was told something else.")
        expect_orders(shop, 1)


def other_order(code: Path) -> None:
    """Another order under the same key is refused with 422: it was never placed, and its client must know."""
    with stage(code) as shop:
        shop.send("Ada")
        second = shop.send("Ada", ANOTHER)
        expect(shop, second.status == 422, f"Six cups of Darjeeling were ordered, and answered with {second.status}.")
        expect_orders(shop, 1)


def same_order(code: Path) -> None:
    """The same order is a retry, however its JSON is written."""
    with stage(code) as shop:
        first = shop.send("Ada")
        second = shop.send("Ada", dict(reversed(ORDER.items())))
        expect(shop, second == first, f"The same order, written otherwise, was answered with {second.status}.")


def other_customer(code: Path) -> None:
    """Two customers may choose the same key: each gets an order."""
    with stage(code) as shop:
        shop.send("Ada")
        grace = shop.send("Grace", account="grace")
        expect(shop, grace.status == CREATED, f"Grace's order was answered with {grace.status}.")
        expect_orders(shop, 2)


def copies(code: Path) -> None:
    """Of two copies at the same time one places the order, wherever the first is when the second comes."""
    for position in positions(code):
        with stage(code) as shop:
            told: list[Answer] = []
            first = shop.stop_before(position, "Ada", partial(_copy, shop, told))
            expect_orders(shop, 1)
            expect(shop, all(answer.status != 500 for answer in (first, *told)), "The server has failed.")
            expect_one_answer(shop, [first, *told, shop.insist("Ada's retry")])


def killed(code: Path) -> None:
    """If a worker is killed, wherever it is, a retry gets an answer, and there is one order."""
    for position in positions(code):
        with stage(code) as shop:
            shop.kill_before(position, "Ada")
            answer = shop.insist("Ada's retry")
            expect(shop, answer.status == CREATED, f"However often she asks, Ada is told {answer.status}.")
            expect_orders(shop, 1)


def offline(code: Path) -> None:
    """A client that was offline for twenty hours gets its answer."""
    with stage(code) as shop:
        first = shop.send("Ada")
        shop.let_pass(20 * HOUR)
        expect(shop, shop.send("Ada's retry") == first, "The retry was told something else.")
        expect_orders(shop, 1)


def tomorrow(code: Path) -> None:
    """After a day a key is new, even if nobody has tidied up: tills number their orders from 1 each morning."""
    with stage(code) as shop:
        shop.send("The till", key="1")
        shop.let_pass(25 * HOUR)
        second = shop.send("The till", key="1")
        expect(shop, second.status == CREATED, f"Today's order was answered with {second.status}.")
        expect_orders(shop, 2)


def late(code: Path) -> None:
    """A worker that wakes up after its lease, wherever it was, changes nothing that the next one has done."""
    for position in positions(code):
        with stage(code) as shop:
            told: list[Answer] = []
            sleeper = shop.stop_before(position, "Ada", partial(_take_over, shop, told))
            told += [sleeper, shop.insist("Ada's retry")]
            expect_orders(shop, 1)
            expect_one_answer(shop, told)


def charged(code: Path) -> None:
    """If a worker is killed, wherever it is, the customer is charged once."""
    for position in positions(code):
        with stage(code) as shop:
            shop.kill_before(position, "Ada")
            shop.insist("Ada's retry")
            expect_charges(shop)


def lost(code: Path) -> None:
    """If the gateway's answer is lost, the customer is charged once, and gets the tea."""
    with stage(code) as shop:
        shop.gateway.loses_next_answer = True
        answer = shop.insist("Ada")
        expect(shop, answer.status == CREATED, f"However often she asks, Ada is told {answer.status}.")
        expect_charges(shop)


def _copy(shop: Stage, told: list[Answer]) -> None:
    told.append(shop.send("Ada's copy"))


def _take_over(shop: Stage, told: list[Answer]) -> None:
    shop.let_pass(LEASE)
    told.append(shop.send("Ada's retry"))


def positions(code: Path) -> range:
    """Count the lines that a first request executes."""
    with stage(code) as shop:
        return shop.positions()


def expect(shop: Stage, holds: bool, otherwise: str) -> None:
    """Raise Broken unless something holds."""
    if not holds:
        raise Broken(otherwise, shop)


def expect_orders(shop: Stage, wanted: int) -> None:
    """Raise Broken unless there are so many orders."""
    found = shop.count_orders()
    expect(shop, found == wanted, f"Orders in the database: {found}. There should be {wanted}.")


def expect_one_answer(shop: Stage, told: Iterable[Answer]) -> None:
    """Raise Broken if clients were told different things in the end."""
    final = {answer.body for answer in told if answer.is_final}
    expect(shop, len(final) == 1, "The clients were told different things.")


def expect_charges(shop: Stage) -> None:
    """Raise Broken unless there is one charge, and one order."""
    found = shop.gateway.count()
    expect(shop, found == 1, f"Charges at the gateway: {found}. There should be 1.")
    expect_orders(shop, 1)
