"""Choices among the heads of a channel's stream fifos: the oldest of all, of two, or the next in turn.

`channel.head_ps[stream]` is the time since which the head of that stream's fifo waits, NEVER where it cannot be taken.
"""

from sim.hw.request import NEVER, STREAMS
from tracer.compile.jit import compiled


@compiled
def oldest_head(channel, now_ps):
    """The stream whose head has waited longest (the lowest stream where two are equal)."""
    chosen = -1
    chosen_ps = NEVER
    for stream in range(STREAMS):
        if channel.head_ps[stream] < chosen_ps:
            chosen = stream
            chosen_ps = channel.head_ps[stream]
    return chosen


@compiled
def streams_in_turn(channel):
    """Round robin: the first stream with a request, counted from the one after the last that was served."""
    for step in range(1, STREAMS + 1):
        stream = (channel.last_stream + step) % STREAMS
        if channel.head_ps[stream] < NEVER:
            return stream
    return -1


@compiled
def older_head(channel, stream, other):
    """Which of two streams has the head that has waited longer, -1 when both are empty."""
    if channel.head_ps[other] < channel.head_ps[stream]:
        return other
    return stream if channel.head_ps[stream] < NEVER else -1
