"""Time of a wavefront's arithmetic."""

import numpy as np

from traces.schema import Kind, Pipe

TRANSCENDENTAL = 4
"""Passes of a transcendental instruction of AMD; others have one."""


def passes(events: np.ndarray) -> int:
    """Passes of the arithmetic of some events through the vector unit of a SIMD."""
    arithmetic = events[events["kind"] == Kind.COMPUTE]
    each = np.where(arithmetic["pipe"] == Pipe.SFU, TRANSCENDENTAL, 1)
    return int((arithmetic["count"] * each).sum())
