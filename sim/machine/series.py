"""Time series: the increments of the units' counters in each interval, and levels at its end.

DRAM bytes count when they cross the data bus. The other counters have the resolution of a time window. A command that a
channel issues at a time before the window that runs it counts in the interval of that window.
"""

from sim.hw.hbm.bursts import take_off_later
from sim.hw.request import SECTOR_BYTES, STREAMS
from sim.machine.engine_record import LEVELS
from tracer.compile.jit import compiled


@compiled
def _levels(node, sums, time_ps):
    """Values behind the columns of the time series (sim.machine.engine_record.SERIES); DRAM bytes up to `time_ps`."""
    for k in range(len(sums)):
        sums[k] = 0
    for h in range(len(node.channels)):
        channel = node.channels[h]
        for stream in range(STREAMS):
            columns = channel.read_columns[stream] + channel.write_columns[stream] + channel.update_columns[stream]
            sums[stream] += columns * SECTOR_BYTES
        take_off_later(channel, time_ps, sums)
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


@compiled
def close_interval(node):
    """Write one row of the time series, for the interval that has just ended. Returns False if the table is full.

    Reads: node.banks, node.channels, node.cus, node.output, node.ports. Writes: node.engine, node.series,
    node.totals.
    """
    engine = node.engine[0]
    row = node.series[engine.samples]
    _levels(node, row, engine.next_sample_ps)
    for k in range(len(row) - LEVELS):
        total = row[k]
        row[k] -= node.totals[k]
        node.totals[k] = total
    engine.samples += 1
    engine.next_sample_ps += engine.interval_ps
    return engine.samples < len(node.series)
