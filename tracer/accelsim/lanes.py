"""Find the shortest pattern that gives a list of lane addresses."""

import numpy as np

from tracer.compile.jit import compiled
from traces.schema import EXPLICIT, PLAIN_STRIDE

STRIDE_MAX = (1 << 31) - 1


@compiled
def difference(lanes, k):
    """Address of lane k minus address of lane k - 1, as int64."""
    return np.int64(lanes[k] - lanes[k - 1])


@compiled
def row_length(lanes, n):
    """Number of lanes of a row: lanes at the same distance as the first two."""
    k = 2
    first = difference(lanes, 1)
    while k < n and difference(lanes, k) == first:
        k += 1
    return k


@compiled
def find_pattern(lanes, n):
    """Pattern of n addresses (traces.schema): (inner, stride, row_stride). Without a pattern inner = EXPLICIT.

    A single lane is a plain pattern with stride 0.
    """
    if n <= 1:
        return PLAIN_STRIDE, 0, 0
    stride = difference(lanes, 1)
    if stride > STRIDE_MAX or stride < -STRIDE_MAX:
        return EXPLICIT, 0, 0
    inner = row_length(lanes, n)
    if inner == n:
        return PLAIN_STRIDE, stride, 0
    row_stride = np.int64(lanes[inner] - lanes[0])
    for k in range(n):
        expected = lanes[0] + np.uint64((k % inner) * stride) + np.uint64((k // inner) * row_stride)
        if lanes[k] != expected:
            return EXPLICIT, 0, 0
    return inner, stride, row_stride
