"""Effects of a search: for each factor and aggregate, how far apart the means of its levels are, in tolerances."""

from pathlib import Path

from sim.view.case_bars import new_figure
from sim.view.style import save
from validation.report.effects import contrasts, is_balanced, margins, reaches
from validation.report.surface import Surface

FULL = 5.0
"""Reach in tolerances with the darkest colour."""


def draw(found: Surface, path: Path) -> None:
    """Draw a table of colours with numbers: factors (the strongest on top) against aggregates.

    A balanced design has error bars: the last row. What is larger is in bold.
    """
    tolerances = {claim: aim.tolerance for claim, aim in found.aims.items()}
    levels, values = found.varied, found.values[found.tried]
    balanced = is_balanced(levels)
    reach = (contrasts(levels, values) if balanced else reaches(levels, values)) / tolerances
    reach = reach.loc[reach.abs().mean(axis=1).sort_values(ascending=False, kind="stable").index]
    bars = margins(reach) if balanced else None
    names = [*reach.index, *([] if bars is None else ["error bar (95 %)"])]
    shown = reach if bars is None else reach.T.assign(bars=bars).T
    figure, axes = new_figure(10.5, 0.3 * len(shown) + 2.6)
    axes.imshow(shown.abs(), cmap="Blues", vmin=0, vmax=FULL, aspect="auto")
    for row, numbers in enumerate(shown.to_numpy()):
        for column, number in enumerate(numbers):
            colour = "white" if abs(number) > 0.6 * FULL else "black"
            sure = bars is not None and row < len(reach) and abs(number) > bars.iloc[column]
            style = {"color": colour, "fontsize": "x-small", "fontweight": "bold" if sure else "normal"}
            axes.text(column, row, f"{number:.1f}", ha="center", va="center", **style)
    titles = [claim.removeprefix("paper-") for claim in reach]
    axes.set_xticks(range(len(titles)), titles, rotation=60, ha="right", fontsize="small")
    axes.set_yticks(range(len(names)), names, fontsize="small")
    axes.set_title(
        "Largest less smallest level mean, in tolerances"
        if bars is None
        else "Mean of the second level less that of the first, in tolerances; bold: larger than the error bar"
    )
    save(figure, path)
