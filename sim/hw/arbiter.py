"""The arbiter: selects the stream whose request enters a channel's DRAM queue next.

A policy is one compiled function of (channel, now_ps). It returns a stream, or -1 for none. It sees
`channel.head_ps[stream]`: the time since which the head of that stream's fifo waits. The time is NEVER if the fifo is
empty or its head cannot be taken now. A policy also sees all state of the channel, for example `queued` (32-byte
entries in each queue). To add a policy, add a member of `spec.Arbiter`, a compiled function here (or in its own file,
like `sim.hw.mca`), and a line in `pick_stream`.
"""

from sim.hw import policy
from sim.hw.mca import communication_aware
from sim.hw.request import NEVER, STREAMS, Stream
from sim.hw.stream_heads import older_head, oldest_head, streams_in_turn
from sim.spec import Arbiter
from tracer.compile.jit import compiled
from tracer.compile.whole import whole


@compiled
def pick_stream(channel, now_ps):
    """The stream that the channel's policy chooses, -1 for none. Reads: channel."""
    if channel.arbiter == Arbiter.ROUND_ROBIN:
        return streams_in_turn(channel)
    if channel.arbiter == Arbiter.COMPUTE_FIRST:
        return compute_first(channel)
    if channel.arbiter == Arbiter.MCA or channel.arbiter == Arbiter.MCA_FIXED:
        return communication_aware(channel, now_ps)
    if channel.arbiter == Arbiter.USER:
        return _checked(channel, whole(policy.pick(channel, now_ps)), now_ps)
    return oldest_head(channel, now_ps)


@compiled
def _checked(channel, stream, now_ps):
    """The result of a user's policy. -1 if it is not a stream with a head that can be taken.

    The first wrong answer is kept for the host, which ends the run with it (`sim.machine.rest`).
    """
    if stream >= 0 and stream < STREAMS and channel.head_ps[stream] < NEVER:
        return stream
    if stream != -1 and channel.wrong_ps == NEVER:
        channel.wrong_stream, channel.wrong_ps = stream, now_ps
    return -1


@compiled
def compute_first(channel):
    """The older head of the compute streams; if there is none, the older head of the communication streams."""
    stream = older_head(channel, Stream.COMPUTE_READ, Stream.COMPUTE_WRITE)
    return stream if stream >= 0 else older_head(channel, Stream.COMM_READ, Stream.COMM_WRITE)
