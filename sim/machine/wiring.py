"""The fifos of a machine by role, with their depths and credits; the longest time window."""

import numpy as np

from sim.hw.calendar import MAX_SLOTS
from sim.hw.l2_record import waiting_places
from sim.hw.partition import far_ps, has_copies, has_far
from sim.hw.request import STREAMS, Stream
from sim.spec import DramOrder, FabricPath, Machine
from traces.units import period_ps, whole_period_ps

MAX_LOOKAHEAD_PS = 50_000
NOTES = 2048
"""Fifo depth for the updates that one channel takes in a window; larger than needed."""


class Fifos:
    """Numbers the fifos of a machine and remembers their names, depths and credits."""

    def __init__(self):
        self.depths: list[int] = []
        self.credits_ps: list[int] = []
        self.names: list[str] = []

    def add(self, name: str, count: int, depth: int, credit_ps: int = 0, of: int = 0) -> np.ndarray:
        """`count` fifos called name0, name1, ..., or from number `of` on; returns their numbers."""
        first = len(self.depths)
        self.depths += [depth] * count
        self.credits_ps += [credit_ps] * count
        self.names += [f"{name}{of + k}" for k in range(count)]
        return np.arange(first, first + count)


def data_ps(machine: Machine) -> int:
    """Time from a read's column command to its data at the L2 bank."""
    hbm = machine.hbm
    return (hbm.timing.CL + hbm.timing.burst) * whole_period_ps(hbm.clock_MHz) + hbm.extra_latency_ps


def lookahead_ps(machine: Machine, ports: int = 0) -> int:
    """The shortest latency between two units that act in turn: the longest time window.

    It is a whole number of clocks of the crossbar, at least one. News that takes no time on a real machine (credits,
    free places of workgroups, open gates) takes this time.
    """
    grid_ps = whole_period_ps(machine.noc.clock_MHz)
    shortest_ps = min(machine.noc.latency_clk * grid_ps, machine.hbm.request_ps, data_ps(machine), MAX_LOOKAHEAD_PS)
    if ports:
        shortest_ps = min(shortest_ps, machine.link.latency_ps, machine.network.latency_ps)
    if has_far(machine.l2):
        shortest_ps = min(shortest_ps, far_ps(machine))
    if machine.cu.groups:
        shortest_ps = min(shortest_ps, machine.cu.peer_latency_clk * whole_period_ps(machine.cu.clock_MHz))
    if machine.msc.bytes:
        shortest_ps = min(shortest_ps, machine.msc.latency_clk * whole_period_ps(machine.msc.clock_MHz))
    slots = MAX_SLOTS - 2
    shortest_ps = min(shortest_ps, slots * grid_ps, slots * whole_period_ps(machine.hbm.clock_MHz))
    return max(shortest_ps // grid_ps, 1) * grid_ps


def wire(machine: Machine, ports: int, loads: bool = False) -> tuple[Fifos, dict[str, np.ndarray]]:
    """Fifos of one GPU and their numbers by role. loads: CUs load from other GPUs."""
    fifos, credit_ps = Fifos(), lookahead_ps(machine, ports)
    cus, banks, channels = machine.cu.count, machine.l2.banks, machine.hbm.channels
    line_ps = period_ps(machine.cu.clock_MHz) / machine.cu.lsu_lines_per_clk
    # While a credit travels its place stays empty. So a port also holds the lines of that time.
    lines_per_credit = int(-(-credit_ps // line_ps))
    l2_clocks = -(-credit_ps // whole_period_ps(machine.l2.clock_MHz))
    # A request takes its place at a bank when it leaves its CU. So the fifo also holds those on the way, and credits.
    peer_depth = machine.noc.bank_fifo + -(-credit_ps // whole_period_ps(machine.noc.clock_MHz))
    bank_depth, far_clocks = peer_depth + machine.noc.latency_clk, machine.l2.far_latency_clk
    fills = machine.l2.mshrs * 2
    leaves = ports > 0 and machine.cu.bulk_lines_per_clk > 0
    out = fills * (banks // channels) + _dma_reads(machine, ports if machine.msc.bytes else 0)
    roles, port_depth = ("port", "leave_port") if leaves else ("port",), machine.noc.cu_fifo + lines_per_credit
    # Those of one CU are neighbours: sources of the crossbar (`sim.hw.noc`).
    cu_ports = [int(fifos.add(f"cu.{role}", 1, port_depth, credit_ps, cu)[0]) for cu in range(cus) for role in roles]
    numbers = {
        "port": np.array(cu_ports[:: len(roles)]),
        "leave_port": np.array(cu_ports[1::2] if leaves else [], np.int64),
        "peer_port": fifos.add("cu.peer_port", cus if machine.cu.groups else 0, port_depth, credit_ps),
        "cu_answers": fifos.add("cu.answers", cus, machine.l1.mshrs + 1),
        "requests": fifos.add("l2.requests", banks, bank_depth, credit_ps),
        # One hit per clock: those of the bank's latency, of a window, of a credit, and those that wait for the port.
        "hits": fifos.add("l2.hits", banks, machine.l2.latency_clk + 2 * l2_clocks + machine.noc.bank_fifo, credit_ps),
        "late": fifos.add("l2.late", banks, waiting_places(machine.l2) + fills + 2 * l2_clocks, credit_ps),
        "far_answers": fifos.add("l2.far_answers", cus if has_far(machine.l2) else 0, machine.l1.mshrs + 1),
        "link_data": fifos.add("link.data", ports if loads else 0, bank_depth, credit_ps),
        "fills": fifos.add("l2.fills", banks, fills),
        "out": fifos.add("hbm.out", channels, out),
        "stores": fifos.add("link.stores", ports, machine.link.egress_fifo, credit_ps),
        "lines": fifos.add("link.lines", ports, machine.link.egress_fifo, credit_ps),
        "loads": fifos.add("link.loads", ports if loads else 0, cus * machine.l1.mshrs),  # of another GPU, all at once
    }
    numbers["dram"] = _streams(fifos, "hbm.in", machine.l2.dram_fifo, machine, credit_ps)
    numbers["memory"], depth = numbers["dram"], machine.l2.dram_fifo
    numbers["msc_answers"] = numbers["out"]
    if machine.msc.present:
        numbers["memory"], depth = _streams(fifos, "msc.in", machine.msc.fifo, machine, credit_ps), machine.msc.fifo
    if machine.msc.bytes:
        numbers["msc_answers"] = fifos.add("msc.answers", channels, fills * (banks // channels))
    if has_far(machine.l2):
        numbers["far"] = fifos.add("l2.far", banks, bank_depth + far_clocks, credit_ps)
    if has_copies(machine.l2):
        numbers["peer"] = fifos.add("l2.peer", banks, peer_depth + far_clocks, credit_ps)
        numbers["copy_fills"] = fifos.add("l2.copy_fills", banks, fills)
    numbers["fabric"] = np.full((channels, STREAMS), -1)
    numbers["notes"] = numbers["data"] = np.full(channels, -1)
    if ports:
        numbers["fabric"][:, Stream.COMM_READ] = fifos.add("dma.reads", channels, depth, credit_ps)
        numbers["fabric"][:, Stream.COMM_WRITE] = fifos.add("link.arrivals", channels, depth, credit_ps)
        numbers["arrivals"] = fifos.add("l2.arrivals", banks, bank_depth, credit_ps)
        if machine.l2.fabric == FabricPath.THROUGH:
            numbers["dma_reads"] = fifos.add("l2.dma_reads", banks, bank_depth, credit_ps)
        numbers["notes"] = fifos.add("tracker.notes", channels + 1, NOTES)
        numbers["data"] = fifos.add("dma.data", channels, _dma_reads(machine, ports))
    return fifos, numbers


def _streams(fifos: Fifos, name: str, depth: int, machine: Machine, credit_ps: int) -> np.ndarray:
    """(channels, STREAMS) fifo numbers. In order, writes share the fifo of the reads; theirs stay empty."""
    numbers = fifos.add(name, machine.hbm.channels * STREAMS, depth, credit_ps).reshape(-1, STREAMS)
    if machine.l2.dram_order == DramOrder.IN_ORDER:
        numbers[:, [Stream.COMPUTE_WRITE, Stream.COMM_WRITE]] = numbers[:, [Stream.COMPUTE_READ, Stream.COMM_READ]]
    return numbers


def _dma_reads(machine: Machine, ports: int) -> int:
    """Largest number of DMA reads whose answers are in one channel."""
    return machine.dma.engines * machine.dma.outstanding if ports else 0
