"""Death at every line of the outbox, and a new process on the same file: nothing is lost, nothing is done twice."""

import json
from collections import Counter

import httpx
import pytest

from flask_idempotency.client import Outbox, RetryPolicy, Transport
from tests.apps.trials import sample, untraced
from tests.fixtures.lines import PACKAGE, Lines, die_at, in_child
from tests.tiers import is_quick

EVERY = 40 if is_quick() else 4  # with TEST_LONG=1, at every one
LEAST = 300  # lines of one action; fewer would mean that the tracer is blind


def sender(**policy):
    """A client over plain HTTP: to load certificates takes longer than all the rest."""
    return httpx.Client(transport=Transport(httpx.HTTPTransport(verify=False), RetryPolicy(**policy)))


class Trial:
    """A file for each death, and a server in a process of its own that outlives them all."""

    def __init__(self, url, ledger, folder):
        self.url, self.ledger, self.folder = f"{url}/actions", ledger, folder
        self.lines = in_child(lambda: self.traced())[1]

    def act(self, name):
        """Store two actions of one subject, say so, and send them."""
        outbox = Outbox(self.folder / f"{name}.sqlite")
        for n in (1, 2):
            outbox.put("POST", self.url, json={"intent": f"{name}-{n}"}, subject="order")
            (self.folder / f"{name}-{n}-stored").touch()
        with sender(attempts=1) as client:
            outbox.send(client)

    def traced(self):
        with Lines(__file__) as lines:
            self.act("traced")
        return lines.seen

    def die(self, position):
        """Die at a line, begin anew, and count what was done; give how many had been done by then."""
        name = f"died-{position}"
        die_at(__file__, position, lambda: self.act(name))
        before = self.effects(name)
        outbox = Outbox(self.folder / f"{name}.sqlite")
        with sender() as client:
            while outbox.send(client, hurry=True).next_in is not None:
                pass
        stored = {f"{name}-{n}": 1 for n in (1, 2) if (self.folder / f"{name}-{n}-stored").exists()}
        done = self.effects(name)

        path, line = self.lines[position - 1]
        assert set(done.values()) <= {1}, f"twice at {path}:{line}"
        assert stored.items() <= done.items(), f"lost at {path}:{line}"
        assert outbox.progress().waiting == outbox.progress().given_up == 0
        return before.total()

    def effects(self, name):
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        intents = (json.loads(line)["intent"] for line in lines)
        return Counter(intent for intent in intents if intent.startswith(f"{name}-"))


@pytest.mark.timeout(1800)  # the long run
def test_death_at_a_line_loses_no_action_and_repeats_none(gunicorn, tmp_path):
    ledger = tmp_path / "ledger"
    server = gunicorn("tests.apps.actions:create_app()", workers=1, threads=2, env={"ACTIONS_LEDGER": str(ledger)})
    with untraced():
        trial = Trial(server.url, ledger, tmp_path)
        done = [trial.die(position) for position in sample(len(trial.lines), EVERY)]

    assert len(trial.lines) > LEAST
    assert {path for path, _ in trial.lines} > {f"{PACKAGE}client/outbox.py", f"{PACKAGE}client/outbox_file.py"}
    assert set(done) == {0, 1, 2}
