"""Measured GPUs against presets: `python -m validation.against.gpu_measurements` writes `tables/measured_gpus.md`.

`... gpu.csv PRESET` prints the page of another measurement (`validation.against.measure_gpu`). Results in the store are
used. A kernel of `predictions/*_shapes.csv` is compared with the prediction that was committed before the measurement.
All else is simulated here; the library of the machine chooses the kernel of a GEMM.

What the shortest kernel takes longer than ours is added to all of ours in a second column. This is the only value from
the measurement.
"""

import argparse
import csv
import sys
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from sim.gemm_facts import gpu_facts
from sim.presets import Preset, load_preset
from sim.run.kernel_figures import L2State, figures_of, kernel_run
from sim.run.store import Store, run_or_get
from tracer.gemm.library import choose_kernel
from tracer.gemm.source import GemmSource
from tracer.streams import BufferStream, Flow, PointerChase
from tracer.workloads import named_sublayer
from traces.command.document import Block, Heading, Table, Text, notes, to_markdown, write_page
from traces.errors import UserError
from traces.schema import SECTOR_BYTES
from traces.units import PS_PER_NS, PS_PER_US
from validation.against.gpu_kernels import PREDICTIONS
from validation.against.gpu_rows import BESIDE, CHASES, IDLE, MeasuredGpu, read_rows
from validation.against.microbenchmarks import latency_ps, replay

HERE = Path(__file__).parents[1]
NOTES = HERE / "against" / "gpu_measurements_notes.md"
TABLE = HERE / "tables" / "measured_gpus.md"
MEASURED = {"h200": "gpu_h200.csv", "h100_sxm": "gpu_h100_sxm.csv"}
"""Preset -> file of `references`."""
TITLES = {"gemm": "GEMMs, blind", "operator": "Operators, blind"}
"""Kind of a kernel whose time was predicted -> title."""
SUBLAYERS = "Sub-layers of the paper"
TIME_COLUMNS = ("kernel", "measured (us)", "ours", "error", "error with the excess")
KERNEL_COLUMNS = (*TIME_COLUMNS, "DRAM reads, measured (MB)", "ours", "error")
ERRORS = ("mean absolute error of the time", "with the excess", "mean error with the excess")
MEAN_COLUMNS = ("kernels", "number", *ERRORS, "mean absolute error of DRAM reads")
MEMORY_COLUMNS = ("figure", "unit", "measured", "ours", "error")
WARPS, AHEAD = 8, 4
"""The stream kernels of `gpu_memory`: warps of a workgroup, accesses of 16 bytes that a lane has in flight (assumed:
the compiler unrolls their loop four times)."""
STREAM_L2S = 4
"""Small buffer of a stream in L2 capacities. The stream's time is the difference to a buffer of twice this size."""
LATENCY_COLUMNS = ("streams", "GB/s", "latency of DRAM, measured (ns)")
BESIDE_COLUMNS = ("GEMM", "SMs of the streams", "streams", "GB/s", "GEMM's time over that without traffic, measured")


class Kernel(NamedTuple):
    """Time and DRAM reads of a kernel, measured and ours. excess_us: see `excess_us`."""

    case: str
    measured_us: float
    ours_us: float
    excess_us: float
    measured_bytes: float
    ours_bytes: float

    @property
    def errors(self) -> tuple[float, float, float]:
        """Of the time, of the time with the excess of the shortest kernel, of the DRAM reads."""
        both_us = self.ours_us + self.excess_us
        ours_bytes = self.ours_bytes / self.measured_bytes - 1 if self.measured_bytes else 0.0
        return self.ours_us / self.measured_us - 1, both_us / self.measured_us - 1, ours_bytes


Values = dict[str, dict[str, float]]
"""Case -> quantity -> value."""


def values_of(measured: MeasuredGpu, kind: str) -> Values:
    """The rows of a kind. Of a quantity in two units the last row counts."""
    found: Values = {}
    for row in measured.rows:
        if row.kind == kind:
            found.setdefault(row.case, {})[row.quantity] = row.value
    return found


def excess_us(measured: MeasuredGpu, name: str) -> float:
    """What the shortest kernel takes longer than ours, with its launch; 0 if it is not measured."""
    preset = load_preset(name)
    values = values_of(measured, "launch").get("between events")
    if values is None:
        return 0.0
    lanes = preset.machine.cu.lanes_per_warp
    shortest_ps = preset.machine.dispatch.launch_ps + replay(preset, PointerChase(128, 1, lanes=lanes)).time_ps
    return values["time"] - shortest_ps / PS_PER_US


def blind(name: str, kind: str) -> dict[str, tuple[float, float]]:
    """Kernel -> committed time in us and DRAM reads in bytes; empty if nothing is predicted for a preset."""
    path = PREDICTIONS / f"{kind}s_{name}.csv"
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        return {row["kernel"]: (float(row["time_ns"]) / 1000, float(row["dram_read_bytes"])) for row in rows}


def sublayer(name: str, case: str) -> tuple[float, float]:
    """Time in us and DRAM reads in bytes of a sub-layer's GEMM with the kernel of the library, from an empty L2."""
    preset = load_preset(name)
    problem, _ = named_sublayer(case)
    kernels = (GemmSource(problem, choose_kernel(problem, gpu_facts(preset.machine))),)
    found = figures_of(run_or_get(kernel_run(preset, kernels, L2State.EMPTY, 0.0), Store()).result, preset, kernels)
    return found.time_ns / 1000, found.dram_read_bytes


def kernels_of(measured: MeasuredGpu, name: str) -> dict[str, list[Kernel]]:
    """Title -> kernels, in the order of the file."""
    more_us = excess_us(measured, name)
    found: dict[str, list[Kernel]] = {SUBLAYERS: []}
    for kind in TITLES:
        predicted = blind(name, kind)
        for case, values in values_of(measured, kind).items():
            if "time" not in values or (":" in case and case not in predicted):
                continue
            ours = predicted[case] if ":" in case else sublayer(name, case)
            title = TITLES[kind] if ":" in case else SUBLAYERS
            reads = values.get("dram_read_sectors", 0) * SECTOR_BYTES
            found.setdefault(title, []).append(Kernel(case, values["time"], ours[0], more_us, reads, ours[1]))
    return {title: kernels for title, kernels in found.items() if kernels}


def stream_GBps(preset: Preset, case: str) -> float:
    """Bandwidth of a stream kernel of `gpu_memory`: the second half of a long buffer, so start and L2 do not count."""
    flow = Flow[case.upper()]
    half_bytes = STREAM_L2S * preset.machine.l2.bytes
    half, whole = (replay(preset, stream_source(preset, flow, size)) for size in (half_bytes, 2 * half_bytes))
    return (2 if flow == Flow.COPY else 1) * half_bytes * PS_PER_NS / (whole.time_ps - half.time_ps)


def stream_source(preset: Preset, flow: Flow, buffer_bytes: int) -> BufferStream:
    """A stream kernel of `gpu_memory`: each warp has one turn, workgroups walk the buffer in order."""
    lanes = preset.machine.cu.lanes_per_warp
    workgroups = -(-buffer_bytes // (BufferStream(flow, buffer_bytes, lanes=lanes).access_bytes * WARPS * AHEAD))
    return BufferStream(flow, buffer_bytes, workgroup_count=workgroups, warps=WARPS, unroll=AHEAD, lanes=lanes)


def _percent(value: float) -> str:
    return f"{100 * value:+.1f} %"


def _kernel_blocks(found: dict[str, list[Kernel]]) -> list[Block]:
    means: list[list[str]] = []
    blocks: list[Block] = []
    for title, kernels in found.items():
        times, both, reads = zip(*(kernel.errors for kernel in kernels), strict=True)
        means.append(
            [title, str(len(kernels)), *(f"{100 * fmean(map(abs, one)):.1f} %" for one in (times, both)),
             _percent(fmean(both)), f"{100 * fmean(map(abs, reads)):.1f} %"]
        )  # fmt: skip
        blocks += [Heading(title, 3), Table(KERNEL_COLUMNS, [_kernel_cells(one) for one in kernels])]
    return [Table(MEAN_COLUMNS, means), *blocks]


def _kernel_cells(one: Kernel) -> list[str]:
    time, both, reads = one.errors
    sizes = (f"{one.measured_bytes / 1e6:.2f}", f"{one.ours_bytes / 1e6:.2f}", _percent(reads))
    return [one.case, f"{one.measured_us:.1f}", f"{one.ours_us:.1f}", _percent(time), _percent(both),
            *(sizes if one.measured_bytes else ("-", sizes[1], "-"))]  # fmt: skip


def _memory_blocks(measured: MeasuredGpu, name: str) -> list[Block]:
    preset = load_preset(name)
    rows: list[tuple[str, str, float, float]] = []
    chases, streams = values_of(measured, "chase"), values_of(measured, "stream")
    for chase in (one for one in CHASES if one.level in chases):
        ours_ns = latency_ps(preset, chase) / PS_PER_NS
        rows.append((f"{chase.level}, latency", "ns", chases[chase.level]["latency"], ours_ns))
    for case, values in streams.items():
        rows.append((f"stream, {case}", "GB/s", values["bandwidth"], stream_GBps(preset, case)))
    return [Table(MEMORY_COLUMNS, [[what, unit, f"{theirs:,.0f}", f"{ours:,.0f}", _percent(ours / theirs - 1)]
                                   for what, unit, theirs, ours in rows])]  # fmt: skip


def _beside_blocks(measured: MeasuredGpu) -> list[Block]:
    values, rows = values_of(measured, "beside"), []
    for beside in BESIDE:
        if beside.flow != IDLE and beside.case in values:
            alone_us, found = values[beside._replace(flow=IDLE).case]["time"], values[beside.case]
            figures = f"{found['bandwidth']:,.0f}", f"{found['time'] / alone_us:.3f}"
            rows.append([beside.gemm, str(beside.sms), beside.flow, *figures])
    return [Table(BESIDE_COLUMNS, rows)]


def _latency_blocks(measured: MeasuredGpu) -> list[Block]:
    values = values_of(measured, "loaded")
    rows = [[case, f"{one.get('bandwidth', 0):,.0f}", f"{one['latency']:.0f}"] for case, one in values.items()]
    return [Table(LATENCY_COLUMNS, rows)]


def blocks_of(measured: MeasuredGpu, name: str) -> list[Block]:
    """All that is measured of a GPU, beside its preset."""
    blocks: list[Block] = [Heading(f"{measured.gpu} against `{name}`", 2)]
    if measured.synthetic:
        blocks.append(Text("**Synthetic figures: invented for a test, not measured.**"))
    blocks.append(Text(f"{measured.provenance}."))
    kinds = {row.kind for row in measured.rows}
    blocks.append(Text(f"Excess of the shortest kernel: {excess_us(measured, name):.2f} us."))
    blocks += _kernel_blocks(kernels_of(measured, name))
    if "chase" in kinds or "stream" in kinds:
        blocks += [Heading("Memory", 3), *_memory_blocks(measured, name)]
    if "loaded" in kinds:
        blocks += [Heading("Latency of DRAM while other SMs stream", 3), *_latency_blocks(measured)]
    if "beside" in kinds:
        blocks += [Heading("GEMM beside streams of other SMs", 3), *_beside_blocks(measured)]
    return blocks


def page(measured: Iterable[tuple[str, MeasuredGpu]]) -> str:
    """The page of several GPUs, each with the name of its preset."""
    blocks: list[Block] = [
        Heading("Measured GPUs", 1),
        Text("Generated by `python -m validation.against.gpu_measurements`."),
    ]
    for name, one in measured:
        blocks += blocks_of(one, name)
    return to_markdown([*blocks, notes(NOTES)])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", nargs="?", help="written by python -m validation.against.measure_gpu")
    parser.add_argument("preset", nargs="?", help="name of a preset")
    given = parser.parse_args(arguments)
    try:
        if given.csv is None:
            write_page(TABLE, page((name, read_rows(HERE / "references" / file)) for name, file in MEASURED.items()))
        elif given.preset is None:
            raise UserError("preset: found nothing, allowed is the name of a preset")
        else:
            print(to_markdown(blocks_of(read_rows(given.csv), given.preset)), end="")
    except UserError as mistake:
        print(f"t3sim: {mistake}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
