"""A run: which probes it makes, how many requests they send at most, and the verdict on each promise."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from flask_idempotency.conformance.dialects import Dialect, dialect_of
from flask_idempotency.conformance.effects import Count
from flask_idempotency.conformance.exchanges import Answer, Exchange, NoAnswer, Seen
from flask_idempotency.conformance.probes import PROBES
from flask_idempotency.conformance.promises import Promise, judge_all
from flask_idempotency.conformance.sending import Sender
from flask_idempotency.conformance.steps import Leave, Script, Send, Unavailable, cost_of
from flask_idempotency.conformance.subject import Subject
from flask_idempotency.conformance.verdicts import Bench, NotShown, Verdict

FIRST: Final = "retry"  # the probe that everything rests on: it shows whether two runs can be told apart
GUESSES: Final = "other-value"  # the probe by which the dialect is guessed


LOOK: Final = 0.5  # seconds between two looks at the number of effects, after a client has left
LOOKS: Final = 10


class CannotTest(Exception):
    """Nothing can be shown; says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Which scripts are played, which cannot be, and how many requests that makes at most."""

    scripts: dict[str, Script]
    left_out: dict[str, NotShown]
    requests: int


def plan(subject: Subject, chosen: Sequence[Promise], most: int, *, guesses_dialect: bool) -> Plan:
    """Choose the probes that the promises need, as long as their requests are within the bound."""
    wanted = {name for promise in chosen for name in promise.probes} | {FIRST}
    if guesses_dialect:
        wanted.add(GUESSES)
    scripts: dict[str, Script] = {}
    left_out: dict[str, NotShown] = {}
    requests = 1  # the first one, which shows how keys are spelt
    for name, probe in PROBES.items():
        if name not in wanted:
            continue
        script = probe(subject)
        if isinstance(script, Unavailable):
            left_out[name] = NotShown(script.reason)
        elif requests + cost_of(script) > most:
            left_out[name] = NotShown(f"--max-requests {most} does not leave enough for its {cost_of(script)} requests")
        else:
            scripts[name] = script
            requests += cost_of(script)
    return Plan(scripts, left_out, requests)


@dataclass(frozen=True, slots=True)
class Report:
    """What a run found."""

    dialect: Dialect
    verdicts: tuple[tuple[Promise, Verdict], ...]
    sent: int
    seconds: float
    counts_effects: bool

    def count(self, kind: type[Verdict]) -> int:
        """Count the promises of one verdict."""
        return sum(isinstance(verdict, kind) for _, verdict in self.verdicts)


def spell_keys(subject: Subject, sender: Sender) -> Subject:
    """Send one request; where its bare key is refused, put keys in quotes. Raises CannotTest."""
    (exchange,) = sender.play((Send("first", subject.request("spelling")),))
    answer = exchange.answer
    if isinstance(answer, NoAnswer):
        raise CannotTest(f"the endpoint did not answer: {answer.reason}")
    if answer.status == 400:
        return replace(subject, keys=replace(subject.keys, is_quoted=True))
    return subject


def run(
    subject: Subject,
    chosen: Sequence[Promise],
    made: Plan,
    sender: Sender,
    dialect: Dialect | None,
    count: Count | None,
    within: float,
    tell: Callable[[int, int, str], None],
) -> Report:
    """Play the scripts and judge. Raises CannotTest if the endpoint does not take the request at all."""
    begun = time.monotonic()
    seen: dict[str, Seen | NotShown] = dict(made.left_out)
    for number, (name, script) in enumerate(made.scripts.items(), 1):
        if time.monotonic() - begun > within:
            seen[name] = NotShown(f"--time-limit {within:g} was reached")
            continue
        tell(number, len(made.scripts), name)
        found = _play(script, sender, count)
        seen[name] = found
        if name == FIRST:
            _check_first(found)
    first = seen[FIRST]
    if isinstance(first, NotShown):
        raise CannotTest(first.reason)
    spoken = dialect or dialect_of([answer for each in (first, seen.get(GUESSES)) for answer in _answers(each)])
    bench = Bench(spoken, is_telling=_is_telling(first))
    makers = tuple(promise for promise in chosen if promise.only_in in (None, spoken.name))
    verdicts = judge_all(makers, seen, bench)
    return Report(spoken, tuple(verdicts), sender.sent, time.monotonic() - begun, count is not None)


def _play(script: Script, sender: Sender, count: Count | None) -> Seen:
    if count is None:
        return Seen(sender.play(script))
    before = count()
    exchanges = sender.play(script)
    after = count()
    if any(isinstance(step, Leave) for step in script):
        for _ in range(LOOKS):  # what nobody waited for may still be running
            sender.pause(LOOK)
            last, after = after, count()
            if after == last:
                break
    return Seen(exchanges, after - before)


def _answers(seen: Seen | NotShown | None) -> tuple[Answer, ...]:
    exchanges: tuple[Exchange, ...] = seen.exchanges if isinstance(seen, Seen) else ()
    return tuple(each.answer for each in exchanges if isinstance(each.answer, Answer))


def _is_telling(seen: Seen) -> bool:
    """Say whether two actions got different answers, so that a replay is told from a run."""
    first, second = seen["first"], seen["second"]
    return isinstance(first, Answer) and isinstance(second, Answer) and not first.says_the_same_as(second)


def _check_first(seen: Seen) -> None:
    for label in ("first", "second"):
        answer = seen[label]
        if isinstance(answer, NoAnswer):
            raise CannotTest(f"the endpoint did not answer: {answer.reason}")
        if not answer.is_success:
            text = " ".join(answer.body.decode("utf-8", "replace").split())[:300]
            raise CannotTest(f"the endpoint does not accept the request: {answer.status} {text}")
    if seen.effects is not None and seen.effects < 2:
        raise CannotTest(
            f"two requests had {seen.effects} effects: check what --effects-url or --effects-command counts"
        )
