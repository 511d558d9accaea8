"""Evaluations in the form of runs, so that what shows, draws and compares results takes both kinds of archive.

An evaluation gives one run per simulation behind it, in the order of `sim.configurations.PARTS`, with its totals and
time series (no unit instances), `point = {"part": name}`; before them stands a run without kernels that has the figures
of the configurations.
"""

import json
from pathlib import Path
from typing import Any

import h5py

from sim.configurations import PARTS
from sim.evaluation_archive import FILE_TYPE, open_evaluation
from sim.jobs import JobResult
from sim.presets import Preset, preset_from_dict
from sim.results import KernelResult, Results, ResultsArchive, open_runs


def open_any(path: str | Path) -> ResultsArchive:
    """Read a results archive, or an evaluation as runs.

    Raises:
        UserError: no such file, neither of the two, of a newer version, truncated or damaged.
    """
    try:
        with h5py.File(path, "r") as file:
            evaluation = file.attrs.get("file_type") == FILE_TYPE
    except (OSError, RuntimeError):
        evaluation = False  # open_runs says what is wrong with it
    return _runs_of(path) if evaluation else open_runs(path)


def _runs_of(path: str | Path) -> ResultsArchive:
    summary, parts = open_evaluation(path)
    with h5py.File(path, "r") as file:
        preset = preset_from_dict(json.loads(file["spec"].asstr()[()]))
        interval_ps, writer = int(file.attrs["interval_ps"]), str(file.attrs["writer"])
    whole = Results(preset, "", summary["workload"], [], writer=writer, point={"part": "all"})
    whole.figures = figures_of(summary)
    names = [name for name in PARTS if name in parts]
    runs = [_run_of(name, parts[name], preset, interval_ps, writer) for name in names]
    return ResultsArchive([whole, *runs], path=str(path))


def _run_of(name: str, part: JobResult, preset: Preset, interval_ps: int, writer: str) -> Results:
    kernel = KernelResult(name, 0, part.time_ps, {}, part.totals)
    return Results(preset, "", {}, [kernel], interval_ps, part.series, writer, {"part": name})


def figures_of(summary: dict[str, Any]) -> dict[str, int | float | str]:
    """Figures of `Evaluation.as_dict`: "<configuration>.<figure>", and "<part>.<fact>" of the simulations behind it."""
    figures: dict[str, int | float | str] = {}
    for name, one in summary["configurations"].items():
        flat = {
            **{figure: value for figure, value in one.items() if not isinstance(value, dict)},
            **{f"dram_{kind}_bytes": value for kind, value in one["dram_bytes"].items()},
            "exactly_once": int(one["ledger"]["exactly_once"]),
        }
        figures |= {f"{name}.{figure}": value for figure, value in flat.items() if value is not None}
    for part, facts in summary["parts"].items():
        figures |= {f"{part}.{fact}": value for fact, value in facts.items() if value is not None}
    return figures
