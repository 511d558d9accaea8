"""Measured GPUs against presets: `python -m validation.against.gpu_measurements` writes `tables/measured_gpus.md`.

`... gpu.csv PRESET` prints the page of another measurement (`validation.against.measure_gpu`). Results in the store are
used. A kernel of `predictions/*_shapes.csv` is compared with the prediction that was committed before the measurement.
All else is simulated here; the library of the machine chooses the kernel of a GEMM.

Times are between two events, which the shortest kernel shows to take time of their own. What it takes longer than ours
is added in a second column. This is the only value from the measurement.
"""

import argparse
import csv
import sys
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from sim.gemm_facts import gpu_facts
from sim.presets import load_preset
from sim.run.kernel_figures import L2State, figures_of, kernel_run
from sim.run.store import Store, run_or_get
from tracer.gemm.library import choose_kernel
from tracer.gemm.source import GemmSource
from tracer.streams import PointerChase
from tracer.workloads import named_sublayer
from traces.command.document import Block, Heading, Table, Text, notes, to_markdown, write_page
from traces.errors import UserError
from traces.schema import SECTOR_BYTES
from traces.units import PS_PER_NS, PS_PER_US
from validation.against.gpu_rows import BESIDE, CHASES, IDLE, MeasuredGpu, read_rows
from validation.against.microbenchmarks import STREAMS, latency_ps, replay, stream

HERE = Path(__file__).parents[1]
NOTES = HERE / "against" / "gpu_measurements_notes.md"
TABLE = HERE / "tables" / "measured_gpus.md"
PREDICTIONS = HERE / "predictions"
MEASURED = {"h200": "gpu_h200.csv", "h100_sxm": "gpu_h100_sxm.csv"}
"""Preset -> file of `references`."""
TITLES = {"gemm": "GEMMs, blind", "operator": "operators, blind"}
"""Kind of a kernel whose time was predicted -> title."""
KERNEL_COLUMNS = (
    *(
        "kernel",
        "measured (us)",
        "ours",
        "error",
        "with the events' time",
        "DRAM reads, measured (MB)",
        "ours",
        "error",
    ),
)
MEAN_COLUMNS = (
    "kernels",
    "number",
    "time: mean absolute error",
    "with the events' time",
    "mean",
    "DRAM reads: mean absolute error",
)
MEMORY_COLUMNS = ("figure", "unit", "measured", "ours", "error")
LATENCY_COLUMNS = ("streams", "GB/s", "latency of DRAM, measured (ns)")
BESIDE_COLUMNS = ("GEMM", "SMs of the streams", "streams", "GB/s", "GEMM's time over that without traffic, measured")


class Kernel(NamedTuple):
    """Time and DRAM reads of a kernel, measured and ours. overhead_us: what the events add to ours."""

    case: str
    measured_us: float
    ours_us: float
    overhead_us: float
    measured_bytes: float
    ours_bytes: float

    @property
    def errors(self) -> tuple[float, float, float]:
        """Of the time, of the time with the events' own time, of the DRAM reads."""
        both_us = self.ours_us + self.overhead_us
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


def overhead_us(measured: MeasuredGpu, name: str) -> float:
    """What the shortest kernel takes longer between two events than ours, with its launch; 0 if it is not measured."""
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
    more_us = overhead_us(measured, name)
    found: dict[str, list[Kernel]] = {"sub-layers of the paper": []}
    for kind in TITLES:
        predicted = blind(name, kind)
        for case, values in values_of(measured, kind).items():
            if "time" not in values or (":" in case and case not in predicted):
                continue
            ours = predicted[case] if ":" in case else sublayer(name, case)
            title = TITLES[kind] if ":" in case else "sub-layers of the paper"
            reads = values.get("dram_read_sectors", 0) * SECTOR_BYTES
            found.setdefault(title, []).append(Kernel(case, values["time"], ours[0], more_us, reads, ours[1]))
    return {title: kernels for title, kernels in found.items() if kernels}


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
    preset, rows = load_preset(name), []
    chases, streams = values_of(measured, "chase"), values_of(measured, "stream")
    for chase in (one for one in CHASES if one.level in chases):
        ours_ns = latency_ps(preset, chase) / PS_PER_NS
        rows.append((f"{chase.level}, latency", "ns", chases[chase.level]["latency"], ours_ns))
    for flow, _ in STREAMS:
        case = flow.name.lower()
        if case in streams:
            size = 3 * preset.machine.l2.bytes // (1 << 20) * (1 << 20)
            rows.append((f"stream, {case}", "GB/s", streams[case]["bandwidth"], stream(name, flow, size).GBps))
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
    more_us = overhead_us(measured, name)
    blocks.append(Text(f"Events' own time: {more_us:.2f} us."))
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
