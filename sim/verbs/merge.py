"""`t3sim merge`: join results archives into one of the newest version."""

import click

from sim.results import open as open_archive
from sim.results import write_runs
from traces.command.tables import print_json
from traces.output import output_path


@click.command("merge")
@click.argument("results", nargs=-1, required=True, type=click.Path())
@click.option("-o", "--output", required=True, type=click.Path(), help="Results archive to write.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def merge(results: tuple[str, ...], output: str, as_json: bool) -> None:
    """Write the runs of several RESULTS archives into one archive, in order, in the newest version of the format.

    Example: t3sim merge result.h5 result.h5 -o both.h5
    """
    output_path(output)
    for path in results:
        open_archive(path)  # an error is raised before anything is written
    write_runs(output, (run for path in results for run in open_archive(path).runs))
    runs = len(open_archive(output).runs)
    if as_json:
        print_json({"output": output, "runs": runs})
    else:
        click.echo(f"wrote {output}: {runs} runs")
