"""Runs that any process can do without a simulator, and results of real runs that were never simulated."""

import os
import resource
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sim.presets import load_preset
from sim.run.gpus_run import CollectiveRun, FusedRun
from sim.run.result import KernelResult, RunResult
from sim.run.run import KernelRun, Run
from sim.spec import Arbiter
from traces.errors import UserError
from validation.experiments.ablation_runs import RINGS, VARIANTS, RingRun

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


REFUSED, SLOW, KILLER, FAULTY, HUNGRY = -1, -2, -3, -4, -5
"""Numbers of runs that cannot run, take minutes, kill their process, meet a fault, or find a full memory once."""


@dataclass(frozen=True, kw_only=True)
class CountedRun(Run):
    """Leaves a line in a log, and finds the square of its number.

    Attributes:
        log: path of the log; it decides nothing.
    """

    log: str
    number: int

    @property
    def title(self):
        return f"run {self.number}"

    @property
    def cost(self):
        return float(self.number)

    def input(self):
        return {"number": self.number}

    def own_options(self):
        return {}

    def simulated(self, progress, save_points):
        match self.number:
            case -1:
                raise UserError("it cannot\nrun")
            case -2:
                time.sleep(600)
            case -3:
                os.kill(os.getpid(), signal.SIGKILL)
            case -4:
                raise ValueError("a fault")
            case -5:
                _eat_once(Path(f"{self.log}.eaten"))
        with open(self.log, "a", encoding="utf-8") as file:
            file.write(f"run {self.number}\n")
        return RunResult(self.preset, {}, {}, [], figures={"square": self.number**2})


def _eat_once(mark):
    """Ask for more memory than this process may have, if the file `mark` does not exist."""
    if not mark.exists():
        mark.touch()
        used_bytes = resource.getpagesize() * int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (used_bytes + (64 << 20), resource.RLIM_INFINITY))
        np.ones(1 << 28)


def counted_runs(log, *numbers):
    return [CountedRun(preset=load_preset("v100"), log=str(log), number=number) for number in numbers]


def fake_results(runs):
    """A result for every run: made-up times, traffic left out, or two kernels side by side."""
    return {run.key: run.signed(_fake(run)) for run in runs}


def _fake(run):
    if isinstance(run, RingRun):
        names = [name for name, variant in VARIANTS.items() if variant in RINGS[run.ring]]
        found = {"kernel_ps": 950 * US, "time_ps": 960 * US, "link_bytes": 0, "arrived_bytes": 0}
        found |= {f"dram_bytes/{stream}": 10**6 for stream in STREAMS}
        return RunResult(
            run.preset, {}, {}, [], figures={f"{name}/{key}": found[key] for name in names for key in found}
        )
    name = _name(run)
    if not name:
        ends = {"gemm_end_ps": 1100 * US, "collective_end_ps": 900 * US}
        return RunResult(run.preset, {}, {}, [KernelResult("both", 0, 1100 * US, {}, {})], figures=ends)
    time_ps = TIMES_US[name] * US
    timed = {f"dram_{stream}_bytes": np.array([10**6, 2 * 10**6]) for stream in STREAMS}
    before = len(run.input().get("flops", [0])) - 1  # they take no time
    return RunResult(
        *(run.preset, {}, {}),
        [*[KernelResult("before", 0, 0, {}, {})] * before, KernelResult(name, 0, time_ps, {}, {})],
        series=timed if run.interval_ps else {},
        kernel_ps=time_ps,
        mean_dram_bytes=np.array(DRAM_MB[name]) * 10**6,
        link_bytes=0 if name == "gemm" else 10**6,
        line_requests=1,
    )


def _name(run):
    """Which of RUNS it is, "" = none."""
    match run:
        case KernelRun():
            return "gemm"
        case CollectiveRun(kind="all_gather"):
            return "ag"
        case CollectiveRun():
            return "rs_nmc" if run.update else "rs"
        case FusedRun():
            return "t3" if run.arbitration == Arbiter.ROUND_ROBIN else "t3_mca"
    return ""
