"""`t3sim warm`: compile everything now."""

import click
import numpy as np

from sim.presets import load_preset
from sim.run.dram import run_stream
from sim.run.dram_stream import Stream
from sim.run.one_gpu import simulate
from tracer.accelsim.reader import open_accelsim
from tracer.compile.folder import cache_root
from tracer.compile.jit import compile_seconds, compiled_functions
from tracer.gemm.source import GemmKernel, GemmProblem, GemmSource
from tracer.sequence import CommandSequence
from traces.archive import open_archive, write_archive
from traces.command.tables import print_json
from traces.output import scratch_folder
from traces.source import Prefill
from traces.units import PS_PER_US

ACCELSIM_TRACE = """\
-kernel name = one_load
-kernel id = 1
-grid dim = (1,1,1)
-block dim = (32,1,1)
-shmem = 0
-nregs = 8
-binary version = 70
-cuda stream id = 0
-shmem base_addr = 0x00007f0000000000
-local mem base_addr = 0x00007efffe000000
-nvbit version = 1.7
-accelsim tracer version = 5
-enable lineinfo = 0

#BEGIN_TB

thread block = 0,0,0

warp = 0
insts = 2
0000 ffffffff 1 R2 LDG.E.SYS 1 R4 4 1 0x700000000000 4 0
0010 ffffffff 0 EXIT 0 0 0

#END_TB
"""
"""The smallest kernel that Accel-Sim's tracer could write."""
PREFILL_BYTES = 128


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def warm(as_json: bool) -> None:
    """Compile all functions into the cache (T3SIM_CACHE_DIR, or your cache folder), so that later commands start fast.

    Example: t3sim warm
    """
    gemm = GemmSource(GemmProblem(64, 64, 32), GemmKernel(64, 64, 32, 2, 2))
    with scratch_folder("warm") as folder:
        archive, text = folder / "gemm.h5", folder / "kernel-1.traceg"
        write_archive(archive, CommandSequence([Prefill(0, PREFILL_BYTES), gemm]))
        with open_archive(archive) as source:
            simulate(source, load_preset("t3_2024"), interval_ps=PS_PER_US)
        text.write_text(ACCELSIM_TRACE)
        write_archive(archive, open_accelsim(text))
    run_stream(Stream(*(np.zeros(2, kind) for kind in (np.uint8, np.int64, np.int64))))
    summary = {"kernels": compiled_functions(), "compile_s": compile_seconds(), "cache": str(cache_root())}
    if as_json:
        print_json(summary)
    else:
        click.echo("{kernels} functions compiled in {compile_s:.1f} s; cache: {cache}".format(**summary))
