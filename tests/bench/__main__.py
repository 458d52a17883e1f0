"""``python -m tests.bench``: print what protection costs. The machine is small and noisy: ratios count, not seconds."""

import argparse

from tests.bench.crowd import show_crowd
from tests.bench.hot import show_hot_key
from tests.bench.imports import show_imports
from tests.bench.memory import show_memory
from tests.bench.phases import show_phases
from tests.bench.scale import show_scale
from tests.bench.shop import show_shop
from tests.bench.size import show_size
from tests.bench.table import TABLES, show_table
from tests.bench.traces import show_traces
from tests.bench.wire import show_wire

PARTS = ("table", "phases", "wire", "traces", "shop", "hot", "crowd", "memory", "size", "scale", "imports")


def main() -> None:
    """Measure what is asked for, and say which targets were met."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description="What protection costs, as ratios.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"only these of {', '.join(PARTS)}; without any, all")
    parser.add_argument("--rounds", type=int, default=500, help="table, phases, wire and traces: requests of each kind")
    parser.add_argument("--store", choices=[*TABLES], help="table: only this one")
    parser.add_argument("--requests", type=int, default=10_000, help="memory: requests in one process")
    parser.add_argument("--records", type=int, default=1_000_000, help="size and scale: records in the large table")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    parts = options.parts or PARTS
    if "table" in parts:
        show_table(options.store, options.rounds)
    if "phases" in parts:
        show_phases(options.rounds)
    if "wire" in parts:
        show_wire(options.rounds)
    if "traces" in parts:
        show_traces(options.rounds)
    if "shop" in parts:
        show_shop()
    if "hot" in parts:
        show_hot_key()
    if "crowd" in parts:
        show_crowd()
    if "memory" in parts:
        show_memory(options.requests)
    if "size" in parts:
        show_size(options.records)
    if "scale" in parts:
        show_scale([options.records])
    if "imports" in parts:
        show_imports()


if __name__ == "__main__":
    main()
