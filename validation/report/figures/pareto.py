"""The front of a search: the largest loss of T3 against what else the paper published, one point per machine."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from sim.view.case_bars import new_figure
from sim.view.style import PALETTE, legend_below, save
from validation.experiments.search import BASE, Aim
from validation.report.effects import front
from validation.report.surface import Surface

ACROSS = "paper-fc-loses-without-mca"
UP = ("paper-nmc-scatter-tp16", "paper-op-reaches-the-ideal", "paper-gemm-reads", "paper-mca-over-t3-geomean")
"""Claims on the axes of the panels; the last panel has the time of the reduce-scatter, which no claim gives."""
AXES = frozenset((ACROSS, *UP))
BAND = PALETTE[2]
WINDOW = 10
"""Tolerances around what is published that a panel shows at most."""
NAMED = 3
"""Machines of the front with a name: so many by the distance, and by the aggregates that were left out of it."""


def draw(found: Surface, path: Path) -> None:
    """Draw a panel per aggregate in UP and one for the reduce-scatter. Bands are what is published, with tolerance."""
    on_front = front(found.errors[[ACROSS, *UP]]) & found.trials
    near = (found.distance, found.check)
    named = dict.fromkeys(name for one in near for name in one[on_front].nsmallest(NAMED).index)
    groups = {
        "machines within the bounds": (found.trials & ~on_front, PALETTE[5], "o", 14),
        "front: none is nearer in all five claims (the nearest have names)": (
            on_front,
            PALETTE[3],
            "o",
            22,
        ),
        "t3_2024": (pd.Series(found.levels.index == BASE, index=found.levels.index), "black", "*", 90),
    }
    panels: list[Any] = [(found.values[name], _label(found.aims[name]), found.aims[name]) for name in UP]
    figure, axes = new_figure(11, 7, rows=2, columns=3, sharex=True)
    flat = axes.ravel()
    flat[2].tick_params(labelbottom=True)  # nothing is below it
    panels.append((found.rs_of_link, "reduce-scatter / link time", None))
    for each, (values, label, aim) in zip(flat, panels, strict=False):
        for title, (chosen, colour, marker, size) in groups.items():
            across = found.values.loc[chosen, ACROSS]
            each.scatter(across, values[chosen], s=size, c=colour, marker=marker, label=title, alpha=0.8)
        each.set_xlim(_window(found.values[ACROSS], found.aims[ACROSS]))
        if aim is not None:
            each.set_ylim(_window(values, aim))
        for name in named:
            place = (found.values.loc[name, ACROSS], values[name])
            each.annotate(
                name, place, xytext=(3, 2), textcoords="offset points", fontsize="xx-small", annotation_clip=True
            )
        _band(each.axvspan, found.aims[ACROSS], each.get_xlim())
        if aim is not None:
            _band(each.axhspan, aim, each.get_ylim())
        each.set(ylabel=label, xlabel="largest loss of T3 in FC layers (%)")
        each.grid(alpha=0.3)
    flat[-1].axis("off")
    figure.suptitle(f"Machines within the bounds, at most {WINDOW} tolerances from what is published (green)")
    legend_below(flat[1], 3)
    save(figure, path)


def _window(values: pd.Series, aim: Aim) -> tuple[float, float]:
    """Limits of an axis: all machines, but at most WINDOW tolerances from what is published."""
    room, margin = WINDOW * aim.tolerance, aim.tolerance
    low, high = aim.claim.published - room, aim.claim.published + room
    return max(low, values.min() - margin), min(high, values.max() + margin)


def _band(span: Any, aim: Aim, limits: Sequence[float]) -> None:
    """Shade what meets a target."""
    low, high = aim.claim.published - aim.tolerance, aim.claim.published + aim.tolerance
    low = limits[0] if aim.claim.relation == "at_most" else low
    high = max(limits[1], high) if aim.claim.relation == "at_least" else high
    span(low, high, color=BAND, alpha=0.18)


def _label(aim: Aim) -> str:
    return f"{aim.claim.id.removeprefix('paper-').replace('-', ' ')} ({aim.claim.unit})"
