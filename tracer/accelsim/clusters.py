"""Clusters of a grid: their shape, from what Accel-Sim 2.0 writes behind `thread block =`, and places in them.

    thread block = 3,0,0
    cluster id = 1,0,0
    cluster cta = 1,0,0      place of the thread block in its cluster
    cluster rank = 1

No line tells the size. It follows from the places of the thread blocks: along each axis they count up to it.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from math import prod
from typing import NamedTuple

from traces.errors import UserError

Triple = tuple[int, int, int]
SINGLE: Triple = (1, 1, 1)
KEPT_BYTES = 512
"""End of a piece of text that is looked at again with the next piece. The lines of a place are shorter."""
_PLACE = re.compile(
    rb"thread block = (\d{1,10}),(\d{1,10}),(\d{1,10})\s+"
    rb"(?:cluster id = [\d,]+\s+cluster cta = (\d{1,10}),(\d{1,10}),(\d{1,10})\s|[^c\s])"
)


def places(text: Iterable[bytes]) -> Iterator[tuple[Triple, Triple]]:
    """(thread block, place in its cluster) of the thread blocks in a text. It ends at one without a place."""
    kept = b""
    for piece in text:
        kept += piece
        for match in _PLACE.finditer(kept):
            if match[4] is None:
                return
            x, y, z, *place = (int(number) for number in match.groups())
            yield (x, y, z), (place[0], place[1], place[2])
        kept = kept[-KEPT_BYTES:]


def shape_of(grid: Triple, found: Iterable[tuple[Triple, Triple]]) -> Triple | None:
    """Workgroups of a cluster along each axis. SINGLE without places, or if all are 0; None if they do not tell.

    Args:
        grid: thread blocks along each axis.
        found: as `places`. No more are taken than needed.
    """
    sizes = [1, 1, 1]  # known to be so large at least
    known = [size == 1 for size in grid]
    first = next(iter_found := iter(found), None)
    if first is None:
        return SINGLE
    for block, place in chain([first], iter_found):
        for axis in range(3):
            sizes[axis] = max(sizes[axis], place[axis] + 1)
        for axis in range(3):
            begin = block[axis] - place[axis]  # of its cluster
            known[axis] |= 0 < begin <= sizes[axis] or block[axis] == grid[axis] - 1
        if all(known):
            fits = all(size % part == 0 for size, part in zip(grid, sizes, strict=True))
            return (sizes[0], sizes[1], sizes[2]) if fits else None
    return SINGLE if sizes == [1, 1, 1] else None


def axes(grid: Triple, index: int) -> Triple:
    """Place in the grid of the workgroup with a linear index."""
    return index % grid[0], index // grid[0] % grid[1], index // grid[0] // grid[1]


class ClusterPlace(NamedTuple):
    """cluster: its number. rank: of the workgroup in it."""

    cluster: int
    rank: int


class Clusters:
    """The clusters of a grid."""

    def __init__(self, grid: Triple, shape: Triple) -> None:
        self._grid, self._shape = grid, shape
        self.size = prod(shape)

    def place(self, index: int) -> ClusterPlace:
        """Place of the workgroup with this linear index."""
        x, y, z = axes(self._grid, index)
        a, b, c = self._shape
        columns, rows = self._grid[0] // a, self._grid[1] // b
        return ClusterPlace(x // a + columns * (y // b + rows * (z // c)), x % a + a * (y % b + b * (z % c)))

    def tell(self, index: int) -> tuple[Triple, Triple, int]:
        """(cluster, place in it, rank) of the workgroup with this linear index, as a trace tells them."""
        place = axes(self._grid, index)
        cluster = [a // b for a, b in zip(place, self._shape, strict=True)]
        inside = [a % b for a, b in zip(place, self._shape, strict=True)]
        return (cluster[0], cluster[1], cluster[2]), (inside[0], inside[1], inside[2]), self.place(index).rank

    def check(self, indices: list[int]) -> None:
        """Refuse workgroups with linear indices that are not those of a cluster, in order of rank."""
        first = self.place(indices[0]).cluster
        if indices != [self.index(first, rank) for rank in range(self.size)]:
            a, b, c = self._grid
            raise UserError(
                f"cluster: found workgroups {', '.join(map(str, indices))} of a grid of {a} x {b} x {c}, allowed are "
                "those of a box of the grid, x first, of one shape in all clusters"
            )

    def index(self, cluster: int, rank: int) -> int:
        """Linear index of a workgroup of a cluster."""
        a, b, c = self._shape
        columns, rows = self._grid[0] // a, self._grid[1] // b
        x = cluster % columns * a + rank % a
        y = cluster // columns % rows * b + rank // a % b
        z = cluster // columns // rows * c + rank // a // b
        return x + self._grid[0] * (y + self._grid[1] * z)


def shape_among(grid: Triple, indices: list[int]) -> Triple:
    """Shape of a cluster of workgroups with these linear indices, in order of rank.

    Raises:
        UserError: they are no box of the grid.
    """
    places = [axes(grid, index) for index in indices]
    x, y, z = (max(axis) - min(axis) + 1 for axis in zip(*places, strict=True)) if places else SINGLE
    fits = all(size % part == 0 for size, part in zip(grid, (x, y, z), strict=True))
    Clusters(grid, (x, y, z) if fits else SINGLE).check(indices or [0])
    return x, y, z
