"""Which stream's request enters a channel's DRAM queue next.

A policy is one kernel of (channel, now_ps) that returns a stream, or -1 for none. It sees `channel.head_ps[stream]`:
the time since which the head of that stream's fifo waits, NEVER where there is none or it cannot be taken now; and all
state of the channel, `queued` (32-byte entries in each queue) among it. To add a policy: a member of `spec.Arbiter`,
a kernel here, a line in `pick_stream`.
"""

from sim.hw import policy
from sim.hw.policy import oldest_head
from sim.hw.request import NEVER, STREAMS, Stream
from sim.spec import Arbiter
from tracer.compile.jit import compiled


@compiled
def pick_stream(channel, now_ps):
    """The stream that the channel's policy chooses, -1 for none."""
    if channel.arbiter == Arbiter.ROUND_ROBIN:
        return streams_in_turn(channel)
    if channel.arbiter == Arbiter.COMPUTE_FIRST:
        return compute_first(channel)
    if channel.arbiter == Arbiter.MCA or channel.arbiter == Arbiter.MCA_FIXED:
        return communication_aware(channel, now_ps)
    if channel.arbiter == Arbiter.USER:
        return _checked(channel, policy.pick(channel, now_ps))
    return oldest_head(channel, now_ps)


@compiled
def _checked(channel, stream):
    """What a user's policy returned, -1 where it is no stream with a head that can be taken."""
    if stream < 0 or stream >= STREAMS or channel.head_ps[stream] >= NEVER:
        return -1
    return stream


@compiled
def streams_in_turn(channel):
    """Round robin: the first stream with a request, counted from the one after the last that was served."""
    for step in range(1, STREAMS + 1):
        stream = (channel.last_stream + step) % STREAMS
        if channel.head_ps[stream] < NEVER:
            return stream
    return -1


@compiled
def _older(channel, stream, other):
    """Which of two streams has the head that has waited longer, -1 when both are empty."""
    if channel.head_ps[other] < channel.head_ps[stream]:
        return other
    return stream if channel.head_ps[stream] < NEVER else -1


@compiled
def compute_first(channel):
    """The older head of the compute streams, else that of the communication streams."""
    stream = _older(channel, Stream.COMPUTE_READ, Stream.COMPUTE_WRITE)
    return stream if stream >= 0 else _older(channel, Stream.COMM_READ, Stream.COMM_WRITE)


@compiled
def communication_aware(channel, now_ps):
    """MCA (T3): compute first, communication only while the queue is short, turns once it has aged."""
    comm = _older(channel, Stream.COMM_READ, Stream.COMM_WRITE)
    if comm >= 0 and now_ps - channel.head_ps[comm] > channel.comm_age_ps:
        return streams_in_turn(channel)
    stream = _older(channel, Stream.COMPUTE_READ, Stream.COMPUTE_WRITE)
    if stream >= 0:
        return stream
    return comm if channel.queued[0] + channel.queued[1] < channel.comm_limit else -1
