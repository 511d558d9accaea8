"""Which stream's request enters a channel's DRAM queue next.

A policy is one kernel of (channel, now_ps) that returns a stream, or -1 for none. It sees `channel.head_ps[stream]`:
the time since which the head of that stream's fifo waits, NEVER where there is none or it cannot be taken now; and all
state of the channel, `queued` (32-byte entries in each queue) among it. To add a policy: a member of `spec.Arbiter`,
a kernel here, a line in `pick_stream`.
"""

from sim.hw import policy
from sim.hw.policy import oldest_head
from sim.hw.request import NEVER, STREAMS
from sim.spec import Arbiter
from tracer.jit import kernel


@kernel
def pick_stream(channel, now_ps):
    """The stream that the channel's policy chooses, -1 for none."""
    if channel.arbiter == Arbiter.ROUND_ROBIN:
        return streams_in_turn(channel)
    if channel.arbiter == Arbiter.USER:
        return policy.pick(channel, now_ps)
    return oldest_head(channel, now_ps)


@kernel
def streams_in_turn(channel):
    """Round robin: the first stream with a request, counted from the one after the last that was served."""
    for step in range(1, STREAMS + 1):
        stream = (channel.last_stream + step) % STREAMS
        if channel.head_ps[stream] < NEVER:
            return stream
    return -1
