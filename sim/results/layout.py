"""A run in an HDF5 group: write and read; the checksums of versions 2 and 3.

The group of a run (version 1: the root of the file):

    .                       attributes: ATTRIBUTES, kernels, TEXTS and point (JSON)
    spec                    text: the machine, every value with kind and source (JSON, `Preset.as_dict`)
    options                 text: the options of the run (JSON)
    kernels/0000, ...       attributes: name, start_ps, end_ps
    kernels/0000/totals     text: "unit.counter" -> sum or maximum over the instances (JSON)
    kernels/0000/units/<unit>  compound [instance]: the raw counters of each instance of the unit in this kernel
    series/time_ps          i8 [time]: end of each interval; the dimension scale of the other series
    series/<name>           i8 [time]: increase in each interval, or a level at its end (`sim.machine.build.SERIES`)
    spans                   SPAN [spans] (`sim.hw.spans`): workgroups and DMA transfers, if there is a time series
    triggers                i8 [tiles, 3]: tile, time of completion (ps), local chunk; if tiles were tracked
    channel_bytes           i8 [time, channels]: bytes on the bus of each DRAM channel, if there is a time series
    stalls                  STALL [rows] (`sim.machine.stalls`): samples of warps by what they wait for, if there is one
    gpus/0001, ...          series, spans, triggers, channel_bytes and stalls of the other simulated GPUs
    mean_dram_bytes         i8 [4], per stream, for several GPUs

The group of a failed point has only the attributes writer, point and failure (the reason). Versions 2 and 3 have a
checksum of each run instead of a seal. Versions 1 and 2 have the attribute trace_fingerprint instead of input, and no
timeline, ledger or link traffic.
"""

import hashlib
import json
from functools import lru_cache
from typing import Any

import h5py
import numpy as np

from sim.host.recorded import Recorded
from sim.presets import Preset, preset_from_dict
from sim.results.check import check_run, check_text
from sim.run.result import Failure, KernelResult, RunResult, ends_ps
from traces.checksum import canonical_json

KERNEL = "kernels/{:04d}"
FORMAT_VERSION = 4
SEALED_FROM = 4
"""First version of the format with a seal (`traces.seal`)."""
INPUT_FROM = 3
"""First version with input, timeline, ledger and link traffic."""
ATTRIBUTES = ("interval_ps", "kernel_ps", "link_bytes", "line_requests", "exactly_once", "code")
"""Attributes with plain values of a RunResult. A value of None is not written."""
TEXTS = ("input", "figures", "wrong", "warnings")
RECORDED = ("spans", "triggers", "channel_bytes", "stalls")
"""Datasets of each GPU that are written if they are not empty."""
ARRAYS = (*RECORDED, "mean_dram_bytes")
GPU = "gpus/{:04d}"


def write_run(group: h5py.Group, run: RunResult | Failure) -> None:
    """Write a run or a failure into an empty group."""
    group.attrs["writer"] = run.writer
    group.attrs["point"] = json.dumps(run.point)
    if isinstance(run, Failure):
        group.attrs["failure"] = run.reason
        return
    for name in ATTRIBUTES:
        if getattr(run, name) is not None:
            group.attrs[name] = getattr(run, name)
    for name in TEXTS:
        group.attrs[name] = json.dumps(getattr(run, name))
    group.attrs["kernels"] = len(run.kernels)
    group["spec"] = json.dumps(run.preset.as_dict(), indent=1)
    group["options"] = json.dumps(run.options, indent=1)
    for number, kernel in enumerate(run.kernels):
        _write_kernel(group.create_group(KERNEL.format(number)), kernel)
    _write_arrays(group, _arrays(run, ARRAYS))
    _write_series(group.create_group("series"), run.series, run.interval_ps)
    for number, other in enumerate(run.others, 1):
        part = group.create_group(GPU.format(number))
        _write_arrays(part, _arrays(other, RECORDED))
        _write_series(part.create_group("series"), other.series, run.interval_ps)


def _arrays(run: RunResult | Recorded, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    arrays = {name: getattr(run, name) for name in names}
    return {name: values for name, values in arrays.items() if values is not None and len(values)}


def _write_arrays(group: h5py.Group, arrays: dict[str, np.ndarray]) -> None:
    for name, values in arrays.items():
        group.create_dataset(name, data=values, compression="gzip", shuffle=True)


def _write_kernel(group: h5py.Group, kernel: KernelResult) -> None:
    group.attrs["name"] = kernel.name
    group.attrs["start_ps"] = kernel.start_ps
    group.attrs["end_ps"] = kernel.end_ps
    group["totals"] = json.dumps(kernel.totals)
    _write_arrays(group.create_group("units"), dict(sorted(kernel.units.items())))


def _write_series(group: h5py.Group, series: dict[str, np.ndarray], interval_ps: int) -> None:
    if not series:
        return
    time = group.create_dataset("time_ps", data=ends_ps(series, interval_ps))
    time.make_scale("time_ps")
    for name, values in sorted(series.items()):
        dataset = group.create_dataset(name, data=values, compression="gzip", shuffle=True)
        dataset.dims[0].attach_scale(time)


def read_run(group: h5py.Group, version: int, writer: str | None = None) -> RunResult | Failure:
    """The run or failure of a group.

    Args:
        group: written by `write_run`.
        version: format version of the file.
        writer: used if the group has no writer (version 1).

    Raises:
        ResultsError: an impossible value.
        ValueError: the checksum of version 2 or 3 does not fit. h5py raises further exceptions for a damaged file.
    """
    attributes = group.attrs
    writer = str(attributes["writer"]) if writer is None else writer
    point = _json(attributes.get("point", "{}"))
    stored: dict[str, Any] = {}
    run: RunResult | Failure
    if "failure" in attributes:
        run = Failure(point, str(attributes["failure"]), writer)
    else:
        stored, preset = _read_spec(group["spec"].asstr()[()])
        run = _read_result(group, preset, version)
        run.writer, run.point = writer, point
    check_text(run.writer, f"{group.name}: writer")
    if isinstance(run, RunResult):
        check_run(run, group.name)
    else:
        check_text(run.reason, f"{group.name}: failure")
    if 1 < version < SEALED_FROM and attributes["checksum"] != run_digest(run, stored, version):
        raise ValueError(f"{group.name}: the checksum does not fit the content")
    return run


def _json(text: str) -> Any:
    """Plain values without NaN and infinities, which JSON does not have."""
    return json.loads(text, parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise ValueError(f"found {constant}, allowed are finite numbers")


@lru_cache(maxsize=64)
def _read_spec(text: str) -> tuple[dict[str, Any], Preset]:
    """The machine of a run, as stored and as a preset. Many runs of a study have the same."""
    stored = json.loads(text)
    return stored, preset_from_dict(stored)


def _read_result(group: h5py.Group, preset: Preset, version: int) -> RunResult:
    attributes = group.attrs
    given: dict[str, Any] = {
        "preset": preset,
        "options": _json(group["options"].asstr()[()]),
        "kernels": [_read_kernel(group[KERNEL.format(k)]) for k in range(int(attributes["kernels"]))],
        "series": _read_series(group),
        "interval_ps": int(attributes["interval_ps"]),
    }
    if version < INPUT_FROM:
        figures = _json(attributes.get("figures", "{}"))
        return RunResult(**given, input={"trace": str(attributes["trace_fingerprint"])}, figures=figures)
    given |= {name: _json(attributes[name]) for name in TEXTS}
    given |= {name: group[name][:] for name in ARRAYS if name in group}
    given["others"] = [_read_recorded(group["gpus"][number]) for number in sorted(group.get("gpus", ()))]
    given |= {name: int(attributes[name]) for name in ("link_bytes", "line_requests")}
    return RunResult(
        **given | {name: tuple(given[name]) for name in ("wrong", "warnings")},
        exactly_once=bool(attributes["exactly_once"]),
        kernel_ps=int(attributes["kernel_ps"]) if "kernel_ps" in attributes else None,
        code=str(attributes["code"]),
    )


def _read_series(group: h5py.Group) -> dict[str, np.ndarray]:
    return {name: values[:] for name, values in group["series"].items() if name != "time_ps"}


def _read_recorded(group: h5py.Group) -> Recorded:
    return Recorded(_read_series(group), **{name: group[name][:] for name in RECORDED if name in group})


def _read_kernel(group: h5py.Group) -> KernelResult:
    return KernelResult(
        name=str(group.attrs["name"]),
        start_ps=int(group.attrs["start_ps"]),
        end_ps=int(group.attrs["end_ps"]),
        units={unit: dataset[:] for unit, dataset in group["units"].items()},
        totals=json.loads(group["totals"].asstr()[()]),
    )


def run_digest(
    run: RunResult | Failure, stored_spec: dict[str, Any] | None = None, version: int = FORMAT_VERSION
) -> str:
    """SHA-256 over the whole content of a run.

    Args:
        run: the run.
        stored_spec: the machine as in the file; it can lack fields that were added later. None = `run.preset`.
        version: format version of the file, which decides the content of the digest.
    """
    digest = hashlib.sha256()
    digest.update(canonical_json([run.writer, run.point]).encode())
    if isinstance(run, Failure):
        digest.update(run.reason.encode())
        return digest.hexdigest()
    spec = run.preset.as_dict() if stored_spec is None else stored_spec
    texts = [run.figures, run.trace_fingerprint, run.interval_ps, spec, run.options]
    if version >= INPUT_FROM:
        texts += [getattr(run, name) for name in (*TEXTS, *ATTRIBUTES)]
    digest.update(canonical_json(texts).encode())
    for kernel in run.kernels:
        digest.update(canonical_json([kernel.name, kernel.start_ps, kernel.end_ps, kernel.totals]).encode())
        for unit in sorted(kernel.units):
            _digest_array(digest, unit, kernel.units[unit])
    for name, values in (*sorted(run.series.items()), *(_arrays(run, ARRAYS).items() if version >= INPUT_FROM else ())):
        _digest_array(digest, name, values)
    return digest.hexdigest()


def _digest_array(digest: Any, name: str, values: np.ndarray) -> None:
    digest.update(f"{name} {values.dtype.descr} {values.shape}".encode())
    digest.update(np.ascontiguousarray(values).tobytes())
