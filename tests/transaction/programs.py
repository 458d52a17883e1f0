"""Programs of several sessions in one view, and a model that says which rows they leave.

In the model each session has a transaction of its own, as it has without a key.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from sqlalchemy import func, insert, select, update
from sqlalchemy.exc import IntegrityError

SESSIONS = 3
ACTS = [
    *("write", "write", "write", "bump", "add", "flush", "query", "call", "cte"),
    *("commit", "commit", "rollback", "close", "clash"),
    *("nest", "nest", "release", "back"),
]
Act = tuple[int, str]  # which session, and what it does


@dataclass(frozen=True)
class Program:
    """What a request does: acts of a hook before the claim, acts of the view, and the answer's status."""

    before: tuple[Act, ...]
    acts: tuple[Act, ...]
    status: int


def programs(sessions: int) -> st.SearchStrategy[Program]:
    """Programs of so many sessions. Most end every session they use, as most views do."""
    which = st.integers(0, sessions - 1)
    ends = st.tuples(*(st.sampled_from(["commit", "commit", "rollback", "close", "query"]) for _ in range(sessions)))
    return st.builds(
        lambda before, acts, ends, status: Program(before, (*acts, *enumerate(ends)), status),
        st.sampled_from([(), (), ((0, "query"),), ((0, "write"),)]),
        st.lists(st.tuples(which, st.sampled_from(ACTS)), min_size=3, max_size=20).map(tuple),
        ends,
        st.sampled_from([201, 201, 422, 500]),
    )


# -- the model ---------------------------------------------------------------------------------------------------------


@dataclass
class Transaction:
    """What one session has done: what it will flush, and what it has written, a list for each savepoint it is in."""

    pending: list[str] = field(default_factory=list)
    frames: list[list[tuple[int, str]]] = field(default_factory=lambda: [[]])

    @property
    def written(self) -> list[tuple[int, str]]:
        """All that a rollback undoes."""
        return [write for frame in self.frames for write in frame]


class Model:
    """Foretells what a program leaves: the rows, and whether one transaction could hold them."""

    def __init__(self, program: Program) -> None:
        self.rows: Counter[str] = Counter()  # that are committed
        self.is_torn = False  # something was undone that is older than what stays of another session
        self._open = [Transaction() for _ in range(SESSIONS)]
        self._written: dict[int, int] = {}  # whose each write is, in order, unless it was undone
        for number, (session, act) in enumerate((*program.before, *program.acts)):
            self._do(session, act, f"{session}-{number}")
        left = [write for each in self._open for write in each.written]
        self.leaves_something = bool(left)  # written, and not committed
        self._undo(left)

    def _do(self, session: int, act: str, name: str) -> None:
        mine = self._open[session]
        if act in ("add", "write"):
            mine.pending.append(name)
        if act in ("write", "bump", "flush", "commit", "query", "call", "cte", "nest", "release"):
            self._write(session, mine.pending)
            mine.pending = []
        match act:
            case "bump":
                self._write(session, [f"bump {session}"])
            case "call" | "cte":
                self._write(session, [name])
            case "commit":
                self.rows.update(what for _, what in mine.written)
                mine.frames = [[]]
            case "nest":
                mine.frames.append([])
            case "release" if len(mine.frames) > 1:
                last = mine.frames.pop()
                mine.frames[-1] += last
            case "back" if len(mine.frames) > 1:
                mine.pending = []
                self._undo(mine.frames.pop())
            case "rollback" | "close" | "clash":
                self._open[session] = Transaction()
                self._undo(mine.written)

    def _write(self, session: int, what: list[str]) -> None:
        for each in what:
            number = len(self._written)
            self._written[number] = session
            self._open[session].frames[-1].append((number, each))

    def _undo(self, writes: list[tuple[int, str]]) -> None:
        """Undo writes. One transaction undoes with them whatever came later."""
        undone = {number for number, _ in writes}
        if undone:
            stays = {number for number, owner in self._written.items() if owner >= 0} - undone
            self.is_torn |= any(number > min(undone) for number in stays)
        for number in undone:
            self._written[number] = -1


# -- how it is run -----------------------------------------------------------------------------------------------------


# An order by a SELECT, on PostgreSQL.
PLACE_ORDER = """
    CREATE FUNCTION place_order(text) RETURNS integer
    LANGUAGE sql AS 'INSERT INTO orders (note) VALUES ($1) RETURNING id'
"""


class Runner:
    """Runs a program on an app's sessions."""

    def __init__(self, db: Any, sessions: list[Any]) -> None:
        self._db, self._sessions = db, sessions
        self._nested: list[list[Any]] = [[] for _ in sessions]
        self._number = 0

    def run(self, acts: tuple[Act, ...]) -> None:
        """Run some acts; a second call goes on where the first has stopped."""
        for session, act in acts:
            self._do(session, act, f"{session}-{self._number}")
            self._number += 1

    def _writing_select(self, act: str, note: str) -> Any:
        """A SELECT that inserts an order; SQLite has none, and gets an INSERT."""
        orders = self._db.Order.__table__
        made = insert(orders).values(note=note).returning(orders.c.id)
        if self._db.engine.name != "postgresql":
            return made
        return select(func.place_order(note)) if act == "call" else select(made.cte("made").c.id)

    def _do(self, number: int, act: str, name: str) -> None:
        session, nested, db = self._sessions[number], self._nested[number], self._db
        match act:
            case "add" | "write":
                session.add(db.Order(note=name))
                if act == "write":
                    session.flush()
            case "bump":
                users = db.User.__table__
                session.flush()
                session.execute(update(users).where(users.c.id == number + 2).values(visits=users.c.visits + 1))
            case "query":
                session.scalar(select(func.count()).select_from(db.Order))
            case "call" | "cte":
                session.execute(self._writing_select(act, name)).all()
            case "nest":
                nested.append(session.begin_nested())
            case "release" if nested:
                nested.pop().commit()
            case "release":
                session.flush()
            case "back" if nested:
                nested.pop().rollback()
            case "back":
                pass
            case "clash":
                try:
                    session.execute(insert(db.User.__table__).values(id=1, name="another"))
                except IntegrityError:
                    session.rollback()
                nested.clear()
            case _:
                getattr(session, act)()
                if act in ("commit", "rollback", "close"):
                    nested.clear()
