"""End-to-end speed-ups of models: a training step and the prompt phase of inference."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from sim.scenario.result import CONFIGURATIONS, SEQUENTIAL
from sim.view.case_bars import grouped_bars, new_figure
from sim.view.style import legend_below, save

RUNS = {"training": "training step", "inference": "inference, prompt phase"}


def draw(answers: Mapping[str, float], models: Sequence[str], path: Path) -> None:
    """Draw one panel per phase. Below each model: the share of its time in the sub-layers with an all-reduce."""
    figure, panels = new_figure(max(8.0, 1.5 * len(models) + 1), 4.0, columns=len(RUNS), sharey=True)
    for axes, (run, title) in zip(panels, RUNS.items(), strict=True):
        names = [
            f"{model.replace('/tp', chr(10) + 'TP ')}\n{100 * answers[f'{run}/{model}/share']:.0f} %"
            for model in models
        ]
        series = {
            name: [answers[f"{run}/{model}/{name}/speedup"] for model in models]
            for name in CONFIGURATIONS
            if name != SEQUENTIAL
        }
        grouped_bars(axes, names, series)
        axes.set_title(title, fontsize="medium")
    panels[0].set_ylabel("speed-up over Sequential (x)")
    figure.suptitle("End-to-end speed-ups (below: share of the sub-layers with an all-reduce)")
    legend_below(panels[0], 4)
    save(figure, path)
