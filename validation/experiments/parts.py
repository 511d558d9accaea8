"""Parts of the five configurations as tasks: each distinct one is simulated once, whoever asks for it."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import numpy as np

from sim.run.result import KernelResult, RunResult
from sim.scenario.result import CONFIGURATIONS, ScenarioResult
from sim.scenario.scenario import Scenario, assemble, runs_of
from validation.experiments.task import Outcome, Outcomes, Task

SIMULATOR = "sim.run.run"
"""Module whose imports are everything that decides what a run finds."""
TIMED_PARTS = ("gemm", "t3", "t3_mca")
"""Runs of which a case with an interval takes time series."""


def part_task(case: Scenario, part: str) -> Task:
    """The simulation of one run of a case."""
    if part not in TIMED_PARTS:
        case = replace(case, interval_ps=0)
    run = case.run(part)
    return Task(run.key, _title(case, part), run.cost, partial(simulate_part, case, part))


KEPT = ("time_ps", "kernel_ps", "link_bytes", "totals", "exactly_once", "wrong", "figures", "line_requests")
"""Fields of a RunResult that are plain values; the others that are kept are arrays."""


def simulate_part(case: Scenario, part: str) -> Outcome:
    """A run's result as plain values."""
    found = case.run(part).execute()
    return {name: getattr(found, name) for name in KEPT} | {
        "dram_bytes": found.dram_bytes.tolist(),
        "series": {name: values.tolist() for name, values in found.series.items()},
    }


def run_result(case: Scenario, part: str, outcome: Outcome) -> RunResult:
    """Back from plain values."""
    plain = {name: outcome[name] for name in ("kernel_ps", "link_bytes", "exactly_once", "figures", "line_requests")}
    series = {name: np.array(values, np.int64) for name, values in outcome["series"].items()}
    kernel = KernelResult(part, 0, outcome["time_ps"], {}, outcome["totals"])
    return RunResult(
        *(case.preset, {}, {}, [kernel], case.interval_ps, series),
        **plain,
        wrong=tuple(outcome["wrong"]),
        mean_dram_bytes=np.array(outcome["dram_bytes"], np.int64),
    )


def case_tasks(case: Scenario, configurations: Iterable[str] = CONFIGURATIONS) -> list[Task]:
    """Everything that the configurations of a case need."""
    return [part_task(case, part) for part in runs_of(list(configurations))]


def evaluation(case: Scenario, outcomes: Outcomes, configurations: Iterable[str] = CONFIGURATIONS) -> ScenarioResult:
    """The configurations of a case from its runs."""
    names = list(configurations)
    runs = {part: run_result(case, part, outcomes[part_task(case, part).key]) for part in runs_of(names)}
    return assemble(case, runs, names)


def _title(case: Scenario, part: str) -> str:
    problem = case.problem
    return f"{part} {problem.m} x {problem.n} x {problem.k} on {case.gpus} GPUs"
