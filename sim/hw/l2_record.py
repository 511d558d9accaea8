"""The record of one L2 bank: constants from the spec, state, counters. Also the places where requests wait for data."""

import numpy as np

from sim.hw.partition import far_ps
from sim.hw.prefetch import HOST_LINE_BYTES, host_aligned, host_record
from sim.hw.request import LINE_BYTES, NEVER, REQUEST, STREAMS
from sim.spec import DramOrder, L2Write, WriteMiss
from traces.units import whole_period_ps

COUNTERS = {
    "read_sectors": "sectors that reads requested",
    "read_hit_sectors": "sectors read, present",
    "read_merged_sectors": "sectors read, already in flight (MSHR merge)",
    "read_miss_sectors": "sectors read, requested from DRAM",
    "write_sectors": "sectors written into the cache",
    "atomic_sectors": "sectors of atomics and reductions done here",
    "atomic_miss_sectors": "of them, requested from DRAM",
    "uncached_read_sectors": "reads passed through to DRAM",
    "uncached_write_sectors": "writes and updates passed through to DRAM",
    "writeback_sectors": "dirty sectors written back by eviction, or before an uncached access",
    "flush_sectors": "dirty sectors written back by a flush",
    "requests_served": "requests taken from the crossbar",
    "blocked_ps": "time in which the oldest request could not be taken",
    "misses_used_max": "largest number of lines in flight (MSHRs)",
}
"""Counter fields of L2_BANK and their meaning."""

COPY_COUNTERS = {
    "copy_requests": "reads of copies that were sent to their home, a bank of another partition",
    "copy_miss_sectors": "sectors that these requested",
}
"""Further counter fields, of a machine whose partitions keep copies."""

INPUTS = ("requests", "far", "peer", "arrivals", "dma_reads")
"""Fifos from which a bank takes requests: of near CUs, far CUs, banks with copies, other GPUs, and DMA engines."""

FOR_CHANNEL, FOR_ANSWERS = 1, 2
"""Values of `bank.blocked`: it waits for room towards its channel (or the home of a copy), or for its answers."""

L2_BANK = host_record(
    [
        # constants
        ("first_set", "i8"),
        ("sets", "i8"),
        ("ways", "i8"),
        ("period_ps", "i8"),
        ("latency_ps", "i8"),
        ("path_ps", "i8"),  # to the memory controller
        ("atomic_ps", "i8"),  # of an operation on one address; 0 = no limit
        ("acks", "i8"),  # 1: stores are acknowledged
        ("write_through", "i8"),  # 1: stores go to memory at once
        ("write_miss", "i8"),  # spec.WriteMiss
        ("replacement", "i8"),  # spec.Replacement
        ("sends", "i8"),  # requests that serving one request may put into one fifo towards the channel
        ("misses", "i8"),  # lines in flight (MSHRs)
        ("merges", "i8"),  # requests waiting on one line
        ("inputs", "i8"),  # number of fifos from which it takes requests
        ("input", "i8", len(INPUTS)),  # these fifos; of equally old requests the first goes first
        ("requests", "i8"),  # fifo from the NoC
        ("arrivals", "i8"),  # fifo of stores from other GPUs, -1 = none
        ("dma_reads", "i8"),  # fifo of reads of DMA engines, -1 = none
        ("far", "i8"),  # fifo from the CUs of other partitions, -1 = none
        ("peer", "i8"),  # fifo from the bank that keeps copies of its lines, -1 = none
        ("number", "i8"),  # of this bank
        ("other", "i8"),  # bank at its place in the other of two partitions: home of its copies
        ("other_peer", "i8"),  # such a fifo of that bank, -1 = none
        ("cus", "i8"),  # `cus + number` is the source of the requests that it sends to homes of its copies
        ("far_ps", "i8"),  # to a bank of another partition
        ("fills", "i8"),  # fifo from the channel
        ("copy_fills", "i8"),  # fifo from the home of copies, -1 = none
        ("hits", "i8"),  # fifo towards the NoC: answers to hits
        ("late", "i8"),  # fifo towards the NoC: answers that waited for DRAM
        ("dram", "i8", STREAMS),  # fifos towards the channel
        # state
        ("next_ps", "i8"),  # it takes no request before this time
        ("sent_ps", "i8"),  # when the channel sees the oldest request sent in this window; NEVER = none
        ("asked_ps", "i8"),  # when a home sees the oldest request sent in this window; NEVER = none
        ("tried_ps", "i8"),  # when it tried the request that waits
        ("blocked", "i8"),  # it waits for room: 0, FOR_CHANNEL or FOR_ANSWERS
        ("room_ps", "i8"),  # when there is such room, NEVER = not known yet
        ("blocked_since_ps", "i8"),
        ("misses_used", "i8"),
        ("reads_out", "i8"),  # reads sent to DRAM (or to homes of copies) and not yet answered
        ("copies_used", "i8"),  # of the lines in flight, those whose home is another bank
        ("copies_out", "i8"),  # of the reads sent, those to homes of copies
        ("free_miss", "i8"),  # first waiting place of the next free miss entry, -1 = none
        ("victims", "i8"),  # victims drawn so far (RANDOM)
        ("flush_set", "i8"),  # next set to write back, -1 when not flushing
        # counters
        ("read_sectors", "i8"),
        ("read_hit_sectors", "i8"),
        ("read_merged_sectors", "i8"),
        ("read_miss_sectors", "i8"),
        ("write_sectors", "i8"),
        ("atomic_sectors", "i8"),
        ("atomic_miss_sectors", "i8"),
        ("uncached_read_sectors", "i8"),
        ("uncached_write_sectors", "i8"),  # writes and updates that passed through
        ("writeback_sectors", "i8"),  # dirty sectors evicted, or written back before an uncached access
        ("flush_sectors", "i8"),  # written back by a flush
        ("requests_served", "i8"),
        ("copy_requests", "i8"),
        ("copy_miss_sectors", "i8"),
        ("blocked_ps", "i8"),
        ("misses_used_max", "i8"),
        ("last_request_ps", "i8"),
    ]
)

BANK_LINES = L2_BANK.itemsize // HOST_LINE_BYTES


def make_l2_banks(machine, wiring):
    """L2 bank records of one GPU.

    Args:
        machine: sim.spec.Machine.
        wiring: dict of fifo numbers, each an array over banks: requests, fills, hits, late, and arrivals in a machine
            with links (dma_reads: if they go through L2); dram: (banks, STREAMS); if the machine has partitions, far,
            peer and copy_fills.

    Returns:
        (banks, waiters, sets): arrays of L2_BANK and of REQUEST (places where requests wait), and the number of cache
        sets they need.
    """
    spec = machine.l2
    count = spec.banks
    banks = np.zeros(count, L2_BANK)
    sets = spec.bytes // (count * spec.ways * LINE_BYTES)
    banks["first_set"] = np.arange(count) * sets
    banks["sets"], banks["ways"] = sets, spec.ways
    banks["period_ps"] = period_ps = whole_period_ps(spec.clock_MHz)
    banks["latency_ps"] = spec.latency_clk * period_ps
    banks["path_ps"] = machine.hbm.request_ps
    banks["atomic_ps"] = round(period_ps / spec.atomics_per_clk) if spec.atomics_per_clk else 0
    banks["acks"] = machine.noc.ack_bytes > 0
    banks["write_through"], banks["write_miss"] = spec.write == L2Write.THROUGH, spec.write_miss
    banks["replacement"] = spec.replacement
    banks["sends"] = sends(spec)
    banks["misses"], banks["merges"] = spec.mshrs, spec.mshr_merges
    banks["arrivals"] = banks["dma_reads"] = banks["far"] = banks["peer"] = banks["copy_fills"] = -1
    for name, fifos in wiring.items():
        banks[name] = fifos
    present = [banks[name] for name in INPUTS if banks[name][0] >= 0]
    banks["inputs"], banks["input"][:, : len(present)] = len(present), np.stack(present, 1)
    banks["number"] = np.arange(count)
    banks["other"] = (np.arange(count) + count // spec.partitions) % count
    banks["other_peer"] = banks["peer"][banks["other"]]
    banks["cus"] = machine.cu.count
    banks["far_ps"] = far_ps(machine)
    entry = spec.mshr_merges | 1  # odd, so entries begin at different places of the host's cache
    waiters = host_aligned((count, spec.mshrs, entry), REQUEST)
    first = np.arange(waiters.size).reshape(waiters.shape)[:, :, 0]
    waiters["next"][:, :-1, 0], waiters["next"][:, -1, 0] = first[:, 1:], -1
    banks["free_miss"], waiters = first[:, 0], waiters.reshape(-1)
    banks["flush_set"] = -1
    banks["sent_ps"] = banks["asked_ps"] = NEVER
    banks["blocked_since_ps"] = -1
    return banks, waiters, sets * count


def waiting_places(spec):
    """Number of requests of a bank that can wait for data in flight."""
    return spec.mshrs * spec.mshr_merges


def sends(spec):
    """Requests that serving one request may put into one fifo towards the channel.

    They are the write-back of a victim and the request itself; in order, a store may be a read and a write.
    """
    both = spec.write == L2Write.THROUGH and spec.write_miss != WriteMiss.LAZY
    return 3 if both and spec.dram_order == DramOrder.IN_ORDER else 2
