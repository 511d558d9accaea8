"""Speed-ups of the configurations over Sequential, case by case, with their geometric mean."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from sim.evaluation import CONFIGURATIONS, SEQUENTIAL
from validation.figures.paper import case_title, grouped_bars, legend_below, new_figure, save


def draw(answers: Mapping[str, float], cases: Sequence[str], path: Path) -> None:
    """Bars stand on 1, the time of Sequential."""
    shown = [name for name in CONFIGURATIONS if name != SEQUENTIAL]
    series = {
        f"{name}, geomean {answers[f'geomean/{name}/speedup']:.3f}": [
            *(answers[f"{case}/{name}/speedup"] for case in cases),
            answers[f"geomean/{name}/speedup"],
        ]
        for name in shown
    }
    figure, axes = new_figure(max(6.0, 0.75 * len(cases) + 2), 4.2)
    grouped_bars(axes, [*(case_title(case) for case in cases), "geomean"], series, base=1.0)
    axes.axhline(1, color="black", linewidth=1)
    axes.set(
        ylabel="speed-up over Sequential (x)", title="GEMM and all-reduce of a sub-layer: speed-ups over Sequential"
    )
    legend_below(figure, axes, 2)
    save(figure, path)
