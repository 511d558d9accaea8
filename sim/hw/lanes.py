"""Lanes: the fifos from which a memory channel, or the cache before it, takes its requests.

A fifo has one producer. So a stream has up to two fifos: one from the L2 banks of the channel, and one from the units
that go past L2: DMA engines (communication reads) or links (communication writes). The head of the stream is the one
that is visible first; if both are equal, that of L2.
"""

import numpy as np

from sim.hw.fifo import fifo_head_ps
from sim.hw.request import STREAMS
from tracer.compile.jit import compiled

LANES = np.dtype(
    [
        ("in_fifo", "i8", STREAMS),  # from L2
        ("fabric_fifo", "i8", STREAMS),  # past L2, -1 = none
        ("head_fifo", "i8", STREAMS),  # state: the one of them with the stream's head
    ]
)


@compiled(inline=True)
def lane_head(lanes, stream, fifos, pool):
    """Number of the fifo with the head of a stream. Reads: fifos, pool. Writes: lanes."""
    number = lanes.in_fifo[stream]
    other = lanes.fabric_fifo[stream]
    if other >= 0 and fifo_head_ps(fifos[other], pool) < fifo_head_ps(fifos[number], pool):
        number = other
    lanes.head_fifo[stream] = number
    return number
