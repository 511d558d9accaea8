"""Time series: the increments of the units' counters in each interval, and levels at its end.

DRAM bytes count when they cross the data bus. The other counters have the resolution of a time window. A command that a
channel issues at a time before the window that runs it counts in the interval of that window.
"""

from sim.hw.hbm.bursts import take_off_later
from sim.hw.request import SECTOR_BYTES, STREAMS
from sim.machine.engine_record import LEVELS
from sim.machine.stalls import sample_warps
from tracer.compile.jit import compiled


@compiled
def _levels(node, channel_bytes, sums, time_ps):
    """Values behind the columns of the time series (sim.machine.engine_record.SERIES); DRAM bytes up to `time_ps`."""
    for k in range(len(sums)):
        sums[k] = 0
    for h in range(len(node.channels)):
        channel = node.channels[h]
        others = sums[:STREAMS].sum()
        for stream in range(STREAMS):
            columns = channel.read_columns[stream] + channel.write_columns[stream] + channel.update_columns[stream]
            sums[stream] += columns * SECTOR_BYTES
        take_off_later(channel, time_ps, sums)
        channel_bytes[h] = sums[:STREAMS].sum() - others
        sums[8] += channel.queued[0] + channel.queued[1]
    for b in range(len(node.banks)):
        sums[4] += node.banks[b].read_sectors
        sums[5] += node.banks[b].read_hit_sectors
    for c in range(len(node.cus)):
        sums[9] += node.cus[c].residents
    for p in range(len(node.ports)):
        sums[6] += node.ports[p].bytes
    sums[7] = node.output.tracker[0].triggers
    sums[10] = node.output.tracker[0].live
    sample_warps(node, time_ps, sums[11:])


@compiled
def close_interval(node):
    """Write one row of the time series, for the interval that has just ended. Returns False if the table is full.

    Reads: node.banks, node.channels, node.cus, node.events, node.output, node.ports. Writes: node.engine, node.series,
    node.stalls, node.totals, node.warps.
    """
    engine = node.engine[0]
    row = node.series[engine.samples]
    channels = len(node.channels)
    _levels(node, row[:channels], row[channels:], engine.next_sample_ps)
    for k in range(len(row) - LEVELS):
        total = row[k]
        row[k] -= node.totals[k]
        node.totals[k] = total
    engine.samples += 1
    engine.next_sample_ps += engine.interval_ps
    return engine.samples < len(node.series)
