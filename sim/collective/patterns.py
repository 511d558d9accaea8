"""Plans beyond the reduce-scatter of T3, as data: regions of buffers of all GPUs. There is no timing here.

    all_to_all         blocks of a GEMM's output go to all other GPUs when they are complete
    gathered_rows      a GEMM whose workgroups wait, panel by panel, for an all-gather of its rows of A
    split_k            a GEMM whose shares of K are added in memory, fused with a reduce-scatter

`sim.collective.chunks` defines steps and chunks. `sim.run.many_gpus.run_plan` runs the plans. Traffic is given for one
of N GPUs, counted at its memory controllers and on its links, in whole sectors.
"""

from dataclasses import replace

import numpy as np

from sim.collective.chunks import Chunks
from sim.collective.plans import Plan, planned
from sim.collective.space import OUTPUT, Buffer, Region, Send
from sim.collective.topology import AnyTopology, is_direct
from sim.hw.request import Op
from sim.spec import Granularity
from tracer.gemm.source import OUTPUT_TILE, GemmSource
from traces.errors import UserError

RECEIVED, ROWS = "received", "rows of A"
BUFFER_STEP_BYTES = (1 << 36) + (1 << 19)
"""Distance from a buffer to the next. It is not a power of two; else all buffers would begin in the same DRAM bank."""


def all_to_all(
    output: np.ndarray,
    chunks: Chunks,
    gpu: int,
    topology: AnyTopology,
    granularity: Granularity = Granularity.WORKGROUP,
) -> Plan:
    """Each GPU makes all chunks. Each complete tile of chunk c goes to the chunk's owner, which stores it separately.

    Traffic, with D = bytes of the output, `own` = bytes of the chunk that a GPU keeps (it is not sent):
        stores of the GEMM     D
        DMA reads              D - own
        arriving stores        the owner's chunks of the other GPUs: (N - 1) own
        links                  D - own

    Args:
        output: OUTPUT_TILE in global order; chunks must be equal, tile by tile.
        topology: a topology with a link between any two GPUs.
        granularity: unit that DMA engines send: tiles, or each wavefront's part when it is complete.

    Raises:
        UserError: chunks are not equal, or a link is missing.
    """
    apart = output.copy()
    apart["address"] += BUFFER_STEP_BYTES
    last = chunks.gpus - 1
    regions = []
    for local in range(chunks.gpus):
        span, far = chunks.span(gpu, local), chunks.owner_distance(local)
        if local == last:
            regions.append(Region(span.start, span.stop, expects=1))
            continue
        place = chunks.span(gpu, last).start  # at the receiver, chunks are ordered by the GPU that sends them
        send = Send(far, Op.WRITE, RECEIVED, place)
        regions.append(Region(span.start, span.stop, expects=1, sends=(send,), chunk=local, granularity=granularity))
        regions.append(Region(span.start, span.stop, to=(), expects=1, buffer=RECEIVED))
    return planned([Buffer(OUTPUT, output), Buffer(RECEIVED, apart, shares=0)], chunks, gpu, topology, regions)


def row_chunks(source: GemmSource, gpus: int) -> Chunks:
    """Chunks of whole rows of tiles, for a GEMM whose walk makes them one after the other.

    Raises:
        UserError: the walk is different, or there are fewer rows of tiles than GPUs.
    """
    if source.tiles_m < gpus:
        raise UserError(f"gpus: found {gpus} for {source.tiles_m} rows of tiles; allowed is one per GPU at least")
    edges = [source.tiles_m * k // gpus for k in range(gpus + 1)]
    parts = np.split(source.output_tiles()["row"], [edge * source.tiles_n for edge in edges[1:-1]])
    if any(part.min() < begin or part.max() >= end for part, begin, end in zip(parts, edges, edges[1:], strict=False)):
        raise UserError("gathered rows: the GEMM does not walk its tiles row by row; allowed is the order row")
    return Chunks(gpus, tuple(edge * source.tiles_n for edge in edges))


def gathered_rows(
    source: GemmSource, chunks: Chunks, gpu: int, topology: AnyTopology, gate_delay_ps: int = 0
) -> tuple[Plan, np.ndarray]:
    """Each GPU owns the rows of A for its first chunk of the output. DMA engines send them to all other GPUs.

    A GPU makes the chunk of its own rows first, without waiting. Then it makes the chunks whose rows come from the GPU
    behind, from the next GPU behind, and so on. A gate opens with the last of a panel's rows. On a ring, GPUs forward
    the panels.

    Traffic, with S = bytes of A, `own` = bytes of a GPU's own rows, `last` = bytes of the panel that it waits for last:
        DMA reads              ring: S - last; else (N - 1) own
        arriving stores        S - own
        links                  same as DMA reads
        stores of the GEMM     D bytes of output, through L2

    Args:
        chunks: `row_chunks` of the source.
        gate_delay_ps: time from the last byte to the start of a workgroup.

    Returns:
        The plan, and the gate of each output tile, i8 [tiles], -1 = none.
    """
    rows = _bands(source)
    across = source.tiles_n
    last = chunks.gpus - 1
    gates = np.full(chunks.tiles, -1)
    regions = []
    for local in range(chunks.gpus):
        span = chunks.span(gpu, local)
        first, end = span.start // across, span.stop // across
        if local == 0:
            far = range(1, chunks.gpus) if is_direct(topology) else (1,)
            sends = tuple(Send(to, Op.WRITE) for to in far)
            regions.append(Region(first, end, to=(), sends=sends, buffer=ROWS))
            continue
        gates[span.start : span.stop] = local - 1
        sends = () if is_direct(topology) or local == last else (Send(1, Op.WRITE),)
        regions.append(Region(first, end, to=(), expects=1, sends=sends, gate=local - 1, buffer=ROWS, chunk=local))
    buffers = [Buffer(OUTPUT, source.output_tiles()), Buffer(ROWS, rows, shares=0)]
    return planned(buffers, chunks, gpu, topology, regions, gate_delay_ps), gates


def _bands(source: GemmSource) -> np.ndarray:
    """OUTPUT_TILE records of A: the rows of A for each row of tiles."""
    a, high = source.problem.a, source.kernel.tile_m
    found = np.zeros(source.tiles_m, OUTPUT_TILE)
    found["row"] = np.arange(source.tiles_m)
    found["runs"] = np.minimum(high, a.rows - found["row"] * high)
    found["run_bytes"], found["pitch_bytes"] = a.columns * a.element_bytes, a.pitch_bytes
    found["address"] = a.address + found["row"] * high * a.pitch_bytes
    found["parts"] = [(high, a.columns * a.element_bytes, 1, 1, 1)] * source.tiles_m
    return found


def split_k(
    output: np.ndarray,
    shares: int,
    chunks: Chunks,
    gpu: int,
    topology: AnyTopology,
    granularity: Granularity = Granularity.WORKGROUP,
) -> Plan:
    """Different workgroups make the shares of a tile, which are added near memory. Then the sum is sent as in T3.

    A tile is complete when all shares of this GPU and the sums of other GPUs have come. No store leaves the GPU.

    Traffic, with D = bytes of the output, S = shares, `first` and `own` = bytes of the first and last local chunk:
        updates of the GEMM    S D
        DMA reads              D - own
        arriving updates       ring: D - first; else (N - 1) own
        links                  D - own

    Args:
        output: OUTPUT_TILE in global order.
        shares: `split_k` of the kernel.
        granularity: unit that DMA engines send.
    """
    last = chunks.gpus - 1
    regions = []
    for local in range(chunks.gpus):
        span, far = chunks.span(gpu, local), chunks.owner_distance(local)
        sends = () if local == last else (Send(far if is_direct(topology) else 1),)
        arriving = (last if local == last else 0) if is_direct(topology) else min(local, 1)
        expects = shares + arriving
        region = Region(span.start, span.stop, op=Op.UPDATE, expects=expects, sends=sends, chunk=local)
        regions.append(replace(region, granularity=granularity))
    return planned([Buffer(OUTPUT, output, shares)], chunks, gpu, topology, regions)
