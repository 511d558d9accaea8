"""Plans of collectives as NCCL and RCCL run them: out of place, through staging buffers of the receiver.

    reduce_scatter   a ring; each GPU adds what arrives to its own data and sends the sum on
    all_gather       a ring; each GPU sends on what arrives, and copies it to its output
    all_reduce       both; the step that makes the final sum also sends it
    all_to_all       each GPU sends a chunk to each other GPU; receivers copy the chunks to their output
    send_recv        two GPUs exchange a chunk

A sender writes to a staging buffer of the receiver, which reads it again. So an all-reduce of S bytes on N GPUs reads
(3N - 2) / N S bytes of memory and writes as many. If receivers pull, the staging buffer is the sender's: the sender
writes to it and stores a flag at the receiver, which then loads the data over the link. The first step is then within
the GPU, and the last step uses the link (NCCL 2.30.7 between A100: src/graph/paths.cc, ncclTopoCheckP2p).

`Pieces` is the order of the steps: the data are cut into rounds. In a round each step is done for all slices of the
round before the next step begins, as a channel of NCCL does it. `kernels` divides the steps of a direct algorithm: some
warps send, some receive, and other channels copy.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from sim.collective.builder import Builder
from sim.collective.chunks import Chunks
from sim.collective.kernel import Pieces, Step, in_rounds
from sim.collective.on_cus import add_messages
from sim.collective.plans import Plan
from sim.collective.space import slot_bytes
from sim.collective.topology import AnyTopology
from sim.hw.space import PEER_BITS

STAGING, SECOND_STAGING, RESULT = slot_bytes(0), slot_bytes(1), slot_bytes(2)


def kernels(steps: Sequence[Step]) -> list[list[Step]]:
    """The steps that send at once, that wait for what arrives, and that copy within the GPU."""
    kinds: list[list[Step]] = [[], [], []]
    for step in steps:
        kinds[1 if step.gates else 0 if step.write >> PEER_BITS or step.flags else 2].append(step)
    return kinds


def _add_reduce_scatter(build: Builder, sends_result: bool = False) -> None:
    """sends_result: the last step also sends the sum, as the first step of an all-gather."""
    chunks, last = build.chunks, build.chunks.gpus - 1
    build.keep_sum()
    for local in range(1, chunks.gpus):
        build.arrivals(local, 1, 0, True)
    build.step(0, [0], build.to(STAGING), gated=False)
    build.tell()
    for local in range(1, last):
        build.step(local, [0, build.received(STAGING)], build.to(STAGING))
        build.tell()
    also = (build.to(SECOND_STAGING), chunks.tiles) if sends_result else None
    build.step(last, [0, build.received(STAGING)], RESULT, also=also)
    if sends_result:
        build.tell(chunks.tiles)


def _pass_on(build: Builder, offset: int) -> None:
    """The steps of an all-gather after the first, which sends the GPU's own chunk."""
    last = build.chunks.gpus - 1
    for local in range(last):
        build.arrivals(local, 1, offset, False)
    for local in range(last - 1):
        to = build.to(SECOND_STAGING)
        build.step(local, [build.received(SECOND_STAGING)], to, offset=offset, also=(RESULT, 0))
        build.tell(offset)
    build.step(last - 1, [build.received(SECOND_STAGING)], RESULT, offset=offset)


def _add_all_gather(build: Builder) -> None:
    build.step(build.chunks.gpus - 1, [0], build.to(SECOND_STAGING), gated=False, also=(RESULT, 0))
    build.tell()
    _pass_on(build, 0)


def _add_all_reduce(build: Builder) -> None:
    """The tags of the all-gather follow those of the reduce-scatter."""
    _add_reduce_scatter(build, sends_result=True)
    _pass_on(build, build.chunks.tiles)


def _add_all_to_all(build: Builder, keeps: bool = True) -> None:
    gpus = build.chunks.gpus
    add_messages(build, keeps)
    for number in range(gpus - 1):
        build.step(gpus - 1, [build.received(slot_bytes(number), number + 1)], slot_bytes(gpus + number))


STEPS: dict[str, tuple[Callable[[Builder], None], int]] = {
    "all_reduce": (_add_all_reduce, 2),
    "reduce_scatter": (_add_reduce_scatter, 1),
    "all_gather": (_add_all_gather, 1),
    "all_to_all": (_add_all_to_all, 1),
    "send_recv": (partial(_add_all_to_all, keeps=False), 1),
}
"""Collective -> the function that adds its steps, and the number of its phases."""


def staged_plan(
    kind: str,
    output: np.ndarray,
    chunks: Chunks,
    gpu: int,
    topology: AnyTopology,
    pieces: Pieces,
    pulls: bool,
) -> Plan:
    """The plan of one GPU.

    Args:
        kind: one of STEPS.
        output: OUTPUT_TILE in global order.
        pulls: receivers load from staging buffers of the senders.
    """
    add, phases = STEPS[kind]
    build = Builder(output, chunks, gpu, topology, pieces.count, phases, pulls)
    add(build)
    build.steps = in_rounds(build.steps, pieces)
    return build.plan()
