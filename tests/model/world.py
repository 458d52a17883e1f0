"""What there is: a record, a database, attempts, a gateway, all in one value; and how to tell what happened to them."""

from collections.abc import Hashable
from enum import StrEnum
from string import ascii_uppercase
from typing import NamedTuple

from tests.model.explore import Step


class Condition(StrEnum):
    """What a record is. One that was never made, or was reaped, is None."""

    RUNNING = "running"
    FINISHED = "finished"
    QUARANTINED = "quarantined"
    EXPIRED = "expired"


class Point(StrEnum):
    """The last thing that was committed on the request's way."""

    START = "start"
    PLACED = "order placed"
    SENT = "charge sent"
    DONE = "charge done"
    PAID = "order paid"


class Outcome(StrEnum):
    """What became of the charge, and so what the client is told."""

    UNKNOWN = ""
    CHARGED = "charged"
    DECLINED = "declined"
    FAILED = "failed"  # no gateway says so, only a protocol that has lost its patience
    BOTH = "now this, now that"


class Row(NamedTuple):
    """The record, with its checkpoints."""

    token: int | None  # None: the owner has ended its lease
    condition: Condition
    leased: bool
    point: Point
    generation: int  # of the charge
    outcome: Outcome


class Database(NamedTuple):
    """What transactions change, and what a failover may take back."""

    row: Row | None = None
    orders: int = 0
    payments: int = 0
    sequence: int = 0  # from which only a weakened protocol draws


class Doing(StrEnum):
    """What an attempt is about to do at its point."""

    NOTHING = "nothing"  # it is over: answered, refused or dead
    CLAIMING = "claiming"
    GOING_ON = "going on"  # with the next write, or with the request to the gateway
    RESUMING = "resuming"  # after "sent" without "done": did the gateway get the request?
    WAITING = "waiting"  # for the gateway
    NOTING = "noting"  # the gateway's answer
    REPEATING = "repeating"  # the charge, in a new generation, as the gateway knows of none
    GIVING_UP = "giving up"  # because of something transient
    ANSWERING = "answering"
    TRUSTING = "trusting"  # what it has read, or fenced, one step ago: no sound protocol does


class Attempt(NamedTuple):
    """One request in one worker: what it knows, and whether it doubts its last COMMIT."""

    token: int
    doing: Doing
    point: Point = Point.START
    generation: int = 0
    outcome: Outcome = Outcome.UNKNOWN
    doubts: bool = False


NOBODY = -1
OVER = Attempt(NOBODY, Doing.NOTHING)


Ledger = tuple[tuple[Hashable, Outcome], ...]  # the gateway's: which key it served, and how


class State(NamedTuple):
    """The whole world."""

    attempts: tuple[Attempt, ...]
    database: Database = Database()
    hanging: Database | None = None  # what the database will be if the hanging COMMIT lands
    standby: Database | None = None  # what an asynchronous standby knows, once it has fallen behind
    failovers: int = 0  # still to come
    ledger: Ledger = ()
    late: frozenset[Hashable] = frozenset()  # the keys of requests on their way whose callers are gone
    told: Outcome = Outcome.UNKNOWN  # the definitive answers that clients were given
    tokens: int = 0  # drawn so far: chance does not go back when a database does

    def having(self, who: int, attempt: Attempt) -> "State":
        """The same world, but for one attempt."""
        return self._replace(attempts=(*self.attempts[:who], attempt, *self.attempts[who + 1 :]))


def is_at(attempt: Attempt, row: Row) -> bool:
    return row.point is attempt.point and row.generation == attempt.generation


def is_last(attempt: Attempt) -> bool:
    """Whether the next write finishes the record: nothing is left to pay."""
    return attempt.point is Point.PAID or (attempt.point is Point.DONE and attempt.outcome is not Outcome.CHARGED)


def giving_up(attempt: Attempt) -> Attempt:
    return Attempt(attempt.token, Doing.GIVING_UP)


def story(trace: list[tuple[State, Step[State]]]) -> str:
    """Tell a trace, a line for each step. Who acts while the record is another's, or gone, is called a zombie."""
    names: dict[int, str] = {}
    letters = iter(ascii_uppercase)
    lines = []
    for before, step in trace:
        line = step.does
        if step.who is not None:
            if before.attempts[step.who] is OVER:
                names[step.who] = next(letters)
            line = f"{names[step.who]}{', a zombie,' if is_zombie(before, step.who) else ''} {step.does}"
        lines.append(line)
    return "\n".join(lines)


def is_zombie(state: State, who: int) -> bool:
    attempt, row = state.attempts[who], state.database.row
    return attempt.token != NOBODY and not attempt.doubts and not (row and row.token == attempt.token)
