"""`t3sim warm`: compile all kernels now, by doing a very small piece of each kind of work."""

import tempfile
from pathlib import Path

import click
import numpy as np

from sim.dram import run_stream
from sim.dram_stream import Stream
from sim.presets import load_preset
from sim.run import simulate
from tracer.gemm import GemmKernel, GemmProblem, GemmSource
from tracer.jit import compile_seconds, compiled_kernels
from tracer.kernel_cache import cache_root
from tracer.sequence import CommandSequence
from traces.archive import open_archive, write_archive


@click.command()
def warm() -> None:
    """Compile all kernels into the cache, so that later verbs start at once.

    Example: T3SIM_CACHE_DIR=/scratch/t3sim t3sim warm
    """
    gemm = CommandSequence([GemmSource(GemmProblem(64, 64, 32), GemmKernel(64, 64, 32, 2, 2))])
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "gemm.h5"
        write_archive(archive, gemm)
        with open_archive(archive) as source:
            simulate(source, load_preset("t3_2024"))
    run_stream(Stream(*(np.zeros(2, kind) for kind in (np.uint8, np.int64, np.int64))))
    click.echo(f"{compiled_kernels()} kernels compiled in {compile_seconds():.1f} s; cache: {cache_root()}")
