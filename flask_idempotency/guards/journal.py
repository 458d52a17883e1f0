"""How far a run has come: the steps it has passed, the effect in doubt, the answer that waits for a phase.

Whoever carries steps out tells the journal, and nobody else writes it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property

from flask_idempotency.core.checkpoint import Checkpoint, Kind
from flask_idempotency.errors import ClaimLost, IdempotencyError, RequestRefused


class Journal:
    """What one attempt has come to, and what earlier attempts have left behind."""

    def __init__(self, load: Callable[[], list[Checkpoint]]) -> None:
        """*load* reads the checkpoints of earlier attempts, in the order in which they went; called once, if at all."""
        self._load = load
        self._passed: list[str] = []  # the names of the phases and effects that the view has come to
        self._busy: str | None = None  # the one that it is in
        self.has_steps = False  # the view has come to a phase or effect
        self.answered: Checkpoint | None = None  # the effect whose answer goes down with the next phase
        self.undecided: str | None = None  # the effect of which nobody knows whether it happened
        self.done: str | None = None  # the last effect that is done: no failure behind it is final
        self.failed: tuple[str, BaseException] | None = None  # the step that has raised; nothing comes behind it
        self.mistake: IdempotencyError | None = None  # what the last call did that it must not do
        self.misuse: IdempotencyError | None = None  # what a phase or effect has refused, and the view may have caught

    @cached_property
    def _recorded(self) -> list[Checkpoint]:
        return [each for each in self._load() if each.kind is not Kind.REQUEST]

    # -- steps -------------------------------------------------------------------------------------------------------

    def open_step(self) -> None:
        """Come to a step. Raises again what was raised before, for a view that has caught it."""
        self.has_steps = True
        if self.misuse is not None:
            raise self.misuse
        if self.failed is None:
            return
        what, error = self.failed
        if isinstance(error, (RequestRefused, ClaimLost)) or not isinstance(error, Exception):
            raise error
        raise IdempotencyError(
            f"{what} has failed, and after a crash nobody could resume what is done behind it; return what it has found"
            " out, and let the view decide by that."
        ) from error

    def expect(self, name: str, kind: Kind) -> Checkpoint | None:
        """Give what an earlier attempt has left where this one is now, of whatever name.

        Raises IdempotencyError for a step inside another, and for a name that was used before.
        """
        if self._busy is not None:
            raise IdempotencyError(f"{kind} {name!r} is inside of {self._busy}; put one after the other.")
        if name in self._passed:
            raise IdempotencyError(f"{name!r} names two steps of this request; give each a name of its own.")
        return self.next_recorded

    def enter(self, name: str) -> None:
        """Go on to a step that is as expected."""
        self._passed.append(name)

    @property
    def next_recorded(self) -> Checkpoint | None:
        """What an earlier attempt did next from where this one is, if it went on."""
        return self._recorded[len(self._passed)] if len(self._passed) < len(self._recorded) else None

    def next_checkpoint(self, name: str, kind: Kind) -> Checkpoint:
        """Make the checkpoint of what is begun now."""
        return Checkpoint(name, kind, position=len(self._passed))

    @contextmanager
    def busy_with(self, what: str, recorded: type[Exception] | tuple[()] = ()) -> Iterator[None]:
        """Be in a phase or effect, in which there can be no other. What it raises is its end, unless it is recorded."""
        self._busy = what
        try:
            yield
        except recorded:
            raise
        except BaseException as error:
            self.failed = what, error
            raise
        finally:
            self._busy = None

    def note_misuse(self, error: IdempotencyError) -> None:
        """Remember the first thing that a phase or effect has refused."""
        self.misuse = self.misuse or error

    # -- effects -----------------------------------------------------------------------------------------------------

    def note_sent(self, name: str) -> None:
        """Know that an effect may happen from now on."""
        self.undecided = name

    def note_void(self) -> None:
        """Know that it has not happened."""
        self.undecided = None

    def note_done(self, name: str) -> None:
        """Know that it has happened."""
        self.undecided, self.done = None, name

    def note_mistake(self, mistake: IdempotencyError | None) -> None:
        """Know what the call has done that it must not do, if anything."""
        self.mistake = mistake

    def hold_answer(self, answered: Checkpoint) -> None:
        """Have an effect's answer wait for the next phase."""
        self.answered = answered

    def drop_answer(self) -> None:
        """Know that it is written, or may be."""
        self.answered = None
