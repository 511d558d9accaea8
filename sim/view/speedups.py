"""Speed-ups of the configurations over Sequential for each sub-layer, with their geometric mean."""

from collections.abc import Mapping, Sequence
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING

from sim.scenario.result import CONFIGURATIONS, SEQUENTIAL
from sim.view.case_bars import case_title, grouped_bars, new_figure, widest_in
from sim.view.style import label_of, legend_below, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDEST_IN = 16.0
"""Largest width of the figure; labels that need more are turned."""
SUMMARIES = {"geomean": "geomean", "max": "largest"}
"""Answer of an experiment over all cases -> label of its bars."""
ONLY_SUMMARIES = "The paper has numbers for all cases together (published), not for single ones"


def draw(
    answers: Mapping[str, float],
    cases: Sequence[str],
    path: Path,
    published: Mapping[str, Mapping[str, float]] | None = None,
) -> None:
    """Draw the speed-ups of an experiment from its answers. published: of SUMMARIES -> configuration -> speed-up."""
    shown = [name for name in CONFIGURATIONS if name != SEQUENTIAL]
    speedups = {name: [answers[f"{case}/{name}/speedup"] for case in cases] for name in shown}
    means = {name: answers[f"geomean/{name}/speedup"] for name in shown}
    beside: dict[str, Mapping[str, float]] = {}
    for summary, values in (published or {}).items():
        if summary != "geomean":
            beside[SUMMARIES[summary]] = {name: answers[f"{summary}/{name}/speedup"] for name in shown}
        beside[f"{SUMMARIES[summary]},\npublished"] = values
    save(draw_speedups([case_title(case) for case in cases], speedups, means, beside), path)


def draw_speedups(
    titles: Sequence[str],
    speedups: Mapping[str, Sequence[float | None]],
    means: Mapping[str, float | None],
    beside: Mapping[str, Mapping[str, float]] | None = None,
) -> "Figure":
    """Draw bars that begin at 1, the time of Sequential.

    Args:
        titles: titles of the cases. Lines that all titles share are in the title of the figure.
        speedups: configuration -> speed-up of each case; None = no bar.
        means: configuration -> geometric mean; None = no bar. Empty: no means are shown.
        beside: label -> configuration -> speed-up: more bars after the means, some of them published.
    """
    common, labels = _short_labels(titles)
    others = beside or {}
    series = {}
    for name, values in speedups.items():
        mean = means.get(name)
        last = [*([mean] if means else []), *(bars.get(name) for bars in others.values())]
        bars = [nan if value is None else value for value in [*values, *last]]
        series[name if mean is None else f"{name}, geomean {mean:.3f}"] = bars
    groups = [*labels, *(["geomean"] if means else []), *others]
    width_in = max(6.0, min(WIDEST_IN, max(0.75, widest_in(groups)) * (len(groups) + 1)))
    figure, axes = new_figure(width_in, 4.2)
    grouped_bars(axes, [*map(label_of, groups)], series)
    lines = ["Speed-ups over Sequential", *([common] if common else []), *([ONLY_SUMMARIES] if others else [])]
    axes.set(ylabel="speed-up (x)", title=label_of("\n".join(lines)))
    legend_below(axes, 2)
    drawn: Figure = figure
    return drawn


def _short_labels(titles: Sequence[str]) -> tuple[str, list[str]]:
    """(lines that all titles share, the other lines of each title); fields without their units of the machine."""
    lines = [[_without_unit(line) for line in title.splitlines()] for title in titles]
    shared = [line for line in lines[0] if all(line in other for other in lines)] if len(lines) > 1 else []
    return ", ".join(shared), ["\n".join(line for line in own if line not in shared) for own in lines]


def _without_unit(line: str) -> str:
    """`queue_entries = 16` of `hbm.queue_entries = 16`; other lines unchanged."""
    name, equals, value = line.partition(" = ")
    return f"{name.rpartition('.')[2]} = {value}" if equals else line
