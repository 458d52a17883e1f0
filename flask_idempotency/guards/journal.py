"""The progress of a run: the steps it has begun, the effect in doubt, the answer held back for the next phase.

Only the code that runs the steps writes the journal.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property

from flask_idempotency import steps
from flask_idempotency.core.checkpoint import Checkpoint, Kind
from flask_idempotency.errors import ClaimLost, IdempotencyError, RequestRefused


class Journal:
    """The steps of one attempt, and the checkpoints of earlier ones."""

    def __init__(self, load: Callable[[], list[Checkpoint]]) -> None:
        """*load* reads the checkpoints of earlier attempts, in their order; it is called at most once."""
        self._load = load
        self._passed: list[str] = []  # the names of the phases and effects that the view has begun
        self._busy: str | None = None  # the one that is running
        self.has_steps = False  # the view has called phase() or effect()
        self.answered: Checkpoint | None = None  # the effect whose answer is committed with the next phase
        self.undecided: str | None = None  # the effect that may have happened
        self.done: str | None = None  # the last effect that is done: no failure after it is final
        self.failed: tuple[str, BaseException] | None = None  # the step that has raised; no other may follow it
        self.mistake: IdempotencyError | None = None  # what the last call did although it must not
        self.misuse: IdempotencyError | None = None  # raised by a phase or effect; the view may have caught it

    @cached_property
    def _recorded(self) -> list[Checkpoint]:
        return [each for each in self._load() if each.kind is not Kind.REQUEST]

    # -- steps -------------------------------------------------------------------------------------------------------

    def open_step(self) -> None:
        """Begin a step. Raises again what an earlier step has raised, if the view has caught it."""
        self.has_steps = True
        if self.misuse is not None:
            raise self.misuse
        if self.failed is None:
            return
        what, error = self.failed
        if isinstance(error, (RequestRefused, ClaimLost)) or not isinstance(error, Exception):
            raise error
        raise IdempotencyError(
            f"{what} failed, and a step after it could not be resumed after a crash: return its finding instead of"
            " raising, and let the view decide by that."
        ) from error

    def expect(self, name: str, kind: Kind) -> Checkpoint | None:
        """Give the checkpoint of an earlier attempt at this position, whatever its name.

        Raises IdempotencyError for a step inside another, and for a name that was used before.
        """
        if self._busy is not None:
            raise IdempotencyError(f"{kind} {name!r} was called inside {self._busy}; call one after the other.")
        if name in self._passed:
            raise IdempotencyError(f"Two steps of this request are named {name!r}; give each its own name.")
        return self.next_recorded

    def skip_to(self, name: str, result: str) -> bool:
        """Begin after the checkpoint of this name and result; False if there is none."""
        place = next((i for i, each in enumerate(self._recorded, 1) if (each.name, each.result) == (name, result)), 0)
        self._passed = [each.name for each in self._recorded[:place]]
        return place > 0

    def enter(self, name: str) -> None:
        """Note that the step of this name begins."""
        self._passed.append(name)

    @property
    def next_recorded(self) -> Checkpoint | None:
        """The next checkpoint of an earlier attempt, if there is one."""
        return self._recorded[len(self._passed)] if len(self._passed) < len(self._recorded) else None

    def next_checkpoint(self, name: str, kind: Kind) -> Checkpoint:
        """Make the checkpoint of the step that begins."""
        return Checkpoint(name, kind, position=len(self._passed))

    @contextmanager
    def busy_with(self, kind: Kind, name: str, recorded: type[Exception] | tuple[()] = ()) -> Iterator[None]:
        """Run a phase or effect, with no other inside. An exception makes it fail, unless of a *recorded* type."""
        self._busy = what = f"{kind} {name!r}"
        step = steps.begin(kind, name) if steps.begun.receivers else None
        try:
            yield
        except recorded:
            raise
        except BaseException as error:
            self.failed = what, error
            raise
        finally:
            self._busy = None
            if step is not None:
                step.end()

    def note_misuse(self, error: IdempotencyError) -> None:
        """Note the first misuse of a phase or effect."""
        self.misuse = self.misuse or error

    # -- effects -----------------------------------------------------------------------------------------------------

    def note_sent(self, name: str) -> None:
        """Note that an effect may happen from now on."""
        self.undecided = name

    def note_void(self) -> None:
        """Note that the effect has not happened."""
        self.undecided = None

    def note_done(self, name: str) -> None:
        """Note that the effect has happened."""
        self.undecided, self.done = None, name

    def note_mistake(self, mistake: IdempotencyError | None) -> None:
        """Note what the call has done although it must not, if anything."""
        self.mistake = mistake

    def hold_answer(self, answered: Checkpoint) -> None:
        """Hold an effect's answer back for the next phase."""
        self.answered = answered

    def drop_answer(self) -> None:
        """Note that the answer that was held back is written, or may be."""
        self.answered = None
