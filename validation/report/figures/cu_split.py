"""Software overlap on split compute units: speed-ups with and without contention, and the ideal."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from sim.view.case_bars import case_title, grouped_bars, new_figure
from sim.view.style import legend_below, save


def draw(answers: Mapping[str, float], cases: Sequence[str], splits: Sequence[str], path: Path) -> None:
    """Draw bars that begin at 1, the time of Sequential. splits: texts `GEMM CUs-collective CUs`."""
    series: dict[str, list[float]] = {"ideal overlap": [answers[f"{case}/ideal/speedup"] for case in cases]}
    for split in splits:
        series[f"{split}, each alone"] = [answers[f"{case}/{split}/share_speedup"] for case in cases]
        series[f"{split}, at once"] = [answers[f"{case}/{split}/speedup"] for case in cases]
    figure, axes = new_figure(max(6.0, 1.3 * len(cases) + 2), 4.0)
    grouped_bars(axes, [case_title(case) for case in cases], series)
    axes.set(ylabel="speed-up over Sequential (x)", title="Software overlap: CUs split between GEMM and reduce-scatter")
    legend_below(axes, 3)
    save(figure, path)
