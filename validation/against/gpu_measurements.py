"""A measured GPU against a preset: `python -m validation.against.gpu_measurements gpu.csv h200` prints the table.

Every row of the CSV (`validation.against.measure_gpu`) is simulated on the preset and compared with the measured value.
The GEMM uses the kernel of all cases (`tracer.workloads.DEFAULT_KERNEL`), not the kernel of the library. So its sectors
are comparable only if the tiles are similar.
"""

import argparse
import sys
from collections.abc import Callable
from functools import cache

from sim.presets import Preset, load_preset
from sim.results import KernelResult
from tracer.gemm.source import GemmSource
from tracer.streams import BufferStream, Flow
from tracer.workloads import DEFAULT_KERNEL, named_sublayer
from traces.command.document import Block, Heading, Table, Text, to_markdown
from traces.errors import UserError
from traces.units import PS_PER_NS, PS_PER_US, clocks_to_ps
from validation.against.gpu_rows import CHASES, MeasuredGpu, MeasuredRow, read_rows
from validation.against.microbenchmarks import latency_ps, replay

FLOWS = {"read": (Flow.READ, 1), "write": (Flow.WRITE, 1), "copy": (Flow.COPY, 2)}
"""Case of a stream -> its flow, and the number of buffers that the program moves."""
SECTORS = {
    "l2_read_sectors": ("l2.read_sectors",),
    "l2_write_sectors": ("l2.write_sectors",),
    "dram_read_sectors": ("hbm.read_columns",),
    "dram_write_sectors": ("hbm.write_columns",),
}
COLUMNS = ("kind", "case", "quantity", "unit", "measured", "ours", "error")
WARPS, AHEAD = 8, 4
"""The stream kernels of `measure_gpu`: warps of a workgroup, accesses of 16 bytes that a lane has in flight (assumed:
the compiler unrolls their loop four times)."""
STREAM_L2S = 4
"""Small buffer of a stream in L2 capacities. The stream's time is the difference to a buffer of twice this size."""
Simulation = Callable[[MeasuredRow], float]


def simulation_on(preset: Preset) -> Simulation:
    """A function that gives the simulated value of a row, in the unit of the row.

    The returned function raises:
        UserError: an unknown case.
    """

    @cache
    def gemm(case: str) -> KernelResult:
        return replay(preset, GemmSource(named_sublayer(case)[0], DEFAULT_KERNEL))

    @cache
    def stream_GBps(case: str) -> float:
        flow, buffers = _known(FLOWS, case)
        half_bytes = STREAM_L2S * preset.machine.l2.bytes
        half, whole = (replay(preset, stream_source(preset, flow, size)) for size in (half_bytes, 2 * half_bytes))
        return buffers * half_bytes * PS_PER_NS / (whole.time_ps - half.time_ps)

    def simulated(row: MeasuredRow) -> float:
        if row.kind == "stream":
            return stream_GBps(row.case)
        if row.kind == "chase":
            time_ps = latency_ps(preset, _known({chase.level: chase for chase in CHASES}, row.case))
            return time_ps / (PS_PER_NS if row.unit == "ns" else clocks_to_ps(1, preset.machine.cu.clock_MHz))
        if row.quantity == "time":
            return gemm(row.case).time_ps / PS_PER_US
        return sum(gemm(row.case).totals[counter] for counter in SECTORS[row.quantity])

    return simulated


def stream_source(preset: Preset, flow: Flow, buffer_bytes: int) -> BufferStream:
    """A stream kernel of `measure_gpu`: each warp has one turn, workgroups walk the buffer in order."""
    lanes = preset.machine.cu.lanes_per_warp
    workgroups = -(-buffer_bytes // (BufferStream(flow, buffer_bytes, lanes=lanes).access_bytes * WARPS * AHEAD))
    return BufferStream(flow, buffer_bytes, workgroup_count=workgroups, warps=WARPS, unroll=AHEAD, lanes=lanes)


def _known(table: dict, case: str):
    if case not in table:
        raise UserError(f"case: found {case!r}, allowed are {', '.join(table)}")
    return table[case]


def comparison(measured: MeasuredGpu, preset_name: str, simulated: Simulation) -> str:
    """Markdown with the measured value, our value and the error of every row."""
    rows = []
    for row in measured.rows:
        ours = simulated(row)
        figures = (f"{row.value:.6g}", f"{ours:.6g}", f"{100 * (ours / row.value - 1):+.1f} %")
        rows.append((row.kind, row.case, row.quantity, row.unit, *figures))
    blocks: list[Block] = [Heading(f"{measured.gpu} against preset `{preset_name}`", 1)]
    if measured.synthetic:
        blocks.append(Text("**Synthetic figures: invented for a test, not measured.**"))
    return to_markdown([*blocks, Text(measured.provenance), Table(COLUMNS, rows)])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compare a measured GPU with a preset.")
    parser.add_argument("csv", help="written by python -m validation.against.measure_gpu")
    parser.add_argument("preset", help="name of a preset, or a .toml file")
    given = parser.parse_args(arguments)
    try:
        preset = load_preset(given.preset)
        print(comparison(read_rows(given.csv), given.preset, simulation_on(preset)), end="")
    except UserError as mistake:
        print(f"t3sim: {mistake}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
