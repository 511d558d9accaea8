"""Bandwidths with their peaks, and hit rates, of the kernels of a run: `t3sim plot rates`."""

from typing import TYPE_CHECKING

from sim.counters import moved_sectors, ratios
from sim.hw.request import SECTOR_BYTES
from sim.results import KernelResult, RunResult
from sim.view.style import PALETTE, label_of, legend_below, new_figure, title_of
from tracer.elf.names import short_name
from traces.errors import UserError
from traces.units import GIGA, bytes_per_s

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KERNELS_MAX = 7
"""Largest number of kernels, one colour each. More colours are hard to distinguish."""
BANDWIDTHS = {
    "L1 loads": ("l1.read_sectors",),
    "L2 reads": ("l2.read_sectors", "l2.uncached_read_sectors"),
    "L2 writes, atomics": ("l2.write_sectors", "l2.atomic_sectors", "l2.uncached_write_sectors"),
    "DRAM reads": ("hbm.read_columns",),
    "DRAM writes": ("hbm.write_columns", "hbm.update_columns"),
}
"""Label -> counters of 32-byte sectors. Writes of DRAM are without flushes of L2, after the time of the kernel."""
RATES = {
    "L1 hits": "l1_hit_rate",
    "L2 hits": "l2_hit_rate",
    "L2 merges": "l2_merge_rate",
    "DRAM row hits": "dram_row_hit_rate",
}
BEHIND = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
"""Of a number: a line of a peak does not cross it."""


def draw_rates(results: RunResult) -> "Figure":
    """Draw two panels of bars, one colour per kernel. Dashed lines are the peaks of DRAM and L2.

    Raises:
        UserError: the run has no kernels.
    """
    kernels = results.kernels[:KERNELS_MAX]
    if not kernels:
        raise UserError("this run has no kernels")
    figure, (left, right) = new_figure(height_in=2.2 + 0.25 * len(kernels), columns=2)
    for place, kernel in enumerate(kernels):
        name = label_of(f"{place}: {short_name(kernel.name)}")
        _bars(left, place, len(kernels), [bandwidth(kernel, terms) for terms in BANDWIDTHS.values()], name)
        hit_rates = ratios(kernel.totals)
        _bars(right, place, len(kernels), [100 * (hit_rates[rate] or 0.0) for rate in RATES.values()], name)
    peaks = results.preset.peaks()
    for peak, label, style in ((peaks.dram_bytes_per_s, "DRAM", "--"), (peaks.l2_bytes_per_s, "L2", ":")):
        left.axvline(peak / GIGA, color="black", linestyle=style, linewidth=1, label=f"{label} peak")
    _label(left, list(BANDWIDTHS), "bandwidth (GB/s)")
    _label(right, list(RATES), "hit rate (%)")
    right.set_xlim(0, 115)
    figure.suptitle(title_of(results))
    legend_below(left, 4)
    return figure


def bandwidth(kernel: KernelResult, terms: tuple[str, ...]) -> float:
    """Bandwidth in GB/s: a sum of sector counters over the time of a kernel."""
    return bytes_per_s(moved_sectors(kernel.totals, terms) * SECTOR_BYTES, kernel.time_ps) / GIGA


def _bars(axes, place: int, kernels: int, values: list[float], name: str) -> None:
    height = 0.8 / kernels
    rows = [row + (place - (kernels - 1) / 2) * height for row in range(len(values))]
    drawn = axes.barh(rows, values, height, color=PALETTE[place], label=name)
    axes.bar_label(drawn, fmt="{:,.4g}", padding=2, fontsize="small", bbox=BEHIND)


def _label(axes, names: list[str], quantity: str) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel(quantity)
    axes.margins(x=0.2)
