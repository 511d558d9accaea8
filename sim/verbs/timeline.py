"""`t3sim timeline`: export the timeline of a run for Perfetto or as an HTML page."""

import json
from pathlib import Path

import click

from sim.results import RunResult
from sim.results import open as open_results
from sim.scenario.archive import is_scenario, open_scenario
from sim.view.timeline import chrome_trace
from traces.errors import UserError
from traces.output import output_path, replacing

PREFERRED = ("t3_mca", "t3")
PAGE = Path(__file__).parents[1] / "view" / "timeline_page.html"


@click.command()
@click.argument("archive", type=click.Path())
@click.option(
    "--run", "name", help="Run of a t3sim t3 archive: gemm, rs, rs_nmc, ag, t3 or t3_mca.  [t3_mca, t3, or the first]"
)
@click.option("-o", "--output", required=True, type=click.Path(), help="FILE.json (Perfetto) or FILE.html.")
def timeline(archive: str, name: str | None, output: str) -> None:
    """Export the timeline of an ARCHIVE of t3sim t3 or run: workgroups, stages, triggers, DMA, links, queues.

    Open the .json in Perfetto's UI (ui.perfetto.dev), or the .html in any browser.

    Example: t3sim timeline small.h5 --run t3 -o small.json
    """
    path = output_path(output)
    if path.suffix not in (".json", ".html"):
        raise UserError(f"timeline: found {output}, allowed is a name that ends with .json or .html")
    run, title = _chosen(archive, name)
    text = chrome_trace(run, title)
    if path.suffix == ".html":
        safe = json.dumps(json.loads(text), separators=(",", ":")).replace("<", "\\u003c")
        text = PAGE.read_text(encoding="utf-8").replace("@DATA@", safe)
    with replacing(path) as temporary:
        Path(temporary).write_text(text, encoding="utf-8")
    click.echo(f"wrote {output}")


def _chosen(archive: str, name: str | None) -> tuple[RunResult, str]:
    """The run, and a title for its timeline."""
    opened = open_results(archive)
    if not is_scenario(opened):
        if name is not None:
            raise UserError(f"--run: found {name!r}, but {archive} holds no scenario of t3sim t3")
        run = opened.run()
        return run, f"{', '.join(kernel.name for kernel in run.kernels)}, {run.preset.name}"
    row, runs = open_scenario(archive)
    name = name or next((known for known in PREFERRED if known in runs), next(iter(runs)))
    if name not in runs:
        raise UserError(f"--run: found {name!r}, allowed are {', '.join(runs)}")
    m, n, k, gpus = (row.options.get(name, "?") for name in ("m", "n", "k", "gpus"))
    return runs[name], f"{name}: GEMM {m} x {n} x {k} on {gpus} GPUs, {row.preset.name}"
