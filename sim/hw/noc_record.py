"""The record of the crossbar: constants from the spec, the times at which ports are free, claims, counters."""

import numpy as np

from sim.hw import calendar
from sim.hw.bits import reciprocal
from sim.hw.calendar import CALENDAR, set_period
from sim.hw.partition import has_far, set_partitions
from sim.hw.request import LINE_BYTES, NEVER
from sim.hw.space import MAX_PORTS
from traces.units import whole_period_ps

MAX_CUS = 512
MAX_SOURCES = 2 * MAX_CUS
"""Of requests."""
MAX_BANKS = 512
"""The answers of a bank have two sources: hits and late answers. Far answers have one source per CU, and data that come
from other GPUs one per link."""
assert 2 * MAX_BANKS + MAX_CUS + MAX_PORTS <= calendar.MAX_SOURCES

COUNTERS = {
    "request_packets": "packets from CUs to L2 banks and links",
    "request_bytes": "bytes of these packets, header and data",
    "answer_packets": "packets from the ports of L2 banks to CUs and links",
    "answer_bytes": "bytes of these packets, header and data",
    "cu_bytes": "bytes through the ports into CUs: answers, data from links, a multicast line once for each CU",
    "refused": "requests that waited for room in their bank or link",
}
"""Counter fields of NOC and their meaning."""

FAR_COUNTERS = {
    "far_requests": "packets from CUs to L2 banks of another partition",
    "far_answers": "packets from L2 banks to CUs and banks of another partition",
}
"""Further counter fields, of a machine whose partitions share lines."""

NOC = np.dtype(
    [
        # constants
        ("cus", "i8"),
        ("banks", "i8"),
        ("sources", "i8"),  # of requests: one or two for each CU
        ("cu_bits", "i8"),  # source >> cu_bits = its CU
        ("first_port_fifo", "i8"),  # of source 0
        ("first_request_fifo", "i8"),  # of bank 0
        ("first_far_fifo", "i8"),  # of bank 0, requests of other partitions; -1 = none
        ("first_hit_fifo", "i8"),  # of bank 0: the answers of all banks, their late answers, far answers by CU, ...
        ("first_link", "i8"),  # ... and data for loads of this GPU by link: first of these sources of answers ...
        ("links", "i8"),  # ... and their number, 0 = there are no such loads
        ("first_load_fifo", "i8"),  # of port 0, data for loads of other GPUs; -1 = none
        ("first_copy_fifo", "i8"),  # of bank 0, data for copies; -1 = none
        ("first_answer_fifo", "i8"),  # of CU 0
        ("first_link_fifo", "i8"),  # of port 0, stores that leave the GPU
        ("interleave_bytes", "i8"),
        ("channels", "i8"),
        ("slices", "i8"),  # L2 banks of a channel that share its lines
        ("index", "i8"),  # CacheIndex of channels and slices
        ("sets", "i8"),  # of an L2 bank
        ("set_index", "i8"),  # CacheIndex of the sets
        ("period_ps", "i8"),
        ("request_clk_per_byte", "i8"),  # reciprocals (`sim.hw.bits`): clocks of a port for a byte of a request, ...
        ("response_clk_per_byte", "i8"),  # ... of an answer at the CU, ...
        ("bank_clk_per_byte", "i8"),  # ... of both at the bank, ...
        ("header_bytes", "i8"),
        ("ack_bytes", "i8"),
        ("latency_ps", "i8"),
        ("partitions", "i8"),
        ("sharing", "i8"),  # L2Sharing
        ("partition_banks", "i8"),
        ("home_banks", "i8"),  # banks over which the lines are spread
        ("channel_groups", "i8"),  # channels h, h + channel_groups, ... are one group: only their banks ask each other
        ("far_ps", "i8"),  # more, to or from another partition
        ("far_clk_per_byte", "i8"),  # ... and of both between partitions
        # requests: the times until which ports are booked, further state, counters
        ("cu_out_ps", "i8", MAX_CUS),
        ("bank_in_ps", "i8", MAX_BANKS),
        ("far_out_ps", "i8", MAX_CUS),
        ("requests_ps", "i8"),  # when the next waiting request can leave, as far as known
        ("waiting", "i8"),  # sources whose oldest request waits with a claim
        ("departed_ps", "i8", MAX_SOURCES),  # when the last request of each source left
        ("aimed", "i8", MAX_SOURCES),  # requests with smaller numbers in its fifo have their homes
        # of each source: number of the place that its oldest request has claimed, -1 = none ...
        ("claim", "i8", MAX_SOURCES),
        ("claim_fifo", "i8", MAX_SOURCES),  # ... in this fifo ...
        ("claim_ps", "i8", MAX_SOURCES),  # ... and when there is room for it, NEVER = not known yet
        ("request_packets", "i8"),
        ("request_bytes", "i8"),
        ("refused", "i8"),
        ("far_requests", "i8"),
        ("requests", CALENDAR),
        # answers, which another thread may carry at the same time
        ("answers", CALENDAR),
        ("cu_in_ps", "i8", MAX_CUS),
        ("bank_out_ps", "i8", MAX_BANKS),
        ("far_in_ps", "i8", MAX_CUS),
        ("far_copy_ps", "i8", MAX_BANKS),
        ("answers_ps", "i8"),  # when the next answer can leave
        ("last_ack_ps", "i8"),  # when the last acknowledgement of a store arrived
        ("answer_packets", "i8"),
        ("answer_bytes", "i8"),
        ("cu_bytes", "i8"),
        ("far_answers", "i8"),
    ],
    align=True,
)


def make_noc(machine, cu_ports, **first_fifos):
    """The NOC record of one GPU (an array of one).

    Args:
        machine: sim.spec.Machine.
        cu_ports: of each CU for requests, 1, or 2: one for bulk copies to other GPUs.
        first_fifos: `first_*_fifo` fields of NOC, and `links`.
    """
    noc = np.zeros(1, NOC)
    for name, number in first_fifos.items():
        noc[name] = number
    noc["requests_ps"] = noc["answers_ps"] = NEVER
    noc["claim"] = -1
    spec, hbm = machine.noc, machine.hbm
    noc["cus"], noc["banks"], noc["sources"] = machine.cu.count, machine.l2.banks, cu_ports * machine.cu.count
    noc["cu_bits"] = cu_ports - 1
    noc["first_link"] = 2 * machine.l2.banks + (machine.cu.count if has_far(machine.l2) else 0)
    noc["interleave_bytes"], noc["channels"] = hbm.interleave_bytes, hbm.channels
    noc["index"], noc["set_index"] = int(hbm.index), int(machine.l2.index)
    noc["sets"] = machine.l2.bytes // (machine.l2.banks * machine.l2.ways * LINE_BYTES)
    noc["period_ps"] = period_ps = whole_period_ps(spec.clock_MHz)
    noc["request_clk_per_byte"] = reciprocal(spec.request_bytes_per_clk)
    noc["response_clk_per_byte"] = reciprocal(spec.response_bytes_per_clk)
    noc["bank_clk_per_byte"] = reciprocal(spec.bank_bytes_per_clk)
    noc["header_bytes"], noc["ack_bytes"] = spec.header_bytes, spec.ack_bytes
    noc["latency_ps"] = spec.latency_clk * period_ps
    set_partitions(noc, machine)
    noc["slices"] = noc["home_banks"] // noc["channels"]
    set_period(noc["requests"], period_ps)
    set_period(noc["answers"], period_ps)
    return noc
