"""Others that do something while the test does something else: a thread, or a forked copy of the process."""

import ctypes
import os
import signal
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self


@contextmanager
def meanwhile(call: Callable[[], object]) -> Iterator[list[object]]:
    """Run *call* in a thread; what it gives, or raises, is in the list when the block ends."""
    given: list[object] = []

    def run() -> None:
        try:
            given.append(call())
        except Exception as error:  # noqa: BLE001 - the test looks at it
            given.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield given
    finally:
        thread.join(30)
    assert given, "the call did not come back"


def fork_in_c() -> int:
    """Fork as a server written in C does, such as uWSGI: none of Python's hooks is run."""
    pid: int = ctypes.PyDLL(None).fork()
    return pid


class Child:
    """Does one step at a time, when told to, and reports the result of each."""

    def __init__(self, *steps: Callable[[], object], fork: Callable[[], int] = os.fork) -> None:
        word, self._tell = os.pipe()
        hear, answer = os.pipe()
        with warnings.catch_warnings():
            # Newer Pythons warn of threads, of which a test runner may have some. The child uses none of them.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = fork()
        if self.pid == 0:
            try:
                for step in steps:
                    os.read(word, 1)
                    os.write(answer, f"{step()}\n".encode())
            except BaseException:  # noqa: BLE001 - told to the parent, whose test then fails
                os.write(answer, traceback.format_exc().replace("\n", " | ").encode() + b"\n")
            finally:
                os._exit(0)  # nothing of pytest's may run twice
        os.close(word)
        os.close(answer)
        self._hear = os.fdopen(hear)

    def step(self) -> str:
        os.write(self._tell, b".")
        return self._hear.readline().rstrip("\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        os.close(self._tell)
        self._hear.close()
        if kind is not None:
            os.kill(self.pid, signal.SIGKILL)  # whoever gave up on it must not wait for its end
        os.waitpid(self.pid, 0)
