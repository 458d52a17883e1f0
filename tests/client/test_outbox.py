"""What an outbox promises: nothing is lost, nothing is sent twice without its key, and each subject keeps its order."""

import asyncio
import contextlib
import json
import resource
import sqlite3
import stat

import httpx
import pytest
import requests

from flask_idempotency.client import Adapter, Outbox, OutboxError, Progress, RetryPolicy, Transport, outcome_of
from flask_idempotency.client.__main__ import main
from tests.client.test_transports import ACCEPTED, DOWN, IN_FLIGHT, LOST, MADE, QUARANTINED, REPLAY, REUSED
from tests.client.worlds import URL, AsyncServer, Fault, RequestsServer, Script, Server, Time, Told

HOUR, DAY = 3600, 86400
ONCE = RetryPolicy(attempts=1)


class Desk:
    """An outbox, a server that does as it is told, and a clock on the wall that tests can move."""

    def __init__(self, path, **options):
        self.path, self.options, self.wall = path, options, 1_800_000_000.0
        self.time = Time()
        self.script = Script(MADE)
        self.open()

    def open(self):
        """Begin anew, as another process would."""
        self.outbox = Outbox(self.path, wall=lambda: self.wall, chance=lambda: 1.0, **self.options)

    def told(self, *acts):
        self.script = Script(*acts)
        return self

    def send(self, policy=ONCE, **options):
        transport = Transport(Server(self.script, self.time), policy, sleep=self.time.sleep, **self.time.options())
        with httpx.Client(transport=transport, headers={"Authorization": "Bearer me"}) as client:
            return self.outbox.send(client, **options)

    @property
    def bodies(self):
        return [seen.body for seen in self.script.seen]

    def put(self, n, subject=None, **options):
        return self.outbox.put("POST", URL, json=n, subject=subject, **options)

    def states(self):
        return [action.state for action in self.outbox.browse()]


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path / "actions.sqlite")


# Storing


def test_an_action_is_stored_with_its_key_before_anything_is_sent(desk):
    action = desk.put({"tea": 2})
    desk.open()

    (stored,) = desk.outbox.browse()

    assert stored == action
    assert (stored.state, stored.attempts, stored.sent_at) == ("waiting", 0, None)
    assert json.loads(stored.body) == {"tea": 2}
    assert desk.script.seen == []


def test_it_is_sent_with_that_key_and_with_the_clients_credentials(desk):
    action = desk.put({"tea": 2}, headers={"Accept-Language": "de"})

    report = desk.send()

    (seen,) = desk.script.seen
    assert (seen.method, seen.url, seen.key) == ("POST", URL, action.key)
    assert seen.headers["authorization"] == "Bearer me"
    assert seen.headers["accept-language"] == "de"
    assert seen.headers["content-type"] == "application/json"
    assert (report.done, report.next_in) == (1, None)


def test_a_done_action_keeps_its_outcome_but_nothing_of_what_was_sent(desk):
    desk.put({"secret": "sesame"})
    desk.send()

    (done,) = desk.outbox.browse("done")

    assert (done.status, done.reference) == (201, "7D3F-92AB-1C4E")
    assert (done.body, done.headers) == (b"", ())


@pytest.mark.parametrize("name", ["Authorization", "cookie", "Proxy-Authorization", "X-Api-Key"])
def test_a_header_that_may_be_a_credential_is_not_stored(desk, name):
    with pytest.raises(OutboxError, match="give credentials to the client that sends"):
        desk.put(1, headers={name: "secret"})

    assert desk.outbox.browse() == []


def test_more_headers_are_stored_if_they_are_named(tmp_path):
    desk = Desk(tmp_path / "actions.sqlite", headers={"X-Tenant"})
    desk.put(1, headers={"x-tenant": "a"})

    desk.send()

    assert desk.script.seen[0].headers["x-tenant"] == "a"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"url": "/orders"}, "must be whole"),
        ({"url": "ftp://api.test/"}, "must be whole"),
        ({"url": "http://[::1/"}, "must be whole"),
        ({"url": "http://api.test:99999/"}, "must be whole"),
        ({"url": "http://api.test/\x00"}, "must be whole"),
        ({"url": "https://me:secret@api.test/"}, "credentials"),
        ({"method": "PO ST"}, "not an HTTP method"),
        ({"json": 1, "content": b"1"}, "not both"),
        ({"headers": {"Accept": "a\nb"}}, "printable ASCII"),
        ({"key": ""}, "key must be"),
        ({"key": "a,b"}, "key must be"),
        ({"key": "k" * 256}, "key must be"),
    ],
)
def test_what_could_never_be_sent_is_refused_at_once(desk, options, says):
    with pytest.raises(OutboxError, match=says):
        desk.outbox.put(**{"method": "POST", "url": URL, **options})


def test_the_same_action_is_stored_once_and_another_under_its_key_is_refused(desk):
    first = desk.put(1, key="order-1")

    assert desk.put(1, key="order-1") == first
    with pytest.raises(OutboxError, match="belongs to another action"):
        desk.put(2, key="order-1")
    desk.send()
    assert desk.put(1, key="order-1").state == "done"


def test_nobody_else_may_read_the_file(desk):
    assert stat.S_IMODE(desk.path.stat().st_mode) == 0o600


# Order


def test_a_subject_keeps_its_order_and_others_do_not_wait_for_it(desk):
    for n, subject in enumerate(["a", "b", "a", None]):
        desk.put(n, subject)
    desk.told(IN_FLIGHT, MADE)

    first = desk.send()
    desk.wall += HOUR
    second = desk.send()

    assert desk.bodies == [b"0", b"1", b"3", b"0", b"2"]
    assert (first.done, first.waiting) == (2, 1)
    assert (second.done, second.next_in) == (2, None)


def test_an_action_that_was_given_up_holds_its_subject_until_a_person_decides(desk):
    first, _ = desk.put(1, "a"), desk.put(2, "a")
    desk.told(REUSED, MADE)

    report = desk.send()
    again = desk.send()

    assert (report.given_up, report.next_in) == (1, None)
    assert again.done == 0
    assert desk.states() == ["given up", "waiting"]
    desk.outbox.drop(first.id)
    assert desk.send().done == 1


# What comes back


@pytest.mark.parametrize(
    ("act", "state", "says"),
    [
        (MADE, "done", ""),
        (REPLAY, "done", ""),
        (Told(303, {"Location": "/orders/1"}), "done", ""),
        (Told(302, {"Location": "/", "Idempotency-Reference": "7D3F-92AB-1C4E"}), "done", ""),
        (Told(301, {"Location": "https://api.test/orders"}), "given up", "301"),
        (Told(302, {"Location": "/login"}), "given up", "302"),
        (Told(307, {"Location": "/elsewhere"}), "given up", "307"),
        (REUSED, "given up", "422 key-reused: Do something else."),
        (QUARANTINED, "given up", "409 quarantined"),
        (Told(400), "given up", "400"),
        (LOST, "waiting", "ReadError"),
        (DOWN, "waiting", "ConnectError"),
        (Fault("untrusted"), "waiting", "certificate"),
        (Told(503), "waiting", "503"),
        (Told(401), "waiting", "credentials"),
        (IN_FLIGHT, "waiting", "request-in-flight"),
        (ACCEPTED, "waiting", "202"),
    ],
    ids=lambda value: getattr(value, "status", getattr(value, "kind", None)),
)
def test_what_comes_back_decides_whether_it_is_done_waits_or_is_left_to_a_person(desk, act, state, says):
    desk.put(1)

    desk.told(act).send()

    (action,) = desk.outbox.browse()
    assert action.state == state
    assert says in action.reason
    assert len(desk.script.seen) == 1


def test_what_is_waited_for_ends_with_the_same_key(desk):
    desk.put(1)
    desk.told(LOST, ACCEPTED, Told(503), REPLAY)

    for _ in range(4):
        desk.send(hurry=True)

    assert len({seen.key for seen in desk.script.seen}) == 1
    assert desk.states() == ["done"]


def test_a_server_in_trouble_is_asked_once_in_a_pass_and_then_left_alone(desk):
    for n in range(20):
        desk.put(n)

    report = desk.told(LOST).send()

    assert len(desk.script.seen) == 1
    assert (report.waiting, report.next_in) == (1, 5.0)
    assert desk.outbox.progress().waiting == 20


def test_an_action_that_fails_again_and_again_does_not_keep_the_others_waiting(desk):
    poison = desk.put("poison")
    desk.told(LOST).send()
    for n in range(3):
        desk.put(n)
    desk.wall += HOUR

    report = desk.told(MADE, MADE, MADE, LOST).send()

    assert (report.done, report.waiting) == (3, 1)
    assert [action.id for action in desk.outbox.browse("waiting")] == [poison.id]


def test_an_answer_is_handed_over_before_it_counts_as_done_so_none_is_missed(desk):
    desk.put(1)
    heard = []

    def fail(action, response):
        heard.append((action.id, outcome_of(response).course))
        raise RuntimeError("the app's own")

    with pytest.raises(RuntimeError, match="the app's own"):
        desk.send(on_answer=fail)
    assert desk.states() == ["waiting"]

    desk.wall += HOUR
    desk.told(REPLAY).send(on_answer=lambda action, response: heard.append((action.id, outcome_of(response).course)))

    assert heard == [(1, "first"), (1, "replayed")]
    assert desk.states() == ["done"]


def test_a_mistake_of_the_program_is_not_taken_for_trouble_on_the_wire(desk):
    desk.put(1)

    class Broken:
        def request(self, *_, **__):
            raise TypeError("no such option")

    with pytest.raises(TypeError):
        desk.outbox.send(Broken())
    assert desk.states() == ["waiting"]


def test_an_action_that_cannot_be_sent_does_not_keep_the_others_waiting_for_ever(desk):
    desk.outbox.put("POST", f"http://api.test/{'long' * 20_000}")
    desk.put(2)

    with pytest.raises(httpx.InvalidURL):
        desk.send()
    assert desk.told(MADE).send().done == 1

    assert desk.states() == ["waiting", "done"]
    assert "InvalidURL" in desk.outbox.browse("waiting")[0].reason


def test_an_answer_that_the_program_cannot_take_does_not_keep_the_others_waiting_for_ever(desk):
    desk.put(1)
    desk.put(2)

    def fail_at_the_first(action, response):
        if action.id == 1:
            raise RuntimeError("the app's own")

    with pytest.raises(RuntimeError):
        desk.send(on_answer=fail_at_the_first)
    assert desk.told(MADE).send(on_answer=fail_at_the_first).done == 1
    assert "on_answer raised RuntimeError" in desk.outbox.browse("waiting")[0].reason


def test_a_client_that_raises_for_errors_has_them_read(desk):
    desk.put(1)
    server = httpx.MockTransport(lambda request: httpx.Response(404))

    with httpx.Client(transport=server, event_hooks={"response": [httpx.Response.raise_for_status]}) as client:
        assert desk.outbox.send(client).given_up == 1


def test_an_answer_that_cannot_be_decompressed_is_waited_for_again(desk):
    desk.put(1)
    server = httpx.MockTransport(
        lambda request: httpx.Response(201, headers={"Content-Encoding": "gzip"}, stream=httpx.ByteStream(b"tea"))
    )

    with httpx.Client(transport=server) as client:
        assert desk.outbox.send(client).waiting == 1


def test_an_action_that_is_dropped_before_its_turn_is_not_sent(desk, monkeypatch):
    desk.put(1)
    begin_attempt = desk.outbox._file.begin_attempt

    def begin_too_late(id):
        desk.outbox.drop(id)
        return begin_attempt(id)

    monkeypatch.setattr(desk.outbox._file, "begin_attempt", begin_too_late)

    assert desk.send().done == 0
    assert desk.script.seen == []


@pytest.mark.parametrize("policy", [ONCE, RetryPolicy(attempts=2)], ids=["in two passes", "in one"])
def test_an_error_after_a_lost_answer_does_not_hide_that_it_may_have_taken_effect(desk, policy):
    desk.put(1)
    desk.told(LOST, Told(403))

    for _ in range(2):
        desk.send(policy, hurry=True)

    assert desk.states() == ["given up"]
    assert desk.outbox.browse()[0].reason == "the server answered 403; an attempt before that may have taken effect"


# Age


def test_a_phone_without_network_loses_nothing_and_its_actions_do_not_age(desk):
    desk.put(1)
    desk.told(DOWN)
    for _ in range(6):
        desk.wall += DAY
        desk.send()

    assert desk.outbox.browse()[0].sent_at is None
    assert desk.told(MADE).send(hurry=True).done == 1


def test_an_action_that_never_reached_the_server_is_left_to_a_person_in_the_end(desk):
    desk.put(1)
    desk.wall += 8 * DAY

    report = desk.send()

    assert report.given_up == 1
    assert "never reached the server in 7 days" in desk.outbox.browse()[0].reason
    assert desk.script.seen == []


def test_no_key_is_sent_again_once_the_server_may_have_forgotten_it(desk):
    action = desk.put(1)
    desk.told(LOST).send()
    desk.wall += 23 * HOUR + 1

    report = desk.send()

    assert report.given_up == 1
    assert len(desk.script.seen) == 1
    with pytest.raises(OutboxError, match="may have forgotten its key"):
        desk.outbox.retry(action.id)
    desk.outbox.retry(action.id, anyway=True)
    assert desk.told(MADE).send().done == 1


def test_nothing_that_may_have_run_is_sent_again_to_a_server_that_may_ignore_keys(tmp_path):
    desk = Desk(tmp_path / "o.sqlite", policy=RetryPolicy(server_honours_keys=False))
    desk.put(1)

    desk.told(DOWN).send()
    desk.told(LOST).send(hurry=True)
    assert desk.told(MADE).send(hurry=True).given_up == 1

    assert desk.bodies == []
    assert "may not honour keys" in desk.outbox.browse()[0].reason
    with pytest.raises(OutboxError, match="anyway"):
        desk.outbox.retry(1)


def test_too_many_requests_before_do_not_hide_that_one_may_have_arrived(desk):
    desk.put(1)
    desk.told(LOST, Told(429)).send(RetryPolicy(attempts=2))

    assert desk.outbox.browse()[0].sent_at is not None


@pytest.mark.parametrize("back", [1, DAY, 400 * DAY])
def test_a_clock_that_is_set_back_hides_no_age_and_delays_nothing(desk, back):
    desk.put(1)
    desk.told(LOST).send()
    desk.wall += HOUR
    desk.open()
    desk.outbox.progress()
    desk.send()  # tried again, an hour later
    desk.wall -= back
    desk.open()

    tried = desk.send(hurry=False)
    desk.wall += HOUR
    later = desk.send()
    desk.wall += 23 * HOUR
    last = desk.send()

    assert (tried.done, later.waiting, last.given_up) == (0, 1, 1)


def test_a_clock_that_was_years_ahead_loses_nothing(desk):
    desk.put(1)
    desk.wall += 3000 * DAY
    desk.told(Told(503)).send(hurry=True)
    desk.wall -= 3000 * DAY

    assert desk.states() == ["given up"]
    desk.outbox.retry(1)
    assert desk.told(MADE).send().done == 1


def test_a_server_that_asks_to_wait_for_years_is_asked_again_in_an_hour(desk):
    desk.put(1)
    report = desk.told(Told(503, {"Retry-After": "999999999"}), MADE).send()
    desk.wall += HOUR

    assert report.next_in == HOUR
    assert desk.send().done == 1


# One at a time, and bad files


def test_one_process_sends_at_a_time_and_the_others_say_so(desk):
    desk.put(1)
    other = Desk(desk.path)
    reports = []

    desk.send(on_answer=lambda *_: reports.append(other.send()))

    assert [report.is_busy for report in reports] == [True]
    assert other.script.seen == []


def test_an_outbox_of_another_version_is_refused_and_left_as_it_is(desk):
    desk.put(1)
    with contextlib.closing(sqlite3.connect(desk.path)) as connection:
        connection.execute("PRAGMA user_version = 7")
    before = desk.path.read_bytes()

    with pytest.raises(OutboxError, match="has version 7, and this release reads version 1"):
        desk.open()

    assert desk.path.read_bytes() == before


def test_a_database_of_somebody_elses_is_refused_and_left_as_it_is(tmp_path):
    path = tmp_path / "shop.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE orders (id)")
    before = path.read_bytes()

    with pytest.raises(OutboxError, match="is a database, but not an outbox"):
        Outbox(path)

    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("my notes " * 1000)

    with pytest.raises(OutboxError, match="cannot be used"):
        Outbox(path)

    assert path.read_text() == "my notes " * 1000


def test_an_outbox_is_found_after_the_program_has_changed_its_folder(tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "one")
    outbox = Outbox("actions.sqlite")
    outbox.put("POST", URL)
    monkeypatch.chdir(tmp_path / "two")

    assert outbox.progress().waiting == 1
    assert not [*(tmp_path / "two").iterdir()]


def test_a_link_to_an_outbox_has_the_same_lock(desk, tmp_path):
    (tmp_path / "link").symlink_to(desk.path)

    with desk.outbox._file.sole_sender():
        assert Outbox(tmp_path / "link").send(None).is_busy


def test_an_outbox_that_was_removed_is_not_made_anew(desk):
    desk.put(1)
    desk.path.unlink()

    with pytest.raises(OutboxError, match="unable to open"):
        desk.put(2)
    assert not desk.path.exists()


def test_a_folder_that_cannot_be_written_to_is_said_in_a_sentence(desk):
    with pytest.raises(OutboxError, match="cannot be made"):
        Outbox("/proc/actions.sqlite")
    desk.path.with_name(f"{desk.path.name}.lock").mkdir()
    with pytest.raises(OutboxError, match="Nothing was sent"):
        desk.send()


def test_a_folder_that_is_missing_is_named(tmp_path):
    with pytest.raises(OutboxError, match="its folder does not exist"):
        Outbox(tmp_path / "nowhere" / "actions.sqlite")


# Every client


def test_requests_sends_an_outbox_too(desk):
    desk.put(1)
    desk.told(LOST, REPLAY)
    adapter = Adapter(RequestsServer(desk.script, desk.time), sleep=desk.time.sleep, **desk.time.options())
    with requests.Session() as session:
        session.mount("http://", adapter)

        report = desk.outbox.send(session)

    assert report.done == 1
    assert len({seen.key for seen in desk.script.seen}) == 1
    assert len(desk.script.seen) == 2


@pytest.mark.parametrize("act", [MADE, LOST, REUSED], ids=["made", "lost", "refused"])
def test_async_does_the_same(desk, act):
    desk.put(1)
    desk.told(act)

    async def send():
        async with httpx.AsyncClient(transport=AsyncServer(desk.script, desk.time)) as client:
            return await desk.outbox.send_async(client)

    with contextlib.closing(asyncio.new_event_loop()) as loop:
        report = loop.run_until_complete(send())

    (action,) = desk.outbox.browse()
    assert (report.done, report.waiting, report.given_up) == tuple(
        int(action.state == state) for state in ("done", "waiting", "given up")
    )
    assert action.state == {201: "done", 422: "given up"}.get(getattr(act, "status", None), "waiting")


@pytest.mark.parametrize("act", [DOWN, LOST], ids=["no connection", "lost"])
def test_a_client_without_our_transport_will_do(desk, act):
    desk.put(1)
    with httpx.Client(transport=Server(desk.told(act, MADE).script, desk.time)) as client:
        assert desk.outbox.send(client).waiting == 1
        assert desk.outbox.send(client, hurry=True).done == 1

    assert len({seen.key for seen in desk.script.seen}) == 1


def test_requests_without_our_adapter_will_do(desk):
    desk.put(1)
    desk.told(LOST, MADE)
    with requests.Session() as session:
        session.mount("http://", RequestsServer(desk.script, desk.time))
        assert desk.outbox.send(session).waiting == 1
        assert desk.outbox.send(session, hurry=True).done == 1


# The command


def command(capsys, *arguments):
    status = main(["outbox", *map(str, arguments)])
    told = capsys.readouterr()
    return status, told.out, told.err


def test_the_command_lists_what_is_open_without_bodies_and_queries(desk, capsys):
    desk.outbox.put("POST", f"{URL}?token=secret", json={"secret": 1}, subject="a")
    desk.told(REUSED).send()

    status, shown, _ = command(capsys, "list", desk.path)

    assert status == 0
    assert "given up  a  POST http://api.test/orders  1 attempts  7D3F-92AB-1C4E  the server answered 422" in shown
    assert "0 waiting, 1 given up, 0 done" in shown
    assert "secret" not in shown


def test_the_command_lists_for_programs_too(desk, capsys):
    desk.put(1, "a")
    desk.send()
    desk.put(2, "a")

    _, shown, _ = command(capsys, "list", "--all", "--json", desk.path)

    assert [(each["id"], each["state"], each["url"]) for each in map(json.loads, shown.splitlines())] == [
        (1, "done", URL),
        (2, "waiting", URL),
    ]


def test_the_command_retries_and_drops(desk, capsys):
    desk.put(1), desk.put(2)
    desk.told(REUSED).send()

    assert command(capsys, "retry", desk.path, 1)[0] == 0
    assert command(capsys, "drop", desk.path, 2)[0] == 0
    assert desk.states() == ["waiting"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("list", "nowhere"), "no outbox at nowhere"),
        (("retry", None, 1), "is waiting"),
        (("drop", None, 9), "no action 9"),
    ],
)
def test_the_command_says_what_is_wrong_in_a_sentence(desk, capsys, arguments, says):
    desk.put(1)

    status, _, told = command(capsys, *(desk.path if each is None else each for each in arguments))

    assert status == 1
    assert says in told
    assert told.startswith("python -m flask_idempotency.client: ")


def test_progress_says_how_many_and_since_when(desk):
    desk.put(1), desk.put(2)
    desk.told(MADE, REUSED).send()
    desk.put(3)
    desk.wall += 60

    assert desk.outbox.progress() == Progress(waiting=1, given_up=1, done=1, oldest_waiting=60.0)


# A disk that is full


@contextlib.contextmanager
def no_room():
    """Have every write to a file fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_said_before_anything_is_sent(desk):
    desk.put(1)
    with no_room(), pytest.raises(OutboxError, match="changed nothing"):
        desk.put(2)
    with no_room(), pytest.raises(OutboxError, match="changed nothing"):
        desk.send()

    assert desk.script.seen == []
    desk.put(2)
    assert desk.send().done == 2


def test_a_disk_that_is_full_when_the_answer_comes_has_it_sent_again_with_its_key(desk):
    desk.put(1)
    full = no_room()

    with contextlib.ExitStack() as stack, pytest.raises(OutboxError):
        desk.told(MADE, REPLAY).send(on_answer=lambda *_: stack.enter_context(full))
    report = desk.send()

    assert report.done == 1
    assert len(desk.script.seen) == 2
    assert len({seen.key for seen in desk.script.seen}) == 1
