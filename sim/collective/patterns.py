"""Plans beyond the reduce-scatter of T3, as data: regions of buffers of all GPUs. There is no timing here.

    all_to_all         blocks of a GEMM's output go to all other GPUs when they are complete
    gathered_rows      a GEMM whose tiles wait for their rows of A, which an all-gather brings
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


def gathered_rows(source: GemmSource, chunks: Chunks, gpu: int, topology: AnyTopology) -> tuple[Plan, np.ndarray]:
    """Each GPU owns a panel of A, 1 / N of its rows. DMA engines send the panel to all other GPUs.

    A GPU begins its walk at the tiles of its own panel. A tile waits for the rows of other GPUs that it reads: a row of
    tiles may lie across several panels. Rows of tiles that read the same panels have one gate, which opens with the
    last of their rows. On a ring, GPUs forward the panels, so that of the GPU behind comes first.

    Traffic, with S = bytes of A, `own` = bytes of the GPU's panel, `last` = bytes of the panel that comes last:
        DMA reads              ring: S - last; else (N - 1) own
        arriving stores        S - own
        links                  same as DMA reads
        stores of the GEMM     D bytes of output, through L2

    Args:
        chunks: where the walk of each GPU begins. A walk along rows of tiles waits least.

    Returns:
        The plan, and the gate of each output tile, i8 [tiles], -1 = none.

    Raises:
        UserError: A has fewer rows than there are GPUs.
    """
    pieces, panel, needed = _pieces(source, chunks.gpus)
    local, last = (panel + gpu) % chunks.gpus, chunks.gpus - 1
    kinds, kind = np.unique((needed + gpu) % chunks.gpus, axis=0, return_inverse=True)  # of rows of tiles
    gate = kind.ravel() - (not kinds[0].any())  # the first kind reads the GPU's panel only, if there are such rows
    own = np.flatnonzero(local == 0)
    far = range(1, chunks.gpus) if is_direct(topology) else (1,)
    sends = tuple(Send(to, Op.WRITE) for to in far)
    regions = [Region(int(own[0]), int(own[-1]) + 1, to=(), sends=sends, buffer=ROWS)]
    opened = gate[pieces["row"]]
    edges = np.flatnonzero(np.diff(panel, prepend=-1) | np.diff(opened, prepend=-2))
    for first, end in zip(edges.tolist(), [*edges[1:].tolist(), len(pieces)], strict=True):
        place = int(local[first])
        if place > 0:
            sends = () if is_direct(topology) or place == last else (Send(1, Op.WRITE),)
            opens = int(opened[first])
            regions.append(Region(first, end, to=(), expects=1, sends=sends, gate=opens, buffer=ROWS, chunk=place))
    output = source.output_tiles()
    buffers = [Buffer(OUTPUT, output), Buffer(ROWS, pieces, shares=0)]
    return planned(buffers, chunks, gpu, topology, regions), gate[output["row"]]


def _pieces(source: GemmSource, gpus: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, cut where a row of tiles or a panel begins.

    Returns:
        OUTPUT_TILE [pieces], `row` = row of tiles; panel of each piece; first and last panel of each row of tiles.

    Raises:
        UserError: A has fewer rows than there are GPUs.
    """
    a, high = source.problem.a, source.kernel.tile_m
    if a.rows < gpus:
        raise UserError(f"gpus: found {gpus} for {a.rows} rows of A; allowed is one row per GPU at least")
    panels = np.arange(gpus) * a.rows // gpus
    begin = np.union1d(panels, np.arange(0, a.rows, high))
    found = np.zeros(len(begin), OUTPUT_TILE)
    found["row"], found["runs"] = begin // high, np.diff(begin, append=a.rows)
    found["run_bytes"], found["pitch_bytes"] = a.columns * a.element_bytes, a.pitch_bytes
    found["address"] = a.address + begin * a.pitch_bytes
    found["parts"] = [(high, a.columns * a.element_bytes, 1, 1, 1)] * len(begin)
    panel = np.searchsorted(panels, begin, side="right") - 1
    rows = np.flatnonzero(np.diff(found["row"], prepend=-1))
    needed = np.stack([panel[rows], panel[np.append(rows[1:], len(begin)) - 1]], axis=1)
    return found, panel, needed


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
