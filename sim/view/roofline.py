"""Roofline of the kernels of a run: `t3sim plot roofline`.

Operations and their peak are those of `t3sim show` (`sim.run.shares`): without what pads tiles and what causality
leaves out, and the peak of the data type of a GEMM, else that of fp16. Bytes are the traffic on the DRAM bus during the
kernel (without the flush of L2 after it), or the traffic of requests to L2.
"""

from typing import TYPE_CHECKING

from sim.counters import DRAM_COLUMNS, moved_sectors
from sim.hw.request import SECTOR_BYTES
from sim.results import KernelResult, RunResult
from sim.run.shares import operations, peak_tera_flop_per_s
from sim.view.style import BLUE, VERMILION, label_of, legend_below, new_figure, title_of
from tracer.elf.names import short_name
from traces.errors import UserError
from traces.units import GIGA, PS_PER_S, TERA

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVELS = {
    "DRAM": ("o", BLUE, DRAM_COLUMNS),
    "L2": (
        "s",
        VERMILION,
        (
            *("l2.read_sectors", "l2.write_sectors", "l2.atomic_sectors"),
            *("l2.uncached_read_sectors", "l2.uncached_write_sectors"),
        ),
    ),
}
"""Level -> marker, colour, counters of its sectors."""
DECADES = (0.1, 10.0)
"""The axis extends by these factors below and above the points and the ridge."""


def draw_roofline(results: RunResult) -> "Figure":
    """Draw one point per kernel and level, the slopes of DRAM and L2, and the peak of the matrix pipes (log-log).

    Raises:
        UserError: no kernel has matrix operations and traffic.
    """
    points = [
        (level, f"{number}: {short_name(kernel.name)}", *point(results, number, level))
        for number, kernel in enumerate(results.kernels)
        for level in LEVELS
        if kernel.totals["cu.tensor_macs"] and sectors(kernel, level)
    ]
    if not points:
        raise UserError("no kernel of this run did matrix operations: a roofline needs them")
    peaks, peak = results.preset.peaks(), peak_tera_flop_per_s(results)
    slopes = {"DRAM": peaks.dram_bytes_per_s, "L2": peaks.l2_bytes_per_s}
    ridges = [peak * TERA / slope for slope in slopes.values()]
    ends = [*ridges, *(per_byte for *_, per_byte, _ in points)]
    low, high = min(ends) * DECADES[0], max(ends) * DECADES[1]
    figure, axes = new_figure(height_in=4.0)
    for (level, slope), ridge in zip(slopes.items(), ridges, strict=True):
        line = ([low, ridge], [low * slope / TERA, peak])
        axes.loglog(*line, color=LEVELS[level][1], label=f"{level}, {slope / GIGA:,.0f} GB/s")
    axes.hlines(peak, min(ridges), high, color="black", label=f"matrix pipes, {peak:.1f} TFLOP/s")
    for level, name, per_byte, per_s in points:
        marker, colour, _ = LEVELS[level]
        label = label_of(f"{name}, {level}: {per_s / TERA:.3g} TFLOP/s")
        axes.plot(per_byte, per_s / TERA, marker, color=colour, markeredgecolor="black", linestyle="", label=label)
    axes.set(xlabel="intensity (FLOP per byte)", ylabel="TFLOP/s", title=title_of(results), xlim=(low, high))
    legend_below(axes, 2)
    return figure


def sectors(kernel: KernelResult, level: str) -> int:
    """32-byte sectors at a level during the kernel."""
    return moved_sectors(kernel.totals, LEVELS[level][2])


def point(results: RunResult, number: int, level: str) -> tuple[float, float]:
    """Operations per byte, and per second, of kernel `number` of a run."""
    kernel, flop = results.kernels[number], operations(results)[number]
    return flop / (sectors(kernel, level) * SECTOR_BYTES), flop * PS_PER_S / kernel.time_ps
