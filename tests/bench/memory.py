"""Whether a process grows with the requests it has served."""

import gc
import multiprocessing
from collections.abc import Sequence
from statistics import linear_regression
from uuid import uuid4

import psutil

from tests.bench.apps import closing, make_app, post
from tests.bench.progress import progress
from tests.fixtures.postgres import PostgresServer

FLAT = 50  # bytes per request; below it one page more or less decides
SAMPLES = 100  # looks at the process over the whole run


def show_memory(requests: int) -> None:
    """Print by how much a request of its own key makes the process grow, over the second half."""
    # In a process of its own: what other parts have freed would hide the growth.
    with PostgresServer() as server, multiprocessing.get_context("spawn").Pool(1) as pool:
        samples = pool.apply(grow, (server.url(server.create_database()), requests))
    late = samples[len(samples) // 2 :]
    growth = linear_regression([done for done, _ in late], [size for _, size in late]).slope
    verdict = "flat" if growth < FLAT else "over"
    print(f"Memory of one process over {requests:,} requests of different keys, transaction guard, PostgreSQL")
    print(f"  {samples[-1][1] / 2**20:.1f} MB at the end")
    print(f"  {growth:.0f} bytes more per request over the second half  (target: < {FLAT})  {verdict}\n", flush=True)


def grow(url: str, requests: int) -> Sequence[tuple[int, int]]:
    """Serve this many requests, and give the size of the process at several points."""
    app, process, samples = make_app(url, "transaction"), psutil.Process(), list[tuple[int, int]]()
    with closing(app):
        for done in range(1, requests + 1):
            post(app, str(uuid4()))
            if done % max(1, requests // SAMPLES) == 0:
                gc.collect()
                samples.append((done, process.memory_info().rss))
                progress("memory", done, requests)
    return samples
