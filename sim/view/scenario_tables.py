"""Tables of a scenario, from its row and its runs: times, traffic, rates, and what the fused kernels waited for."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sim.results import RunResult
from sim.run.shares import bounded_by, shares, tera_flop_per_s
from sim.scenario.result import ALL_CONFIGURATIONS, FUSED_RUNS, T3, T3_MCA, TRAFFIC
from sim.view.heading import evidence_text, is_of_gpu_0, run_heading
from traces.command.tables import Quantity, duration, print_table, print_text
from traces.units import KILO, MEGA, PS_PER_NS, PS_PER_S, PS_PER_US, ps_to_ns, time_text

Runs = Mapping[str, RunResult]
SHOWN = {"matrix": "matrix pipes", "L2": "L2", "DRAM": "DRAM", "link": "link", "network": "network"}
"""Column of the table of runs -> unit whose share it has; the network's only if a run uses it."""
NETWORK = "network_busy_ps"
"""Figure of runs on several nodes."""
TIMES = {"all": "time", "GEMM": "gemm", "RS": "rs", "AG": "ag"}
"""Column of the table of times -> figure."""
TRAFFIC_COLUMNS = ("GEMM r", "GEMM w", "RS r", "RS w", "AG r", "AG w")
"""Short names of TRAFFIC: reads and writes."""
LARGE_BYTES = 10 * MEGA
"""Traffic from which a table is in MB."""
BURST = 0.8
"""An interval of the time series with more than this share of the peak of DRAM counts as a burst."""
NONE = Quantity(None, "-")
NO_SERIES = Quantity(None, "- (no time series)")
NOTE = (
    "A fused kernel has one time for GEMM and RS, which overlap. The writes that\n"
    "clear the output before it ({cleared}) are not included."
)


def show_scenario(row: RunResult, runs: Runs) -> None:
    """Print the tables. row: the figures of the configurations (`sim.scenario.archive`); runs: RUNS name -> run."""
    preset, given = row.preset, row.options
    head = (
        f"GEMM {given['m']} x {given['n']} x {given['k']} on each of {given['gpus']} GPUs, "
        f"output {_size(given['output_bytes'])}"
    )
    print_text("\n".join([f"{preset.name}: {preset.title}", head, *run_heading(row), ""]))
    names = [name for name in ALL_CONFIGURATIONS if f"{name}.time_ns" in row.figures]
    print_table("Time, us", ("configuration", *TIMES, "speed-up", "exact"), [_time_row(name, row) for name in names])
    print_text("exact: the ledger found every contribution exactly once\n")
    _show_traffic({name: _traffic(name, row) for name in names})
    print_text(NOTE.format(cleared=_size(given["zeroing_bytes"])) + "\n" if {T3, T3_MCA} & {*names} else "")
    used = [column for column in SHOWN if column != "network" or _over_nodes(runs)]
    shown = ("run", "us", "TFLOP/s", *used, "bounded by")
    whose = " (counters of GPU 0)" if is_of_gpu_0(runs.values()) else ""
    rows = [_run_row(name, run, used) for name, run in runs.items()]
    print_table(f"Runs: time, rate, percent of each peak{whose}", shown, rows)
    _show_fused(runs, whose)
    faults = [f"{name}: ledger: {fault}" for name, run in runs.items() for fault in run.wrong]
    print_text("\n".join(["", *faults, evidence_text(preset)]))


def _size(data_bytes: int) -> str:
    scale, unit = (MEGA, "MB") if data_bytes >= MEGA else (KILO, "KB")
    return f"{data_bytes / scale:,.1f} {unit}"


def _time_row(name: str, row: RunResult) -> tuple[object, ...]:
    times_us = [row.figures[f"{name}.{figure}_ns"] * PS_PER_NS / PS_PER_US for figure in TIMES.values()]
    exact = "yes" if row.figures[f"{name}.exactly_once"] else "NO"
    return (name, *times_us, row.figures.get(f"{name}.speedup"), exact)


def _show_traffic(traffic: Mapping[str, list[int]]) -> None:
    scale, unit = (MEGA, "MB") if max(map(max, traffic.values())) >= LARGE_BYTES else (KILO, "KB")
    rows = [(name, *(part / scale for part in parts)) for name, parts in traffic.items()]
    print_table(f"DRAM and link traffic per GPU, {unit}", ("configuration", *TRAFFIC_COLUMNS, "all", "link"), rows)


def _traffic(name: str, row: RunResult) -> list[int]:
    """Bytes of each kind, all of DRAM, link."""
    parts = [row.figures[f"{name}.dram_{kind}_bytes"] for kind in TRAFFIC]
    return [*parts, sum(parts), row.figures[f"{name}.link_bytes"]]


def _run_row(name: str, run: RunResult, columns: Sequence[str]) -> tuple[object, ...]:
    found = shares(run)
    used = (100 * found[SHOWN[column]] if SHOWN[column] in found else None for column in columns)
    return (name, run.time_ps / PS_PER_US, tera_flop_per_s(run), *used, bounded_by(run))


def _over_nodes(runs: Runs) -> bool:
    return any(NETWORK in run.figures for run in runs.values())


def _show_fused(runs: Runs, whose: str) -> None:
    """Why each fused kernel took as long as it did."""
    fused = {name: run for name, run in runs.items() if name in FUSED_RUNS}
    if not fused:
        return
    print_text("")
    why = {label: text for label, text in WHY.items() if label != "network busy" or _over_nodes(fused)}
    rows = [(label, *(text(run, runs) for run in fused.values())) for label, text in why.items()]
    print_table(f"Why the fused kernel takes as long as it does{whose}", ("figure", *fused), rows)


def _alone(runs: Runs, value: Callable[[RunResult], Quantity]) -> Quantity:
    return value(runs["gemm"]) if "gemm" in runs else NONE


def _longer(run: RunResult, runs: Runs) -> Quantity:
    if "gemm" not in runs:
        return NONE
    alone_ps = _kernel_ps(runs["gemm"])
    return _time_and(_kernel_ps(run) - alone_ps, f"{_kernel_ps(run) / alone_ps - 1:+.1%}")


def _time_and(time_ps: int, text: str) -> Quantity:
    return Quantity(ps_to_ns(time_ps), f"{time_text(time_ps)} ({text})", "ns")


def _kernel_ps(run: RunResult) -> int:
    return run.time_ps if run.kernel_ps is None else run.kernel_ps


def _link_idle(run: RunResult, _: Runs) -> Quantity:
    idle_ps = run.time_ps - run.figures["link_busy_ps"]
    return _time_and(idle_ps, f"{idle_ps / run.time_ps:.0%}")


def _read_wait(run: RunResult) -> Quantity:
    """Mean time of a compute read before and in the queue of DRAM (Little's law for the time in the queue)."""
    total, columns = run.totals, run.totals["hbm.read_columns.compute_read"]
    if not columns or not total["hbm.accepted.compute_read"]:
        return NONE
    before_ps = total["hbm.wait_ps.compute_read"] / total["hbm.accepted.compute_read"]
    return duration(round(before_ps + total["hbm.occupancy.compute_read"] / columns))


def _in_intervals(run: RunResult) -> np.ndarray:
    """Share of the peak of DRAM in each interval of the time series; empty without one."""
    columns = [values for name, values in run.series.items() if name.startswith("dram_") and name.endswith("_bytes")]
    peak_bytes = run.preset.peaks().dram_bytes_per_s * run.interval_ps / PS_PER_S
    return sum(columns) / peak_bytes if columns else np.zeros(0)


def _bursts(run: RunResult, _: Runs) -> Quantity:
    used = _in_intervals(run)
    return _share((used > BURST).mean()) if used.size else NO_SERIES


def _highest(run: RunResult, _: Runs) -> Quantity:
    used = _in_intervals(run)
    return _share(used.max()) if used.size else NO_SERIES


def _share(value: float) -> Quantity:
    return Quantity(float(value), f"{value:.0%}")


def _threshold(run: RunResult, _: Runs) -> Quantity:
    threshold = run.figures["mca_threshold"]
    return Quantity(threshold, "no limit" if threshold is None else f"{threshold} entries")


def _count(name: str) -> Callable[[RunResult, Runs], Quantity]:
    return lambda run, _: Quantity(run.figures[name], f"{run.figures[name]:,}")


WHY: dict[str, Callable[[RunResult, Runs], Quantity]] = {
    "time": lambda run, _: duration(run.time_ps),
    "GEMM alone": lambda run, runs: _alone(runs, lambda gemm: duration(gemm.time_ps)),
    "longer, to the last warp": _longer,
    "after the last warp": lambda run, _: duration(run.time_ps - _kernel_ps(run)),
    "workgroups": lambda run, _: Quantity(
        run.totals["cu.workgroups"], f"{run.totals['cu.workgroups']:,} on {run.preset.machine.cu.count} CUs"
    ),
    "link busy": lambda run, _: duration(run.figures["link_busy_ps"]),
    "link idle": _link_idle,
    "network busy": lambda run, _: duration(run.figures[NETWORK]),
    "DRAM read waits, alone": lambda run, runs: _alone(runs, _read_wait),
    "DRAM read waits, fused": lambda run, _: _read_wait(run),
    f"time above {BURST:.0%} of DRAM": _bursts,
    "highest use of DRAM": _highest,
    "tiles in the Tracker": lambda run, _: Quantity(
        run.figures["tracker_live_max"],
        f"at most {run.figures['tracker_live_max']:,} of {run.preset.machine.tracker.entries or 'no limit'}",
    ),
    "stores that it stopped": _count("tracker_stalls"),
    "tiles that it spilled": _count("tracker_spilled"),
    "tiles that it completed": _count("tracker_triggers"),
    "DMA descriptors": _count("dma_descriptors"),
    "queued in stage 1": lambda run, _: Quantity(
        run.figures["mca_occupancy"], f"{run.figures['mca_occupancy']:.1f} entries"
    ),
    "MCA threshold": _threshold,
}
"""Figure -> its value and its text, from a fused run and all runs of the scenario."""
