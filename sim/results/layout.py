"""One run as HDF5 objects in a group, and back; and its checksum.

The group of a run (version 1: the root of the file):

    .                       attributes: writer, trace_fingerprint, kernels, interval_ps, point, figures (JSON), checksum
    spec                    text: the machine, every value with kind and source (JSON, `Preset.as_dict`)
    options                 text: how the run was asked for (JSON)
    kernels/0000, ...       attributes: name, start_ps, end_ps
    kernels/0000/totals     text: "unit.counter" -> sum or maximum over the instances (JSON)
    kernels/0000/units/<unit>  compound [instance]: the raw counters of each instance of the unit in this kernel
    series/time_ps          i8 [time]: end of each interval, the dimension scale of the others
    series/<name>           i8 [time]: what each interval added, or a level at its end (`sim.machine.build.SERIES`)

The group of a point that failed has the attributes writer, point, failure (the reason) and checksum, nothing else.
"""

import hashlib
import json

import numpy as np

from sim.presets import preset_from_dict
from sim.results.run import Failure, KernelResult, Results
from traces.checksum import canonical_json

KERNEL = "kernels/{:04d}"


def write_run(group, run):
    """Write Results or a Failure into an empty group."""
    group.attrs["writer"] = run.writer
    group.attrs["point"] = json.dumps(run.point)
    group.attrs["checksum"] = run_digest(run)
    if isinstance(run, Failure):
        group.attrs["failure"] = run.reason
        return
    group.attrs["figures"] = json.dumps(run.figures)
    group.attrs["trace_fingerprint"] = run.trace_fingerprint
    group.attrs["kernels"] = len(run.kernels)
    group.attrs["interval_ps"] = run.interval_ps
    group["spec"] = json.dumps(run.preset.as_dict(), indent=1)
    group["options"] = json.dumps(run.options, indent=1)
    for number, kernel in enumerate(run.kernels):
        _write_kernel(group.create_group(KERNEL.format(number)), kernel)
    _write_series(group.create_group("series"), run)


def _write_kernel(group, kernel):
    group.attrs["name"] = kernel.name
    group.attrs["start_ps"] = kernel.start_ps
    group.attrs["end_ps"] = kernel.end_ps
    group["totals"] = json.dumps(kernel.totals)
    units = group.create_group("units")
    for unit, counters in kernel.units.items():
        units.create_dataset(unit, data=counters, compression="gzip", shuffle=True)


def _write_series(group, run):
    if not run.series:
        return
    time = group.create_dataset("time_ps", data=run.times_ps())
    time.make_scale("time_ps")
    for name, values in run.series.items():
        dataset = group.create_dataset(name, data=values, compression="gzip", shuffle=True)
        dataset.dims[0].attach_scale(time)


def read_run(group, writer=None):
    """Results or Failure of a group; `writer` where the group does not say (version 1).

    Raises:
        ValueError: the content is not what was written; besides what h5py raises for a damaged file.
    """
    attributes = group.attrs
    writer = str(attributes["writer"]) if writer is None else writer
    point, stored = json.loads(attributes.get("point", "{}")), {}
    if "failure" in attributes:
        run = Failure(point, str(attributes["failure"]), writer)
    else:
        stored = json.loads(group["spec"].asstr()[()])
        run = Results(
            preset=preset_from_dict(stored),
            trace_fingerprint=str(attributes["trace_fingerprint"]),
            options=json.loads(group["options"].asstr()[()]),
            kernels=[_read_kernel(group[KERNEL.format(k)]) for k in range(int(attributes["kernels"]))],
            interval_ps=int(attributes["interval_ps"]),
            series={name: values[:] for name, values in group["series"].items() if name != "time_ps"},
            writer=writer,
            point=point,
            figures=json.loads(attributes.get("figures", "{}")),
        )
    if "checksum" in attributes and attributes["checksum"] != run_digest(run, stored):
        raise ValueError(f"{group.name}: the checksum is not that of the content")
    return run


def _read_kernel(group):
    return KernelResult(
        name=str(group.attrs["name"]),
        start_ps=int(group.attrs["start_ps"]),
        end_ps=int(group.attrs["end_ps"]),
        units={unit: dataset[:] for unit, dataset in group["units"].items()},
        totals=json.loads(group["totals"].asstr()[()]),
    )


def run_digest(run, stored_spec=None):
    """SHA-256 over everything that a run holds; `stored_spec` where the file was written before a field came."""
    digest = hashlib.sha256()
    digest.update(canonical_json([run.writer, run.point]).encode())
    if isinstance(run, Failure):
        digest.update(run.reason.encode())
        return digest.hexdigest()
    spec = run.preset.as_dict() if stored_spec is None else stored_spec
    texts = [run.figures, run.trace_fingerprint, run.interval_ps, spec, run.options]
    digest.update(canonical_json(texts).encode())
    for kernel in run.kernels:
        digest.update(canonical_json([kernel.name, kernel.start_ps, kernel.end_ps, kernel.totals]).encode())
        for unit in sorted(kernel.units):
            _digest_array(digest, unit, kernel.units[unit])
    for name in sorted(run.series):
        _digest_array(digest, name, run.series[name])
    return digest.hexdigest()


def _digest_array(digest, name, values):
    digest.update(f"{name} {values.dtype.descr} {values.shape}".encode())
    digest.update(np.ascontiguousarray(values).tobytes())
