"""Locust's other ways: a run that is started and stopped on its page, and one in several processes. Both are judged."""

from tests.fixtures.processes import ask, eventually, free_port
from tests.loadtests.flooding import LOCUSTFILE, flood, start


def test_the_page_starts_and_stops_a_run_without_a_shape(serve, tmp_path):
    port = free_port()
    page = f"http://127.0.0.1:{port}"
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    process = start(LOCUSTFILE, [serve().url], tmp_path / "diary", "--web-host", "127.0.0.1", "--web-port", str(port))
    try:
        shown = eventually(lambda: ask(page), 30, ignoring=OSError)
        asked = b"user_count=4&spawn_rate=4&user_classes="
        begun = ask(f"{page}/swarm", "POST", body=asked, headers=form)
        rows = eventually(
            lambda: [
                row["name"] for row in ask(f"{page}/stats/requests").json["stats"] if row["name"] == "buy: first run"
            ],
            30,
        )
        stopped = ask(f"{page}/stop", "POST")
        process.terminate()
        code = process.wait(40)
    finally:
        process.kill()
        process.wait()

    output = (tmp_path / "locust.log").read_text()
    assert shown.status == 200
    assert begun.json["success"] is True
    assert rows
    assert stopped.json["success"] is True
    assert output.count("INNOCENT") == 1, output
    assert code == 0


def test_clients_in_several_processes_are_judged_once_and_after_all_have_gone(serve, tmp_path):
    crowd = ("--processes", "2", "--users", "6", "--spawn-rate", "6", "--run-time", "4s", "Leaver")

    ran = flood(LOCUSTFILE, [serve().url], tmp_path / "diary", *crowd)

    assert ran.output.count("INNOCENT") == 1, ran.output
    assert list(ran.history.open_intents()) == []
    assert len(list((tmp_path / "diary").glob("*.jsonl"))) >= 2
    assert ran.code == 0
