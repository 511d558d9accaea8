"""Experiments on single units and single kernels: against other simulators, hardware counters and microbenchmarks.

They run what the scripts beside this folder run for their tables. `Recorded` takes what a longer script has written.
"""

import csv
from functools import partial
from pathlib import Path

from sim.presets import load_preset
from sim.units import period_ps
from traces.errors import UserError
from validation import dram_reference, gemm_counters, microbenchmarks
from validation.experiments.sublayers import PERCENT
from validation.experiments.task import Experiment, Outcome, Outcomes, Task, task_key

TABLES = Path(__file__).parent.parent / "tables"
SCRIPTS = "validation.{}"


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


class Microbenchmarks(Experiment, tag="microbenchmarks", frozen=True, kw_only=True):
    """Latencies of a preset by pointer chase, and its stream bandwidths.

    Attributes:
        preset: the machine.
        measured: row of `references/gpu_microbenchmarks.csv`.
    """

    preset: str
    measured: str

    def tasks(self) -> list[Task]:
        module = SCRIPTS.format("microbenchmarks")
        key = task_key(module, list(load_preset(self.preset).values().items()))
        work = partial(_microbenchmarks, self.preset, self.measured)
        return [Task(key, f"microbenchmarks of {self.preset}", 1e7, work)]

    def answers(self, outcomes: Outcomes) -> dict[str, float]:
        return outcomes[self.tasks()[0].key]


class Recorded(Experiment, tag="recorded", frozen=True, kw_only=True):
    """Answers that a script of its own has written: a CSV file of `validation/tables` with columns answer and value.

    Attributes:
        file: its name; while it is missing there are no answers.
        made_by: the command that writes it.
    """

    file: str
    made_by: str

    def tasks(self) -> list[Task]:
        return []

    def answers(self, outcomes: Outcomes) -> dict[str, float]:
        path = TABLES / self.file
        if not path.is_file():
            return {}
        with path.open(encoding="utf-8", newline="") as file:
            try:
                return {row["answer"]: float(row["value"]) for row in csv.DictReader(file)}
            except (KeyError, ValueError) as problem:
                raise UserError(f"{path.name}: not columns answer and value: {problem}") from None


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


def _microbenchmarks(name: str, row: str) -> Outcome:
    """By the columns of the measured file."""
    preset, clock_ps = load_preset(name), period_ps(float(microbenchmarks.measured(row)["clock_MHz"]))
    found = {chase.column: microbenchmarks.latency_ps(preset, chase) / clock_ps for chase in microbenchmarks.CHASES}
    found |= {column: microbenchmarks.stream(name, flow).GBps for flow, column in microbenchmarks.STREAMS}
    found[microbenchmarks.L2_COLUMN] = microbenchmarks.l2_GBps(name)
    return found
