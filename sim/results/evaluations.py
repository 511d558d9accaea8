"""Evaluations in the form of runs, so that what shows, draws and compares results takes both kinds of archive.

An evaluation (the archive of `t3sim t3`, `sim.scenario.evaluation_archive`) gives one run per simulation behind it, in
the order of `sim.scenario.evaluation.PARTS`, with its totals and time series (no unit instances), `point = {"part":
name}`; its time goes to the last data in memory. Before them stands a run without kernels that has the figures of the
configurations, `point = {"part": "all"}`.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import h5py
import numpy as np

from sim.presets import preset_from_dict
from sim.results.run import KernelResult, Results
from sim.scenario.evaluation import PARTS

EVALUATION_TYPE = "t3sim-evaluation"
EVALUATION_VERSION = 1
WHOLE = "all"
"""Part that stands for the configurations themselves."""


class Simulated(Protocol):
    """What is read of a simulation (`sim.run.job_result.JobResult`)."""

    @property
    def time_ps(self) -> int: ...
    @property
    def totals(self) -> dict[str, int]: ...
    @property
    def series(self) -> dict[str, np.ndarray]: ...


class StoredPart(NamedTuple):
    """A simulation as the archive has it."""

    time_ps: int
    totals: dict[str, int]
    series: dict[str, np.ndarray]


def read_evaluation(file: h5py.File) -> list[Results]:
    """Runs of an open evaluation archive."""
    summary = json.loads(file["summary"].asstr()[()])
    preset = preset_from_dict(json.loads(file["spec"].asstr()[()]))
    writer = str(file.attrs["writer"])
    whole = Results(preset, "", summary["workload"], [], writer=writer, figures=figures_of(summary))
    parts = {name: _read_part(group) for name, group in file["parts"].items()}
    return runs_of_evaluation(whole, parts, int(file.attrs["interval_ps"]))


def _read_part(group: h5py.Group) -> StoredPart:
    series = {name: values[:] for name, values in group["series"].items() if name != "time_ps"}
    return StoredPart(int(group.attrs["time_ps"]), json.loads(group["totals"].asstr()[()]), series)


def runs_of_evaluation(whole: Results, parts: Mapping[str, Simulated], interval_ps: int) -> list[Results]:
    """The run of the configurations, and one for each simulation behind them.

    Args:
        whole: figures, machine and point of the configurations.
        parts: PARTS name -> simulation.
        interval_ps: of their time series.
    """
    runs = [whole]
    for name in PARTS:
        if name in parts:
            part = parts[name]
            kernel = KernelResult(name, 0, part.time_ps, {}, part.totals)
            run = Results(whole.preset, "", {}, [kernel], interval_ps, part.series, whole.writer)
            run.point = whole.point | {"part": name}
            runs.append(run)
    whole.point = whole.point | {"part": WHOLE}
    return runs


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
