"""Roofline of the kernels of a run: `t3sim plot roofline`.

Each multiply-accumulate of the matrix pipes counts as two operations. Bytes are the traffic on the DRAM bus during the
kernel (without the flush of L2 after it), or the traffic of requests to L2.
"""

from typing import TYPE_CHECKING

from sim.counters import DRAM_COLUMNS, moved_sectors
from sim.hw.request import SECTOR_BYTES
from sim.results import KernelResult, RunResult
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
        (level, f"{number}: {short_name(kernel.name)}", intensity(kernel, level), operations_per_s(kernel))
        for number, kernel in enumerate(results.kernels)
        for level in LEVELS
        if kernel.totals["cu.tensor_macs"] and sectors(kernel, level)
    ]
    if not points:
        raise UserError("no kernel of this run did matrix operations: a roofline needs them")
    peaks = results.preset.peaks()
    slopes = {"DRAM": peaks.dram_bytes_per_s, "L2": peaks.l2_bytes_per_s}
    ridges = [peaks.tensor_flop_per_s / slope for slope in slopes.values()]
    ends = [*ridges, *(point[2] for point in points)]
    low, high = min(ends) * DECADES[0], max(ends) * DECADES[1]
    figure, axes = new_figure(height_in=4.0)
    for (level, slope), ridge in zip(slopes.items(), ridges, strict=True):
        line = ([low, ridge], [low * slope / TERA, peaks.tensor_flop_per_s / TERA])
        axes.loglog(*line, color=LEVELS[level][1], label=f"{level}, {slope / GIGA:,.0f} GB/s")
    peak = peaks.tensor_flop_per_s / TERA
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


def intensity(kernel: KernelResult, level: str) -> float:
    """Operations per byte."""
    return 2 * kernel.totals["cu.tensor_macs"] / (sectors(kernel, level) * SECTOR_BYTES)


def operations_per_s(kernel: KernelResult) -> float:
    """Rate of operations, two for each multiply-accumulate."""
    return 2 * kernel.totals["cu.tensor_macs"] * PS_PER_S / kernel.time_ps
