"""The results of a validation as HDF5, for notebooks.

    /                       attributes: file_type, format_version, writer
    /claims                 one dataset per column, rows in the order of the report; NaN = not answered
    /answers/<experiment>   `name` and `value`, in the order of the names
    /series/<experiment>/<sub-layer>/<run>/<name>   i8 [time]: sum in each interval; attribute interval_ps

Equal answers give equal bytes.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from traces.output import replacing
from traces.version import VERSION
from traces.write import new_file
from validation.experiments.sublayers import Sublayers
from validation.experiments.workbench import TIMED_RUNS, scenario_run
from validation.report.answers import Findings
from validation.report.compare import Row

FILE_TYPE = "t3sim-validation"
FORMAT_VERSION = 1
NUMBERS = ("published", "simulated", "error", "error_percent", "tolerance")


def write_findings(path: Path, found: Findings) -> None:
    """Write or replace the archive.

    Raises:
        UserError: the file cannot be written.
    """
    with replacing(path) as temporary, new_file(temporary) as (file, _):
        file.attrs["file_type"] = FILE_TYPE
        file.attrs["format_version"] = FORMAT_VERSION
        file.attrs["writer"] = f"t3sim {VERSION}"
        _write_claims(file.create_group("claims"), found.rows)
        for name, answers in sorted(found.answers.items()):
            _write_answers(file.create_group(f"answers/{name}"), answers)
        _write_series(file.create_group("series"), found)


def _write_claims(group: Any, rows: Sequence[Row]) -> None:
    columns = [row.as_dict() for row in rows]
    for name in columns[0] if columns else ():
        if name in NUMBERS:
            values = [np.nan if row[name] is None else row[name] for row in columns]
            group.create_dataset(name, data=np.array(values, np.float64))
        else:
            group.create_dataset(name, data=[row[name] for row in columns], dtype=h5py.string_dtype())


def _write_answers(group: Any, answers: dict[str, float]) -> None:
    names = sorted(answers)
    group.create_dataset("name", data=names, dtype=h5py.string_dtype())
    group.create_dataset("value", data=np.array([answers[name] for name in names], np.float64))


def _write_series(group: Any, found: Findings) -> None:
    for name, experiment in found.experiments.items():
        if not isinstance(experiment, Sublayers) or name not in found.answers:
            continue
        for scenario_name, scenario in experiment.bench.scenarios(experiment.bench.series).items():
            for run in TIMED_RUNS:
                series = found.results[scenario_run(scenario, run).key].series
                place = group.create_group(f"{name}/{scenario_name}/{run}")
                place.attrs["interval_ps"] = scenario.interval_ps
                for stream, values in series.items():
                    place.create_dataset(stream, data=np.array(values, np.int64), compression="gzip", shuffle=True)
