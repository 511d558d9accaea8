"""Draw figures of results archives. Each kind of figure has a name."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sim.results import ResultsArchive, RunResult
from sim.scenario.result import COLUMN, FUSED_RUNS
from sim.view.dram_traffic import draw_traffic
from sim.view.queue_occupancy import draw_queue
from sim.view.rates import draw_rates
from sim.view.roofline import draw_roofline
from sim.view.speedup_cases import mean_speedups, speedup_cases
from sim.view.speedups import draw_speedups
from sim.view.study_lines import draw_study
from sim.view.style import THEMES, WITHOUT_MATPLOTLIB, can_draw
from sim.view.style import theme as themed
from traces.choices import nearest
from traces.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OF_ONE_RUN: dict[str, Callable[[RunResult], "Figure"]] = {
    "traffic": draw_traffic,
    "queue": draw_queue,
    "rates": draw_rates,
    "roofline": draw_roofline,
}
OF_SERIES = ("traffic", "queue")
"""Kinds that need a time series."""
STUDY, SPEEDUPS = "study", "speedups"
KINDS = (*OF_ONE_RUN, STUDY, SPEEDUPS)


def draw(
    kind: str,
    archives: Sequence[ResultsArchive],
    *,
    number: int | None = None,
    figure: str | None = None,
    over: str | None = None,
    relative: bool = False,
    theme: str = "screen",
) -> "Figure":
    """Draw a figure.

    Args:
        kind: one of KINDS.
        archives: one archive; "speedups" takes several.
        number: run of the archive, for kinds that show one run only; None = the first that has what the figure shows,
            of a scenario the fused kernel.
        figure, over, relative: for "study" only: column of the runs (None: the time, of scenarios a speed-up), swept
            field of the horizontal axis, and True to plot first value / value.
        theme: one of `sim.view.style.THEMES`: screen, or paper (the width of a column).

    Raises:
        UserError: an unknown kind, a setting of another kind, an archive without the values of the figure, or
            matplotlib is not installed.
    """
    if kind not in KINDS:
        raise UserError(f"plot: found {kind!r}; {nearest(kind, KINDS)}")
    check_settings(kind, number, figure, over, relative)
    if theme not in THEMES:
        raise UserError(f"plot: theme: found {theme!r}; {nearest(theme, THEMES)}")
    if not can_draw():
        raise UserError(WITHOUT_MATPLOTLIB)
    with themed(theme):
        return _draw(kind, archives, number, figure, over, relative)


def check_settings(kind: str, number: int | None, figure: str | None, over: str | None, relative: bool) -> None:
    """Refuse settings of other kinds of figures."""
    if kind != STUDY and (relative or (figure, over) != (None, None)):
        raise UserError(f"plot {kind}: figure, over and relative are settings of {STUDY}; leave them out")
    if kind not in OF_ONE_RUN and number is not None:
        raise UserError(f"plot {kind}: shows all runs; leave the number of a run out")


def _draw(
    kind: str,
    archives: Sequence[ResultsArchive],
    number: int | None,
    figure: str | None,
    over: str | None,
    relative: bool,
) -> "Figure":
    if kind == SPEEDUPS:
        cases = speedup_cases(archives)
        means = mean_speedups(cases)
        speedups = {name: [case.speedups.get(name) for case in cases] for name in means}
        return draw_speedups([case.title for case in cases], speedups, means if len(cases) > 1 else {})
    if kind == STUDY:
        return draw_study(archives[0], figure, over, relative)
    return OF_ONE_RUN[kind](_run_of(archives[0], kind, number))


def _run_of(archive: ResultsArchive, kind: str, number: int | None) -> RunResult:
    """The run of a figure; without a number the first that has what it shows, of a scenario the fused kernel."""
    fitting = [run for _, run in archive.results() if (run.series if kind in OF_SERIES else run.kernels)]
    if number is not None or not fitting:
        return archive.run(number or 0)
    return next((run for run in fitting if run.point.get(COLUMN) in FUSED_RUNS), fitting[0])
