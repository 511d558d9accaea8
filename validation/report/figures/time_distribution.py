"""Time of a sub-layer without overlap: shares of GEMM, reduce-scatter and all-gather."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from sim.scenario.result import SEQUENTIAL
from sim.view.case_bars import HATCHES, name_cases, new_figure
from sim.view.style import PALETTE, legend_below, save

PHASES = {"gemm_us": "GEMM", "rs_us": "reduce-scatter", "ag_us": "all-gather"}
PERCENT = 100


def draw(answers: Mapping[str, float], cases: Sequence[str], path: Path) -> None:
    """Draw stacked shares of the time of Sequential. The whole time is above each bar."""
    figure, axes = new_figure(max(5.0, 0.62 * len(cases) + 1.5), 4.2)
    totals = [answers[f"{case}/{SEQUENTIAL}/time_us"] for case in cases]
    below = [0.0] * len(cases)
    for place, (phase, label) in enumerate(PHASES.items()):
        shares = [
            PERCENT * answers[f"{case}/{SEQUENTIAL}/{phase}"] / total for case, total in zip(cases, totals, strict=True)
        ]
        colour, mark = PALETTE[place], HATCHES[place]
        axes.bar(
            range(len(cases)), shares, 0.75, bottom=below, label=label, color=colour, hatch=mark, edgecolor="white"
        )
        below = [low + share for low, share in zip(below, shares, strict=True)]
    for place, total in enumerate(totals):
        axes.text(place, PERCENT + 1, f"{total:,.0f} µs", ha="center", va="bottom", fontsize="x-small", rotation=90)
    name_cases(axes, cases)
    axes.set(ylim=(0, 122), ylabel="share of the time (%)", title="Time of a sub-layer without overlap (Sequential)")
    legend_below(axes, len(PHASES))
    save(figure, path)
