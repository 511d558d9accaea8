"""Selection among the heads of a channel's stream fifos: the oldest of all, the older of two, or the next in turn.

`channel.head_ps[stream]` is the time since which the head of that stream's fifo waits, NEVER if it cannot be taken.
"""

from sim.hw.request import NEVER, STREAMS
from tracer.compile.jit import compiled


@compiled
def oldest_head(channel, now_ps):
    """The stream whose head has waited longest; if two are equal, the lower stream. Reads: channel."""
    chosen = -1
    chosen_ps = NEVER
    for stream in range(STREAMS):
        if channel.head_ps[stream] < chosen_ps:
            chosen = stream
            chosen_ps = channel.head_ps[stream]
    return chosen


@compiled
def streams_in_turn(channel):
    """Round robin: the first stream with a request, starting after the stream that was served last. Reads: channel."""
    for step in range(1, STREAMS + 1):
        stream = (channel.last_stream + step) % STREAMS
        if channel.head_ps[stream] < NEVER:
            return stream
    return -1


@compiled
def older_head(channel, stream, other):
    """The one of two streams whose head has waited longer, -1 if both are empty. Reads: channel."""
    if channel.head_ps[other] < channel.head_ps[stream]:
        return other
    return stream if channel.head_ps[stream] < NEVER else -1
