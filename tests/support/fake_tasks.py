"""Tasks that two processes can do without a simulator, and outcomes of real tasks that were never simulated."""

from functools import partial
from pathlib import Path

from traces.errors import UserError
from validation.experiments.ablation_runs import VARIANTS, run_ring
from validation.experiments.parts import simulate_part
from validation.experiments.task import Task

US = 1_000_000
TIMES_US = {"gemm": 900, "rs": 500, "rs_nmc": 470, "ag": 460, "t3": 1000, "t3_mca": 930}
DRAM_MB = {
    "gemm": (200, 100, 0, 0),
    "rs": (0, 0, 190, 100),
    "rs_nmc": (0, 0, 100, 90),
    "ag": (0, 0, 90, 90),
    "t3": (150, 90, 80, 90),
    "t3_mca": (150, 90, 80, 90),
}
STREAMS = ("compute_read", "compute_write", "comm_read", "comm_write")


def counted(log: Path, name: str, value: int) -> dict:
    """Work that leaves a line in a log."""
    with log.open("a", encoding="utf-8") as file:
        file.write(f"{name}\n")
    return {"value": value}


def refused(name: str) -> dict:
    raise UserError(f"{name} cannot run")


def make_tasks(log: Path, count: int) -> list[Task]:
    return [Task(f"key{n}", f"task {n}", float(n), partial(counted, log, f"task {n}", n * n)) for n in range(count)]


def fake_outcomes(tasks: list[Task]) -> dict[str, dict]:
    """An outcome for every task: RunResults of made-up times, traffic left out, or two kernels side by side."""
    return {task.key: _fake(task) for task in tasks}


def _fake(task: Task) -> dict:
    if task.work.func is run_ring:
        found = {"kernel_ps": 950 * US, "time_ps": 960 * US, "dram_bytes": dict.fromkeys(STREAMS, 10**6)}
        ring = task.work.args[1]
        return {name: found | {"link_bytes": 0, "arrived_bytes": 0} for name, one in VARIANTS.items() if one in ring}
    if task.work.func is not simulate_part:
        return {"time_ps": 1100 * US, "gemm_end_ps": 1100 * US, "rs_end_ps": 900 * US, "kernel_ps": 950 * US}
    case, part = task.work.args
    time_ps = TIMES_US[part] * US
    series = {f"dram_{name}_bytes": [10**6, 2 * 10**6] for name in STREAMS} if case.interval_ps else {}
    return {
        "time_ps": time_ps,
        "kernel_ps": time_ps,
        "dram_bytes": [megabytes * 10**6 for megabytes in DRAM_MB[part]],
        "link_bytes": 0 if part == "gemm" else 10**6,
        "totals": {},
        "series": series,
        "exactly_once": True,
        "wrong": [],
        "figures": {},
        "line_requests": 1,
    }
