"""Plans of what software does today to hide a reduce-scatter behind its GEMM. There is no timing here.

Each chunk of the output goes straight to its owner, into a receive buffer of its own. When the GEMM and all arrivals
have ended, a kernel of the owner adds them (`sim.collective.on_cus.local_reduce`). Three ways to send:

    flux            the kernel's stores go there at once (one fused kernel)
    copy_engines    DMA engines copy a chunk when its last tile is stored: a flag of the one GEMM starts them
    decomposed      the same, but each chunk is a GEMM of its own, which starts when the one before has ended

`all_gather_copies` is the all-gather of the copy engines. The Tracker stands for flags that software counts.

Traffic of one of N GPUs, with D = bytes of the output and `own` = bytes of the chunk that a GPU keeps:
    links                   D - own
    stores of the GEMM      flux: own; else D
    DMA reads               flux: 0; else D - own
    arriving stores         (N - 1) own
"""

import numpy as np

from sim.collective.chunks import Chunks
from sim.collective.plans import Plan, planned
from sim.collective.space import OUTPUT, Buffer, Region, Send
from sim.collective.topology import AnyTopology, is_direct, port_distances
from sim.hw.request import Op
from traces.errors import UserError

FLUX, COPY_ENGINES, DECOMPOSED = "flux", "copy_engines", "decomposed"
OVERLAPS = (DECOMPOSED, COPY_ENGINES, FLUX)


def scattered(
    overlap: str, output: np.ndarray, chunks: Chunks, gpu: int, topology: AnyTopology, gap_ps: int = 0
) -> tuple[Plan, np.ndarray]:
    """The plan of one GPU, and the gate of each output tile, i8 [tiles], -1 = none.

    Args:
        overlap: one of OVERLAPS.
        output: OUTPUT_TILE in global order.
        gap_ps: decomposed: end of a GEMM to the start of the next.

    Raises:
        UserError: there is no link to some of the owners.
    """
    _check_links(overlap, chunks.gpus, topology)
    last = chunks.gpus - 1
    gates = np.full(chunks.tiles, -1)
    regions = []
    for local in range(last):
        span, far = chunks.span(gpu, local), chunks.owner_distance(local)
        to = Send(far, Op.WRITE, slot=far - 1)
        if overlap == FLUX:
            regions.append(Region(span.start, span.stop, to=(to,)))
            continue
        gate = local if overlap == DECOMPOSED else None
        regions.append(Region(span.start, span.stop, expects=1, sends=(to,), chunk=local, gate=gate))
        if gate is not None:
            following = chunks.span(gpu, local + 1)
            gates[following.start : following.stop] = gate
    own = chunks.span(gpu, last)
    regions.append(Region(own.start, own.stop, expects=chunks.gpus, polled=True))
    return planned([Buffer(OUTPUT, output)], chunks, gpu, topology, regions, gap_ps), gates


def _check_links(overlap: str, gpus: int, topology: AnyTopology) -> None:
    missing = sorted(set(range(1, gpus)) - set(port_distances(topology, gpus)))
    if missing:
        raise UserError(
            f"{overlap}: found topology {topology.name.lower()}, which has no link to the GPU {missing[0]} ahead; "
            "chunks go straight to their owners, so allowed are link.topology = fully_connected and switch"
        )


def all_gather_copies(output: np.ndarray, chunks: Chunks, gpu: int, topology: AnyTopology) -> Plan:
    """All-gather by DMA engines: to all others at once, or along a ring, where a chunk is sent on when it has come."""
    last = chunks.gpus - 1
    own = chunks.span(gpu, last)
    far = range(1, chunks.gpus) if is_direct(topology) else (1,)
    regions = [Region(own.start, own.stop, to=(), sends=tuple(Send(to, Op.WRITE) for to in far), chunk=last)]
    for local in range(last):
        span = chunks.span(gpu, local)
        sends = () if is_direct(topology) or local == last - 1 else (Send(1, Op.WRITE),)
        regions.append(Region(span.start, span.stop, to=(), expects=1, sends=sends, chunk=local, polled=not sends))
    return planned([Buffer(OUTPUT, output, shares=0)], chunks, gpu, topology, regions)
