"""The archive of an evaluation (HDF5): a sub-layer in the five configurations, with the time series of its parts.

file_type = "t3sim-evaluation", format_version, writer, preset              attributes
/summary                    JSON: workload, configurations (sim.scenario.evaluation.Evaluation.as_dict)
/spec                       JSON: the machine, every value with its source
/parts/NAME                 attributes time_ps, kernel_ps, link_bytes, requests, exactly_once
/parts/NAME/totals, facts   JSON
/parts/NAME/dram_bytes      i8 [4], per stream
/parts/NAME/spans           SPAN [spans] (sim.hw.spans): workgroups and DMA transfers of GPU 0
/parts/NAME/triggers        i8 [tiles, 3]: tile, when it was complete (ps), local chunk, of GPU 0
/parts/NAME/series/COLUMN   i8 [time], one value per interval; time_ps = end of each interval
"""

import json
from pathlib import Path

import h5py
import numpy as np

from sim.hw.spans import SPAN
from sim.results.evaluations import EVALUATION_TYPE, EVALUATION_VERSION
from sim.run.job_result import JobResult
from sim.scenario.evaluation import Evaluation
from traces.errors import UserError
from traces.hdf5_file import open_hdf5
from traces.version import VERSION
from traces.write import new_file, replacing

TIMELINE = ("spans", "triggers")
ATTRIBUTES = ("time_ps", "kernel_ps", "link_bytes", "requests", "exactly_once")


def write_evaluation(path: str | Path, found: Evaluation) -> None:
    """Write an evaluation archive (replaced if it exists).

    Raises:
        UserError: folder missing or not writable, disk full. Nothing is left behind.
    """
    with replacing(Path(path)) as temporary, new_file(temporary) as (file, _):
        file.attrs["file_type"], file.attrs["format_version"] = EVALUATION_TYPE, EVALUATION_VERSION
        file.attrs["writer"], file.attrs["preset"] = f"t3sim {VERSION}", found.preset.name
        file.attrs["interval_ps"] = found.interval_ps
        file["summary"] = json.dumps(found.as_dict(), indent=1)
        file["spec"] = json.dumps(found.preset.as_dict(), indent=1)
        for name, part in found.parts.items():
            write_part(file.create_group(f"parts/{name}"), part, found.interval_ps)


def write_part(group: h5py.Group, part: JobResult, interval_ps: int) -> None:
    """One simulation into a group."""
    for name in ATTRIBUTES:
        group.attrs[name] = getattr(part, name)
    group["totals"], group["facts"] = json.dumps(part.totals), json.dumps(part.facts)
    group["wrong"] = json.dumps(part.wrong)
    group["dram_bytes"] = part.dram_bytes
    for name in TIMELINE:
        if len(getattr(part, name)):
            group.create_dataset(name, data=getattr(part, name), compression="gzip", shuffle=True)
    series = group.create_group("series")
    for name, values in part.series.items():
        series.create_dataset(name, data=values, compression="gzip", shuffle=True)
    if part.series:
        rows = len(next(iter(part.series.values())))
        series["time_ps"] = np.arange(1, rows + 1, dtype=np.int64) * interval_ps


def read_part(group: h5py.Group) -> JobResult:
    """The inverse of `write_part`."""
    return JobResult(
        **{name: int(group.attrs[name]) for name in ATTRIBUTES if name != "exactly_once"},
        exactly_once=bool(group.attrs["exactly_once"]),
        dram_bytes=group["dram_bytes"][:],
        totals=json.loads(group["totals"].asstr()[()]),
        facts=json.loads(group["facts"].asstr()[()]),
        spans=group["spans"][:] if "spans" in group else np.zeros(0, SPAN),
        triggers=group["triggers"][:] if "triggers" in group else np.zeros((0, 3), np.int64),
        wrong=tuple(json.loads(group["wrong"].asstr()[()])),
        series={name: values[:] for name, values in group["series"].items() if name != "time_ps"},
    )


def open_evaluation(path: str | Path) -> tuple[dict, dict[str, JobResult]]:
    """Read an evaluation archive.

    Returns:
        (summary as plain values, part name -> JobResult).

    Raises:
        UserError: no such file, not an evaluation archive, of a newer version, truncated or damaged.
    """
    if not Path(path).is_file():
        raise UserError(f"{path}: no such file")
    try:
        with open_hdf5(path) as file:
            found = file.attrs.get("file_type")
            if found != EVALUATION_TYPE:
                raise UserError(
                    f"{path}: not an evaluation archive: file_type is {found!r}, allowed is {EVALUATION_TYPE!r}"
                )
            if int(file.attrs["format_version"]) > EVALUATION_VERSION:
                version = int(file.attrs["format_version"])
                raise UserError(f"{path}: format_version is {version}, allowed is 1 to {EVALUATION_VERSION}")
            parts = {name: read_part(group) for name, group in file["parts"].items()}
            return json.loads(file["summary"].asstr()[()]), parts
    except (OSError, KeyError, ValueError, RuntimeError) as problem:
        raise UserError(f"{path}: damaged, truncated, or not an HDF5 file ({' '.join(str(problem).split())})") from None
