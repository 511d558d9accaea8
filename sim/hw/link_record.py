"""The records of links: a port, which is a GPU's end, and the wire between two; constants from the spec, counters.

Times on the link are in femtoseconds: rounding a line's 853.3 ps to whole picoseconds would cost bandwidth.
"""

import numpy as np

from sim.hw.prefetch import HOST_LINE_BYTES
from sim.hw.request import REQUEST
from sim.spec import FabricPath, Topology
from traces.units import PS_PER_NS, whole_period_ps

FS_PER_PS = 1000
FS_PER_NS = FS_PER_PS * PS_PER_NS
MAX_CREDITS = 16384
PAD = HOST_LINE_BYTES // 8 - 2
"""What the two ends write is in different cache lines of the host: they may be simulated at the same time."""

WIRE = np.dtype(
    [
        # written by the sender
        ("sent", "i8"),  # packets put on the wire
        ("known_taken", "i8"),  # packets taken, as far as the sender knows
        ("sender_pad", "i8", PAD),
        # written by the receiver
        ("taken", "i8"),  # packets that the receiver has passed to its memory
        ("known_sent", "i8"),  # packets sent, as far as the receiver knows
        ("receiver_pad", "i8", PAD),
        # rings: packet n has place n & mask, so memory of the host that the credits do not need is never touched
        ("packet", REQUEST, MAX_CREDITS),  # packets sent and not yet taken; ready_ps = arrival
        ("taken_ps", "i8", MAX_CREDITS),  # when packet n was taken
    ],
    align=True,
)

COUNTERS = {
    "packets": "packets sent to other GPUs",
    "bytes": "payload of the packets sent, whole sectors",
    "load_bytes": "of it, what loads of other GPUs had asked for",
    "busy_ps": "time in which a packet occupied the link",
    "credit_stalls": "packets that waited for a credit",
    "arrived_bytes": "payload of the packets that arrived and went to memory",
    "added_bytes": "payload that the switch added to that of other GPUs, and that did not arrive by itself",
    "blocked_ps": "time in which an arrived packet waited for room in memory",
}
"""Counter fields of PORT and their meaning."""

PORT = np.dtype(
    [
        # constants
        ("out_wire", "i8"),
        ("in_wire", "i8"),
        ("store_fifo", "i8"),  # from the CUs
        ("dma_fifo", "i8"),  # from the DMA engines
        ("load_fifo", "i8"),  # from the L2 banks: data for loads of other GPUs, -1 = there are no such loads
        ("back", "i8"),  # port to the GPU from which packets arrive over this one, -1 = there is none
        ("lane", "i8"),  # ports of one lane share its bandwidth in each direction (the link to a switch)
        ("in_lane", "i8"),  # the same for the packets that arrive
        ("distance", "i8"),  # the neighbour is this many GPUs behind in the ring; contributors are rotated by it
        ("fs_per_byte", "i8"),  # of packets that leave, as the next three
        ("header_bytes", "i8"),
        ("latency_ps", "i8"),
        ("credits", "i8"),
        ("mask", "i8"),  # of the wire's rings: places - 1
        ("in_fs_per_byte", "i8"),  # of packets that arrive, maybe over a link of the other kind
        ("in_header_bytes", "i8"),
        ("in_mask", "i8"),
        ("through_l2", "i8"),  # 1: all packets that arrive go to banks of L2
        ("request_ps", "i8"),  # from the link to the memory controller, or to L2
        ("to_all", "i8"),  # 1: the port to the switch itself, which copies stores to all GPUs
        # state
        ("free_fs", "i8"),  # when the lane is free (valid in the lane's first port)
        ("in_free_fs", "i8"),  # when the lane into this GPU is free (valid in the in-lane's first port)
        ("took_ps", "i8"),  # when the last arriving packet went to memory
        ("reads", "i8"),  # reads of DMA engines so far whose data take a place in dma_fifo
        ("target_fifo", "i8"),  # fifo for the oldest arriving packet, -1 = not looked up ...
        ("target", "i8"),  # ... of this memory channel, or of this L2 bank if the packet stays in L2
        ("part", "i8"),  # ... and the sum to which the switch adds it (`part_key`), -1 = none
        # counters
        ("packets", "i8"),
        ("bytes", "i8"),  # payload sent, whole sectors
        ("load_bytes", "i8"),
        ("busy_ps", "i8"),
        ("credit_stalls", "i8"),
        ("arrived_bytes", "i8"),
        ("added_bytes", "i8"),
        ("blocked_ps", "i8"),  # time in which an arrival waited for room in a memory queue
    ],
    align=True,
)


def make_ports(machine, ports, store_fifos, dma_fifos, load_fifos=-1):
    """Idle ports of one GPU, not yet connected: `sim.host.cluster` sets the wires.

    Args:
        machine: sim.spec.Machine.
        ports: their number.
        store_fifos, dma_fifos: fifo numbers, one per port; load_fifos: the same, or -1.
    """
    records = np.zeros(ports, PORT)
    records["store_fifo"], records["dma_fifo"], records["load_fifo"] = store_fifos, dma_fifos, load_fifos
    records["back"] = -1
    records["through_l2"], records["request_ps"] = machine.l2.fabric == FabricPath.THROUGH, fabric_ps(machine)
    records["target_fifo"] = records["part"] = -1
    for port in records:
        set_links(port, machine, False, False)
    set_lanes(records, machine, np.zeros((ports, 2), np.bool_))
    return records


def fabric_ps(machine):
    """Time of a request from a link or a DMA engine to its memory controller, or over the crossbar to its L2 bank."""
    if machine.l2.fabric == FabricPath.PAST:
        return machine.hbm.request_ps
    return machine.noc.latency_clk * whole_period_ps(machine.noc.clock_MHz)


def set_links(port, machine, leaves, arrives):
    """Set the kinds of the two links of a port: `machine.network` between two nodes, else `machine.link`.

    Args:
        leaves, arrives: does the outgoing link lead to, the incoming one come from, a GPU of another node?
    """
    out, into = (machine.network if far else machine.link for far in (leaves, arrives))
    port["fs_per_byte"], port["in_fs_per_byte"] = _fs_per_byte(out), _fs_per_byte(into)
    port["header_bytes"], port["in_header_bytes"] = out.header_bytes, into.header_bytes
    port["mask"], port["in_mask"] = (ring_places(spec.credits) - 1 for spec in (out, into))
    port["latency_ps"], port["credits"] = out.latency_ps, out.credits


def ring_places(credits):
    """Places of the rings of a wire: a power of two."""
    return 1 << (credits - 1).bit_length()


def set_lanes(ports, machine, far):
    """Set which ports share bandwidth: those to a switch, and those of the network card.

    Args:
        ports: PORT[n] of one GPU. far: bool[n, 2]: does the link out, the link in, cross nodes?
    """
    own = machine.link.topology != Topology.SWITCH
    for name, crosses in zip(("lane", "in_lane"), far.T, strict=True):
        for number, port in enumerate(ports):
            alone = own and not crosses[number]
            port[name] = number if alone else np.argmax(crosses == crosses[number])


def _fs_per_byte(spec):
    return round(FS_PER_NS / (spec.GB_per_s * spec.efficiency))
