"""Plans that add and copy in the switch (`link.in_switch`, NVLink SHARP). There is no timing here.

    reduce_scatter   all GPUs send their part of each line to its owner; the switch adds them and delivers the sum
    all_gather       each GPU stores its chunk once; the switch copies it to all GPUs
    all_reduce       both: the owner copies the sum of a piece to all GPUs as soon as it has it
    fused            a GEMM whose stores are added in the switch (T3 with NVLS)

Every GPU sends its part of the chunk that it keeps through the switch, too, and gets its own copy from there. NVIDIA
states the same for NVLink SHARP: N + 1 sends and N + 1 receives of a chunk per GPU, in place of 2N. Traffic of one of N
GPUs, with S = bytes of the buffer (N divides it):

                     link up      link down    DRAM reads   DRAM writes
    reduce_scatter   S            S / N        S            S / N
    all_gather       S / N        S            S / N        S
    all_reduce       S + S / N    S + S / N    S + S / N    S + S / N

The owner of a chunk does not load the other GPUs' parts, as hardware does (`multimem.ld_reduce`): kernels of all GPUs
push them, and the sum goes through the owner's memory (D50). GPUs send their chunks piece by piece in turn, so the
parts of a line come to the switch at about the same time.
"""

import numpy as np

from sim.collective.builder import Builder
from sim.collective.chunks import Chunks
from sim.collective.kernel import Pieces, in_rounds
from sim.collective.plans import Plan, planned
from sim.collective.space import OUTPUT, Buffer, Region
from sim.collective.staged import RESULT, STAGING
from sim.collective.topology import AnyTopology
from sim.hw.request import Op

ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER = "nvls_all_reduce", "nvls_reduce_scatter", "nvls_all_gather"


def _add_sums(build: Builder) -> None:
    """The owner of a chunk gets its sum in STAGING."""
    chunks, last = build.chunks, build.chunks.gpus - 1
    build.keep_sum()
    build.arrivals(last, chunks.gpus, 0, False, each_tile=True, op=Op.COMBINE, alone=True)
    for local in range(chunks.gpus):
        span = chunks.span(build.gpu, local)
        if local < last:
            build.regions.append(Region(span.start, span.stop, to=(), op=Op.COMBINE, alone=True))
        build.step(local, [0], build.peer(chunks.owner_distance(local) or chunks.gpus) + STAGING, gated=False)


def _add_copies(build: Builder, read: int, offset: int, gated: bool) -> None:
    """Each GPU stores its chunk to all GPUs. offset: of its tags; gated: wait for the sum."""
    gpus = build.chunks.gpus
    for local in range(gpus):
        build.arrivals(local, 1, offset, False, alone=True)
    build.step(gpus - 1, [read], build.peer(gpus) + RESULT, offset=offset, gated=gated, waits=0)


def _finished(build: Builder, rounds: int, step_ps: int) -> Plan:
    build.steps = in_rounds(build.steps, Pieces(rounds))
    return build.plan(step_ps)


def _rounds(chunks: Chunks) -> int:
    """At most one tile of each chunk per round."""
    return max(len(chunks.span(0, local)) for local in range(chunks.gpus))


def reduce_scatter(
    output: np.ndarray, chunks: Chunks, gpu: int, topology: AnyTopology, *, slices: int = 1, step_ps: int = 0
) -> Plan:
    """A reduce-scatter of one GPU. output: OUTPUT_TILE in global order; topology: an `AddingSwitch`."""
    build = Builder(output, chunks, gpu, topology, slices, 1)
    _add_sums(build)
    return _finished(build, _rounds(chunks), step_ps)


def all_gather(
    output: np.ndarray, chunks: Chunks, gpu: int, topology: AnyTopology, *, slices: int = 1, step_ps: int = 0
) -> Plan:
    """An all-gather of one GPU."""
    build = Builder(output, chunks, gpu, topology, slices, 1)
    _add_copies(build, 0, 0, gated=False)
    return _finished(build, _rounds(chunks), step_ps)


def all_reduce(
    output: np.ndarray, chunks: Chunks, gpu: int, topology: AnyTopology, *, slices: int = 1, step_ps: int = 0
) -> Plan:
    """An all-reduce of one GPU. Its steps are for two kernels at once (`sim.collective.staged.kernels`)."""
    build = Builder(output, chunks, gpu, topology, _rounds(chunks), 2)
    _add_sums(build)
    _add_copies(build, STAGING, chunks.tiles, gated=True)
    pieces = Pieces(_rounds(chunks))
    build.steps = in_rounds(build.steps[:-1], pieces) + in_rounds(build.steps[-1:], pieces)
    return build.plan(step_ps)


def fused(output: np.ndarray, chunks: Chunks, gpu: int, topology: AnyTopology) -> Plan:
    """A GEMM whose stores are added in the switch: no store stays, and the owner of a tile gets its sum once.

    Traffic, with D = bytes of the output: links D up and D / N down, stores of the GEMM 0, arriving stores D / N.
    """
    last = chunks.gpus - 1
    regions = []
    for local in range(chunks.gpus):
        span, far = chunks.span(gpu, local), chunks.owner_distance(local) or chunks.gpus
        expects = chunks.gpus if local == last else 0
        regions.append(Region(span.start, span.stop, to=(far,), op=Op.COMBINE, expects=expects, polled=True))
    return planned([Buffer(OUTPUT, output)], chunks, gpu, topology, regions)
