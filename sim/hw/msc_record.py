"""The record of one slice of a memory-side cache: constants from the spec, state, counters."""

import numpy as np

from sim.hw.lanes import LANES, note_shared
from sim.hw.prefetch import host_aligned
from sim.hw.request import LINE_BYTES, NEVER, REQUEST, STREAMS
from traces.units import whole_period_ps

COUNTERS = {
    "requests": "requests taken, per stream",
    "bytes": "bytes that the requests read or write, whole sectors, per stream",
    "blocked_ps": "time in which the oldest request waited for room, per stream",
    "read_sectors": "sectors that reads requested from a cache with storage",
    "read_hit_sectors": "sectors read, present",
    "read_merged_sectors": "sectors read, already in flight",
    "read_miss_sectors": "sectors read, requested from DRAM",
    "write_sectors": "sectors of writes that a cache that writes back kept",
    "writeback_sectors": "dirty sectors written back",
    "misses_used_max": "largest number of lines in flight",
}
"""Counter fields of MSC and their meaning."""

MSC = np.dtype(
    [
        # constants
        ("line_ps", "i8"),  # from request to request
        ("pass_ps", "i8"),  # request taken -> request at the channel
        ("answer_ps", "i8"),  # hit, or data from the channel -> data leave
        ("lanes", LANES),  # fifos from which requests come
        ("out_fifo", "i8", STREAMS),  # fifos of the channel
        ("fills", "i8"),  # fifo of data from the channel
        ("answers", "i8"),  # fifo of data for L2 banks
        ("data", "i8"),  # fifo of data for DMA engines, -1 = none
        ("interleave_bytes", "i8"),
        ("channels", "i8"),
        ("first_set", "i8"),
        ("sets", "i8"),  # 0 = no storage
        ("ways", "i8"),
        ("index", "i8"),  # CacheIndex of the sets
        ("replacement", "i8"),
        ("write_back", "i8"),
        ("misses", "i8"),  # lines in flight at most
        # state
        ("next_ps", "i8"),  # it takes no request before this time
        ("sent_ps", "i8"),  # when the channel sees the oldest request sent in this window; NEVER = none
        ("room_ps", "i8"),  # when there is room that a stream waits for, NEVER = not known yet
        ("tried_ps", "i8"),  # when that stream tried
        ("blocked", "i8"),  # 1: a stream waits for room
        ("blocked_since_ps", "i8", STREAMS),  # -1 = it does not wait
        ("misses_used", "i8"),
        ("free_waiter", "i8"),
        ("victims", "i8"),  # victims drawn so far (RANDOM)
        ("answered_ps", "i8"),  # when data leave last
        # counters
        ("requests", "i8", STREAMS),
        ("bytes", "i8", STREAMS),
        ("blocked_ps", "i8", STREAMS),
        *((name, "i8") for name in ("read_sectors", "read_hit_sectors", "read_merged_sectors", "read_miss_sectors")),
        *((name, "i8") for name in ("write_sectors", "writeback_sectors", "misses_used_max")),
    ],
    align=True,
)


def make_mscs(machine, wiring):
    """The slices of one GPU; no record if the machine has no such unit.

    Args:
        machine: sim.spec.Machine.
        wiring: dict of fifo numbers, each an array over channels: in_fifo, fabric_fifo and out_fifo (channels,
            STREAMS), fills, answers, data.

    Returns:
        (mscs, waiters, sets): arrays of MSC and of REQUEST (places where reads wait), and the number of cache sets.
    """
    spec, hbm = machine.msc, machine.hbm
    count = hbm.channels if spec.present else 0
    mscs = np.zeros(count, MSC)
    sets = spec.bytes // (hbm.channels * spec.ways * LINE_BYTES)
    period_ps = whole_period_ps(spec.clock_MHz)
    mscs["line_ps"] = max(1, round(period_ps / spec.lines_per_clk))
    mscs["answer_ps" if sets else "pass_ps"] = spec.latency_clk * period_ps
    for name, fifos in wiring.items():
        (mscs["lanes"] if name in LANES.names else mscs)[name] = fifos[:count]
    note_shared(mscs["lanes"])
    mscs["interleave_bytes"], mscs["channels"] = hbm.interleave_bytes, hbm.channels
    mscs["first_set"], mscs["sets"], mscs["ways"] = np.arange(count) * sets, sets, spec.ways
    mscs["index"], mscs["replacement"] = spec.index, spec.replacement
    mscs["write_back"] = spec.write_back and sets > 0
    mscs["misses"] = spec.mshrs
    mscs["sent_ps"], mscs["blocked_since_ps"] = NEVER, -1
    places = spec.mshrs * spec.mshr_merges if sets else 0
    waiters = host_aligned(count * places, REQUEST)
    if places:
        waiters["next"] = np.arange(1, count * places + 1)
        waiters["next"][places - 1 :: places] = -1
    mscs["free_waiter"] = np.arange(count) * places
    return mscs, waiters, sets * count
