"""NCCL's own estimate of the time of a collective, by which it chooses. It is not a time of ours (D26).

Source: NVIDIA/nccl @5067397 (2.30.7), src/graph/tuning.cc; the constants are in `library.toml` and, with their source,
in `validation/references/nccl_tuning_tables.csv`. Those of several nodes are the ones of two.
"""

from typing import NamedTuple

import msgspec

TREE_LARGEST = 23
"""Sizes of 64 B x 2^n have a correction of a tree below this n."""
SIMPLE_POSTS = 3
"""Times that Simple posts to the network card in a step."""


class Estimate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Constants of a protocol: latencies in us, shares of the rate. net_*: for a hop between nodes."""

    base_us: float
    hop_us: float
    link_share: float
    net_hop_us: float = 0.0
    tree_base_us: float = 0.0
    tree_hop_us: float = 0.0
    tree_net_us: float = 0.0
    tree_share: float = 0.0
    tree_correction: tuple[float, ...] = ()


class Rates(NamedTuple):
    """Rates of a machine in GB/s that the estimate uses.

    cards: of all network cards of a node. post_us: what a ring over nodes takes at least for a step, to post to the
    card. plateau: factor of the latency of a Simple ring over several nodes, for a large all-reduce. one_order: all
    rings of a node have the same order of GPUs (NCCL's sameChannels).
    """

    links: float
    ll: float
    ll128_channel: float
    channels: int
    cards: float
    nodes_ll: float
    tree_channel: float
    tree_ll128_channel: float
    post_us: float
    plateau: float
    one_order: bool

    def bus(self, nodes: int) -> float:
        return min(self.links, self.cards) if nodes > 1 else self.links


def ring_us(tuned: Estimate, rates: Rates, protocol: str, kind: str, gpus: int, nodes: int, data_bytes: int) -> float:
    """A ring. Some of its steps are between nodes. A broadcast sends the whole buffer over each link."""
    latency_us, share = _ring_latency_us(tuned, rates, protocol, kind, gpus, nodes)
    if protocol == "simple" and nodes > 1 and kind == "all_reduce" and data_bytes >= 64 * rates.channels * gpus:
        latency_us *= rates.plateau
    ll = rates.nodes_ll if nodes > 1 else rates.ll
    limit = {"ll": ll, "ll128": rates.ll128_channel * rates.channels}.get(protocol, rates.links)
    GB_per_s = min(rates.bus(nodes) * tuned.link_share, limit)
    return latency_us + data_bytes * share / (1000 * GB_per_s)


def _ring_latency_us(
    tuned: Estimate, rates: Rates, protocol: str, kind: str, gpus: int, nodes: int
) -> tuple[float, float]:
    """Latency of a ring, and the share of the buffer that crosses a link.

    A broadcast has one hop in a node where all rings have the same order of GPUs: on a switch, or of two GPUs. Else it
    has one for each GPU, with Simple as long as that of a tree.
    With one GPU in each node a hop between nodes takes as long as that of a tree.
    """
    simple = protocol == "simple"
    if kind == "broadcast":
        if nodes == 1 and (rates.one_order or gpus == 2):
            return tuned.base_us + tuned.hop_us, 1.0
        hop_us, tree_us = (tuned.hop_us, tuned.tree_hop_us) if nodes == 1 else (tuned.net_hop_us, tuned.tree_net_us)
        return tuned.base_us + gpus * (tree_us if simple else hop_us), 1.0
    passes = 2 if kind == "all_reduce" else 1
    steps, far = passes * (gpus - 1), passes * (nodes - 1)
    post_us = 0.0 if nodes == 1 else rates.post_us * (SIMPLE_POSTS if simple else 1)
    far_us = tuned.tree_net_us if gpus == nodes else tuned.net_hop_us
    latency_us = (steps - far) * max(tuned.hop_us, post_us) + far * far_us
    return tuned.base_us + latency_us, steps / gpus


def tree_us(tuned: Estimate, rates: Rates, protocol: str, gpus: int, nodes: int, data_bytes: int) -> float:
    """An all-reduce over a tree: up and down the chain of a node and the tree of nodes."""
    hops_us = (gpus / nodes - 1) * tuned.tree_hop_us + (nodes.bit_length() - 1) * tuned.tree_net_us
    GB_per_s = min(rates.bus(nodes) * 0.92, rates.channels * rates.tree_channel)
    if protocol == "ll":
        GB_per_s = min(GB_per_s * tuned.tree_share, rates.nodes_ll if nodes > 1 else rates.ll)
    elif protocol == "ll128":
        GB_per_s = min(GB_per_s * tuned.tree_share, rates.channels * rates.tree_ll128_channel)
    size = max(0, data_bytes // 64).bit_length() - 1
    if 0 <= size < TREE_LARGEST:
        GB_per_s *= tuned.tree_correction[size]
    return tuned.tree_base_us + 2 * hops_us + data_bytes / (500 * GB_per_s)


def nvls_us(
    tuned: Estimate, GB_per_s: float, share: float, channels: int, kind: str, gpus: int, data_bytes: int
) -> float:
    """Reduction and copies in the switch. share: NCCL's nvlsEfficiency."""
    both = kind == "all_reduce"
    rate = GB_per_s * share * (channels - 1) / channels * (2 if both else (gpus - 1) / gpus)
    steps = (gpus - 1) * (2 if both else 1)
    return tuned.base_us + tuned.hop_us + data_bytes * steps / gpus / (1000 * rate)
