"""Measured GPUs against presets: `python -m validation.against.gpu_measurements` writes `tables/measured_gpus.md`.

`... gpu.csv PRESET` prints the page of another measurement (`validation.against.measure_gpu`). Results in the store are
used. A kernel of `predictions/*_shapes.csv` is compared with the prediction that was committed before the measurement.
Today's model, which was changed since with the measurement in view, stands beside it. All else is simulated here; the
library of the machine chooses the kernel of a GEMM.

What the shortest kernel takes longer than ours is added to all of today's times in a further column.
"""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from sim.gemm_facts import gpu_facts
from sim.presets import Preset, load_preset
from sim.run.kernel_figures import L2State, figures_of, kernel_run
from sim.run.store import Store, run_or_get
from tracer.streams import BufferStream, Flow, PointerChase
from traces.command.document import Block, Heading, Table, Text, notes, to_markdown, write_page
from traces.errors import UserError
from traces.schema import SECTOR_BYTES
from traces.units import PS_PER_NS, PS_PER_US
from validation.against.gpu_contention import kernels_named, latency_at, slowdown
from validation.against.gpu_kernels import PREDICTIONS
from validation.against.gpu_rows import BESIDE, CHASES, IDLE, LOADED, MeasuredGpu, read_rows
from validation.against.microbenchmarks import latency_ps, replay
from validation.csv_file import read_csv
from validation.errors import mean_errors

HERE = Path(__file__).parents[1]
NOTES = HERE / "against" / "gpu_measurements_notes.md"
TABLE = HERE / "tables" / "measured_gpus.md"
MEASURED = {"h200": "gpu_h200.csv", "h100_sxm": "gpu_h100_sxm.csv"}
"""Preset -> file of `references`."""
TITLES = {"gemm": "GEMMs, blind", "operator": "Operators, blind"}
"""Kind of a kernel whose time was predicted -> title."""
SUBLAYERS = "Sub-layers of the paper"
OF_TORCH = ("softmax", "layernorm", "rmsnorm", "flash_attention")
COMPILED = ("gelu", "quantize", "rotary", "swiglu")
"""Operators that PyTorch ran with kernels of its own, or torch.compile, as all with a residual
(`references/gpu_*_kernels.csv`)."""
TIME_COLUMNS = ("kernel", "measured (us)", "blind", "error", "today", "error", "error with the excess")
KERNEL_COLUMNS = (*TIME_COLUMNS, "DRAM reads, measured (MB)", "today", "error")
ERRORS = ("mean absolute error of the time: blind", "today", "today with the excess", "its mean")
MEAN_COLUMNS = ("kernels", "number", *ERRORS, "mean absolute error of DRAM reads: blind", "today")
MEMORY_COLUMNS = ("figure", "unit", "measured", "ours", "error", "kind")
SET_BY = {"L1 hit": "l1.latency_clk", "L2 hit": "l2.latency_clk", "HBM": "hbm.extra_latency_ps"}
"""Level of a chase -> the value of a preset that a measured latency sets, if its source names the measurement."""
CALIBRATION, COMPARISON = "calibration", "comparison"
WARPS, AHEAD = 8, 4
"""The stream kernels of `gpu_memory`: warps of a workgroup, accesses of 16 bytes that a lane has in flight (assumed:
the compiler unrolls their loop four times)."""
STREAM_L2S = 4
"""Small buffer of a stream in L2 capacities. The stream's time is the difference to a buffer of twice this size."""
LATENCY_COLUMNS = ("streams", "GB/s", "latency of DRAM, measured (ns)", "ours at this bandwidth", "error")
SLOWDOWN = "GEMM's time over that without traffic, measured"
OURS_BESIDE = ("ours beside this bandwidth", "error", "clock of these SMs (MHz)")
BESIDE_COLUMNS = ("GEMM", "SMs of the streams", "streams", "GB/s", SLOWDOWN, *OURS_BESIDE)
LADDER_COLUMNS = ("buffer", "latency, measured (ns)", "bandwidth of all SMs, measured (GB/s)")


class Figures(NamedTuple):
    """Time and DRAM reads of a kernel."""

    us: float
    read_bytes: float


class Kernel(NamedTuple):
    """A kernel, measured, predicted and of today's model. excess_us: see `excess_us`."""

    case: str
    measured: Figures
    blind: Figures | None
    today: Figures
    excess_us: float

    @property
    def errors(self) -> tuple[float | None, float, float, float | None, float | None]:
        """Of the time: blind, today, today with the excess of the shortest kernel. Of the DRAM reads: blind, today."""
        us, read_bytes = self.measured
        blind_us = self.blind.us / us - 1 if self.blind else None
        both = self.blind, self.today
        reads = [one.read_bytes / read_bytes - 1 if one and read_bytes else None for one in both]
        return blind_us, self.today.us / us - 1, (self.today.us + self.excess_us) / us - 1, reads[0], reads[1]


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


def blind(name: str, kind: str) -> dict[str, Figures]:
    """Kernel -> what was committed before; empty if nothing is predicted for a preset."""
    path = PREDICTIONS / f"{kind}s_{name}.csv"
    if not path.exists():
        return {}
    rows = read_csv(path)
    return {row["kernel"]: Figures(float(row["time_ns"]) / 1000, float(row["dram_read_bytes"])) for row in rows}


def today(name: str, case: str) -> Figures:
    """A kernel or the GEMM of a sub-layer, with the kernel of the library, from an empty L2."""
    preset = load_preset(name)
    kernels = kernels_named(case + library_of(case), gpu_facts(preset.machine))
    found = figures_of(run_or_get(kernel_run(preset, kernels, L2State.EMPTY, 0.0), Store()).result, preset, kernels)
    return Figures(found.time_ns / 1000, found.dram_read_bytes)


def library_of(case: str) -> str:
    """The field of a kernel's text that says whose kernel ran."""
    name = case.partition(":")[0]
    if name in COMPILED or ",residual=" in case:
        return ",library=inductor"
    return ",library=torch" if name in OF_TORCH else ""


def kernels_of(measured: MeasuredGpu, name: str) -> dict[str, list[Kernel]]:
    """Title -> kernels, in the order of the file."""
    more_us = excess_us(measured, name)
    found: dict[str, list[Kernel]] = {SUBLAYERS: []}
    for kind in TITLES:
        predicted = blind(name, kind)
        for case, values in values_of(measured, kind).items():
            if "time" not in values or (":" in case and case not in predicted):
                continue
            title = TITLES[kind] if ":" in case else SUBLAYERS
            theirs = Figures(values["time"], values.get("dram_read_sectors", 0) * SECTOR_BYTES)
            kernel = Kernel(case, theirs, predicted.get(case), today(name, case), more_us)
            found.setdefault(title, []).append(kernel)
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


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:+.1f} %"


def _mean_absolute(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{100 * mean_errors(known).absolute:.1f} %" if known else "-"


def _kernel_blocks(found: dict[str, list[Kernel]]) -> list[Block]:
    means: list[list[str]] = []
    blocks: list[Block] = []
    for title, kernels in found.items():
        before, now, with_excess, *reads = zip(*(kernel.errors for kernel in kernels), strict=True)
        times = [_mean_absolute(one) for one in (before, now, with_excess)]
        means.append([title, str(len(kernels)), *times, _percent(fmean(with_excess)), *map(_mean_absolute, reads)])
        blocks += [Heading(title, 3), Table(KERNEL_COLUMNS, [_kernel_cells(one) for one in kernels])]
    return [Table(MEAN_COLUMNS, means), *blocks]


def _kernel_cells(one: Kernel) -> list[str]:
    before, now, with_excess, _, reads = one.errors
    guess = f"{one.blind.us:.1f}" if one.blind else "-"
    times = (f"{one.measured.us:.1f}", guess, _percent(before), f"{one.today.us:.1f}", _percent(now))
    theirs = f"{one.measured.read_bytes / 1e6:.2f}" if one.measured.read_bytes else "-"
    return [one.case, *times, _percent(with_excess), theirs, f"{one.today.read_bytes / 1e6:.2f}", _percent(reads)]


def sets(name: str, level: str) -> bool:
    """Has the measurement of a preset's GPU set its latency of a level?"""
    return name in MEASURED and MEASURED[name] in load_preset(name).sources[SET_BY[level]].source


def _memory_blocks(measured: MeasuredGpu, name: str) -> list[Block]:
    preset = load_preset(name)
    rows: list[tuple[str, str, float, float, str]] = []
    chases, streams = values_of(measured, "chase"), values_of(measured, "stream")
    for chase in (one for one in CHASES if one.level in chases):
        ours_ns = latency_ps(preset, chase) / PS_PER_NS
        kind = CALIBRATION if sets(name, chase.level) else COMPARISON
        rows.append((f"{chase.level}, latency", "ns", chases[chase.level]["latency"], ours_ns, kind))
    for case, values in streams.items():
        rows.append((f"stream, {case}", "GB/s", values["bandwidth"], stream_GBps(preset, case), COMPARISON))
    cells = [[what, unit, f"{theirs:,.0f}", f"{ours:,.0f}", _percent(ours / theirs - 1), kind]
             for what, unit, theirs, ours, kind in rows]  # fmt: skip
    return [Table(MEMORY_COLUMNS, cells)]


def _beside_blocks(measured: MeasuredGpu, name: str) -> list[Block]:
    values, rows = values_of(measured, "beside"), []
    for beside in BESIDE:
        if beside.flow != IDLE and beside.case in values:
            alone_us, found = values[beside._replace(flow=IDLE).case]["time"], values[beside.case]
            theirs, ours = found["time"] / alone_us, slowdown(name, beside, found["bandwidth"])
            figures = f"{found['bandwidth']:,.0f}", f"{theirs:.3f}", f"{ours:.3f}", _percent(ours / theirs - 1)
            clock = f"{found['clock']:,.0f}" if "clock" in found else "-"
            rows.append([beside.gemm, str(beside.sms), beside.flow, *figures, clock])
    return [Table(BESIDE_COLUMNS, rows)]


def _ladder_blocks(measured: MeasuredGpu) -> list[Block]:
    values = values_of(measured, "ladder")
    rows = [[size, f"{one['latency']:.0f}", f"{one['bandwidth']:,.0f}"] for size, one in values.items()]
    return [Table(LADDER_COLUMNS, rows)]


def _latency_blocks(measured: MeasuredGpu, name: str) -> list[Block]:
    values, rows = values_of(measured, "loaded"), []
    for beside in (one for one in LOADED if one.case in values):
        GBps, theirs = values[beside.case].get("bandwidth", 0.0), values[beside.case]["latency"]
        ours = latency_at(name, beside.flow, GBps)
        error = "-" if ours is None else _percent(ours / theirs - 1)
        rows.append([beside.case, f"{GBps:,.0f}", f"{theirs:.0f}", "-" if ours is None else f"{ours:.0f}", error])
    left_out = "-: our streams do not reach this bandwidth, or our loads take longer than 1.5 us there."
    return [Table(LATENCY_COLUMNS, rows), Text(left_out)]


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
    if "ladder" in kinds:
        blocks += [Heading("L2 and DRAM, by the size of a buffer that is read again and again", 3)]
        blocks += _ladder_blocks(measured)
    if "loaded" in kinds:
        blocks += [Heading("Latency of DRAM while other SMs stream", 3), *_latency_blocks(measured, name)]
    if "beside" in kinds:
        blocks += [Heading("GEMM beside streams of other SMs", 3), *_beside_blocks(measured, name)]
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
