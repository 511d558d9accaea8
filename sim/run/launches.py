"""The GEMM of one GPU of several, with its workgroups in the order in which its plan wants the tiles."""

from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256

import numpy as np

from sim.collective.plans import Plan
from sim.collective.topology import AddingSwitch, AnyTopology, is_direct
from sim.host.window import Launch
from sim.spec import ChunkOrder, Dispatch
from tracer.gemm.source import GemmSource
from traces.source import Workgroup


class Reordered:
    """A GEMM whose workgroups come in another order (`traces.source.KernelSource`)."""

    def __init__(self, source: GemmSource, order: np.ndarray):
        """order: i8 [workgroups], their numbers."""
        self.source, self.order, self.info = source, order, source.info

    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        for index in range(start, len(self.order)):
            yield self.source.workgroup(int(self.order[index]))._replace(index=index)

    def fingerprint(self) -> str:
        return sha256(self.source.fingerprint().encode() + self.order.tobytes()).hexdigest()


def staggered_launch(source: GemmSource, plan: Plan, start_ps: int, gates: np.ndarray | None = None) -> Launch:
    """The GEMM of one GPU; its tile order starts at the first chunk of the GPU.

    Args:
        gates: i8 [tiles], gate for which the workgroups of each tile wait, -1 = none; None = no gates.
    """
    start, tiles = plan.chunks.start_tile(plan.gpu), plan.chunks.tiles
    number = np.arange(tiles * source.kernel.split_k)
    tile = (number + start) % tiles
    staggered = GemmSource(source.problem, replace(source.kernel, start_tile=start))
    tags = number // tiles * tiles + tile
    return Launch(staggered, tags=tags, gates=None if gates is None else gates[tile], start_ps=start_ps)


def takes_turns(topology: AnyTopology | AddingSwitch, dispatch: Dispatch) -> bool:
    """Does a GEMM that sends its tiles make tiles of all chunks in turn? Not on a ring, where they pass a neighbour."""
    straight = is_direct(topology) or isinstance(topology, AddingSwitch)
    return straight and dispatch.chunks == ChunkOrder.IN_TURN


def first_stage(plan: Plan, dispatch: Dispatch) -> int:
    """Workgroups of a GPU's first stage: its first chunk; if tiles of all chunks take turns, an equal share."""
    chunks = plan.chunks
    return chunks.tiles // chunks.gpus if takes_turns(plan.topology, dispatch) else len(chunks.span(plan.gpu, 0))


def scattering_launch(source: GemmSource, plan: Plan, dispatch: Dispatch) -> Launch:
    """The GEMM of one GPU that sends each tile to the owner of its chunk as soon as it is made.

    Chunk after chunk would use one link after the other where there is one to each GPU, and GPUs that fall out of step
    on a switch would send to the same owner. So tiles of all chunks take turns there (`dispatch.chunks`). In this way a
    switch that adds gets a tile from all GPUs at about the same time. On a ring a GPU makes chunk after chunk.
    """
    if not takes_turns(plan.topology, dispatch):
        return staggered_launch(source, plan, dispatch.launch_ps)
    tiles = plan.chunks.in_turn(plan.gpu, source.kernel.cluster)
    splits = np.arange(source.kernel.split_k)[:, None]
    order = (splits * len(tiles) + tiles).ravel()
    return Launch(Reordered(source, order), tags=order, start_ps=dispatch.launch_ps)
