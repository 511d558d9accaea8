"""`t3sim explain`: what bounds a result, how sure that is, what would help, and which assumed values it hangs on."""

import click

from sim.explain.explain import Explanation, explain
from sim.explain.repeat import repeat_run, repeat_scenario
from sim.explain.stalls import line_tables
from sim.results import RunResult
from sim.results import open as open_results
from sim.run.store import Store
from sim.scenario.archive import is_scenario, open_scenario
from sim.scenario.result import SEQUENTIAL, T3, T3_MCA
from sim.view.explain_tables import explanation_dict, show_explanation
from sim.view.heading import run_heading
from tracer.trace_file import open_trace
from tracer.verbs.by_line import print_by_line, traffic_by_line
from traces.command.meter import Meter
from traces.command.output_format import with_format
from traces.command.tables import print_json, print_text
from traces.errors import UserError
from traces.units import time_text

RUN_OF = {T3_MCA: "t3_mca", T3: "t3", SEQUENTIAL: "gemm"}
"""Configuration -> the run whose counters explain it, in the order of choice."""


@click.command("explain")
@click.argument("archive", type=click.Path())
@click.option("--run", "number", type=int, help="Number of the run, counted from 0, of an archive of several.")
@click.option("--trace", type=click.Path(), help="The trace of the run, if it replayed one.")
@click.option("--binary", type=click.Path(), help="With --trace: the traced program, for stalls by source line.")
@click.option("--checks", type=click.IntRange(0), default=4, show_default=True, help="Changes to try, one run each.")
@click.option("--assumed", type=click.IntRange(0), default=3, show_default=True, help="Assumed values to try.")
@with_format
def explain_verb(
    archive: str,
    number: int | None,
    trace: str | None,
    binary: str | None,
    checks: int,
    assumed: int,
    as_json: bool,
) -> None:
    """Explain the results of an ARCHIVE of t3sim run or t3: what bounds it, what would help, what it hangs on.

    Every claim about a change is checked: the run is simulated again with the value changed, and kept in the store.
    --checks 0 --assumed 0 simulates at most once. Of a scenario, T3-MCA is explained (or T3).

    Example: t3sim explain small.h5 --checks 2 --assumed 2
    """
    if binary is not None and trace is None:
        raise UserError("--binary: needs --trace, whose program counters it names")
    source = None if trace is None else open_trace(trace)
    opened, by_line = open_results(archive), []
    with Meter("runs") as meter:
        settings = (checks, assumed, lambda done, whole: meter.update("explain", done, whole))
        if number is None and is_scenario(opened):
            if source is not None:
                raise UserError(f"--trace: {archive} has a scenario, which replays no trace: leave it out")
            run, title, found = _of_scenario(archive, settings)
        else:
            run = opened.run(number)
            repeat, numbers = repeat_run(run, Store(), source), run.options.get("kernels")
            tables = {} if binary is None or source is None else line_tables(binary, source, numbers)
            title = ", ".join(dict.fromkeys(kernel.name for kernel in run.kernels))
            found = explain(run, repeat, checks, assumed, 1, settings[2], tables)
    if binary is not None and source is not None:
        by_line = traffic_by_line(source, binary, numbers=run.options.get("kernels"))
    if as_json:
        more = {} if binary is None else {"by_line": by_line}
        print_json({"archive": archive, "title": title} | explanation_dict(found) | more)
        return
    print_text("\n".join([f"{title} on {run.preset.name}: {time_text(found.base.time_ps)}", *run_heading(run)]))
    show_explanation(found, run.preset)
    print_by_line(by_line)


def _of_scenario(archive: str, settings: tuple) -> tuple[RunResult, str, Explanation]:
    """The run with the evidence, a title, the explanation."""
    row, runs = open_scenario(archive)
    simulated = [name for name, run in RUN_OF.items() if f"{name}.time_ns" in row.figures and run in runs]
    if not simulated:
        raise UserError(f"{archive}: found none of {', '.join(RUN_OF)}: one of them is explained")
    configuration = simulated[0]
    run = runs[RUN_OF[configuration]]
    checks, assumed, progress = settings
    m, n, k, gpus = (row.options[name] for name in ("m", "n", "k", "gpus"))
    found = explain(run, repeat_scenario(row, configuration, Store()), checks, assumed, gpus, progress)
    return run, f"{configuration}: GEMM {m} x {n} x {k} on {gpus} GPUs", found
