"""Benchmark of the HBM channel alone: `python -m validation.bench.dram` prints a table.

One channel, timing set G, the reference streams of 200,000 64-byte requests, one core. Machines differ and are shared,
so each time also stands as a multiple of one step of a fixed loop (xorshift and a table look-up) timed in the same
process right before it.
"""

import resource
import sys
from time import perf_counter

import numpy as np
from rich.console import Console
from rich.table import Table

from sim.run.dram import run_stream
from sim.run.dram_stream import read_stream
from tracer.compile.jit import compile_seconds, compiled
from validation.against.dram_reference import STREAMS

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
LOOP_STEPS = 5_000_000
KIB_PER_MIB = 1024


@compiled
def reference_loop(table, steps):
    """Fixed work: a xorshift generator that walks over a small table."""
    state = 88172645463325252
    total = 0
    for _ in range(steps):
        state ^= (state << 13) & 0x7FFFFFFFFFFFFFFF
        state ^= state >> 7
        state ^= (state << 17) & 0x7FFFFFFFFFFFFFFF
        total += table[state & 4095]
    return total


def loop_step_ns(table: np.ndarray) -> float:
    """Time of one step of the reference loop."""
    start_s = perf_counter()
    reference_loop(table, LOOP_STEPS)
    return (perf_counter() - start_s) / LOOP_STEPS * 1e9


def peak_mib() -> float:
    """Largest resident size of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / KIB_PER_MIB if sys.platform != "darwin" else peak / KIB_PER_MIB**2


def main() -> None:
    table = np.arange(4096)
    reference_loop(table, 1)
    report = Table(title="HBM channel alone, set G, one core")
    for heading in ("stream", "map", "requests/s", "ns/request", "loop steps/request", "simulated clocks/s"):
        report.add_column(heading, justify="left" if heading in ("stream", "map") else "right")
    for title, name, bank_map, updates in ROWS:
        stream = read_stream(STREAMS / f"{name}.trace.xz")
        step_ns, runs = [], []
        for _ in range(REPEATS):
            step_ns.append(loop_step_ns(table))
            runs.append(run_stream(stream, "G", bank_map, nmc_updates=updates))
        best = min(runs, key=lambda run: run.wall_s)
        request_ns = best.wall_s / best.requests * 1e9
        report.add_row(
            title + (", near memory" if updates else ""),
            bank_map,
            f"{1e9 / request_ns:,.0f}",
            f"{request_ns:.0f}",
            f"{request_ns / min(step_ns):.0f}",
            f"{best.cycles / best.wall_s:,.0f}",
        )
    Console().print(report)
    print(f"compiled in {compile_seconds():.1f} s (0 when cached); peak memory {peak_mib():.0f} MiB")


if __name__ == "__main__":
    main()
