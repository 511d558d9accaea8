"""NCCL's own estimate of the time of a collective, by which it chooses. It is not a time of ours (D26).

Source: NVIDIA/nccl @5067397 (2.30.7), src/graph/tuning.cc; the constants are in `library.toml` and, with their source,
in `validation/references/nccl_tuning_tables.csv`. Those of several nodes are the ones of two.
"""

from math import log2
from typing import NamedTuple

import msgspec

RING_NODES_PLATEAU = 1.4
"""Factor of the latency of a Simple ring over several nodes, for an all-reduce."""
TREE_LARGEST = 24
"""Sizes of 64 B x 2^n have a correction of a tree up to this n."""


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
    """Rates of a machine in GB/s that the estimate uses. cards: of all network cards of a node."""

    links: float
    ll: float
    ll128_channel: float
    channels: int
    cards: float
    nodes_ll: float
    tree_channel: float
    tree_ll128_channel: float

    def bus(self, nodes: int) -> float:
        return min(self.links, self.cards) if nodes > 1 else self.links


def ring_us(tuned: Estimate, rates: Rates, protocol: str, kind: str, gpus: int, nodes: int, data_bytes: int) -> float:
    """A ring: its steps, of which some are between nodes."""
    both = kind == "all_reduce"
    steps = (gpus - 1) * (2 if both else 1)
    far = 0 if nodes == 1 else 2 * nodes if both else nodes - 1
    latency_us = (steps - far) * tuned.hop_us + far * tuned.net_hop_us
    if protocol == "simple" and nodes > 1 and both and data_bytes >= 64 * rates.channels * gpus:
        latency_us *= RING_NODES_PLATEAU
    ll = rates.nodes_ll if nodes > 1 else rates.ll
    limit = {"ll": ll, "ll128": rates.ll128_channel * rates.channels}.get(protocol, rates.links)
    GB_per_s = min(rates.bus(nodes) * tuned.link_share, limit)
    return tuned.base_us + latency_us + data_bytes * steps / gpus / (1000 * GB_per_s)


def tree_us(tuned: Estimate, rates: Rates, protocol: str, gpus: int, nodes: int, data_bytes: int) -> float:
    """An all-reduce over a tree: up and down the chain of a node and the tree of nodes."""
    hops_us = (gpus / nodes - 1) * tuned.tree_hop_us + log2(nodes) * tuned.tree_net_us
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
