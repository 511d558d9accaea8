"""Entries in the DRAM queues and resident workgroups over time: `t3sim plot queue`."""

from typing import TYPE_CHECKING

from sim.results import RunResult
from sim.spec import QueueOrganisation
from sim.view.style import BLUE, GREEN, from_start, legend_below, new_figure, times_us_of, title_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_queue(results: RunResult) -> "Figure":
    """Draw the mean entries of a channel's queue at the end of each interval, and its depth (of both queues if split).

    Workgroups are on the right axis.

    Raises:
        UserError: the run has no time series.
    """
    times_us = times_us_of(results)
    hbm = results.preset.machine.hbm
    depth = hbm.queue_entries * (2 if hbm.queue == QueueOrganisation.SPLIT else 1)
    figure, axes = new_figure()
    entries = from_start(results.column("queue_columns") / hbm.channels)
    axes.step(times_us, entries, where="pre", color=BLUE, label="queue entries per channel (left)")
    axes.axhline(depth, color="black", linestyle="--", linewidth=1, label=f"depth, {depth}")
    axes.set(
        xlabel="time (µs)",
        ylabel="DRAM queue (entries)",
        title=title_of(results),
        xlim=(0, times_us[-1]),
        ylim=(0, depth * 1.05),
    )
    right = axes.twinx()
    workgroups = from_start(results.column("resident_workgroups"))
    right.step(times_us, workgroups, where="pre", color=GREEN, linestyle=":")
    axes.plot([], [], color=GREEN, linestyle=":", label="workgroups (right)")  # an entry for the common legend
    right.set(ylabel="resident workgroups", ylim=(0, None))
    legend_below(axes, 3)
    return figure
