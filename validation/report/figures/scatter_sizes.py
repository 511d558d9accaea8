"""Reduce-scatter time over size: simulated, and measured on real machines."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sim.view.case_bars import new_figure
from sim.view.style import PALETTE, save

MARKERS = "os^Dv<>P"


class Curve(NamedTuple):
    """Times of one machine. points: (10^6 bytes of the whole buffer, us)."""

    label: str
    measured: bool
    points: Sequence[tuple[float, float]]


def curves_of(answers: Mapping[str, float]) -> list[Curve]:
    """The simulated curves, with and without near-memory updates, by number of GPUs."""
    points_of: dict[str, list[tuple[float, float]]] = {}
    for name, value in answers.items():
        place, _, figure = name.rpartition("/")
        if figure in ("rs_us", "rs_nmc_us"):
            kind = " with near-memory updates" if figure == "rs_nmc_us" else ""
            label = f"simulated, {place.split('/')[0]} GPUs{kind}"
            points_of.setdefault(label, []).append((answers[f"{place}/bytes"] / 1e6, value))
    return [Curve(label, False, sorted(points)) for label, points in points_of.items()]


def draw(curves: Sequence[Curve], path: Path) -> None:
    """Draw the curves with logarithmic axes. Measured machines have only markers."""
    figure, axes = new_figure(7, 4.4)
    for place, (label, measured, points) in enumerate(curves):
        sizes_MB, times_us = zip(*points, strict=True)
        style = {"linestyle": "none", "markerfacecolor": "none"} if measured else {"linestyle": "-"}
        axes.plot(
            *(sizes_MB, times_us),
            marker=MARKERS[place % len(MARKERS)],
            color=PALETTE[place % len(PALETTE)],
            label=label,
            **style,
        )
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="size of the whole buffer (MB)",
        ylabel="time (µs)",
        title="Reduce-scatter time against size",
    )
    axes.grid(which="both", alpha=0.3)
    axes.legend(fontsize="x-small", frameon=False)
    save(figure, path)
