"""NCCL's estimate on round numbers, by hand from `src/graph/tuning.cc` (NVIDIA/nccl @5067397)."""

import pytest

from sim.collective.library import Choice, tables
from sim.collective.tuning import Estimate, Rates, nvls_us, ring_us, tree_us

RATES = Rates(
    links=100.0,
    ll=30.0,
    ll128_channel=3.0,
    channels=10,
    cards=50.0,
    nodes_ll=20.0,
    tree_channel=4.0,
    tree_ll128_channel=2.5,
    post_us=2.0,
    plateau=1.5,
    one_order=True,
)
TUNED = Estimate(
    base_us=5.0,
    hop_us=1.0,
    link_share=1.0,
    net_hop_us=10.0,
    tree_base_us=6.0,
    tree_hop_us=3.0,
    tree_net_us=12.0,
    tree_share=0.9,
    tree_correction=(*[1.0] * 10, 0.5, *[1.0] * 11, 0.8),
)
SMALL, LARGE = 8_000, 80_000_000


@pytest.mark.parametrize(
    ("protocol", "kind", "gpus", "nodes", "data_bytes", "us"),
    [
        ("simple", "all_gather", 8, 1, LARGE, 5 + 7 + 7 / 8 * LARGE / 100_000),
        ("simple", "all_reduce", 8, 1, LARGE, 5 + 14 + 14 / 8 * LARGE / 100_000),
        ("ll", "all_reduce", 8, 1, LARGE, 5 + 14 + 14 / 8 * LARGE / 30_000),
        ("ll128", "all_gather", 4, 1, LARGE, 5 + 3 + 3 / 4 * LARGE / 30_000),
        # 2 nodes of 8: 15 steps, of which one is between nodes; a step in a node takes at least a post to the card,
        # three of them with Simple
        ("ll", "all_gather", 16, 2, LARGE, 5 + 14 * 2 + 10 + 15 / 16 * LARGE / 20_000),
        ("simple", "all_gather", 16, 2, LARGE, 5 + 14 * 6 + 10 + 15 / 16 * LARGE / 50_000),
        # the plateau of an all-reduce begins at 64 bytes for each channel and GPU: 64 * 10 * 16 = 10,240
        ("simple", "all_reduce", 16, 2, LARGE, 1.5 * (5 + 28 * 6 + 20) + 30 / 16 * LARGE / 50_000),
        ("simple", "all_reduce", 16, 2, 10_240, 1.5 * (5 + 28 * 6 + 20) + 30 / 16 * 10_240 / 50_000),
        ("simple", "all_reduce", 16, 2, SMALL, 5 + 28 * 6 + 20 + 30 / 16 * SMALL / 50_000),
        # a GPU in each node: all steps are between nodes, each as long as a hop of a tree
        ("ll", "all_gather", 4, 4, SMALL, 5 + 3 * 12 + 3 / 4 * SMALL / 20_000),
    ],
)
def test_a_ring(protocol, kind, gpus, nodes, data_bytes, us):
    assert ring_us(TUNED, RATES, protocol, kind, gpus, nodes, data_bytes) == pytest.approx(us, rel=1e-12)


@pytest.mark.parametrize(
    ("protocol", "gpus", "nodes", "data_bytes", "us"),
    [
        # 64 B x 2^10 has a correction of 0.5, the sizes beside it none
        ("simple", 8, 1, 64 << 10, 6 + 2 * 7 * 3 + (64 << 10) / (500 * 40 * 0.5)),
        ("simple", 8, 1, 64 << 9, 6 + 2 * 7 * 3 + (64 << 9) / (500 * 40)),
        ("simple", 8, 1, 64 << 11, 6 + 2 * 7 * 3 + (64 << 11) / (500 * 40)),
        # the largest size with a correction, and the first without
        ("simple", 8, 1, 64 << 22, 6 + 2 * 7 * 3 + (64 << 22) / (500 * 40 * 0.8)),
        ("simple", 8, 1, 64 << 23, 6 + 2 * 7 * 3 + (64 << 23) / (500 * 40)),
        # 4 nodes of 8: two levels of nodes; 0.92 of the cards is 46, so the channels limit: 40
        ("simple", 32, 4, LARGE, 6 + 2 * (7 * 3 + 2 * 12) + LARGE / (500 * 40)),
        ("ll", 32, 4, LARGE, 6 + 2 * (7 * 3 + 2 * 12) + LARGE / (500 * 20)),
        ("ll128", 8, 1, LARGE, 6 + 2 * 7 * 3 + LARGE / (500 * 25)),
        ("ll", 8, 1, LARGE, 6 + 2 * 7 * 3 + LARGE / (500 * 30)),
    ],
)
def test_a_tree(protocol, gpus, nodes, data_bytes, us):
    assert tree_us(TUNED, RATES, protocol, gpus, nodes, data_bytes) == pytest.approx(us, rel=1e-12)


@pytest.mark.parametrize(
    ("protocol", "gpus", "nodes", "one_order", "us"),
    [
        ("simple", 8, 1, True, 5 + 1 + LARGE / 100_000),
        ("ll", 2, 1, False, 5 + 1 + LARGE / 30_000),  # two GPUs have one order
        ("ll", 8, 1, False, 5 + 8 * 1 + LARGE / 30_000),
        ("simple", 8, 1, False, 5 + 8 * 3 + LARGE / 100_000),
        ("ll", 16, 2, True, 5 + 16 * 10 + LARGE / 20_000),
        ("simple", 16, 2, True, 5 + 16 * 12 + LARGE / 50_000),
    ],
)
def test_a_broadcast_sends_the_whole_buffer_over_each_link(protocol, gpus, nodes, one_order, us):
    rates = RATES._replace(one_order=one_order)
    assert ring_us(TUNED, rates, protocol, "broadcast", gpus, nodes, LARGE) == pytest.approx(us, rel=1e-12)


def test_nodes_have_the_slower_rate_of_links_and_cards():
    """A tree has 0.92 of it. Within a node the cards do not matter."""
    latency_us = 6 + 2 * (7 * 3 + 2 * 12)
    for rates in (RATES._replace(links=20.0), RATES._replace(cards=20.0)):
        assert tree_us(TUNED, rates, "simple", 32, 4, LARGE) == pytest.approx(latency_us + LARGE / (500 * 0.92 * 20))
        many = ring_us(TUNED, rates, "ll128", "all_gather", 16, 2, LARGE)
        assert many == pytest.approx(5 + 14 * 2 + 10 + 15 / 16 * LARGE / 20_000)
    slow_cards = RATES._replace(cards=20.0)
    assert ring_us(TUNED, slow_cards, "simple", "all_gather", 8, 1, LARGE) == pytest.approx(5 + 7 + 7 / 8 * 800)


@pytest.mark.parametrize(
    ("kind", "us"), [("all_reduce", 6 + 14 / 8 * LARGE / 144_000), ("all_gather", 6 + LARGE / 72_000)]
)
def test_a_switch_that_adds(kind, us):
    """100 GB/s x 0.8 x 9 / 10 of the channels; twice that for both ways of an all-reduce."""
    assert nvls_us(TUNED, 100.0, 0.8, 10, kind, 8, LARGE) == pytest.approx(us, rel=1e-12)


def test_each_channel_takes_time_to_launch():
    for name, row in tables().row.items():
        for protocol, values in row.ring.items():
            four, twelve = (Choice(name, "ring", protocol, channels).launch_ps for channels in (4, 12))
            assert four == values.launch_ps + 4 * values.channel_ps and twelve - four == 8 * values.channel_ps
