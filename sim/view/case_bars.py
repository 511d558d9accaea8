"""Grouped bars of cases, for example sub-layers: titles, colours, hatches, labels that fit."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from sim.view import style
from sim.view.style import PALETTE

HATCHES = ("", "//", "..", "xx", "\\\\", "++")
"""A second distinction, for grey prints."""
DPI = 110
CHARACTER_EM = 0.6 * 0.694
"""Mean width of a character in an x-small font over the size of the font."""
GAP = 2
"""Characters between two labels."""
LAYER_TITLES = {"op": "OP", "fc2": "FC-2", "fc1": "FC-1", "ip": "IP"}


new_figure = partial(style.new_figure, dpi=DPI)


def case_title(name: str) -> str:
    """Title of a sub-layer such as `t-nlg/fc2/tp8`, on two lines. Another name is its own title."""
    model, layer, degree = parts if len(parts := name.split("/")) == 3 else ("", "", "")
    if layer not in LAYER_TITLES:
        return name
    return f"{LAYER_TITLES[layer]} TP {degree.removeprefix('tp')}\n{model}"


def grouped_bars(axes: Any, groups: Sequence[str], series: Mapping[str, Sequence[float]]) -> None:
    """Draw grouped bars of speed-ups, which begin at 1: one group per label, one colour per series."""
    share = 0.82 / len(series)
    for place, (label, values) in enumerate(series.items()):
        across = [group + (place - (len(series) - 1) / 2) * share for group in range(len(groups))]
        heights = [value - 1 for value in values]
        mark = HATCHES[place % len(HATCHES)]
        colour = PALETTE[place % len(PALETTE)]
        axes.bar(across, heights, share, bottom=1, label=label, color=colour, hatch=mark, edgecolor="white")
    room_in = axes.figure.get_figwidth() / (len(groups) + 1)
    turned = widest_in(groups) > room_in
    axes.set_xticks(range(len(groups)), groups, fontsize="x-small", rotation=90 if turned else 0)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.axhline(1, color="black", linewidth=1)


def name_cases(axes: Any, cases: Sequence[str]) -> None:
    """Write the titles of sub-layers below an axis of stacked bars."""
    turned = 90 if len(cases) > 8 else 0
    axes.set_xticks(range(len(cases)), [case_title(case) for case in cases], fontsize="x-small", rotation=turned)


def widest_in(labels: Sequence[str]) -> float:
    """About the width of the longest line of labels in an x-small font, with a gap to the next label."""
    import matplotlib

    character_in = CHARACTER_EM * matplotlib.rcParams["font.size"] / style.POINTS_PER_IN
    return float(character_in * max((len(line) + GAP for label in labels for line in label.splitlines()), default=0))
