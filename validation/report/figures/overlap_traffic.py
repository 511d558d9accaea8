"""DRAM traffic over time of one sub-layer: the GEMM alone, T3, and T3-MCA."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from sim.view.case_bars import new_figure
from sim.view.dram_traffic import STREAMS
from sim.view.style import from_start, legend_below, save
from traces.units import GIGA, PS_PER_US, bytes_per_s

PANELS = {"gemm": "GEMM alone (then the flush of L2)", "t3": "T3 (round-robin)", "t3_mca": "T3-MCA"}
"""Run of a scenario -> title of its panel."""
Series = Mapping[str, Sequence[int]]
"""Stream -> bytes in each interval."""


def draw(series: Mapping[str, Series], interval_ps: int, peak_bytes_per_s: float, title: str, path: Path) -> None:
    """Draw three panels of stacked bandwidth on one time axis.

    Args:
        series: run of the scenario (as in PANELS) -> time series.
        title: title of the sub-layer.
    """
    figure, panels = new_figure(8, 6.4, rows=len(PANELS), sharex=True, sharey=True)
    peak = peak_bytes_per_s / GIGA
    for axes, (run, label) in zip(panels, PANELS.items(), strict=True):
        streams = series[run]
        rates = [from_start([bytes_per_s(moved, interval_ps) / GIGA for moved in streams[name]]) for name in STREAMS]
        times_us = [place * interval_ps / PS_PER_US for place in range(len(rates[0]))]
        colours = [colour for _, colour in STREAMS.values()]
        names = [name for name, _ in STREAMS.values()]
        axes.stackplot(times_us, rates, labels=names, colors=colours, step="pre")
        axes.axhline(peak, color="black", linestyle="--", linewidth=1, label=f"peak, {peak:,.0f} GB/s")
        moved_MB = sum(sum(streams[name]) for name in STREAMS) / 1e6
        axes.set_title(f"{label}: {moved_MB:,.0f} MB in all", fontsize="medium")
        axes.set_ylabel("GB/s")
    panels[-1].set_xlabel("time (µs)")
    figure.suptitle(f"DRAM traffic over time, {title}")
    legend_below(panels[0], 3)
    save(figure, path)
