"""Trees and chains: every byte comes once, over the links that the tree has, also from node to node."""

import pytest

from sim.collective.library import Choice, choose, estimate_us, row_of
from sim.collective.tree import MOST_CHILDREN, children_of, parent_of
from sim.presets import load_preset
from sim.run.library_run import LibraryRun, library_preset
from sim.scenario.collective import Collective, simulate_collective
from traces.errors import UserError

SIZE = 4 * 2 * 1024


def run_of(kind, algorithm, gpus, nodes=1, size=SIZE):
    choice = Choice("nccl_a100", algorithm, "ll", 2, nodes)
    preset = library_preset(load_preset("a100_80g"), choice)
    return LibraryRun(preset=preset, kind=kind, gpus=gpus, data_bytes=size, choice=choice).execute()


@pytest.mark.parametrize(("gpus", "per_node"), [(2, 2), (8, 8), (16, 8), (24, 8), (64, 8), (6, 2)])
def test_all_gpus_are_in_one_tree(gpus, per_node):
    for gpu in range(1, gpus):
        path, here = [], gpu
        while here:
            path.append(here)
            here = parent_of(here, per_node)
        assert len(path) == len(set(path)) < 8 + 8
    children = [children_of(gpu, per_node, gpus) for gpu in range(gpus)]
    assert sorted(child for own in children for child in own) == list(range(1, gpus))
    assert max(map(len, children)) <= MOST_CHILDREN


@pytest.mark.parametrize(("gpus", "nodes"), [(2, 1), (4, 1), (4, 2), (6, 3)])
def test_a_tree_sends_each_byte_up_and_down_each_edge(gpus, nodes):
    """Means over all GPUs: GPUs - 1 edges, each up and down; a GPU reads its own data and what has come."""
    result = run_of("all_reduce", "tree", gpus, nodes)
    padded = result.link_bytes * gpus // (2 * (gpus - 1))
    assert result.exactly_once, result.wrong
    assert result.figures["simulated_gpus"] == gpus
    assert SIZE <= padded <= 2 * SIZE
    assert result.link_bytes == 2 * (gpus - 1) * padded // gpus


@pytest.mark.parametrize("gpus", [2, 4])
def test_a_broadcast_passes_each_byte_on_once(gpus):
    result = run_of("broadcast", "ring", gpus)
    assert result.exactly_once, result.wrong
    assert result.link_bytes == (gpus - 1) * SIZE // gpus
    assert result.dram_bytes[2:].tolist() == [SIZE, SIZE + (gpus - 1) * SIZE // gpus]


def test_nccl_takes_trees_between_nodes_for_small_sizes_and_rings_for_large_ones():
    found = [choose("nccl_a100", "all_reduce", 16, 1 << power) for power in (12, 20, 30)]
    assert [one.algorithm for one in found] == ["tree", "tree", "ring"] and {one.nodes for one in found} == {2}
    assert choose("nccl_a100", "all_reduce", 8, 1 << 12).algorithm == "ring"
    assert choose("nccl_a100", "all_gather", 16, 1 << 12).algorithm == "ring"


def test_the_estimate_of_several_nodes_is_that_of_the_tables():
    row = row_of("nccl_a100")
    assert estimate_us(row, "all_reduce", 16, 64, "ll") == pytest.approx(6.6 + 26 * 0.6 + 4 * 2.7, abs=0.02)
    assert estimate_us(row, "all_gather", 16, 64, "ll") == pytest.approx(6.6 + 14 * 0.6 + 2.7, abs=0.02)
    assert estimate_us(row, "all_reduce", 16, 64, "ll", "tree") == pytest.approx(6.8 + 2 * (7 * 0.6 + 5), abs=0.02)


def test_a_network_between_nodes_takes_longer_than_a_switch():
    """16 GPUs: two nodes of eight."""
    asked = [Collective(load_preset("a100_80g"), "all_gather", gpus, 128 * gpus) for gpus in (8, 16)]
    one, two = (simulate_collective(each) for each in asked)
    assert two.exactly_once
    assert two.time_ns > one.time_ns + 7 * 500 + 2000


@pytest.mark.parametrize(("kind", "gpus"), [("all_reduce", 12), ("all_reduce", 72), ("all_to_all", 16)])
def test_gpus_that_fill_no_nodes_are_refused(kind, gpus):
    with pytest.raises(UserError, match=f"found {gpus}"):
        choose("nccl_a100", kind, gpus, 4096)
