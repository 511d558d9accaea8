"""A figure of the runs of a study over one swept field: `t3sim plot study`."""

from typing import TYPE_CHECKING, Any

import numpy as np

from sim.counters import unit_of_measure
from sim.results import ResultsArchive
from sim.scenario.result import T3, T3_MCA
from sim.view.style import PALETTE, label_of, legend_below, new_figure
from traces.choices import allowed_names
from traces.command.tables import number_text
from traces.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEFAULTS = ("time_ns", f"{T3_MCA}.speedup", f"{T3}.speedup", f"{T3_MCA}.time_ns", f"{T3}.time_ns")
"""Figures to draw if the user names none, the best first."""
MARKERS = "os^Dv<>P"
LINES_MAX = len(PALETTE)
FAR_APART = 8
"""Largest value / smallest value from which the horizontal axis is logarithmic."""
LABEL_CHARACTERS = 90
"""Characters of all labels of the horizontal axis that fit beside each other."""


def draw_study(archive: ResultsArchive, figure_name: str | None, over: str | None, relative: bool) -> "Figure":
    """Draw one line for each combination of the other swept fields, of the points that have the field `over`.

    Args:
        archive: archive of a study.
        figure_name: column of `ResultsArchive.runs_frame`; None = the first of DEFAULTS that it has.
        over: swept field of the horizontal axis; None = the first with more than one value.
        relative: True = plot first value / value. For a time this is the speed-up.

    Raises:
        UserError: unknown figure or field, no points, or too many lines to distinguish.
    """
    points = [
        {name: str(value) if isinstance(value, list | dict) else value for name, value in run.point.items()}
        for run in archive.runs
    ]
    swept = list(dict.fromkeys(name for point in points for name in point))
    frame = archive.runs_frame()
    if not swept:
        raise UserError("this archive has no study: no field was swept")
    over = over or next((name for name in swept if len({point.get(name) for point in points} - {None}) > 1), swept[0])
    _check(over, swept, "--over")
    columns = [name for name in frame.select_dtypes("number") if name not in swept]
    figure_name = figure_name or next((name for name in DEFAULTS if name in columns), DEFAULTS[0])
    _check(figure_name, columns, "--figure")
    lines: dict[tuple, list[tuple[Any, float]]] = {}
    for point, figure in zip(points, frame[figure_name].astype(float), strict=True):
        if over in point and np.isfinite(figure):
            others = tuple((name, point[name]) for name in swept if name in point and name != over)
            lines.setdefault(others, []).append((point[over], figure))
    if not 1 <= len(lines) <= LINES_MAX:
        raise UserError(f"found {len(lines)} lines over {over}, allowed are 1 to {LINES_MAX}: sweep fewer fields")
    return _drawn(lines, figure_name, over, relative)


def _drawn(lines: dict[tuple, list[tuple[Any, float]]], figure_name: str, over: str, relative: bool) -> "Figure":
    figure, axes = new_figure()
    values_over = list(dict.fromkeys(x for line in lines.values() for x, _ in line))
    places = _places(axes, values_over)
    same = set.intersection(*(set(others) for others in lines))
    drawn: list[list[float]] = []
    for number, (others, line) in enumerate(lines.items()):
        label = (
            ", ".join(f"{name} = {number_text(value)}" for name, value in others if (name, value) not in same) or None
        )
        drawn.append(values := [line[0][1] / value if relative and value else value for _, value in line])
        x = [places[value] for value, _ in line]
        axes.plot(x, values, marker=MARKERS[number], color=PALETTE[number], label=label and label_of(label))
    unit = "first / this" if relative else unit_of_measure(figure_name)
    turned = max(len(number_text(value)) for value in values_over) * len(values_over) > LABEL_CHARACTERS
    axes.set_xticks(
        list(places.values()), [label_of(number_text(value)) for value in values_over], rotation=90 if turned else 0
    )
    axes.minorticks_off()
    axes.set(
        xlabel=label_of(over),
        ylabel=label_of(figure_name) + (f" ({unit})" if unit != "1" else ""),
        title=label_of(f"{figure_name} over {over}"),
    )
    axes.set_ylim(0, 1.1 * max(value for line in drawn for value in line) or 1.0)
    if len(lines) > 1:
        legend_below(axes, min(len(lines), 3))
    return figure


def _places(axes: Any, values: list[Any]) -> dict[Any, float]:
    """Place of each swept value on the axis: numbers at their value, on a log axis if they are far apart; else even."""
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return {value: float(place) for place, value in enumerate(values)}
    if min(values) > 0 and max(values) >= FAR_APART * min(values):
        axes.set_xscale("log", base=2)
    return {value: float(value) for value in values}


def _check(name: str, allowed: list[str], option: str) -> None:
    if name not in allowed:
        raise UserError(f"{option}: found {name!r}; {allowed_names(name, allowed, 't3sim show RESULT --json')}")
