"""Crossbar between the CUs and the L2 banks of one GPU: a port each way per CU and per bank.

A packet is a header and, for writes on the way in and for reads on the way out, its sectors. It occupies its two ports
one after the other and then takes a fixed latency. A request leaves its CU only when the bank's fifo has room; a CU
whose oldest request finds its bank full waits (its later requests too), and banks let waiting CUs in by turns.
Answers always find room, because a CU has a place for every read that it sends. The ports are booked in the order in
which packets are offered, the fixed latencies come after (D5).
"""

import numpy as np

from sim.hw.address_map import l2_bank_of
from sim.hw.fifo import fifo_full, fifo_head, fifo_pop, fifo_push_copy
from sim.hw.request import SECTOR_BYTES, Op
from sim.hw.tags import sectors_in
from tracer.jit import kernel

MAX_CUS = 256
MAX_BANKS = 256
MASKS = MAX_CUS // 64

NOC = np.dtype(
    [
        # constants
        ("cus", "i8"),
        ("banks", "i8"),
        ("first_request_fifo", "i8"),  # of bank 0
        ("first_answer_fifo", "i8"),  # of CU 0
        ("interleave_bytes", "i8"),
        ("channels", "i8"),
        ("index", "i8"),  # CacheIndex of channels and slices
        ("period_ps", "i8"),
        ("request_bytes_per_clk", "i8"),
        ("response_bytes_per_clk", "i8"),
        ("bank_bytes_per_clk", "i8"),
        ("header_bytes", "i8"),
        ("latency_ps", "i8"),
        # state: until when each port is booked
        ("cu_out_ps", "i8", MAX_CUS),
        ("cu_in_ps", "i8", MAX_CUS),
        ("bank_in_ps", "i8", MAX_BANKS),
        ("bank_out_ps", "i8", MAX_BANKS),
        ("waiting", "u8", (MAX_BANKS, MASKS)),  # CUs whose oldest request waits for the bank
        ("stuck", "u1", MAX_CUS),  # 1: the CU waits for a bank
        ("turn", "i8", MAX_BANKS),  # CU after the one let in last
        # counters
        ("request_packets", "i8"),
        ("request_bytes", "i8"),
        ("answer_packets", "i8"),
        ("answer_bytes", "i8"),
        ("refused", "i8"),  # times a CU found its bank full
    ],
    align=True,
)


def make_noc(machine, first_request_fifo, first_answer_fifo):
    """The NOC record of one GPU (an array of one).

    Args:
        machine: sim.spec.Machine.
        first_request_fifo, first_answer_fifo: number of bank 0's request fifo and of CU 0's answer fifo; those of the
            other banks and CUs follow.
    """
    noc = np.zeros(1, NOC)
    noc["first_request_fifo"], noc["first_answer_fifo"] = first_request_fifo, first_answer_fifo
    spec, hbm = machine.noc, machine.hbm
    noc["cus"], noc["banks"] = machine.cu.count, machine.l2.banks
    noc["interleave_bytes"], noc["channels"] = hbm.interleave_bytes, hbm.channels
    noc["index"] = int(hbm.index)
    noc["period_ps"] = period_ps = round(1e6 / spec.clock_MHz)
    noc["request_bytes_per_clk"] = spec.request_bytes_per_clk
    noc["response_bytes_per_clk"] = spec.response_bytes_per_clk
    noc["bank_bytes_per_clk"] = spec.bank_bytes_per_clk
    noc["header_bytes"] = spec.header_bytes
    noc["latency_ps"] = spec.latency_clk * period_ps
    return noc


@kernel
def home_bank(noc, line):
    """L2 bank of a line."""
    return l2_bank_of(line, noc.interleave_bytes, noc.channels, noc.banks, noc.index)


@kernel
def _port_ps(noc, data_bytes, bytes_per_clk):
    return (data_bytes + bytes_per_clk - 1) // bytes_per_clk * noc.period_ps


@kernel
def noc_send(noc, c, port, fifos, pool):
    """Move the oldest request of CU c to its bank. `port` is the CU's FIFO record, not empty.

    Returns:
        (bank, arrival_ps); bank is -1 where it is full, and the CU now waits for its turn.
    """
    request = fifo_head(port, pool)
    bank = home_bank(noc, request.line)
    target = fifos[noc.first_request_fifo + bank]
    if fifo_full(target):
        target.refusals += 1
        noc.refused += 1
        noc.stuck[c] = 1
        noc.waiting[bank, c >> 6] |= np.uint64(1) << np.uint64(c & 63)
        return -1, np.int64(0)
    volume = noc.header_bytes
    if request.op != Op.READ:
        volume += sectors_in(request.sectors) * SECTOR_BYTES
    noc.request_packets += 1
    noc.request_bytes += volume
    left_ps = max(noc.cu_out_ps[c], request.ready_ps) + _port_ps(noc, volume, noc.request_bytes_per_clk)
    noc.cu_out_ps[c] = left_ps
    in_ps = max(noc.bank_in_ps[bank] + _port_ps(noc, volume, noc.bank_bytes_per_clk), left_ps)
    noc.bank_in_ps[bank] = in_ps
    fifo_push_copy(target, pool, request, in_ps + noc.latency_ps)
    fifo_pop(port)
    return bank, in_ps + noc.latency_ps


@kernel
def noc_admit(noc, bank):
    """A place in the bank's fifo is free: the waiting CU whose turn it is, -1 where none waits."""
    for k in range(MASKS):
        if noc.waiting[bank, k] != np.uint64(0):
            break
    else:
        return -1
    c = noc.turn[bank]
    for _ in range(noc.cus):
        if c >= noc.cus:
            c = 0
        bit = np.uint64(1) << np.uint64(c & 63)
        if noc.waiting[bank, c >> 6] & bit != np.uint64(0):
            noc.waiting[bank, c >> 6] &= ~bit
            noc.turn[bank] = c + 1
            noc.stuck[c] = 0
            return c
        c += 1
    return -1


@kernel
def noc_answer(noc, bank, source, fifos, pool, now_ps):
    """Send the oldest answer of a bank to its CU. `source` is the bank's FIFO record of answers, not empty.

    Returns:
        (cu, arrival_ps).
    """
    answer = fifo_head(source, pool)
    c = np.int64(answer.source)
    volume = noc.header_bytes + sectors_in(answer.sectors) * SECTOR_BYTES
    noc.answer_packets += 1
    noc.answer_bytes += volume
    out_ps = max(noc.bank_out_ps[bank], now_ps) + _port_ps(noc, volume, noc.bank_bytes_per_clk)
    noc.bank_out_ps[bank] = out_ps
    in_ps = max(noc.cu_in_ps[c] + _port_ps(noc, volume, noc.response_bytes_per_clk), out_ps)
    noc.cu_in_ps[c] = in_ps
    arrival_ps = in_ps + (answer.ready_ps - now_ps) + noc.latency_ps
    fifo_push_copy(fifos[noc.first_answer_fifo + c], pool, answer, arrival_ps)
    fifo_pop(source)
    return c, arrival_ps
