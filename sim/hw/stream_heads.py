"""Selection among the heads of a channel's stream fifos: the oldest of all, the older of two, or in turns.

`channel.head_ps[stream]` is the time since which the head of that stream's fifo waits, NEVER if it cannot be taken.
"""

from sim.hw.request import NEVER, STREAMS
from sim.spec import Turn
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
    """Round robin: the stream that keeps its turn, else the first with a request after the stream served last.

    Reads: channel.
    """
    if channel.turn != Turn.REQUEST and _keeps_turn(channel):
        return channel.last_stream
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


@compiled
def _keeps_turn(channel):
    """Does the stream that was served last keep its turn (`spec.Turn`)? It needs a head. Reads: channel."""
    stream = channel.last_stream
    if stream < 0 or channel.head_ps[stream] == NEVER:
        return False
    if channel.turn == Turn.BURST:
        return channel.turn_taken < channel.turn_requests
    return channel.head_row[stream] == channel.last_row


@compiled(inline=True)
def take_turn(channel, stream):
    """The head of a stream was taken: count it in its turn. Writes: channel."""
    goes_on = stream == channel.last_stream and channel.turn_taken < channel.turn_requests
    channel.turn_taken = channel.turn_taken + 1 if goes_on else 1
    channel.last_row = channel.head_row[stream]
    channel.last_stream = stream
