"""A scenario in a results archive: one row with the figures of its configurations, then its runs.

The row is a run without kernels. Its `figures` are "<configuration>.<figure>" and "<run>.<figure>", its `input` and
`options` are those of the scenario, its `point` is {"simulation": "all"}. The runs follow in the order of RUNS, with
`point` {"simulation": <run>}. In the archive of a study every `point` also has the swept fields.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sim.results.archive import ResultsArchive, write_runs
from sim.results.archive import open as open_results
from sim.run.result import ResultsError, RunResult
from sim.scenario.result import COLUMN, RUNS, WHOLE, ScenarioResult


def write_scenario(path: str | Path, scenario: ScenarioResult) -> None:
    """Write the archive of one scenario (replaced if it exists).

    Raises:
        UserError: folder missing or not writable, disk full. Nothing is left behind.
    """
    write_runs(path, [scenario_row(scenario), *scenario_runs(scenario)])


def scenario_row(scenario: ScenarioResult) -> RunResult:
    """The figures of all configurations as the row of an archive, with the whole input of the scenario."""
    summary = scenario.as_dict()
    return RunResult(
        preset=scenario.preset,
        input=scenario.input,
        options=summary["workload"] | scenario.options | {"configurations": list(scenario.configurations)},
        kernels=[],
        interval_ps=scenario.interval_ps,
        figures=scenario_figures(summary),
        code=next((run.code for run in scenario.runs.values()), ""),
        point={COLUMN: WHOLE},
    )


def scenario_runs(scenario: ScenarioResult) -> list[RunResult]:
    """The runs of a scenario, each with its name in `point`."""
    runs = [(name, scenario.runs[name]) for name in RUNS if name in scenario.runs]
    for name, run in runs:
        run.point = {COLUMN: name}
    return [run for _, run in runs]


def open_scenario(path: str | Path) -> tuple[RunResult, dict[str, RunResult]]:
    """Read the archive of one scenario.

    Returns:
        (row of the configurations, RUNS name -> run).

    Raises:
        ResultsError: not a results archive, or not the archive of one scenario.
    """
    archive = open_results(path)
    if not is_scenario(archive):
        raise ResultsError(f"{path}: holds no scenario; t3sim t3 -o writes an archive of one")
    row, *runs = (run for _, run in archive.results())
    return row, {run.point[COLUMN]: run for run in runs}


def is_scenario(archive: ResultsArchive) -> bool:
    """Does the archive hold one scenario: a row of configurations, then its runs?"""
    points = [run.point for _, run in archive.results()]
    named = all(list(point) == [COLUMN] and isinstance(point[COLUMN], str) for point in points)
    return points[:1] == [{COLUMN: WHOLE}] and named and 1 < len(points) == len(archive.runs)


def scenario_figures(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Figures of `ScenarioResult.as_dict` as one level: "<configuration>.<figure>" and "<run>.<figure>"."""
    figures: dict[str, Any] = {}
    for name, values in summary["configurations"].items():
        flat = {
            **{figure: value for figure, value in values.items() if not isinstance(value, dict)},
            **{f"dram_{kind}_bytes": value for kind, value in values["dram_bytes"].items()},
            "exactly_once": int(values["ledger"]["exactly_once"]),
        }
        figures |= {f"{name}.{figure}": value for figure, value in flat.items() if value is not None}
    for run, values in summary["runs"].items():
        figures |= {f"{run}.{figure}": value for figure, value in values.items() if value is not None}
    return figures
