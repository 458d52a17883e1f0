"""Can the proof fail? Each protocol that breaks a rule is convicted, of the right thing and by the shortest story."""

import pytest

from tests.model import weakened
from tests.model.explore import explore
from tests.model.protocol import PROMISES, AtMostOnce, Lease, Steps
from tests.model.weakened import (
    AsksTooEarly,
    AtMostOnceFailover,
    BelievesDoubtfulCommit,
    DeletesByKey,
    DeletesIfMine,
    EffectKeyFromToken,
    EffectKeyPerAttempt,
    FenceByReading,
    FenceInItsOwnTransaction,
    FenceWithoutPoint,
    FenceWithoutToken,
    FirstPhaseUnfenced,
    ForgetsPausedSenders,
    GatewayWithoutKeys,
    IgnoresCheckpoints,
    KeepsOldCheckpoints,
    KeepsTimeouts,
    NeverTakesOver,
    NoFence,
    PaysBeforeItNotes,
    QueryFailover,
    RacyClaim,
    RaisesGenerationWithoutProof,
    ReadsAfterDoubtfulCommit,
    ReapsFinished,
    ReapsRunning,
    RestartsAfterTakeover,
    SendsAgain,
    TellsLosersThatItFailed,
    TokenFromSequence,
    TokenKept,
    TokenPerRecord,
)
from tests.model.world import State, story

VERDICTS: dict[type[Lease], tuple[str, int]] = {  # the promise broken, and the steps of the shortest story
    NoFence: ("S3", 5),
    FirstPhaseUnfenced: ("S3", 5),
    FenceByReading: ("S3", 7),
    FenceInItsOwnTransaction: ("S6", 11),
    FenceWithoutToken: ("S12", 12),
    FenceWithoutPoint: ("S6", 9),
    TokenKept: ("S2", 3),
    TokenPerRecord: ("S2", 3),
    TokenFromSequence: ("S2", 4),
    RacyClaim: ("S1", 4),
    RestartsAfterTakeover: ("S3", 5),
    KeepsOldCheckpoints: ("S6", 10),
    DeletesByKey: ("S3", 6),
    DeletesIfMine: ("S3", 6),
    ReapsRunning: ("S3", 6),
    ReapsFinished: ("S4", 8),
    TellsLosersThatItFailed: ("S5", 11),
    KeepsTimeouts: ("S7", 6),
    EffectKeyFromToken: ("S12", 9),
    EffectKeyPerAttempt: ("S12", 9),
    GatewayWithoutKeys: ("S12", 9),
    RaisesGenerationWithoutProof: ("S12", 10),
    PaysBeforeItNotes: ("S3", 9),
    BelievesDoubtfulCommit: ("S6", 8),
    ReadsAfterDoubtfulCommit: ("§4", 3),
    AsksTooEarly: ("S12", 11),
    ForgetsPausedSenders: ("S12", 11),
    SendsAgain: ("S12", 9),
    AtMostOnceFailover: ("S12", 12),
    QueryFailover: ("S12", 12),
}
DEAD_ENDS: dict[type[Lease], int] = {NeverTakesOver: 2, IgnoresCheckpoints: 3}


def name_of(value: object) -> str:
    return value.__name__ if isinstance(value, type) else str(value)


def test_every_weakened_protocol_is_judged() -> None:
    classes = {each for each in vars(weakened).values() if isinstance(each, type) and issubclass(each, Lease)}
    written_here = {each for each in classes if each.__module__ == weakened.__name__}

    assert written_here == {*VERDICTS, *DEAD_ENDS}


def test_every_promise_is_broken_by_one_of_them() -> None:
    assert {promise for promise, _ in VERDICTS.values()} == set(PROMISES)


@pytest.mark.parametrize(
    ("protocol", "promise", "depth"), [(each, *found) for each, found in VERDICTS.items()], ids=name_of
)
def test_a_weakened_protocol_is_convicted(protocol: type[Lease], promise: str, depth: int) -> None:
    report = explore(protocol(2))

    assert (report.breach, report.depth) == (promise, depth), story(report.trace)


@pytest.mark.parametrize(("protocol", "depth"), DEAD_ENDS.items(), ids=name_of)
def test_a_protocol_that_leaves_requests_undone_is_convicted(protocol: type[Lease], depth: int) -> None:
    report = explore(protocol(2))

    assert report.breach is None
    assert report.stuck > 0
    assert report.depth == depth, story(report.trace)


class Calm:
    """A world in which nothing goes wrong: no faults, and neither clock nor network has a will of its own."""

    def __init__(self, model: Lease) -> None:
        self._model = model
        self.start, self.is_settled, self.key = model.start, model.is_settled, model.key
        self.broken_by, self.broken_in = model.broken_by, model.broken_in

    def steps(self, state: State) -> Steps:
        return (step for step in self._model.steps(state) if step.who is not None and not step.is_fault)


@pytest.mark.parametrize("protocol", [*VERDICTS, *DEAD_ENDS], ids=name_of)
def test_a_weakened_protocol_works_as_long_as_nothing_goes_wrong(protocol: type[Lease]) -> None:
    report = explore(Calm(protocol(1)))

    assert (report.breach, report.stuck) == (None, 0)


def test_the_story_of_no_fence_names_the_zombie_and_its_write() -> None:
    report = explore(NoFence(2))

    assert story(report.trace).splitlines() == [
        "A claims the key",
        "the lease ends",
        "B takes over",
        "A, a zombie, places the order",
        "B places the order",
    ]


def test_whoever_shares_a_token_takes_anothers_commit_for_its_own_and_charges_twice() -> None:
    class Blind(TokenKept, AtMostOnce):
        """S2 alone may look like a matter of taste: close that eye."""

        def broken_in(self, state: State) -> str | None:
            broken = super().broken_in(state)
            return None if broken == "S2" else broken

    report = explore(Blind(2))

    assert (report.breach, report.depth) == ("S12", 12)
    assert "A looks what became of its COMMIT" in story(report.trace)
