"""`t3sim trace export`: trace archive -> Accel-Sim traces."""

import click

from tracer.accelsim.writer import export_accelsim
from traces.archive import open_archive
from traces.command.meter import Meter
from traces.command.output_format import with_format
from traces.command.tables import print_json, print_table


@click.command("export")
@click.argument("archive", type=click.Path())
@click.option("-o", "--output", required=True, type=click.Path(), help="Folder for kernelslist.g and the kernels.")
@click.option("--xz", is_flag=True, help="Compress the kernels' files.")
@with_format
def export_trace(archive: str, output: str, xz: bool, as_json: bool) -> None:
    """Write a trace ARCHIVE as Accel-Sim text, which Accel-Sim and `t3sim trace import` can read: tracer version 5, and
    6 for kernels with bulk copies, transaction barriers or clusters.

    Example: t3sim trace export gemm.h5 -o gemm_traces --xz
    """
    with open_archive(archive) as source, Meter("workgroups") as meter:
        summary = export_accelsim(
            source, output, xz=xz, progress=lambda _, info, done: meter.update(info.name, done, info.workgroups)
        )
    if as_json:
        print_json({"output": output, **vars(summary)})
    else:
        print_table(f"{output}: from {archive}", ("content", "count"), vars(summary).items())
