"""Parts of the five configurations as tasks: each distinct one is simulated once, whoever asks for it."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from sim.run.job_result import JobResult
from sim.scenario.configurations import Case, assemble, parts_of
from sim.scenario.evaluation import CONFIGURATIONS, Evaluation
from traces.schema import LINE_BYTES
from validation.experiments.task import Outcome, Outcomes, Task, task_key

SIMULATOR = "sim.scenario.configurations"
"""Module whose imports are everything that decides what a part finds."""
TIMED_PARTS = ("gemm", "t3", "t3_mca")
"""Parts of which a case with an interval takes time series."""
COLLECTIVE_COST = {"rs": 2.0, "rs_nmc": 1.0, "ag": 1.0}
"""Line requests per line of the output."""


def part_task(case: Case, part: str) -> Task:
    """The simulation of one part of a case."""
    if part not in TIMED_PARTS:
        case = _output_only(case)
    work = partial(simulate_part, case, part)
    return Task(task_key(SIMULATOR, case.part_key(part)), _title(case, part), _cost(case, part), work)


def _output_only(case: Case) -> Case:
    """The case with the shortest K: a collective sees the output alone, wherever the operands before it end."""
    k = case.kernel.tile_k
    problem = replace(case.problem, k=k, lda=k if case.problem.lda is not None else None)
    return replace(case, problem=problem, interval_ps=0)


KEPT = ("time_ps", "kernel_ps", "link_bytes", "totals", "exactly_once", "wrong", "facts", "requests")
"""Fields of a JobResult that are plain values; the others that are kept are arrays."""


def simulate_part(case: Case, part: str) -> Outcome:
    """A part's JobResult as plain values."""
    found = case.run_part(part)
    return {name: getattr(found, name) for name in KEPT} | {
        "dram_bytes": found.dram_bytes.tolist(),
        "series": {name: values.tolist() for name, values in found.series.items()},
    }


def job_result(outcome: Outcome) -> JobResult:
    """Back from plain values."""
    plain = {name: outcome[name] for name in KEPT} | {"wrong": tuple(outcome["wrong"])}
    series = {name: np.array(values, np.int64) for name, values in outcome["series"].items()}
    return JobResult(**plain, dram_bytes=np.array(outcome["dram_bytes"], np.int64), series=series)


def case_tasks(case: Case, configurations: Iterable[str] = CONFIGURATIONS) -> list[Task]:
    """Everything that the configurations of a case need."""
    return [part_task(case, part) for part in parts_of(list(configurations))]


def evaluation(case: Case, outcomes: Outcomes, configurations: Iterable[str] = CONFIGURATIONS) -> Evaluation:
    """The configurations of a case from its parts."""
    names = list(configurations)
    parts: Mapping[str, JobResult] = {part: job_result(outcomes[part_task(case, part).key]) for part in parts_of(names)}
    return assemble(case, dict(parts), names)


def _title(case: Case, part: str) -> str:
    problem = case.problem
    return f"{part} {problem.m} x {problem.n} x {problem.k} on {case.gpus} GPUs"


def _cost(case: Case, part: str) -> float:
    """Guess of the line requests."""
    problem, kernel = case.problem, case.kernel
    output_lines = problem.m * problem.n * problem.c_bytes / LINE_BYTES
    if part in COLLECTIVE_COST:
        return COLLECTIVE_COST[part] * output_lines
    operands = problem.m * problem.n * problem.k * problem.a_bytes * (1 / kernel.tile_m + 1 / kernel.tile_n)
    return operands / LINE_BYTES + 2 * output_lines
