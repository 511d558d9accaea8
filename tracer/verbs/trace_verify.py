"""`t3sim trace verify`: check every byte of a trace archive."""

import click

from tracer.verify import verify_archive
from traces.command.meter import Meter
from traces.command.output_format import with_format
from traces.command.tables import print_json, print_table


@click.command("verify")
@click.argument("archive", type=click.Path())
@with_format
def verify_trace(archive: str, as_json: bool) -> None:
    """Read all of a trace ARCHIVE, compare the checksums and check that its values are possible.

    Example: t3sim trace verify gemm.h5
    """
    with Meter("workgroups") as meter:
        summary = vars(verify_archive(archive, lambda _, info, done: meter.update(info.name, done, info.workgroups)))
    if as_json:
        print_json(summary)
    else:
        print_table(f"{archive}: whole", ("content", "count"), summary.items())
