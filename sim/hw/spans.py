"""The timeline: one record per workgroup and per tile that a DMA engine sent, with its unit, begin and end."""

from enum import IntEnum

import numpy as np

from tracer.compile.jit import compiled


class SpanKind(IntEnum):
    WORKGROUP = 0  # unit: CU
    DMA = 1  # unit: DMA engine; from its first read to its last


SPAN = np.dtype(
    [
        ("start_ps", "i8"),
        ("end_ps", "i8"),
        ("tag", "i8"),  # workgroup, or the output tile it makes
        ("kind", "i4"),  # SpanKind
        ("unit", "i4"),
        ("queue", "i4"),  # dispatch queue of a workgroup
        ("pad", "i4"),
    ]
)


@compiled
def write_span(spans, engine, kind, unit, queue, tag, start_ps, end_ps):
    """Append a span. If the timeline is full, `engine.spans` still counts, so lost spans are visible.

    Writes: spans, engine.
    """
    if engine.spans < len(spans):
        span = spans[engine.spans]
        span.start_ps, span.end_ps = start_ps, end_ps
        span.tag, span.kind, span.unit, span.queue = tag, kind, unit, queue
    engine.spans += 1
