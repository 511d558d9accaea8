"""`t3sim plot`: figures of any results archive, as PNG or SVG."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sim import results
from sim.results import Results
from traces.errors import UserError
from traces.write import output_path
from validation.figures.dram_traffic import draw_traffic
from validation.figures.queue_occupancy import draw_queue
from validation.figures.rates import draw_rates
from validation.figures.roofline import draw_roofline
from validation.figures.style import check_format, save
from validation.figures.sweep_lines import draw_sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OF_ONE_RUN: dict[str, Callable[[Results], "Figure"]] = {
    "traffic": draw_traffic,
    "queue": draw_queue,
    "rates": draw_rates,
    "roofline": draw_roofline,
}
SWEEP = "sweep"


@click.command("plot")
@click.argument("kind", type=click.Choice([*OF_ONE_RUN, SWEEP]))
@click.argument("result", type=click.Path())
@click.option("-o", "--output", required=True, type=click.Path(), help="Figure to write, .png or .svg.")
@click.option("--run", "number", type=int, default=0, show_default=True, help="Which run of RESULT, counted from 0.")
@click.option("--figure", default="time_ns", show_default=True, help="sweep: what to draw, a column of the runs.")
@click.option("--over", help="sweep: swept field of the horizontal axis.  [the first]")
@click.option("--relative", is_flag=True, help="sweep: first value / value, the speed-up where the figure is a time.")
def plot(kind: str, result: str, output: str, number: int, figure: str, over: str | None, relative: bool) -> None:
    """Draw a figure of the results archive RESULT.

    traffic: DRAM traffic over time by stream; queue: DRAM queues and workgroups over time (both want a run with
    --interval-ns); rates: bandwidths and hit rates of each kernel; roofline; sweep: a figure over a swept field.

    Example: t3sim plot rates result.h5 -o rates.svg
    """
    path = Path(output)
    check_format(path)
    output_path(path)
    archive = results.open(result)
    try:
        if kind == SWEEP:
            drawn = draw_sweep(archive, figure, over, relative)
        else:
            drawn = OF_ONE_RUN[kind](archive.run(number))
    except ImportError:
        raise UserError("plot: needs matplotlib: pip install 't3sim[plots]'") from None
    save(drawn, path)
    click.echo(f"wrote {output}")
