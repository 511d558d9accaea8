"""Benchmark of the HBM channel alone: `python -m validation.bench.dram` prints a table.

One channel, timing set G, the reference streams of 200,000 64-byte requests, one core. Machines differ and are shared.
So each time is also given as a multiple of one look-up of `validation.bench.yardstick`, measured just before it.
"""

from sim.run.dram import run_stream
from sim.run.dram_stream import read_stream
from tracer.compile.jit import compile_seconds
from tracer.compile.process import process_costs
from traces.command.script import without_options
from traces.command.tables import print_table
from validation.against.dram_reference import STREAMS
from validation.bench.yardstick import lookup_ns

ROWS = (
    ("sequential read", "a_seq_read", "BG", False),
    ("sequential read", "a_seq_read", "RO", False),
    ("sequential update", "c_seq_write", "BG", True),
    ("sequential update", "c_seq_write", "RO", True),
    ("read and write in turns", "e_rw50_seq", "BG", False),
    ("random read", "b_rand_read", "BG", False),
    ("random read, 10 % load", "h_rand_read_10pct", "BG", False),
    ("one bank", "f_bank_conflict_read", "BG", False),
)
REPEATS = 5
COLUMNS = ("stream", "map", "requests/s", "ns/request", "yardsticks/request", "simulated clocks/s")


def main() -> None:
    rows = []
    for title, name, bank_map, updates in ROWS:
        stream = read_stream(STREAMS / f"{name}.trace.xz")
        step_ns, runs = [], []
        for _ in range(REPEATS):
            step_ns.append(lookup_ns())
            runs.append(run_stream(stream, "G", bank_map, nmc_updates=updates))
        best = min(runs, key=lambda run: run.wall_s)
        request_ns = best.wall_s / best.requests * 1e9
        title += ", near memory" if updates else ""
        speed = best.cycles / best.wall_s
        rows.append((title, bank_map, 1e9 / request_ns, request_ns, request_ns / min(step_ns), speed))
    print_table("HBM channel alone, set G, one core", COLUMNS, rows)
    peak_MB = (process_costs()["peak_rss_bytes"] or 0) / 1e6
    print(f"compiled in {compile_seconds():.1f} s (0 when cached); peak memory {peak_MB:.0f} MB")


if __name__ == "__main__":
    without_options(__doc__)
    main()
