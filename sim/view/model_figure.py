"""A whole model as a figure: time by class in each configuration, and the timeline of one layer after the other."""

from typing import TYPE_CHECKING, Any

from sim.scenario.iteration import ConfigurationTime
from sim.scenario.model import ModelResult
from sim.scenario.result import SEQUENTIAL
from sim.scenario.timeline import Interval, Timeline
from sim.view.style import PALETTE, label_of, new_figure
from tracer.models.schedule import Lane, OperatorClass
from traces.units import PS_PER_MS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXPOSED, OTHER_STAGES = "exposed communication", "other stages"
COLOURS = dict(zip(map(str, OperatorClass), PALETTE, strict=False))
COLOURS |= {EXPOSED: COLOURS[OperatorClass.COMMUNICATION], OTHER_STAGES: "lightgrey"}
"""Part of a bar, or class of a step -> colour."""


def draw_model(result: ModelResult) -> "Figure":
    """Draw a stacked bar for each configuration, and below it the timeline of Sequential.

    The timeline has each block of the last micro-batch once, however often it repeats.
    """
    how = result.scenario.how
    figure, (bars, lanes) = new_figure(9.0, 5.0, rows=2, columns=1)
    _draw_bars(bars, result)
    _draw_timeline(lanes, first_repeats(result.configurations[SEQUENTIAL].timeline))
    title = f"{result.scenario.model.name}, {how.phase}, {how.gpus} GPUs, {result.scenario.preset.name}"
    figure.suptitle(label_of(title))
    drawn: Figure = figure
    return drawn


def parts_ps(found: ConfigurationTime) -> dict[str, int]:
    """Part of the time of an iteration -> ps; the parts add up to the iteration."""
    classes = {str(name): value for name, value in found.class_ps.items() if name != OperatorClass.COMMUNICATION}
    return classes | {EXPOSED: found.exposed_ps, OTHER_STAGES: found.bubble_ps}


def _draw_bars(axes: Any, result: ModelResult) -> None:
    names = list(result.configurations)
    parts = {name: parts_ps(found) for name, found in result.configurations.items()}
    for part in parts[names[0]]:
        lengths = [parts[name][part] / PS_PER_MS for name in names]
        if any(lengths):
            left = [sum(list(parts[name].values())[: list(parts[name]).index(part)]) / PS_PER_MS for name in names]
            axes.barh(names, lengths, left=left, color=COLOURS[part], label=part)
    axes.invert_yaxis()
    axes.set(xlabel="time of an iteration (ms)")
    axes.legend(fontsize="small", frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))


def first_repeats(timeline: Timeline) -> list[tuple[Interval, int]]:
    """The intervals of the first repeat of each block, with the time (ps) at which each begins in the figure."""
    chosen: list[tuple[Interval, int]] = []
    shown_ps, block, begin_ps = 0, "", 0
    for interval in timeline.intervals:
        if interval.repeat:
            continue
        if interval.block != block:
            shown_ps = max((at + each.length_ps for each, at in chosen), default=0)
            block, begin_ps = interval.block, interval.begin_ps
        chosen.append((interval, shown_ps + interval.begin_ps - begin_ps))
    return chosen


def _draw_timeline(axes: Any, chosen: list[tuple[Interval, int]]) -> None:
    lanes = [lane for lane in Lane if any(interval.step.lane == lane for interval, _ in chosen)]
    for interval, at_ps in chosen:
        span = [(at_ps / PS_PER_MS, interval.length_ps / PS_PER_MS)]
        colour = COLOURS[str(interval.step.operator_class)]
        axes.broken_barh(span, (lanes.index(interval.step.lane) - 0.4, 0.8), color=colour, edgecolor="white", lw=0.2)
    seen = ""
    for interval, at_ps in chosen:
        if interval.block != seen:
            seen = interval.block
            axes.axvline(at_ps / PS_PER_MS, color="black", lw=0.5)
            axes.text(at_ps / PS_PER_MS, -0.55, f" {seen}", fontsize="x-small", rotation=20, va="bottom")
    axes.set(xlabel="time (ms), each block once", yticks=range(len(lanes)), yticklabels=[str(lane) for lane in lanes])
    axes.set_ylim(len(lanes) - 0.5, -1.3)
