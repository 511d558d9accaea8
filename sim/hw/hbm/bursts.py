"""The last bursts on the data bus of a channel, for a time series: bytes count when they cross the bus.

A column command moves its data some clocks later (tCL, tWL). An interval of the series may end before the burst, or
within it. So the channel keeps the ends of its last bursts, and the series takes off what crosses the bus later. The
bus carries one burst at a time, so no interval exceeds the peak.
"""

from sim.hw.hbm.record import RECENT_BURSTS
from sim.hw.request import SECTOR_BYTES
from tracer.compile.jit import compiled


@compiled(inline=True)
def keep_burst(channel, stream, end_ps):
    """Keep the end of a burst, if the run takes a time series. Writes: channel."""
    if channel.keeps_bursts == 1:
        place = channel.bursts % RECENT_BURSTS
        channel.burst_end_ps[place] = end_ps
        channel.burst_stream[place] = stream
        channel.bursts += 1


@compiled
def take_off_later(channel, time_ps, sums):
    """Subtract from `sums` (bytes per Stream) what crosses the bus after `time_ps`; parts of bytes too.

    If more than RECENT_BURSTS bursts end after `time_ps`, the first of them stay in `sums`. With the presets a time
    window and the column latency have room for fewer.

    Reads: channel. Writes: sums.
    """
    burst_bytes = channel.column_entries * SECTOR_BYTES
    for back in range(1, min(channel.bursts, RECENT_BURSTS) + 1):
        place = (channel.bursts - back) % RECENT_BURSTS
        later_ps = min(channel.burst_end_ps[place] - time_ps, channel.tBURST_ps)
        if later_ps <= 0:
            return
        sums[channel.burst_stream[place]] -= (burst_bytes * later_ps + channel.tBURST_ps - 1) // channel.tBURST_ps
