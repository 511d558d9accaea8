"""Time windows of three lengths: `python -m validation.against.windows` prints a table, `--save` writes it.

Six kernels run on four presets with windows as long as the engine's lookahead, with a quarter of it and with one clock
of the crossbar. Time and DRAM traffic must be equal to the picosecond and to the byte (D6).
"""

import argparse
from collections.abc import Iterator
from datetime import date
from pathlib import Path

from sim.host.gpu import Gpu
from sim.hw.request import SECTOR_BYTES
from sim.presets import load_preset
from sim.spec import Machine
from tracer.gemm.source import GemmKernel, GemmProblem, GemmSource
from tracer.streams import BufferStream, Flow, PointerChase
from traces.command.document import Block, Heading, Table, Text, to_markdown
from traces.source import KernelSource
from traces.units import MIB, PS_PER_US

TABLE = Path(__file__).parents[1] / "tables" / "windows.md"
PRESETS = ("t3_2024", "v100", "a100_80g", "mi210")
SHARES = (1.0, 0.25, 0.0)
"""Lengths of a window as shares of the lookahead; 0 is one clock."""
COLUMNS = (
    *("preset", "kernel", "lookahead, ns", "time, us", "a quarter of it", "one clock"),
    *("DRAM, MB", "a quarter of it", "one clock", "equal"),
)
INTRODUCTION = (
    "Time and DRAM traffic (reads and writes, L2 not flushed) with windows of the engine's lookahead, of a quarter "
    "of it, and of one clock of the crossbar. Equal: to the picosecond and to the byte."
)


def kernels(lanes: int) -> dict[str, KernelSource]:
    """Name -> kernel, for warps of so many lanes."""
    small = GemmKernel(64, 64, 32, 2, 2, lanes=lanes)
    flows = {flow: BufferStream(flow, 8 * MIB, lanes=lanes) for flow in (Flow.READ, Flow.WRITE, Flow.COPY)}
    return {
        "GEMM 1024 x 1024 x 1024": GemmSource(GemmProblem(1024, 1024, 1024), GemmKernel(lanes=lanes)),
        "GEMM 512 x 512 x 2048, tiles of 64 x 64": GemmSource(GemmProblem(512, 512, 2048), small),
        **{f"{flow.name.lower()} 8 MiB": source for flow, source in flows.items()},
        "pointer chase 1 MiB": PointerChase(MIB, 128, lanes=lanes),
    }


def measure(machine: Machine, source: KernelSource, share: float) -> tuple[int, int]:
    """(time_ps, bytes of DRAM) of a kernel with windows of a share of the lookahead."""
    gpu = Gpu(machine)
    engine = gpu.node.engine[0]
    clocks = int(engine["lookahead_ps"] // engine["grid_ps"])
    engine["window_ps"] = max(1, int(share * clocks)) * engine["grid_ps"]
    time_ps = gpu.run_kernel(source, 0, None)
    counted = gpu.counted()["hbm"]
    columns = sum(int(counted[name].sum()) for name in ("read_columns", "write_columns", "update_columns"))
    return time_ps, columns * SECTOR_BYTES


def rows() -> Iterator[tuple[str, ...]]:
    for name in PRESETS:
        machine = load_preset(name).machine
        lookahead_ps = int(Gpu(machine).node.engine[0]["lookahead_ps"])
        for title, source in kernels(machine.cu.lanes_per_warp).items():
            found = [measure(machine, source, share) for share in SHARES]
            times, volumes = zip(*found, strict=True)
            yield (
                *(name, title, f"{lookahead_ps / 1000:.2f}"),
                *(f"{time_ps / PS_PER_US:.3f}" for time_ps in times),
                *(f"{volume / 1e6:.3f}" for volume in volumes),
                "yes" if len(set(found)) == 1 else "NO",
            )


def tables() -> str:
    """The report as Markdown."""
    blocks: list[Block] = [
        Heading("Time windows of three lengths", 1),
        Text(f"`python -m validation.against.windows --save`, {date.today().isoformat()}."),
        Text(INTRODUCTION),
        Table(COLUMNS, list(rows()), ()),
    ]
    return to_markdown(blocks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true", help=f"write tables/{TABLE.name}")
    report = tables()
    if parser.parse_args().save:
        TABLE.write_text(report, encoding="utf-8")
    print(report)


if __name__ == "__main__":
    main()
