"""The order in which the GPUs of a fused GEMM make their tiles, and the workgroups that come in that order."""

from dataclasses import replace

import numpy as np
import pytest

from sim.collective import nvls
from sim.collective.plans import fused
from sim.collective.topology import adding_switch
from sim.run.launches import scattering_launch
from sim.run.many_gpus import fused_cluster
from sim.spec import Arbiter, Topology
from tests.support.programs import small_preset
from tests.support.t3_cases import T3Case
from tracer.gemm.source import Copy

CASE = T3Case(96, 128, 32, 3, sizes=(4, 2, 6), settings=("link.topology=switch", "link.in_switch=true"))
STRAIGHT = [Topology.FULLY_CONNECTED, Topology.SWITCH, "adding switch"]


def tags(topology, gpu, chunks="in_turn"):
    """The tiles of a GPU in the order in which it makes them, after a check that its workgroups make these tiles."""
    machine = small_preset(*CASE.settings, f"dispatch.chunks={chunks}").machine
    output = CASE.source.output_tiles()
    if topology == "adding switch":
        plan = nvls.fused(output, CASE.chunks, gpu, adding_switch(machine, 3))
    else:
        plan = fused(output, CASE.chunks, gpu, topology)
    launch = scattering_launch(CASE.source, plan, machine.dispatch)
    expected = [CASE.source.workgroup(int(tag)).events.tobytes() for tag in launch.tags]
    found = list(launch.source.workgroups())
    assert [one.index for one in found] == list(range(12)) and [one.events.tobytes() for one in found] == expected
    return launch.tags.tolist()


@pytest.mark.parametrize("topology", STRAIGHT)
def test_chunks_take_turns_where_tiles_go_straight_to_their_owners(topology):
    assert tags(topology, 0) == CASE.chunks.in_turn(0).tolist() == [0, 4, 6, 1, 5, 7, 2, 8, 3, 9, 10, 11]
    assert sorted(tags(topology, 2)) == list(range(12))


@pytest.mark.parametrize("chunks", ["in_turn", "one_by_one"])
def test_on_a_ring_a_gpu_makes_chunk_after_chunk(chunks):
    for gpu in range(3):
        assert tags(Topology.RING, gpu, chunks) == np.roll(range(12), -CASE.chunks.start_tile(gpu)).tolist()


@pytest.mark.parametrize("topology", STRAIGHT)
def test_chunks_one_by_one_are_those_of_a_ring(topology):
    assert tags(topology, 1, "one_by_one") == tags(Topology.RING, 1)


def test_workgroups_of_a_cluster_stay_together():
    case = replace(CASE, kernel=replace(CASE.kernel, copy=Copy.PRODUCER, pipeline_depth=2, cluster_n=2))
    plan = fused(case.source.output_tiles(), case.chunks, 0, Topology.SWITCH)
    order = scattering_launch(case.source, plan, small_preset("dispatch.chunks=in_turn").machine.dispatch).tags.tolist()
    assert order == [0, 1, 4, 5, 6, 7, 2, 3, 8, 9, 10, 11]


@pytest.mark.parametrize(
    ("settings", "stages"),
    [((), [5, 1, 1, 1]), (("link.topology=fully_connected",), [2, 2, 2, 2])],
)
def test_the_first_stage_is_the_first_chunk_of_each_gpu(settings, stages):
    """GPU 0 makes global chunk 0 first. Without a ring, tiles of all chunks take turns: a quarter of eight tiles."""
    case = T3Case(64, 128, 32, 4, sizes=(5, 1, 1, 1), settings=settings)
    cluster, _ = fused_cluster(case.machine, case.source, case.chunks, Arbiter.MCA, explicit=True)
    found = [int(gpu.node.mca["stage_workgroups"][0]) for gpu in cluster.gpus]
    assert found == stages
