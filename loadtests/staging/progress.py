"""Shows the progress of a run: one line that is rewritten on a terminal, occasional lines elsewhere."""

import time
from collections import Counter
from pathlib import Path
from typing import TextIO

EVERY_ON_A_TERMINAL, EVERY_ELSEWHERE = 0.5, 5.0  # seconds
BEGINS = b'{"is":"'


class Tail:
    """Counts the entries of a folder's diaries while they are written. Each look reads only what is new."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self._counts: Counter[str] = Counter()

    def look(self) -> Counter[str]:
        """Give the number of entries by kind: intent, sent, heard, fault."""
        for path in self._folder.glob("*.jsonl"):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                new = file.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            self._counts.update(
                line[len(BEGINS) : line.find(b'"', len(BEGINS))].decode()
                for line in whole.splitlines()
                if line.startswith(BEGINS)
            )
        return self._counts


class Progress:
    """Writes to a stream, as often as it makes sense there."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._every = EVERY_ON_A_TERMINAL if self._is_terminal else EVERY_ELSEWHERE
        self._next = 0.0
        self._width = 0  # of the line that is to be overwritten

    def is_due(self) -> bool:
        """Say whether a new line would be shown now."""
        return time.monotonic() >= self._next

    def show(self, line: str) -> None:
        """Show the progress, if it is time to."""
        if not self.is_due():
            return
        self._next = time.monotonic() + self._every
        if self._is_terminal:
            self._write(f"\r  {line:<{self._width}}")
            self._width = len(line)
        else:
            self._write(f"  {line}\n")

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self.done()
        self._write(f"{text}\n")

    def done(self) -> None:
        """Keep the current line. The next one is shown at once."""
        if self._is_terminal and self._width:
            self._write("\n")
        self._width, self._next = 0, 0.0

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def describe(counts: Counter[str], elapsed: float, seconds: float) -> str:
    """Sum up what the diaries hold in a line."""
    told = [f"{elapsed:4.0f} of {seconds:.0f} s"]
    named = {"intent": "intents", "sent": "attempts", "heard": "answers", "fault": "faults"}
    told += [f"{counts[word]:,} {name}" for word, name in named.items() if word != "fault" or counts[word]]
    return " · ".join(told)
