"""`make demo` with the real shop, gateway and outbox, on the databases that it promises to run on."""

import re

import psycopg

from tests.demo_shop.demo import REAL
from tests.fixtures.processes import ask, eventually, is_gone


def test_the_real_shop_its_gateway_and_its_outbox_start_and_stop_together(start_demo):
    demo = start_demo(program=REAL)

    demo.open()
    eventually(lambda: len(demo.started()) >= 7, what="two masters with two workers each, and the outbox")
    pids = demo.started()
    places = re.findall(r"http://127\.0\.0\.1:\d+/\S*", demo.output())
    statuses = {place: ask(place).status for place in places}
    code = demo.stop()

    shop, gateway = f"http://127.0.0.1:{demo.port}", f"http://127.0.0.1:{demo.gateway_port}"
    assert statuses.keys() == {f"{shop}{path}" for path in ("/", "/lab", "/support", "/mailbox")} | {f"{gateway}/"}
    assert set(statuses.values()) <= {200, 302, 303}  # a room may ask who is there first
    assert statuses[f"{shop}/"] == statuses[f"{gateway}/"] == 200
    assert code == 0
    assert all(map(is_gone, pids))
    assert "Traceback" not in "".join(log.read_text() for log in (demo.data / "logs").iterdir())


def test_both_databases_can_be_on_a_server(start_demo, postgres, postgres_url):
    other = postgres.create_database()
    urls = {"DATABASE_URL": postgres_url, "GATEWAY_DATABASE_URL": postgres.url(other)}
    urls = {name: url.replace("+psycopg", "") for name, url in urls.items()}  # as people write them
    try:
        demo = start_demo("--no-lab", program=REAL, **urls)
        demo.open()
        page = ask(f"http://127.0.0.1:{demo.port}/")
        code = demo.stop()
        with psycopg.connect(urls["DATABASE_URL"]) as shop, psycopg.connect(urls["GATEWAY_DATABASE_URL"]) as gateway:
            products = shop.execute("SELECT count(*) FROM product").fetchone()
            charges = gateway.execute("SELECT count(*) FROM charges").fetchone()
    finally:
        postgres.drop_database(other)

    assert (page.status, code) == (200, 0)
    assert products > (0,)
    assert charges == (0,)
    assert list(demo.data.glob("*.sqlite")) == []
