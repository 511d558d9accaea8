"""Collectives on CUs use all links of a GPU at once if each other GPU has a link of its own."""

import pytest

from sim.collective.chunks import even_chunks
from sim.collective.on_cus import all_gather, reduce_scatter
from sim.hw.space import PEER_BITS
from sim.spec import Topology
from tracer.gemm.source import GemmKernel, GemmProblem, GemmSource

OUTPUT = GemmSource(GemmProblem(256, 256, 64), GemmKernel(64, 64, 32, 2, 2)).output_tiles()


@pytest.mark.parametrize("collective", [all_gather, reduce_scatter])
@pytest.mark.parametrize(("topology", "turns"), [(Topology.FULLY_CONNECTED, 4), (Topology.SWITCH, 1)])
def test_tiles_go_over_all_links_in_turn(collective, topology, turns):
    """Four chunks of four tiles. On a switch one GPU after the other gets the whole rate."""
    plan = collective(OUTPUT, even_chunks(16, 4), 0, topology)
    sent = [step.write >> PEER_BITS for step in plan.steps if step.write >> PEER_BITS]
    assert sent == sent[:3] * turns and sorted(sent[:3]) == [1, 2, 3]
