"""Experiments on single units and single kernels: against other simulators and hardware counters.

They run what the scripts beside this folder run for their tables.
"""

from functools import partial

from sim.presets import load_preset
from validation.against import accelsim_cycles, dram_reference, gemm_counters
from validation.experiments.sublayers import PERCENT
from validation.experiments.task import Experiment, Outcome, Outcomes, Task, task_key

SCRIPTS = "validation.against.{}"


class HbmChannel(Experiment, tag="hbm_channel", frozen=True, kw_only=True):
    """One HBM channel on reference streams. rows: `setting/map/stream` as in `references/hbm2_channel.csv`."""

    rows: tuple[str, ...]

    def tasks(self) -> list[Task]:
        module = SCRIPTS.format("dram_reference")
        return [Task(task_key(module, row), f"HBM channel, {row}", 1e6, partial(_channel, row)) for row in self.rows]

    def answers(self, outcomes: Outcomes) -> dict[str, float]:
        return _prefixed(self.rows, self.tasks(), outcomes)


class GemmCounters(Experiment, tag="gemm_counters", frozen=True, kw_only=True):
    """Sectors of tensor-core GEMMs. kernels: rows of `references/v100_gemm_counters.csv`."""

    kernels: tuple[str, ...]

    def tasks(self) -> list[Task]:
        module = SCRIPTS.format("gemm_counters")
        cases = {case.name: case for case in reversed(gemm_counters.CASES)}  # the first of a name is the kernel itself
        preset = list(load_preset(gemm_counters.PRESET).values().items())
        return [
            Task(task_key(module, name, preset), f"counters of {name}", 1e7, partial(_counters, cases[name]))
            for name in self.kernels
        ]

    def answers(self, outcomes: Outcomes) -> dict[str, float]:
        return _prefixed(self.kernels, self.tasks(), outcomes)


class AccelSimCycles(Experiment, tag="accelsim_cycles", frozen=True, kw_only=True):
    """Cycles of Accel-Sim on identical traces. traces: rows of `references/accelsim.csv` whose trace is committed."""

    traces: tuple[str, ...]

    def tasks(self) -> list[Task]:
        module = SCRIPTS.format("accelsim_cycles")
        cases = {case.name: case for case in accelsim_cycles.cases()}
        presets = {name: list(load_preset(cases[name].preset).values().items()) for name in self.traces}
        return [
            Task(task_key(module, name, presets[name]), f"cycles of {name}", 1e6, partial(_cycles, name))
            for name in self.traces
        ]

    def answers(self, outcomes: Outcomes) -> dict[str, float]:
        return _prefixed(self.traces, self.tasks(), outcomes)


def _prefixed(names: tuple[str, ...], tasks: list[Task], outcomes: Outcomes) -> dict[str, float]:
    return {
        f"{name}/{key}": value
        for name, task in zip(names, tasks, strict=True)
        for key, value in outcomes[task.key].items()
    }


def _channel(row: str) -> Outcome:
    config, _, stream = row.rpartition("/")
    ours = dram_reference.our_result(config, stream)
    return {
        "bandwidth_GBps": ours.bandwidth_GBps,
        "row_hit_percent": PERCENT * ours.row_hit_rate,
        "avg_read_latency_ns": ours.avg_read_latency_ns,
    }


def _counters(case: gemm_counters.Case) -> Outcome:
    ours = gemm_counters.replay(case)
    return {name: getattr(ours, name) for name in ("l1_read_miss_sectors", "l2_read_miss_sectors")}


def _cycles(name: str) -> Outcome:
    case = next(case for case in accelsim_cycles.cases() if case.name == name)
    return {"cycles": accelsim_cycles.replay(case).cycles}
