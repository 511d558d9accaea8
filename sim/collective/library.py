"""What NCCL and RCCL decide for a collective: algorithm, protocol, channels. The figures are in `library.toml`.

A *protocol* is a row: bytes on the wire, latency of a hop, sizes of pieces. An *algorithm* is a plan function of
`sim.collective.staged` or `sim.collective.nvls`. A *channel* is one workgroup of the collective's kernel and keeps one
CU. The estimate by which NCCL chooses a protocol chooses only; times come from the simulated machine (D26).
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from sim.collective.kernel import Pieces
from sim.collective.tuning import Estimate, Rates, nvls_us, ring_us, tree_us
from sim.spec import Machine, Topology
from traces.choices import nearest
from traces.errors import UserError
from traces.toml_file import read_toml
from traces.units import MIB

FILE = Path(__file__).with_suffix(".toml")
PLAIN = "plain"
LIBRARIES = (PLAIN, "nccl", "rccl")
RING, DIRECT, NVLS, TREE = "ring", "direct", "nvls", "tree"
ALGORITHMS = {
    "all_reduce": (RING, NVLS, TREE),
    "reduce_scatter": (RING, NVLS),
    "all_gather": (RING, NVLS),
    "all_to_all": (DIRECT,),
    "send_recv": (DIRECT,),
    "broadcast": (RING,),
}
"""Kind of a collective -> the algorithms that the libraries use for it."""
MOST_NODES = 8
KINDS = tuple(ALGORITHMS)
SEND_RECV = "send_recv"
PROTOCOLS = ("ll", "ll128", "simple")
DIRECT_LL_BYTES = 16384
"""Largest message to one GPU that is sent with LL (NCCL 2.30.7: NCCL_P2P_LL_THRESHOLD)."""
DIRECT_PIECE_BYTES = 524288
"""Part of a message that a channel sends before its receiver copies it (NCCL 2.30.7: NCCL_P2P_NVL_CHUNKSIZE)."""
DIRECT_LEAST_BYTES = 65536
"""A message has a channel for each part of this size, also for the last one (NCCL 2.30.7: an eighth of a piece)."""
NVLS_WORKGROUPS = 4
"""Workgroups on a CU that send, and as many that receive, in NVLS (assumed: some load while others store)."""
LINE_CHUNK_BYTES = 4 * MIB
"""A chunk that is large enough for a time that is linear in the size: a slice takes longer than a step."""
LINE_BYTES = 128
CARD_SHARE = 0.96
"""Share of a card's rate that NCCL's estimate uses (topo.h: 12 GB/s for 100 Gb/s)."""


class Protocol(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How data and flags cross a link. The units of the fields are in `library.toml`."""

    wire_bytes: int
    step_ps: int
    piece_bytes: int
    passed_bytes: int
    slices: int
    least_bytes: int


class Software(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Values of an algorithm and protocol. efficiency: share of the links' rate; 0 = that of the row."""

    launch_ps: int
    channel_ps: int = 0
    efficiency: float = 0.0


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Links and software of a machine. tuned_*: what NCCL's estimate uses. nvls: empty if the switch cannot add.

    warps: of a channel. scratch_bytes: shared memory of each warp.
    pulls: receivers of a ring load from the senders with Simple.
    one_order: all rings of a node have the same order of GPUs (a switch, no mesh).
    tuning, protocol: protocol -> values in place of those of NCCL: of its estimate, of its data.
    message_channels: most of one message; 0 = no limit.
    links: number of a GPU's links that a collective of 2, 3, ... GPUs of a node uses; empty = always all (a switch).
    """

    gpus: int
    topology: str
    GB_per_s: float
    efficiency: float
    source: str
    channels: int
    direct_channels: int
    loads: int
    warps: int
    scratch_bytes: int
    tuned_GB_per_s: float
    tuned_ll_GB_per_s: float
    tuned_ll128_channel_GB_per_s: float
    card_GB_per_s: float
    card_source: str
    tuned_nodes_ll_GB_per_s: float
    tuned_tree_channel_GB_per_s: float
    tuned_tree_ll128_channel_GB_per_s: float
    tuned_post_us: float
    calibrated: str
    ring: dict[str, Software]
    direct: dict[str, Software]
    pulls: bool = False
    one_order: bool = True
    links: tuple[int, ...] = ()
    message_channels: int = 0
    tuning: dict[str, dict[str, float]] = {}
    protocol: dict[str, dict[str, int]] = {}
    nvls: dict[str, Software] = {}
    nvls_channels: int = 0
    tuned_nvls_share: float = 0.0
    tuned_plateau: float = 1.4

    def values(self, algorithm: str) -> dict[str, Software]:
        """Protocol -> values."""
        return {RING: self.ring, DIRECT: self.direct, NVLS: self.nvls, TREE: self.ring}[algorithm]

    def figures(self, protocol: str) -> Protocol:
        return msgspec.structs.replace(tables().protocol[protocol], **self.protocol.get(protocol, {}))

    def links_share(self, together: int) -> float:
        """Share of a GPU's links that lead to GPUs of a collective. together: its GPUs in a node; one uses no link."""
        return self.links[together - 2] / self.links[-1] if self.links and together > 1 else 1.0

    def rates(self, node_gpus: int, together: int) -> Rates:
        """What NCCL's estimate uses. together: GPUs of the collective in a node."""
        links_GB_per_s = self.tuned_GB_per_s * self.links_share(together)
        links = (links_GB_per_s, self.tuned_ll_GB_per_s, self.tuned_ll128_channel_GB_per_s, self.channels)
        cards = (node_gpus * self.card_GB_per_s * CARD_SHARE, self.tuned_nodes_ll_GB_per_s)
        trees = (self.tuned_tree_channel_GB_per_s, self.tuned_tree_ll128_channel_GB_per_s)
        return Rates(*links, *cards, *trees, self.tuned_post_us, self.tuned_plateau, self.one_order)


class Tables(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    protocol: dict[str, Protocol]
    tuning: dict[str, Estimate]
    row: dict[str, Row]


@dataclass(frozen=True)
class Choice:
    """How a library runs a collective.

    Attributes:
        row: name of the row of `library.toml`.
        channels: workgroups of the kernel; each keeps a CU.
        nodes: number of nodes.
        together: its GPUs in a node; 0 = all that the row has.
    """

    row: str
    algorithm: str
    protocol: str
    channels: int
    nodes: int = 1
    together: int = 0

    @property
    def warps(self) -> int:
        """Warps of a workgroup. In a direct algorithm and in NVLS half of them send, half receive."""
        warps = row_of(self.row).warps
        return warps if self.algorithm == RING else warps // 2

    @property
    def figures(self) -> Protocol:
        return row_of(self.row).figures(self.protocol)

    @property
    def software(self) -> Software:
        return row_of(self.row).values(self.algorithm)[self.protocol]

    @property
    def pulls(self) -> bool:
        """Do receivers load over the links (D56)?"""
        return self.can_pull and row_of(self.row).pulls

    @property
    def can_pull(self) -> bool:
        """Could they? Only those of rings and messages with Simple within one node can."""
        return self.algorithm in (RING, DIRECT) and (self.protocol, self.nodes) == ("simple", 1)

    @property
    def launch_ps(self) -> int:
        """Time of the software before the kernel starts."""
        return self.software.launch_ps + self.channels * self.software.channel_ps

    def pieces(self, messages: int, chunk_bytes: int) -> Pieces:
        """How a chunk is cut. In a direct algorithm the messages (`messages_of`) share the channels."""
        if self.algorithm == DIRECT:
            return Pieces(max(1, round(messages * chunk_bytes / (self.channels * DIRECT_PIECE_BYTES))))
        figures = self.figures
        return Pieces(max(1, round(chunk_bytes / (self.channels * figures.piece_bytes))), figures.slices)

    def whole_pieces(self, data_bytes: int) -> Pieces:
        """How a buffer without chunks is cut: that of a tree or broadcast."""
        return Pieces(max(1, -(-data_bytes // (self.channels * self.figures.passed_bytes))))

    def line_bytes(self, gpus: int, alike: bool, messages: int | None = None) -> tuple[int, int]:
        """Two sizes of the whole buffer. Above them the time is linear in the size: a line through them gives it.

        In a ring they have one and two rounds, as each round costs time of its own. If the GPUs are not alike, all of
        them are simulated, and that would take too long: the line has no time of further rounds there.
        """
        if self.algorithm == DIRECT:
            least = 2 * gpus // (messages or gpus) * self.channels * DIRECT_PIECE_BYTES
            return least, 2 * least
        round_bytes = self.channels * self.figures.piece_bytes if self.algorithm == RING and alike else 1
        least = gpus * -(-LINE_CHUNK_BYTES // round_bytes) * round_bytes
        return least, 2 * least


@cache
def tables() -> Tables:
    return msgspec.convert(read_toml(FILE), Tables)


def row_of(name: str) -> Row:
    """The figures of a machine (`collective.library` of its preset).

    Raises:
        UserError: there is no such row.
    """
    rows = tables().row
    if name not in rows:
        raise UserError(f"collective.library: found {name!r}; {nearest(name, (PLAIN, *rows))}")
    return rows[name]


def node_gpus_of(machine: Machine) -> int:
    """GPUs of a node: `network.node_gpus`, or those of the row of its library; 0 = no limit."""
    name = machine.collective.library
    return machine.network.node_gpus or (0 if name == PLAIN else row_of(name).gpus)


def estimate_us(
    row: Row,
    kind: str,
    gpus: int,
    data_bytes: int,
    protocol: str,
    algorithm: str = RING,
    node_gpus: int | None = None,
) -> float:
    """NCCL's own estimate of the time. node_gpus: None = those of the row."""
    node_gpus = node_gpus or row.gpus
    nodes, rates = -(-gpus // node_gpus), row.rates(node_gpus, min(gpus, node_gpus))
    if algorithm == NVLS:
        own = (row.tuned_GB_per_s, row.tuned_nvls_share, row.nvls_channels)
        return nvls_us(tables().tuning[NVLS], *own, kind, gpus, data_bytes)
    tuned = msgspec.structs.replace(tables().tuning[protocol], **row.tuning.get(protocol, {}))
    if algorithm == TREE:
        return tree_us(tuned, rates, protocol, gpus, nodes, data_bytes)
    return ring_us(tuned, rates, protocol, kind, gpus, nodes, data_bytes)


def choose(
    name: str,
    kind: str,
    gpus: int,
    data_bytes: int,
    algorithm: str | None = None,
    protocol: str | None = None,
    channels: int | None = None,
    adds: bool = True,
    node_gpus: int | None = None,
    most_nodes: int = MOST_NODES,
) -> Choice:
    """The choice of the library; given values replace its own.

    Args:
        name: row of `library.toml`.
        kind: one of KINDS.
        data_bytes: of the whole buffer of a GPU.
        adds: the machine has a switch that adds; without one the library does not choose NVLS by itself.
        node_gpus: GPUs of a node; None = those of the row. most_nodes: that are allowed.

    Raises:
        UserError: GPUs that do not fill whole nodes; the algorithm cannot make this collective; the protocol is not
            known for it.
    """
    row = row_of(name)
    node_gpus = node_gpus or row.gpus
    nodes = -(-gpus // node_gpus)
    if not _fills_nodes(gpus, node_gpus, most_nodes):
        within = f"2 to {node_gpus}, or " if node_gpus > 1 else ""
        raise UserError(
            f"gpus: found {gpus}, allowed are {within}{node_gpus} in each of 2 to {most_nodes} nodes: {name}"
        )
    usable = [one for one in ALGORITHMS[kind] if row.values(one) and (nodes == 1 or one in (RING, TREE))]
    if not usable:
        raise UserError(f"{kind}: found {gpus} GPUs, allowed is one node of {node_gpus}: more nodes are not known")
    if algorithm is None and not adds:
        usable = [one for one in usable if one != NVLS]
    if algorithm not in (None, *usable):
        raise UserError(f"algorithm: found {algorithm!r} for {kind} on {name}, allowed is {' or '.join(usable)}")
    pairs = [(one, each) for one in usable if algorithm in (None, one) for each in row.values(one)]
    own, known = pairs[0][0], tuple(dict.fromkeys(each for _, each in pairs))
    if protocol is not None and protocol not in known:
        raise UserError(f"protocol: found {protocol!r} for {own} on {name}; {nearest(protocol, known)}")
    if own == DIRECT:
        protocol = protocol or ("ll" if data_bytes <= gpus * DIRECT_LL_BYTES else "simple")
    else:
        pairs = [(one, each) for one, each in pairs if protocol in (None, each)]
        if algorithm is None and nodes == 1:
            pairs = [(one, each) for one, each in pairs if one != TREE]
        own, protocol = min(
            pairs, key=lambda pair: estimate_us(row, kind, gpus, data_bytes, pair[1], pair[0], node_gpus)
        )
    if channels is None:
        channels = _channels(row, own, kind, gpus, data_bytes, protocol)
    return Choice(name, own, protocol, channels, nodes, min(gpus, node_gpus))


def _fills_nodes(gpus: int, node_gpus: int, most_nodes: int) -> bool:
    """These are the GPUs of a node, or of a few whole ones."""
    return gpus <= node_gpus or (gpus % node_gpus == 0 and gpus // node_gpus <= most_nodes)


def library_runs(machine: Machine, gpus: int) -> bool:
    """The machine has a library, and it runs on this number of GPUs (0 = of a node)."""
    return machine.collective.library != PLAIN and _fills_nodes(gpus, node_gpus_of(machine), MOST_NODES)


def choice_on(machine: Machine, kind: str, gpus: int, data_bytes: int, **given: Any) -> Choice:
    """The choice of the machine's own library, on its nodes. given: algorithm, protocol, channels, as of `choose`."""
    adds = machine.link.topology == Topology.SWITCH and machine.link.in_switch
    nodes = node_gpus_of(machine)
    return choose(machine.collective.library, kind, gpus, data_bytes, adds=adds, node_gpus=nodes, **given)


def messages_of(kind: str, gpus: int) -> int:
    """Messages of a GPU in a direct algorithm: one to each GPU, itself too; in send_recv only the one."""
    return 1 if kind == SEND_RECV else gpus


def _channels(row: Row, algorithm: str, kind: str, gpus: int, data_bytes: int, protocol: str) -> int:
    """Channels that a size deserves. In a direct algorithm each message has its own, if there are enough."""
    if algorithm == DIRECT:
        most = row.direct_channels
        while most * gpus > row.direct_channels and most > 1:  # as NCCL does (p2pTasksToPlan)
            most //= 2
        most = min(most, row.message_channels or most)
        channels = messages_of(kind, gpus) * min(most, -(-data_bytes // (gpus * DIRECT_LEAST_BYTES)))
        return min(row.direct_channels, channels)
    most = row.nvls_channels if algorithm == NVLS else row.channels
    return max(1, min(most, data_bytes // row.figures(protocol).least_bytes))


def topology_of(row: Row) -> Topology:
    return Topology[row.topology.upper()]
