"""Lanes: the fifos from which a memory channel, or the cache before it, takes its requests.

A fifo has one producer. So a stream has up to two fifos: one from the L2 banks of the channel, and one from the units
that go past L2: DMA engines (communication reads) or links (communication writes). The head of the stream is the one
that is visible first; if both are equal, that of L2.

With `l2.dram_order = "in_order"` reads and writes from L2 share one fifo, one for compute and one for communication.
Its first request is the head of its stream. The other stream of the fifo has no head there.
"""

import numpy as np

from sim.hw.fifo import fifo_head, fifo_head_ps
from sim.hw.request import NEVER, STREAMS
from tracer.compile.jit import compiled

LANES = np.dtype(
    [
        ("in_fifo", "i8", STREAMS),  # from L2
        ("fabric_fifo", "i8", STREAMS),  # past L2, -1 = none
        ("shared", "i8"),  # constant; 1: reads and writes from L2 share a fifo
        ("head_fifo", "i8", STREAMS),  # state: the one of them with the stream's head
    ]
)


def note_shared(lanes):
    """Set `shared` from `in_fifo`: reads and writes share a fifo if it has the same number. lanes: LANES records."""
    lanes["shared"] = lanes["in_fifo"][:, 0] == lanes["in_fifo"][:, 1]


@compiled(inline=True)
def partner(stream):
    """The stream with which a stream may share a fifo: reads and writes of compute, or of communication."""
    return stream ^ 1


@compiled(inline=True)
def lane_head_ps(lanes, stream, fifos, pool):
    """When the head of a stream is visible, NEVER if it has none. It is in `head_fifo`.

    Reads: fifos, pool. Writes: lanes.
    """
    number = lanes.in_fifo[stream]
    head_ps = fifo_head_ps(fifos[number], pool)
    if lanes.shared == 1 and head_ps < NEVER and fifo_head(fifos[number], pool).stream != stream:
        head_ps = NEVER
    other = lanes.fabric_fifo[stream]
    if other >= 0:
        other_ps = fifo_head_ps(fifos[other], pool)
        if other_ps < head_ps:
            number, head_ps = other, other_ps
    lanes.head_fifo[stream] = number
    return head_ps
