"""`t3sim trace import`: Accel-Sim traces -> trace archive."""

import click

from tracer.accelsim.parallel import ParallelTrace
from tracer.accelsim.reader import open_accelsim
from traces.archive import write_archive
from traces.command.meter import Meter
from traces.command.numbers import numbers_of
from traces.command.output_format import with_format
from traces.command.tables import print_json, print_table, print_warnings
from traces.output import output_path
from traces.source import warnings_of


@click.command("import")
@click.argument("trace", type=click.Path())
@click.option("-o", "--output", required=True, type=click.Path(), help="Trace archive to write.")
@click.option("--lenient", is_flag=True, help="Skip broken parts and count them, instead of stopping.")
@click.option("--kernels", metavar="LIST", help="Only these kernels of the list, counted from 0, e.g. 3-7.")
@click.option("--jobs", type=int, default=1, show_default=True, help="Processes that read kernels.")
@click.option("--compression", default="gzip", show_default=True, help="gzip, zstd or blosc2.")
@with_format
def import_trace(
    trace: str, output: str, lenient: bool, kernels: str | None, jobs: int, compression: str, as_json: bool
) -> None:
    """Read TRACE (an Accel-Sim kernelslist.g, its folder, or one .traceg, .traceg.xz or .tracez) into a trace archive.

    Example: t3sim trace import traces/kernelslist.g -o trace.h5
    """
    numbers = None if kernels is None else numbers_of(kernels, "--kernels")
    output_path(output, trace)
    source = open_accelsim(trace, lenient=lenient, kernels=numbers)
    with Meter("workgroups") as meter:
        summary = write_archive(
            output,
            source if jobs == 1 else ParallelTrace(source, jobs),
            compression=compression,
            progress=lambda _, info, done: meter.update(info.name, done, info.workgroups),
        )
    print_warnings(warnings_of(source))
    counts = {**vars(summary), "skipped": source.problems.skipped}
    if as_json:
        print_json({"output": output, **counts})
    else:
        print_table(f"{output}: from {trace}", ("content", "count"), counts.items())
