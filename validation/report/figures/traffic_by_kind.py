"""DRAM traffic by kind: Sequential and T3-MCA."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from sim.scenario.result import SEQUENTIAL, T3_MCA
from sim.view.case_bars import name_cases, new_figure
from sim.view.style import PALETTE, legend_below, save

KINDS = {
    "gemm_reads": "GEMM reads",
    "gemm_writes": "GEMM writes",
    "rs_reads": "reduce-scatter reads",
    "rs_writes": "reduce-scatter writes",
    "ag_reads": "all-gather reads",
    "ag_writes": "all-gather writes",
}
WIDTH = 0.38


def draw(answers: Mapping[str, float], cases: Sequence[str], path: Path) -> None:
    """Draw two stacked bars per sub-layer in percent of Sequential: left Sequential, right T3-MCA (outlined)."""
    figure, axes = new_figure(max(6.0, 0.7 * len(cases) + 2), 4.4)
    for offset, name in ((-WIDTH / 2, SEQUENTIAL), (WIDTH / 2, T3_MCA)):
        below = [0.0] * len(cases)
        for colour, (kind, label) in zip(PALETTE, KINDS.items(), strict=False):
            shares = [
                100 * answers[f"{case}/{name}/{kind}_MB"] / answers[f"{case}/{SEQUENTIAL}/dram_MB"] for case in cases
            ]
            across = [place + offset for place in range(len(cases))]
            edge = "black" if name == T3_MCA else "white"
            shown = label if name == SEQUENTIAL else None
            axes.bar(across, shares, WIDTH, bottom=below, label=shown, color=colour, edgecolor=edge, linewidth=0.6)
            below = [low + share for low, share in zip(below, shares, strict=True)]
    for place, case in enumerate(cases):
        change = answers[f"{case}/{T3_MCA}/dram_change"]
        axes.text(place, 102, f"{change:+.0f} %", ha="center", fontsize="x-small")
    name_cases(axes, cases)
    axes.set(
        ylim=(0, 112),
        ylabel="DRAM traffic (% of Sequential)",
        title="DRAM traffic by kind: Sequential (left) and T3-MCA (right, outlined)",
    )
    legend_below(axes, 3)
    save(figure, path)
