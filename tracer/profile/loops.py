"""The loop of an element-wise kernel of PyTorch, from its name, its grid and its tensors.

PyTorch's loops over elements (aten/src/ATen/native/cuda/CUDALoops.cuh), by the name of the kernel:

    vectorized_elementwise_kernel<V, ...>       contiguous tensors: V adjacent elements per lane and access
    unrolled_elementwise_kernel<...>            the same with one element, all of a lane loaded before the first is used
    elementwise_kernel<T, U, ...>               any strides: T lanes, U elements of a lane one after the other
    elementwise_kernel_manual_unroll<T, U, ...> the same (ROCm), all of a lane loaded before the first is used
    CatArrayBatchedCopy...<OpaqueType<B>, index, D, ...> (Shape.cu) tensors of D dimensions, elements of B bytes each;
                                                the grid has a row of workgroups for each tensor
"""

import re
from collections.abc import Sequence
from functools import cache
from itertools import zip_longest
from math import prod
from typing import NamedTuple

from tracer.operators.element_operator import ACCESSES_MAX, DIMENSIONS_MAX
from tracer.profile.kineto import Call, Operator, Shape

WIDE = re.compile(r"\bvectorized_elementwise_kernel<(\d{1,2}),")
NARROW = re.compile(r"\bunrolled_elementwise_kernel<")
PLACED = re.compile(r"\belementwise_kernel(_manual_unroll)?<(\d{1,4}), (\d{1,2}),")
CAT = re.compile(r"\bCatArrayBatchedCopy\w*<.*?OpaqueType<(\d{1,2})u?>, [\w ]+, (\d{1,2}),")
THREADS_MAX = 1024
THREADS, LANE_ELEMENTS = 128, 4
"""Of a kernel whose grid is not recorded."""
UNROLL_MAX = 32
COLUMNS_MAX = 8192
"""An element-wise kernel has no rows: rows of at most so many elements are chosen that fill warps."""


class Loop(NamedTuple):
    """Fields of `tracer.operators.element_operator.ElementOperator`; 0 = its default."""

    vector: int = 0
    unroll: int = 0
    warps: int = 0
    turns: int = 0
    dimensions: int = 0

    def fields(self) -> dict[str, int | bool]:
        """The fields that are not the default."""
        return {name: value or False for name, value in self._asdict().items()}


def loop_of(call: Call, operator: Operator, lanes: int) -> Loop:
    """The loop of the first kernel of a call. lanes: of a warp."""
    name, elements = call.kernels[0], prod(output_shape(operator))
    placed, wide = PLACED.search(name), WIDE.search(name)
    if not placed and not wide and not NARROW.search(name):
        return Loop()
    grid, block = (size_of(call.facts.get(key)) for key in ("grid", "block"))
    threads = min(THREADS_MAX, int(placed[2]) if placed else block or THREADS)
    warps = max(1, threads // lanes)
    if placed:
        dimensions, each = _dimensions(operator), min(UNROLL_MAX, max(1, int(placed[3])))
        return Loop(1, each, warps, 0, dimensions) if placed[1] else Loop(1, 1, warps, each, dimensions)
    vector = max(1, int(wide[1])) if wide else 1
    of_lane = -(-elements // (grid * threads)) if grid else max(vector, LANE_ELEMENTS)
    return Loop(vector, min(UNROLL_MAX, max(1, of_lane // vector)), warps)


def row_loop(call: Call, rows: int, lanes: int) -> dict[str, int]:
    """Fields of a norm (`tracer.operators.norm`) whose first kernel has a workgroup for each row; none if it has not,
    or if its launch is not recorded."""
    grid, block = (size_of(call.facts.get(key)) for key in ("grid", "block"))
    return {"warps": max(1, min(THREADS_MAX, block) // lanes), "shared_rows": True} if block and grid == rows else {}


def output_shape(operator: Operator) -> Shape:
    """Shape of the output of an element-wise operator: each tensor is repeated where it has one element, or no
    dimension. (0,) = there is no tensor, or their shapes do not fit."""
    columns = zip_longest(*(shape[::-1] for shape in operator.shapes if shape), fillvalue=1)
    sizes = [set(column) - {1} or {1} for column in columns]
    fits = sizes and all(len(each) == 1 for each in sizes)
    return tuple(each.pop() for each in reversed(sizes)) if fits else (0,)


def cat_of(call: Call, sizes: Sequence[int], lanes: int) -> tuple[int, Loop] | None:
    """Bytes of an element, and the loop, of a kernel that puts tensors together; None = it is not known.

    sizes: elements of each tensor.
    """
    found, grid, block = CAT.search(call.kernels[0]), call.facts.get("grid"), size_of(call.facts.get("block"))
    if not found or not sizes or not size_of(grid) or not block or not isinstance(grid, list):
        return None
    warps = max(1, min(THREADS_MAX, block) // lanes)
    turns = min(ACCESSES_MAX // warps, -(-max(sizes) // (grid[0] * block)))
    return int(found[1]), Loop(1, 1, warps, max(1, turns), max(1, min(DIMENSIONS_MAX, int(found[2]))))


def size_of(found: object) -> int:
    """Product of three whole numbers, 0 = not recorded."""
    whole = isinstance(found, list) and len(found) == 3 and all(isinstance(one, int) and one > 0 for one in found)
    return prod(found) if whole and isinstance(found, list) else 0


def _dimensions(operator: Operator) -> int:
    """Dimensions of the tensors in the order of the first one's strides, after those are joined that all of them have
    without a gap (aten/src/ATen/TensorIterator.cpp)."""
    tensors = [
        (shape, strides)
        for shape, strides in zip(operator.shapes, operator.strides, strict=False)
        if shape and len(shape) == len(strides)
    ]
    sizes = output_shape(operator)
    rank = len(sizes)
    padded = []
    for shape, strides in tensors:
        wide = [1] * (rank - len(shape)) + list(shape)
        steps = [0] * (rank - len(shape)) + list(strides)
        padded.append([step if size > 1 else 0 for size, step in zip(wide, steps, strict=True)])
    order = sorted(range(rank), key=lambda place: -padded[0][place]) if padded else []
    return max(
        1, len(_joined([sizes[place] for place in order], [[each[place] for place in order] for each in padded]))
    )


def _joined(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> list[int]:
    """Elements of the dimensions that are left; all tensors step evenly through each of them."""
    groups: list[int] = []
    inner = -1  # the innermost dimension of the last group
    for place in reversed([place for place, size in enumerate(sizes) if size > 1]):
        if groups and all(each[place] == groups[-1] * each[inner] for each in strides):
            groups[-1] *= sizes[place]
        else:
            groups.append(sizes[place])
            inner = place
    return groups


@cache
def flat(shape: Shape, vector: int, lanes: int) -> tuple[int, int]:
    """(rows, columns) of the elements of a tensor, so that accesses of `vector` elements per lane fill warps.

    (0, 0) = it has none.
    """
    vector = max(1, vector)
    total, reach = -(-prod(shape) // vector) * vector, vector * lanes
    widths = [width for width in range(vector, min(total, COLUMNS_MAX) + 1, vector) if total % width == 0]
    width = max(widths, key=lambda width: (width / (-(-width // reach) * reach), width), default=0)
    return (total // width, width) if width else (0, 0)
