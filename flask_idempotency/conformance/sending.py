"""Carries out steps: one after the other, at one instant, slowly, or not to the end. Judges nothing."""

import threading
import time
from collections.abc import Callable
from functools import partial

from flask_idempotency.conformance.exchanges import Answer, Exchange, NoAnswer, Request
from flask_idempotency.conformance.steps import Burst, Copy, Leave, Overlap, Persist, Script, Send, Step
from flask_idempotency.conformance.wire import Line, Wire, compose, reason_of

PIECES = 6  # in which a slow client sends its body
PATIENCE = 4  # times as long as it takes for that, a slow client waits for its copies' answers before the last piece
FIRST_PAUSE = 0.25  # seconds before a client that was told to come later does so; then twice as long each time


class Sender:
    """Sends to one place, and counts what it sends."""

    def __init__(self, wire: Wire, pace: float = 1.0) -> None:
        self._wire, self._pace = wire, pace
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self.sent = 0

    def play(self, script: Script) -> tuple[Exchange, ...]:
        """Carry out all steps of a script in order."""
        return tuple(exchange for step in script for exchange in self._do(step))

    def stop(self) -> None:
        """End all pauses."""
        self._stopped.set()

    def pause(self, seconds: float) -> None:
        """Wait, unless all was stopped."""
        self._stopped.wait(seconds * self._pace)

    def _do(self, step: Step) -> tuple[Exchange, ...]:
        match step:
            case Send():
                return (self._send(step.label, step.request),)
            case Burst():
                return self._burst(step)
            case Leave():
                return (self._leave(step),)
            case Persist():
                return (self._persist(step),)
            case Overlap():
                return self._overlap(step)

    def _count(self) -> None:
        with self._lock:
            self.sent += 1

    def _talk(self, request: Request, talk: Callable[[Line, bytes, bytes], Answer | NoAnswer]) -> Answer | NoAnswer:
        self._count()
        try:
            with self._wire.open(request.method) as line:
                return talk(line, *compose(request, self._wire.place.authority))
        except OSError as error:
            return NoAnswer(reason_of(error))

    def _send(self, label: str, request: Request) -> Exchange:
        self._count()
        return Exchange(label, request, self._wire.ask(request))

    def _persist(self, step: Persist) -> Exchange:
        pause = FIRST_PAUSE * self._pace
        for number in range(step.cost):
            exchange = self._send(step.label, step.request)
            is_last = number == step.cost - 1
            if is_last or not (isinstance(exchange.answer, Answer) and exchange.answer.is_for_later):
                break
            self._stopped.wait(pause)
            pause *= 2
        tries = f"attempt {number + 1}" if number else ""
        return Exchange(step.label, step.request, exchange.answer, tries)

    def _leave(self, step: Leave) -> Exchange:
        def talk(line: Line, head: bytes, body: bytes) -> Answer | NoAnswer:
            line.write(head + body[: int(len(body) * step.share)])
            self._stopped.wait(step.after)
            if step.share == 1:
                return line.leave()
            line.stop_sending()
            return line.read()  # the request that follows must not overtake the half

        manner = "half of the body" if step.share < 1 else f"hung up after {step.after:g} s"
        return Exchange(step.label, step.request, self._talk(step.request, talk), manner)

    def _burst(self, step: Burst) -> tuple[Exchange, ...]:
        barrier = threading.Barrier(step.copies)

        def talk(line: Line, head: bytes, body: bytes) -> Answer | NoAnswer:
            message = head + body
            line.write(message[:-1])  # no server begins before the last byte
            barrier.wait(30)
            line.write(message[-1:])
            return line.read()

        def send() -> Answer | NoAnswer:
            try:
                return self._talk(step.request, talk)
            except threading.BrokenBarrierError:
                return NoAnswer("another copy could not be sent")

        def run(place: int) -> None:
            answers[place] = send()
            if isinstance(answers[place], NoAnswer):
                barrier.abort()  # nobody waits for one that could not connect

        answers: dict[int, Answer | NoAnswer] = {}
        _in_threads([partial(run, place) for place in range(step.copies)])
        manner = f"one of {step.copies} at once"
        return tuple(Exchange(step.label, step.request, answers[place], manner) for place in sorted(answers))

    def _overlap(self, step: Overlap) -> tuple[Exchange, ...]:
        found: list[Exchange] = []
        begun, done = threading.Event(), threading.Event()
        left = threading.Semaphore(0)  # how many copies have their answer

        def dawdle(line: Line, head: bytes, body: bytes) -> Answer | NoAnswer:
            line.write(head if step.trickle else head + body)
            begun.set()
            if step.trickle:
                size = -(-len(body) // PIECES) or 1
                for start in range(0, len(body), size):
                    self._stopped.wait(step.trickle / PIECES)
                    if start + size >= len(body):
                        await_copies()
                    line.write(body[start : start + size])
            return line.read()

        def await_copies() -> None:
            """Send the end of the body after the copies' answers, if those do not wait for it."""
            deadline = time.monotonic() + PATIENCE * step.trickle
            for _ in step.copies:
                left.acquire(timeout=max(0.0, deadline - time.monotonic()))

        def first() -> None:
            try:
                manner = f"its body within {step.trickle:g} s" if step.trickle else ""
                found.append(Exchange(step.label, step.request, self._talk(step.request, dawdle), manner))
            finally:
                done.set()
                begun.set()

        def copy(each: Copy) -> None:
            begun.wait()  # on a busy machine, a copy must not come first
            if not done.wait(each.after):
                answered = self._send(each.label, each.request)
                found.append(Exchange(each.label, each.request, answered.answer, f"{each.after:g} s after the first"))
            left.release()

        _in_threads([first, *(partial(copy, each) for each in step.copies)])
        return tuple(found)


def _in_threads(actions: list[Callable[[], None]]) -> None:
    """Run all at the same time and wait for them."""
    threads = [threading.Thread(target=action, name="conformance") for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
