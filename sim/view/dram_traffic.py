"""DRAM traffic of a run over time, by stream: `t3sim plot traffic`. These commands make the figure of README.md:

t3sim run --workload t-nlg/fc2/tp8 --preset t3_2024 --interval-ns 5000 -o t-nlg-fc2-tp8.h5
t3sim plot traffic t-nlg-fc2-tp8.h5 -o validation/tables/report/figures/t-nlg-fc2-tp8-dram.png
"""

from typing import TYPE_CHECKING

from sim.results import RunResult
from sim.view.style import BLUE, ORANGE, SKY, VERMILION, from_start, legend_below, new_figure, times_us_of, title_of
from traces.units import GIGA, KILO, MEGA, bytes_per_s

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STREAMS = {
    "dram_compute_read_bytes": ("GEMM reads", BLUE),
    "dram_compute_write_bytes": ("GEMM writes", ORANGE),
    "dram_comm_read_bytes": ("comm. reads", SKY),
    "dram_comm_write_bytes": ("comm. writes, updates", VERMILION),
}
"""Column of the time series -> label and colour."""
AMOUNTS = ((GIGA, "GB"), (MEGA, "MB"), (KILO, "KB"))


def draw_traffic(results: RunResult) -> "Figure":
    """Draw the stacked bandwidth of the streams with traffic, and the peak of the machine.

    Raises:
        UserError: the run has no time series.
    """
    times_us = times_us_of(results)
    moved = [name for name in STREAMS if results.column(name).any()]
    rates = [from_start(bytes_per_s(results.column(name), results.interval_ps) / GIGA) for name in moved]
    labels = [f"{STREAMS[name][0]}, {_amount(int(results.column(name).sum()))}" for name in moved]
    peak = results.preset.peaks().dram_bytes_per_s / GIGA
    figure, axes = new_figure()
    if moved:
        axes.stackplot(times_us, rates, labels=labels, colors=[STREAMS[name][1] for name in moved], step="pre")
    axes.axhline(peak, color="black", linestyle="--", linewidth=1, label=f"peak, {peak:,.0f} GB/s")
    axes.set(
        xlabel="time (µs)",
        ylabel="DRAM traffic (GB/s)",
        title=title_of(results),
        xlim=(0, times_us[-1]),
        ylim=(0, None),
    )
    legend_below(axes, min(len(moved) + 1, 3))
    return figure


def _amount(data_bytes: int) -> str:
    """Bytes as text: `17.4 MB`."""
    scale, unit = next(step for step in AMOUNTS if data_bytes >= step[0] or step[0] == KILO)
    return f"{data_bytes / scale:.3g} {unit}"
