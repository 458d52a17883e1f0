"""What a run shows of itself while it goes on: counted from the diaries, a line at a time."""

import io

import pytest

from loadtests.diary import Diary, Fault, Intent, Sent
from loadtests.staging.progress import Progress, Tail, describe


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def book(tmp_path):
    with Diary(tmp_path, "users") as book:
        yield book


def test_entries_are_counted_while_they_are_written(tmp_path, book):
    tail = Tail(tmp_path)
    book.write(Intent("a", "purchase", "Retrier", "ada", "k", "/api/buy", "application/json", "{}", 1.0))
    book.write(Sent("a", "1", 2.0))

    first = dict(tail.look())
    book.write(Sent("a", "2", 3.0))
    second = dict(tail.look())

    assert first == {"intent": 1, "sent": 1}
    assert second == {"intent": 1, "sent": 2}


def test_a_line_that_is_not_whole_yet_is_counted_when_it_is(tmp_path):
    tail, path = Tail(tmp_path), tmp_path / "users-1.jsonl"
    path.write_bytes(b'{"is":"sent","intent":"a"}\n{"is":"se')

    before = dict(tail.look())
    with path.open("ab") as file:
        file.write(b'nt"}\n')

    assert before == {"sent": 1}
    assert dict(tail.look()) == {"sent": 2}


def test_the_diaries_of_all_writers_are_counted(tmp_path, book):
    with Diary(tmp_path, "nemesis") as other:
        other.write(Fault(1.0, 2.0, "kill_worker", "process 1"))
    book.write(Sent("a", "1", 2.0))

    assert dict(Tail(tmp_path).look()) == {"fault": 1, "sent": 1}


def test_a_line_says_how_far_it_is_and_of_faults_only_where_there_are_some(tmp_path, book):
    tail = Tail(tmp_path)
    book.write(Sent("a", "1", 2.0))
    calm = describe(tail.look(), 3.2, 30)
    book.write(Fault(1.0, 2.0, "kill_worker", "process 1"))

    assert calm == "   3 of 30 s · 0 intents · 1 attempts · 0 answers"
    assert describe(tail.look(), 3.2, 30) == f"{calm} · 1 faults"


def test_on_a_terminal_the_line_is_rewritten_until_something_is_said():
    stream = Terminal()
    progress = Progress(stream)

    progress.show("a long line")
    progress.say("done")
    progress.show("short")

    assert stream.getvalue() == "\r  a long line\ndone\n\r  short"


def test_elsewhere_there_is_a_line_now_and_then():
    stream = io.StringIO()
    progress = Progress(stream)

    progress.show("one")
    progress.show("two, too soon")

    assert stream.getvalue() == "  one\n"
    assert not progress.is_due()
