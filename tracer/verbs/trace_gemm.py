"""`t3sim trace gemm`: synthesise the trace of a GEMM."""

from typing import Any

import click

from tracer.gemm.source import GemmSource
from tracer.sequence import CommandSequence
from tracer.verbs.gemm_options import KERNEL_OPTIONS, PROBLEM_OPTIONS, kernel_of, problem_of, with_options
from traces.archive import write_archive
from traces.command.meter import Meter
from traces.command.tables import print_json, print_table


@click.command("gemm")
@click.option("--m", type=int, required=True, help="Rows of A and C.")
@click.option("--n", type=int, required=True, help="Columns of B and C.")
@click.option("--k", type=int, required=True, help="Columns of A, rows of B.")
@with_options(PROBLEM_OPTIONS)
@with_options(KERNEL_OPTIONS)
@click.option("-o", "--output", required=True, type=click.Path(), help="Trace archive to write.")
@click.option("--compression", default="gzip", show_default=True, help="gzip, zstd or blosc2.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def gemm_trace(m: int, n: int, k: int, output: str, compression: str, as_json: bool, **given: Any) -> None:
    """Synthesise the warp-level trace of C[M,N] = A[M,K] B[K,N] into a trace archive.

    Example: t3sim trace gemm --m 512 --n 512 --k 256 --tile 128x128x32 -o gemm.h5
    """
    kernel = kernel_of(given)
    source = GemmSource(problem_of(m, n, k, given), kernel)
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
