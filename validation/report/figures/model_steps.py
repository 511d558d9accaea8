"""A training step by class of operator: one stacked bar for each case, and beside it the near-memory optimizer."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from sim.view.case_bars import new_figure
from sim.view.style import PALETTE, label_of, legend_below, save
from validation.experiments.model_steps import CLASSES


def draw(answers: Mapping[str, float], cases: Sequence[str], title: str, path: Path) -> None:
    """Draw the share of each class, the time in ms at the bar, and the speed-up of the near-memory optimizer."""
    figure, (shares, gains) = new_figure(9.0, 0.32 * len(cases) + 1.6, columns=2, sharey=True, width_ratios=(3, 1))
    left = [0.0] * len(cases)
    for name, colour in zip(CLASSES, PALETTE, strict=False):
        parts = [answers[f"{case}/{name.replace(' ', '_')}_ms"] / answers[f"{case}/time_ms"] for case in cases]
        shares.barh([*map(label_of, cases)], [100 * part for part in parts], left=left, color=colour, label=name)
        left = [at + 100 * part for at, part in zip(left, parts, strict=True)]
    for place, case in enumerate(cases):
        shares.text(101, place, f"{answers[f'{case}/time_ms']:.1f} ms", va="center", fontsize="small")
    shares.set(xlabel="share of the step (%)", xlim=(0, 118))
    shares.invert_yaxis()
    gains.barh([*map(label_of, cases)], [answers[f"{case}/near_memory_speedup"] for case in cases], color=PALETTE[0])
    gains.set(xlabel="optimizer at the banks (x)", xlim=(1, None))
    figure.suptitle(label_of(title))
    legend_below(shares, 3)
    save(figure, path)
