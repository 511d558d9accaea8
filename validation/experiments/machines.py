"""Experiments on presets of real machines: microbenchmarks, GEMM time, collectives. Scripts of their tables work."""

from functools import partial

from sim.presets import load_preset
from traces.units import MIB, period_ps
from validation.against import collectives, gemm_time, microbenchmarks
from validation.experiments.task import Experiment, Outcome, Outcomes, Task, task_key

REQUESTS_PER_ROW = 3e4
"""Line requests of a GEMM, roughly, for each row of A."""


class Microbenchmarks(Experiment, tag="microbenchmarks", frozen=True, kw_only=True):
    """Latencies and bandwidths of a preset, by the columns of `references/gpu_microbenchmarks.csv`.

    Attributes:
        preset: one of `microbenchmarks.MACHINES`.
    """

    preset: str

    def tasks(self) -> list[Task]:
        key = task_key("validation.against.microbenchmarks", _values(self.preset))
        return [Task(key, f"microbenchmarks of {self.preset}", 3e7, partial(_microbenchmarks, self.preset))]

    def answers(self, outcomes: Outcomes) -> dict[str, float]:
        return outcomes[self.tasks()[0].key]


class GemmTime(Experiment, tag="gemm_time", frozen=True, kw_only=True):
    """Time of large GEMMs. preset: one of `gemm_time.MACHINES`."""

    preset: str

    def tasks(self) -> list[Task]:
        machine = next(each for each in gemm_time.MACHINES if each.preset == self.preset)
        found = []
        for row in gemm_time.measured(machine):
            key = task_key("validation.against.gemm_time", self.preset, _values(self.preset), list(row[:3]))
            title = f"GEMM {row.m} x {row.n} x {row.k} on {self.preset}"
            found.append(Task(key, title, REQUESTS_PER_ROW * row.m, partial(_gemm_time, machine, row)))
        return found

    def answers(self, outcomes: Outcomes) -> dict[str, float]:
        """`m<M>/us`."""
        return {name: value for task in self.tasks() for name, value in outcomes[task.key].items()}


class MachineCollectives(Experiment, tag="machine_collectives", frozen=True, kw_only=True):
    """Collectives of a measured machine, calibrated by two points for each number of GPUs and collective.

    Attributes:
        system: as `references/nccl_*.csv` call it.
    """

    system: str

    def _cases(self) -> dict[collectives.Case, Task]:
        module, found = "validation.against.collectives", {}
        values = _values(collectives.SYSTEMS[self.system].preset)
        for case in collectives.measured():
            if case.system == self.system:
                title = f"{case.kind} on {case.gpus} {case.system}"
                found[case] = Task(task_key(module, case, values), title, 1e8, partial(_curve, case))
        return found

    def tasks(self) -> list[Task]:
        return list(self._cases().values())

    def answers(self, outcomes: Outcomes) -> dict[str, float]:
        """`<collective>/<GPUs>/<bytes>/us`, and what was calibrated."""
        return {
            f"{case.kind}/{case.gpus}/{name}": value
            for case, task in self._cases().items()
            for name, value in outcomes[task.key].items()
        }


def _values(preset: str) -> list[tuple[str, object]]:
    return list(load_preset(preset).values().items())


def _microbenchmarks(name: str) -> Outcome:
    """What was measured of this machine."""
    preset = load_preset(name)
    row = microbenchmarks.measured(microbenchmarks.MACHINES[name].row)
    clock_ps = period_ps(float(row["clock_MHz"]))
    found = {
        chase.column: microbenchmarks.latency_ps(preset, chase) / clock_ps
        for chase in microbenchmarks.CHASES
        if row[chase.column]
    }
    if row[microbenchmarks.L2_COLUMN]:
        found[microbenchmarks.L2_COLUMN] = microbenchmarks.l2_GBps(name)
    return found | {column: microbenchmarks.stream(name, flow).GBps for flow, column in microbenchmarks.STREAMS}


def _gemm_time(machine: gemm_time.Machine, row: gemm_time.Row) -> Outcome:
    return {f"m{row.m}/us": gemm_time.outcome(machine, row).time_us}


def _curve(case: collectives.Case) -> Outcome:
    fit, times_us = collectives.run_case(case)
    fitted = {"link_efficiency": fit.efficiency, "launch_us": fit.launch_ps / 1e6}
    return fitted | {f"{size_mb * MIB}/us": time_us for size_mb, time_us in times_us.items()}
