"""Trees, chains and slices: every byte comes once, over the links that the tree has, also from node to node."""

from itertools import pairwise

import pytest

from sim.collective.library import Choice, choose, estimate_us, row_of
from sim.collective.tree import MOST_CHILDREN, children_of, parent_of
from sim.presets import load_preset
from sim.run.library_preset import library_preset
from sim.run.library_run import LibraryRun
from sim.scenario.collective import Collective, simulate_collective
from sim.scenario.exchange import exchange_run
from tracer.models.schedule import Exchange
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
    assert result.exactly_once, result.wrong
    assert result.figures["simulated_gpus"] == gpus
    assert result.link_bytes == 2 * (gpus - 1) * SIZE // gpus


@pytest.mark.parametrize("gpus", [2, 4])
def test_a_broadcast_passes_each_byte_on_once(gpus):
    result = run_of("broadcast", "ring", gpus)
    assert result.exactly_once, result.wrong
    assert result.link_bytes == (gpus - 1) * SIZE // gpus
    assert result.dram_bytes[2:].tolist() == [SIZE, SIZE + (gpus - 1) * SIZE // gpus]


@pytest.mark.parametrize(
    ("kind", "algorithm", "waits"),
    [
        ("all_reduce", "tree", [[True, True], [True, True, True], [True, True, True], [False, True]]),
        ("broadcast", "ring", [[False], [True], [True], [True]]),
    ],
)
def test_a_gpu_sends_on_only_what_has_come(kind, algorithm, waits):
    """Four GPUs in a chain. Up: all but the last wait for a sum. Down: to the next GPU and the result."""
    choice = Choice("nccl_a100", algorithm, "ll", 1)
    preset = library_preset(load_preset("a100_80g"), choice)
    run = LibraryRun(preset=preset, kind=kind, gpus=4, data_bytes=2048, choice=choice)
    assert [[min(step.gates, default=-1) >= 0 for step in plan.steps] for plan in run.plans()] == waits


@pytest.mark.parametrize(("kind", "algorithm", "workgroups"), [("all_reduce", "tree", 1 + 2), ("broadcast", "ring", 1)])
def test_a_small_buffer_is_one_slice_on_each_way(kind, algorithm, workgroups):
    """Not one for each GPU. The first GPU of the second node has one child: it sends up, and down, and keeps a copy."""
    choice = Choice("nccl_a100", algorithm, "ll", 1, 2)
    preset = library_preset(load_preset("a100_80g"), choice)
    run = LibraryRun(preset=preset, kind=kind, gpus=16, data_bytes=2048, choice=choice)
    launches = run.launches(run.plans()[8])
    assert sum(launch.source.info.workgroups for launch in launches) == workgroups


@pytest.mark.parametrize(("kind", "algorithm"), [("all_reduce", "tree"), ("broadcast", "ring")])
def test_a_larger_buffer_does_not_take_less_time(kind, algorithm):
    times_ns = [run_of(kind, algorithm, 6, 3, size).time_ps / 1000 for size in (1, 2048, 8192, 32768)]
    assert all(small <= 1.02 * large for small, large in pairwise(times_ns)), times_ns
    assert times_ns[0] < 15_000, times_ns


@pytest.mark.parametrize(("protocol", "passed_bytes"), [("ll", 4096), ("ll128", 30720), ("simple", 512 << 10)])
def test_a_tree_passes_on_what_a_channel_handles_at_once(protocol, passed_bytes):
    tree = Choice("nccl_a100", "tree", protocol, 16, 2)
    found = [tree.whole_pieces(size) for size in (1, 16 * passed_bytes, 16 * passed_bytes + 1)]
    assert [pieces.count for pieces in found] == [1, 1, 2] and found[2].slices == 1


def test_slices_wait_for_no_die():
    """Eight dies and 12 channels: a slice runs where a channel is free, so more channels take no more time."""
    eight, twelve = (
        simulate_collective(
            Collective(load_preset("mi300x"), "all_reduce", 8, 1 << 18, protocol="simple", channels=channels)
        )
        for channels in (8, 12)
    )
    assert twelve.time_ns < 1.02 * eight.time_ns


def test_nccl_takes_trees_between_nodes_for_small_sizes_and_rings_for_large_ones():
    found = [choose("nccl_a100", "all_reduce", 16, 1 << power) for power in (12, 20, 30)]
    assert [one.algorithm for one in found] == ["tree", "tree", "ring"] and {one.nodes for one in found} == {2}
    assert choose("nccl_a100", "all_reduce", 8, 1 << 12).algorithm == "ring"
    assert choose("nccl_a100", "all_gather", 16, 1 << 12).algorithm == "ring"


def test_the_estimate_of_several_nodes_is_that_of_the_tables():
    row = row_of("nccl_a100")
    assert estimate_us(row, "all_reduce", 16, 64, "ll") == pytest.approx(6.6 + 28 * 2.0 + 2 * 2.7, abs=0.02)
    assert estimate_us(row, "all_gather", 16, 64, "ll") == pytest.approx(6.6 + 14 * 2.0 + 2.7, abs=0.02)
    assert estimate_us(row, "all_gather", 16, 64, "simple") == pytest.approx(8.4 + 14 * 6.0 + 14, abs=0.02)
    assert estimate_us(row, "all_reduce", 16, 64, "ll", "tree") == pytest.approx(6.8 + 2 * (7 * 0.6 + 5), abs=0.02)
    assert estimate_us(row, "all_reduce", 24, 64, "ll", "tree") == pytest.approx(6.8 + 2 * (7 * 0.6 + 5), abs=0.02)
    intel = row_of("nccl_h100")
    assert estimate_us(intel, "all_gather", 16, 64, "ll") == pytest.approx(6.6 + 14 * 1.0 + 2.7, abs=0.02)
    assert estimate_us(intel, "all_gather", 16, 1 << 30, "ll") > (1 << 30) * 15 / 16 / 39e3


@pytest.mark.parametrize(("name", "factor"), [("nccl_v100", 1.9), ("nccl_a100", 1.4)])
def test_a_large_ring_of_simple_over_nodes_has_the_plateau_of_its_generation(name, factor):
    row = row_of(name)
    large = 64 * row.channels * 16
    below, at = (estimate_us(row, "all_reduce", 16, size, "simple") for size in (large - 1, large))
    latency_us = 8.4 + 28 * max(3.4, 3 * row.tuned_post_us) + 2 * 14
    assert at - below == pytest.approx((factor - 1) * latency_us, abs=0.02)


def test_the_estimate_of_a_broadcast_has_one_hop_in_a_node_and_the_whole_buffer():
    """src/graph/tuning.cc: nRanks steps, ratio 1; one hop with sameChannels, else nRanks hops."""
    row, size = row_of("nccl_a100"), 24_000_000
    assert estimate_us(row, "broadcast", 8, size, "simple") == pytest.approx(8.4 + 3.4 + size / 240e3)
    assert estimate_us(row, "broadcast", 16, 64, "ll128") == pytest.approx(14 + 16 * 4.0, abs=0.02)
    assert estimate_us(row, "broadcast", 16, 64, "simple") == pytest.approx(8.4 + 16 * 14.0, abs=0.02)
    assert [choose("nccl_a100", "broadcast", 8, kib << 10).protocol for kib in (600, 800)] == ["ll", "simple"]


@pytest.mark.parametrize("name", ["nccl_v100", "rccl_mi300x"])
def test_the_estimate_of_a_broadcast_on_a_mesh_has_a_hop_for_each_gpu(name):
    """Without sameChannels, and with the hop of a tree for Simple: 4.0 us, not 3.4. Two GPUs have one order."""
    row = row_of(name)
    hops = {"ll": (6.6, 0.6, 0.6), "ll128": (14, 1.9, 1.9), "simple": (8.4, 4.0, 3.4)}
    if name == "rccl_mi300x":
        hops = {"ll": (12, 0.8, 0.8), "simple": (17, 2.3, 2.1)}
    for protocol, (base_us, mesh_us, one_us) in hops.items():
        assert estimate_us(row, "broadcast", 8, 64, protocol) == pytest.approx(base_us + 8 * mesh_us, abs=0.02)
        assert estimate_us(row, "broadcast", 2, 64, protocol) == pytest.approx(base_us + one_us, abs=0.02)


def test_a_network_between_nodes_takes_longer_than_a_switch():
    """16 GPUs: two nodes of eight."""
    asked = [Collective(load_preset("a100_80g"), "all_gather", gpus, 128 * gpus) for gpus in (8, 16)]
    one, two = (simulate_collective(each) for each in asked)
    assert two.exactly_once
    assert two.time_ns > one.time_ns + 7 * 500 + 2000


def test_nodes_that_the_user_sets_have_the_flags_of_the_protocol_too():
    given = ["network.node_gpus=2"]
    preset = library_preset(load_preset("a100_80g", given), choose("nccl_a100", "all_gather", 4, 4096))
    assert preset.machine.network.node_gpus == 2
    assert preset.machine.network.header_bytes == preset.machine.link.header_bytes == 128


def on_nodes(node_gpus, kind, gpus, **chosen):
    preset = load_preset("a100_80g", [f"network.node_gpus={node_gpus}"])
    return Collective(preset, kind, gpus, 4096, **chosen).run()


@pytest.mark.parametrize(
    ("node_gpus", "gpus", "nodes", "each"), [(0, 16, 2, 8), (4, 16, 4, 4), (2, 4, 2, 2), (1, 2, 2, 1), (16, 16, 1, 0)]
)
def test_the_nodes_of_a_choice_are_those_that_the_user_sets(node_gpus, gpus, nodes, each):
    """0: those of the row. Each node has a card of 25 GB/s for each of its GPUs; in one node they are not used."""
    run = on_nodes(node_gpus, "all_reduce", gpus)
    network = run.preset.machine.network
    assert (run.choice.nodes, run.alike, run.choice.can_pull) == (nodes, nodes == 1, False)
    assert (network.node_gpus, network.GB_per_s) == ((each, 25 * each) if each else (node_gpus, 50))


def test_a_user_sets_the_card_of_each_gpu():
    preset = load_preset("a100_80g", ["network.GB_per_s=12.5"])
    network = Collective(preset, "all_reduce", 16, 4096).run().preset.machine.network
    assert (network.node_gpus, network.GB_per_s) == (8, 8 * 12.5)


def test_chains_of_a_tree_stay_within_the_nodes_that_the_user_sets():
    """The heads of four nodes are GPUs 0, 4, 8 and 12. GPU 4 sends to 0, 5 and 12, and keeps a copy."""
    plans = on_nodes(4, "all_reduce", 16, algorithm="tree").plans()
    assert [len(plans[gpu].steps) for gpu in (0, 4, 8, 12, 3)] == [4, 4, 3, 3, 2]


def test_the_estimate_has_the_nodes_that_the_user_sets():
    row = row_of("nccl_a100")
    assert estimate_us(row, "all_reduce", 16, 64, "ll", "tree", 4) == pytest.approx(
        6.8 + 2 * (3 * 0.6 + 2 * 5), abs=0.02
    )
    alone_us = estimate_us(row, "all_gather", 4, 64, "ll", node_gpus=1)  # "With ppn=1 ... use the Tree network latency"
    assert alone_us == pytest.approx(6.6 + 3 * 5, abs=0.02)
    slow = estimate_us(row, "all_gather", 4, 1 << 30, "simple", node_gpus=2)
    assert slow > (1 << 30) * 3 / 4 / 48e3 > estimate_us(row, "all_gather", 4, 1 << 30, "simple")


@pytest.mark.parametrize(
    ("node_gpus", "kind", "gpus", "said"),
    [
        (4, "all_reduce", 6, "found 6, allowed are 2 to 4, or 4 in each of 2 to 8 nodes"),
        (1, "all_reduce", 9, "found 9, allowed are 1 in each of 2 to 8 nodes"),
        (2, "all_to_all", 4, "found 4 GPUs, allowed is one node of 2: more nodes are not known"),
    ],
)
def test_gpus_that_fill_no_nodes_of_the_user_are_refused(node_gpus, kind, gpus, said):
    with pytest.raises(UserError, match=said):
        on_nodes(node_gpus, kind, gpus)


@pytest.mark.parametrize(("node_gpus", "nodes"), [(0, 1), (2, 2), (3, 2), (4, 1)])
def test_an_exchange_over_nodes_that_the_user_sets_is_that_of_the_library(node_gpus, nodes):
    """Also where the last node is partly empty."""
    run = exchange_run(load_preset("a100_80g", [f"network.node_gpus={node_gpus}"]), Exchange("all_gather", 4096, 4))
    assert isinstance(run, LibraryRun) and run.choice.nodes == nodes


@pytest.mark.parametrize(("kind", "gpus"), [("all_reduce", 12), ("all_reduce", 72), ("all_to_all", 16)])
def test_gpus_that_fill_no_nodes_are_refused(kind, gpus):
    with pytest.raises(UserError, match=f"found {gpus}"):
        choose("nccl_a100", kind, gpus, 4096)


@pytest.mark.parametrize(
    ("name", "gpus", "GBps", "expected_GBps"),
    [
        *(("mi300x", gpus, 64 * (gpus - 1), 48 * (gpus - 1)) for gpus in (2, 3, 8)),
        *(("v100", gpus, 25 * links, 20 * links) for gpus, links in ((2, 2), (3, 2), (4, 4), (8, 6))),
        ("a100_80g", 2, 300, 240),
    ],
)
def test_a_collective_uses_the_links_that_lead_to_its_gpus(name, gpus, GBps, expected_GBps):
    """MI300X: 64 GB/s to each other GPU. DGX-1: 25 GB/s a link, two between two GPUs. A100: a switch."""
    preset = load_preset(name)
    choice = choose(preset.machine.collective.library, "all_reduce", gpus, 1 << 28)
    assert library_preset(preset, choice).machine.link.GB_per_s == pytest.approx(GBps)
    assert row_of(choice.row).rates(8, gpus).links == pytest.approx(expected_GBps)


def test_a_message_between_two_gpus_with_one_link_is_not_faster_than_the_link():
    asked = Collective(load_preset("mi300x"), "send_recv", 2, 1 << 24)
    assert 20 < simulate_collective(asked).bus_GBps < 64


def test_a_message_of_rccl_has_eight_channels():
    """MI300X: four for the link of a pair, twice as many in one node, of 64 in all (`ncclTopoComputeP2pChannels`)."""
    asked = (("all_to_all", 8, 64), ("all_to_all", 2, 16), ("send_recv", 2, 8))
    for kind, gpus, channels in asked:
        assert choose("rccl_mi300x", kind, gpus, 1 << 28).channels == channels


def test_rccl_chooses_by_its_own_constants_and_never_takes_ll128():
    """8 MI300X: 12 + 14 x 0.8 us and 8 % of 336 GB/s with LL, 17 + 14 x 2.1 us and all of it with Simple."""
    switch = (17 + 14 * 2.1 - 12 - 14 * 0.8) / (14 / 8 * (1 / 26.88e3 - 1 / 336e3))
    assert switch == pytest.approx(387_000, rel=0.01)
    sizes = (0.99 * switch, 1.01 * switch, 4 << 20, 32 << 20)
    found = [choose("rccl_mi300x", "all_reduce", 8, int(size)).protocol for size in sizes]
    assert found == ["ll", "simple", "simple", "simple"]
    with pytest.raises(UserError, match="protocol: found 'll128' for ring on rccl_mi300x"):
        choose("rccl_mi300x", "all_reduce", 8, 1 << 20, protocol="ll128")


def test_the_256_threads_of_a_channel_of_rccl_need_half_the_bytes():
    """RCCL: 256 x 8 bytes with LL, 256 x 64 with Simple, and 16 KiB of data in a step of LL."""
    for protocol, least in (("ll", 2048), ("simple", 16384)):
        found = choose("rccl_mi300x", "all_reduce", 8, 20 * least, protocol=protocol)
        assert found.channels == 20
    assert choose("rccl_mi300x", "all_reduce", 8, 4096, protocol="ll").figures.piece_bytes == 16384
    assert choose("nccl_a100", "all_reduce", 8, 20 * 4096, protocol="ll").channels == 20
