"""Speed-ups of the paper's configurations per sub-layer, from archives of `t3sim t3` and studies with `run = "t3"`."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from sim.results import ResultsArchive, RunResult
from sim.scenario.result import ALL_CONFIGURATIONS, COLUMN, SEQUENTIAL
from sim.view.case_bars import case_title
from traces.command.tables import number_text
from traces.errors import UserError

IN_WORKLOAD_NAME = (COLUMN, "t3.gpus", *(f"kernel.{name}" for name in ("shape", "workload", "m", "n", "k")))
"""Swept fields that are already part of the name of the workload."""


@dataclass(frozen=True)
class SpeedupCase:
    """A sub-layer on a machine.

    Attributes:
        title: unique title on one or more lines.
        sequential_ns: time of Sequential.
        speedups: simulated configuration -> speed-up over Sequential.
    """

    title: str
    sequential_ns: float
    speedups: dict[str, float]


def speedup_cases(archives: Sequence[ResultsArchive]) -> list[SpeedupCase]:
    """All sub-layers in some archives, in their order.

    Raises:
        UserError: an archive has no configurations, or has configurations but not Sequential.
    """
    runs = [(archive, run) for archive in archives for run in _runs_with_configurations(archive)]
    presets = {run.preset.name for _, run in runs}
    names = [_name(run) + (f"\n{run.preset.name}" if len(presets) > 1 else "") for _, run in runs]
    titles = Counter(names)
    cases = []
    for name, (archive, run) in zip(names, runs, strict=True):
        title = name if titles[name] == 1 else f"{name}\n{Path(archive.path).stem}"
        speedups = {key: run.figures.get(f"{key}.speedup") for key in ALL_CONFIGURATIONS if key != SEQUENTIAL}
        known = {key: _number(archive, f"{key}.speedup", value) for key, value in speedups.items() if value is not None}
        time = f"{SEQUENTIAL}.time_ns"
        cases.append(SpeedupCase(title, _number(archive, time, run.figures[time]), known))
    return cases


def _number(archive: ResultsArchive, name: str, value: Any) -> float:
    if not isinstance(value, int | float) or not 0 < value < inf:
        raise UserError(f"{archive.path}: {name}: found {value!r}, allowed is a number above 0")
    return float(value)


def _runs_with_configurations(archive: ResultsArchive) -> list[RunResult]:
    """The runs of an archive that have figures of configurations."""
    runs = [run for _, run in archive.results() if any(f"{name}.time_ns" in run.figures for name in ALL_CONFIGURATIONS)]
    if not runs:
        raise UserError(
            f'{archive.path}: holds no configurations: speed-ups come from t3sim t3, or a study with run = "t3"'
        )
    if any(f"{SEQUENTIAL}.time_ns" not in run.figures for run in runs):
        raise UserError(f"{archive.path}: speed-ups are over {SEQUENTIAL}, which was not simulated: leave no choice of "
                        "configurations, or choose it too")  # fmt: skip
    return runs


def _name(run: RunResult) -> str:
    """Name of the workload, and the other swept fields."""
    if "kernel.workload" in run.point:
        name = case_title(str(run.point["kernel.workload"]))
    else:
        nested = run.options.get("problem")
        problem = nested if isinstance(nested, dict) else run.options
        shape = " x ".join(str(problem.get(side, "?")) for side in "mnk")
        name = f"{shape}\n{run.options.get('gpus', '?')} GPUs"
    swept = [f"{field} = {number_text(value)}" for field, value in run.point.items() if field not in IN_WORKLOAD_NAME]
    return "\n".join([name, *swept])


def mean_speedups(cases: Sequence[SpeedupCase]) -> dict[str, float | None]:
    """Configuration -> geometric mean over the cases; None if a case does not have it."""
    shown = [name for name in ALL_CONFIGURATIONS if any(name in case.speedups for case in cases)]
    return {
        name: geometric_mean([case.speedups[name] for case in cases])
        if all(name in case.speedups for case in cases)
        else None
        for name in shown
    }
