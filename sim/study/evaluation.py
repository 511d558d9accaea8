"""Points with `run = "t3"`: a sub-layer in the configurations of the paper, its figures as those of one run.

With `interval_ns` the simulations behind it follow as runs of their own, with their time series, as in the archive of
`t3sim t3` (`sim.scenario.archive`): `point` says which by `simulation`.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sim.collective.chunks import chunks_of
from sim.collective.own_plan import load_plan
from sim.presets import Preset
from sim.results import RunResult
from sim.run.store import Store
from sim.scenario.archive import COLUMN, scenario_row, scenario_runs
from sim.scenario.result import CONFIGURATIONS
from sim.scenario.scenario import Scenario, simulate_scenario
from tracer.gemm.source import GemmSource
from traces.errors import UserError


@dataclass(frozen=True)
class EvaluationCase:
    """A case, the configurations asked for, and all that decides the outcome beside the machine."""

    case: Scenario
    configurations: Sequence[str]
    content: dict[str, Any]


def make_case(preset: Preset, gemm: GemmSource, options: dict[str, Any], gpus: int, interval_ps: int) -> EvaluationCase:
    """A case of a study.

    Args:
        preset: the machine.
        gemm: of one GPU.
        options: gpus, configurations, explicit, chunks (tiles of each GPU's), plan (path of a file).
        gpus: that the workload says, 0 = the option does.
        interval_ps: of the time series, 0 = none.

    Raises:
        UserError: no or two numbers of GPUs, an unknown configuration, a plan that is none.
    """
    if bool(gpus) == ("gpus" in options):
        raise UserError("t3.gpus: give it with a kernel without workload=; a workload has its own")
    gpus = gpus or options["gpus"]
    configurations = options.get("configurations", list(CONFIGURATIONS))
    unknown = [name for name in configurations if name not in CONFIGURATIONS]
    if unknown or not configurations:
        raise UserError(f"t3.configurations: found {configurations}, allowed are {', '.join(CONFIGURATIONS)}")
    sizes = options.get("chunks")
    case = Scenario(
        preset=preset,
        problem=gemm.problem,
        kernel=gemm.kernel,
        gpus=gpus,
        chunks=None if sizes is None else chunks_of(sizes),
        explicit=options.get("explicit", False),
        interval_ps=interval_ps,
        own=load_plan(options["plan"]) if "plan" in options else None,
    )
    content = {"gpus": gpus, "configurations": configurations, "chunks": sizes, "explicit": case.explicit}
    content |= {"interval_ps": interval_ps} if interval_ps else {}
    content |= {"plan_sha256": case.own.digest} if case.own else {}
    return EvaluationCase(
        case, configurations, content | {"problem": asdict(gemm.problem), "kernel": asdict(gemm.kernel)}
    )


def evaluated(case: EvaluationCase) -> list[RunResult]:
    """Simulate a case: a run with figures and no kernels, and with a time series one for each part behind it."""
    found = simulate_scenario(case.case, case.configurations, store=Store())
    row = scenario_row(found, case.content)
    if found.interval_ps:
        return [row, *scenario_runs(found)]
    del row.point[COLUMN]  # the only run of its point
    return [row]
