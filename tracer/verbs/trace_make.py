"""`t3sim trace make`: synthesise a kernel -> trace archive."""

import click

from tracer.kernels import describe_kernels, make_kernel
from tracer.sequence import CommandSequence
from traces.archive import write_archive
from traces.command.meter import Meter
from traces.command.output_format import with_format
from traces.command.tables import print_json, print_table


class KernelHelp(click.Command):
    """A command whose help ends with the list of kernels."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Kernels and their fields, each with its default"):
            formatter.write(describe_kernels() + "\n")


@click.command("make", cls=KernelHelp)
@click.argument("kernel", metavar="NAME:FIELD=VALUE,...")
@click.option("-o", "--output", required=True, type=click.Path(), help="Trace archive to write.")
@click.option("--compression", default="gzip", show_default=True, help="gzip, zstd or blosc2.")
@with_format
def make_trace(kernel: str, output: str, compression: str, as_json: bool) -> None:
    """Synthesise the warp-level trace of a kernel into a trace archive.

    Example: t3sim trace make gemm:m=512,n=512,k=256,tile=128x128x32 -o gemm.h5

    Example: t3sim trace make layernorm:rows=512,cols=1024 -o layernorm.h5
    """
    source = make_kernel(kernel)
    with Meter("workgroups") as meter:
        summary = write_archive(
            output,
            CommandSequence([source]),
            compression=compression,
            progress=lambda _, info, done: meter.update(info.name, done, info.workgroups),
        )
    if as_json:
        print_json({"output": output, **vars(summary)})
    else:
        print_table(f"{output}: {source.info.name}", ("content", "count"), vars(summary).items())
