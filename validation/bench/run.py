"""Benchmark of the simulator: `python -m validation.bench.run` prints tables, `--save` writes them to `tables/`.

End to end: a sub-layer GEMM on a preset, in this process. Start: new processes, first with an empty compile cache, then
with the filled one. Units: each unit alone (`validation.bench.units`). Profile: the phases of the engine's time windows
(`validation.bench.engine_profile`). Times are CPU times of one core unless noted. Each is also given as a multiple of
one look-up of `validation.bench.yardstick`, measured at the same time, because machines are shared and noisy, and as a
ratio to the multiple that revision f5fd707 had.
"""

import argparse
import json
import tempfile
from datetime import date
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

from sim.host.gpu import Gpu
from sim.presets import load_preset
from tracer.compile.process import machine_text, process_costs
from tracer.gemm.source import GemmProblem, GemmSource
from tracer.workloads import DEFAULT_KERNEL, aligned_problem, named_sublayer
from traces.command.document import Block, Heading, Table, Text, notes, to_markdown
from traces.source import KernelSource
from traces.units import PS_PER_US
from validation.bench.compile import COMMAND, smallest_run
from validation.bench.engine_profile import TimedGpu
from validation.bench.units import LOOPS, ROUNDS, request_ns
from validation.bench.yardstick import lookup_ns

NOTES = Path(__file__).with_name("run_notes.md")
TABLE = Path(__file__).parents[1] / "tables" / "bench_run.md"
SCALE_SHAPE, SCALE_K, SCALE_TIMES = (4096, 2048), 256, (1, 2, 4, 8)
UNIT_REQUESTS = 1_000_000
RUNS = 3
"""Number of end-to-end runs; the fastest counts."""
BASE_REVISION = "f5fd707"
BASE_WORKLOAD = "t-nlg/fc2/tp8 (8192 x 4256 x 2128) on t3_2024"
BASE = {
    "end to end": 9.2,
    "1 times": 8.6,
    "2 times": 8.3,
    "4 times": 8.3,
    "8 times": 8.0,
    "CUs, load/store units and L1": 3.55,
    "NoC, requests": 1.26,
    "L2 banks": 1.96,
    "NoC, answers": 0.84,
    "HBM channels": 2.71,
    "dispatch, next window": 0.19,
    "HBM channel, sequential 64-byte reads": 3.9,
    "HBM channel, random 64-byte reads": 22.6,
    "L2 bank, 128-byte reads that hit": 0.9,
    "crossbar, read requests from 80 CUs to 64 banks": 1.0,
    "coalesce, 128-byte lines": 0.2,
    "CU, load/store unit and L1, 128-byte lines that hit": 1.2,
    "empty": 2430e6,
    "filled": 61e6,
}
"""CPU time of that revision in yardsticks, from its table (tables/bench_run.md): per request, or of a start."""
RATIO = f"ratio to {BASE_REVISION}"


def end_to_end(workload: str, preset: str) -> dict[str, Any]:
    """Replay a sub-layer RUNS times on one thread: requests/s of CPU and of wall time.

    A small GEMM compiles everything before.
    """
    Gpu(load_preset(preset).machine).run_kernel(GemmSource(GemmProblem(64, 64, 32)), 0, None)
    problem = named_sublayer(workload)[0]
    runs = [replay(GemmSource(problem, DEFAULT_KERNEL), preset) for _ in range(RUNS)]
    fastest = min(runs, key=lambda run: run["cpu_s"])
    return fastest | {
        "workload": f"{workload} ({problem.m} x {problem.n} x {problem.k}) on {preset}",
        "simulated_TFLOP_per_s": 2 * problem.m * problem.n * problem.k / fastest["simulated_us"] / PS_PER_US,
        "requests_per_cpu_s_of_runs": sorted(run["requests_per_cpu_s"] for run in runs),
    }


def replay(source: KernelSource, preset: str) -> dict[str, Any]:
    """Simulate a kernel once on one thread: its requests, times and yardsticks, and the peak memory of the process."""
    step_ns, gpu = lookup_ns(), Gpu(load_preset(preset).machine, threads=1)
    wall_s, cpu_s = perf_counter(), process_time()
    time_ps = gpu.run_kernel(source, 0, None)
    wall_s, cpu_s = perf_counter() - wall_s, process_time() - cpu_s
    step_ns = min(step_ns, lookup_ns())
    lines = int(gpu.counters()["lsu"]["line_requests"].sum())
    return {
        "line_requests": lines,
        "cpu_s": cpu_s,
        "wall_s": wall_s,
        "requests_per_cpu_s": lines / cpu_s,
        "requests_per_wall_s": lines / wall_s,
        "ns_per_request": cpu_s / lines * 1e9,
        "yardsticks": cpu_s / lines * 1e9 / step_ns,
        "yardstick_ns": step_ns,
        "peak_rss_bytes": process_costs()["peak_rss_bytes"],
        "simulated_us": time_ps / PS_PER_US,
    }


def scale(preset: str) -> list[dict[str, Any]]:
    """The same GEMM with 1, 2, 4 and 8 times the K-steps: CPU time per request."""
    sources = {
        times: GemmSource(aligned_problem(*SCALE_SHAPE, SCALE_K * times), DEFAULT_KERNEL) for times in SCALE_TIMES
    }
    return [{"times": times} | replay(source, preset) for times, source in sources.items()]


def profile(workload: str, preset: str) -> dict[str, Any]:
    """Seconds per phase of the windows, and number of steps of the units."""
    step_ns, gpu = lookup_ns(), TimedGpu(load_preset(preset).machine)
    wall_s = perf_counter()
    gpu.run_kernel(GemmSource(named_sublayer(workload)[0], DEFAULT_KERNEL), 0, None)
    wall_s = perf_counter() - wall_s
    node = gpu.node
    counts = np.split(node.steps, np.cumsum([len(node.cus), len(node.banks), len(node.mscs)]))
    steps = {"windows": int(node.engine[0]["windows"])}
    steps |= {f"{unit}_steps": int(counts[k].sum()) for unit, k in (("cu", 0), ("bank", 1), ("channel", 3))}
    return {"phase_s": gpu.phase_s, "steps": steps, "loop_in_python_s": wall_s, "yardstick_ns": step_ns}


def start() -> dict[str, Any]:
    """Time of the smallest run in a new process: with an empty compile cache, then with the filled one."""
    with tempfile.TemporaryDirectory() as cache:
        return {"cold": _start(Path(cache)), "warm": _start(Path(cache))}


def _start(cache: Path) -> dict[str, float]:
    step_ns, found = lookup_ns(), smallest_run(COMMAND, cache)
    return found | {"yardsticks": found["cpu_s"] * 1e9 / step_ns}


def units(requests: int) -> dict[str, dict[str, float]]:
    """Each unit alone: ns per request, requests/s, and multiples of the yardstick."""
    results = {}
    for name, make in LOOPS.items():
        step_ns = lookup_ns()
        unit_ns = request_ns(make(requests), requests)
        step_ns = min(step_ns, lookup_ns())
        results[name] = {
            "ns_per_request": unit_ns,
            "requests_per_s": 1e9 / unit_ns,
            "yardsticks": unit_ns / step_ns,
        }
    return results


def tables(report: dict[str, Any]) -> str:
    """The report as Markdown, with the text of NOTES."""
    head = (
        f"Generated by `python -m validation.bench.run --save` on {report['date']}; {report['machine']}, shared and\n"
        "noisy. CPU time of one core; a yardstick is one look-up of `validation/bench/yardstick.py`, then measured;\n"
        f"{RATIO}: yardsticks as a ratio to those of that revision."
    )
    sections = (_end_to_end_blocks, _scale_blocks, _profile_blocks, _unit_blocks, _start_blocks)
    blocks = [block for section in sections for block in section(report)]
    return to_markdown([Heading("Benchmark", 1), Text(head), *blocks, notes(NOTES)])


def _end_to_end_blocks(report: dict[str, Any]) -> list[Block]:
    run = report["end_to_end"]
    cells = {
        "line requests": f"{run['line_requests']:,}",
        "requests/s of CPU time": f"{run['requests_per_cpu_s']:,.0f}",
        "of wall time": f"{run['requests_per_wall_s']:,.0f}",
        "ns/request": f"{run['ns_per_request']:.0f}",
        "yardsticks/request": f"{run['yardsticks']:.1f}",
        RATIO: _ratio("end to end", run["yardsticks"], run["workload"]),
        "yardstick (ns)": f"{run['yardstick_ns']:.1f}",
        "peak memory": megabytes(run["peak_rss_bytes"]),
        "simulated": f"{run['simulated_us']:,.1f} us",
        "TFLOP/s": f"{run['simulated_TFLOP_per_s']:.1f}",
    }
    every = ", ".join(f"{rate:,.0f}" for rate in run["requests_per_cpu_s_of_runs"])
    text = f"The fastest of {RUNS} runs; all of them, requests/s of CPU time: {every}."
    return [Heading(f"End to end: {run['workload']}", 2), Table(list(cells), [list(cells.values())], ()), Text(text)]


def _scale_blocks(report: dict[str, Any]) -> list[Block]:
    shape = " x ".join(map(str, SCALE_SHAPE))
    rows = [
        (
            *(f"{row['times']}", f"{row['line_requests']:,}", f"{row['ns_per_request']:.0f}"),
            *_yardsticks(f"{row['times']} times", row["yardsticks"]),
        )
        for row in report["scale"]
    ]
    columns = ("times", "line requests", "ns/request", "yardsticks/request", RATIO)
    return [Heading(f"Cost against requests: GEMM {shape} x {SCALE_K} times 1, 2, 4, 8", 2), Table(columns, rows, ())]


def _yardsticks(title: str, yardsticks: float, workload: str = BASE_WORKLOAD) -> tuple[str, str]:
    """Two cells: the yardsticks, and their ratio to those of BASE."""
    return f"{yardsticks:.2f}", _ratio(title, yardsticks, workload)


def _ratio(title: str, yardsticks: float, workload: str = BASE_WORKLOAD) -> str:
    return f"{yardsticks / BASE[title]:.2f}" if title in BASE and workload == BASE_WORKLOAD else "-"


def _profile_blocks(report: dict[str, Any]) -> list[Block]:
    lines, step_ns = report["end_to_end"]["line_requests"], report["profile"]["yardstick_ns"]
    phases = {name: max(0.0, spent_s) for name, spent_s in report["profile"]["phase_s"].items()}
    whole_s = sum(phases.values()) or 1.0  # nothing measurable
    steps = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in report["profile"]["steps"].items())
    rows = [
        (
            *(name, f"{spent_s:.2f}", f"{100 * spent_s / whole_s:.0f} %", f"{spent_s / lines * 1e9:.0f}"),
            *_yardsticks(name, spent_s / lines * 1e9 / step_ns, report["end_to_end"]["workload"]),
        )
        for name, spent_s in phases.items()
    ]
    text = (
        "A second run; each phase of the engine's time windows is measured separately "
        "(`validation/bench/engine_profile.py`):\n"
        f"{steps}.\nCPU time, without making the events of the trace; the cost of calls from Python is subtracted."
    )
    columns = ("phase", "s", "share", "ns/line request", "yardsticks/request", RATIO)
    return [Heading("Where the time goes", 2), Text(text), Table(columns, rows, ())]


def _unit_blocks(report: dict[str, Any]) -> list[Block]:
    rows = [
        (
            *(name, f"{unit['requests_per_s']:,.0f}", f"{unit['ns_per_request']:.1f}"),
            *_yardsticks(name, unit["yardsticks"]),
        )
        for name, unit in report["units"].items()
    ]
    text = Text(f"The same work many times, the fastest of {ROUNDS} counts.")
    columns = ("unit", "requests/s", "ns/request", "yardsticks/request", RATIO)
    return [Heading("Units alone", 2), text, Table(columns, rows, ())]


def _start_blocks(report: dict[str, Any]) -> list[Block]:
    rows = [
        (
            *(name, f"{begin['cpu_s']:.1f}", _ratio(name, begin["yardsticks"])),
            *(f"{begin['wall_s']:.1f}", f"{begin['compile_s']:.1f}", megabytes(begin["rss_bytes"])),
        )
        for name, begin in (("empty", report["start"]["cold"]), ("filled", report["start"]["warm"]))
    ]
    columns = ("compile cache", "CPU time (s)", RATIO, "wall time (s)", "of it compiling (s)", "peak memory")
    return [Heading("Start: a 64 x 64 x 32 GEMM in a fresh process", 2), Table(columns, rows, ())]


def megabytes(size_bytes: int | None) -> str:
    return "-" if size_bytes is None else f"{size_bytes / 1e6:,.0f} MB"


def measure(workload: str, preset: str, requests: int) -> dict[str, Any]:
    """Measure everything. End to end comes first, so the peak memory is the peak of that run."""
    return {
        "date": date.today().isoformat(),
        "machine": machine_text(),
        "end_to_end": end_to_end(workload, preset),
        "scale": scale(preset),
        "profile": profile(workload, preset),
        "units": units(requests),
        "start": start(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="t-nlg/fc2/tp8", help="model/layer/tpN")
    parser.add_argument("--preset", default="t3_2024")
    parser.add_argument("--requests", type=int, default=UNIT_REQUESTS, help="of each unit alone")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--save", action="store_true", help=f"write tables/{TABLE.name}")
    arguments = parser.parse_args()
    report = measure(arguments.workload, arguments.preset, arguments.requests)
    print(json.dumps(report, indent=1) if arguments.json else tables(report))
    if arguments.save:
        TABLE.write_text(tables(report), encoding="utf-8")


if __name__ == "__main__":
    main()
