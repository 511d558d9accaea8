"""`t3sim timeline`: what ran where and when, for the Perfetto UI or as a page of its own."""

import json
from pathlib import Path

import click

from sim.scenario.evaluation_archive import open_evaluation
from sim.view.timeline import chrome_trace
from traces.errors import UserError
from traces.write import output_path, replacing

PREFERRED = ("t3_mca", "t3")
PAGE = Path(__file__).parents[1] / "view" / "timeline_page.html"


@click.command()
@click.argument("archive", type=click.Path())
@click.option(
    "--part", help="Simulation of the archive: gemm, rs, rs_nmc, ag, t3 or t3_mca.  [t3_mca, t3, or the first]"
)
@click.option("-o", "--output", required=True, type=click.Path(), help="FILE.json (Perfetto) or FILE.html.")
def timeline(archive: str, part: str | None, output: str) -> None:
    """Export the timeline of an evaluation ARCHIVE (t3sim t3 -o): workgroups, stages, triggers, DMA, links, queues.

    In Perfetto's UI (ui.perfetto.dev), open the .json; a .html stands for itself.

    Example: t3sim timeline small.h5 --part t3 -o small.json
    """
    path = output_path(output)
    if path.suffix not in (".json", ".html"):
        raise UserError(f"timeline: found {output}, allowed is a name that ends with .json or .html")
    summary, parts = open_evaluation(archive)
    name = part or next((known for known in PREFERRED if known in parts), next(iter(parts)))
    if name not in parts:
        raise UserError(f"--part: found {name!r}, allowed are {', '.join(parts)}")
    work = summary["workload"]
    title = f"{name}: GEMM {work['m']} x {work['n']} x {work['k']} on {work['gpus']} GPUs, {summary['preset']}"
    text = chrome_trace(parts[name], int(summary["interval_ps"]), title)
    if path.suffix == ".html":
        safe = json.dumps(json.loads(text), separators=(",", ":")).replace("<", "\\u003c")
        text = PAGE.read_text(encoding="utf-8").replace("@DATA@", safe)
    with replacing(path) as temporary:
        Path(temporary).write_text(text, encoding="utf-8")
    click.echo(f"wrote {output}")
