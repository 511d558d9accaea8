"""Stages and chunks: this file alone defines when a GPU makes and sends each part of the output, and its own part.

The tiles of the output, in the order of the workgroups' walk, are cut into N *chunks*, which are contiguous runs. Each
GPU numbers the chunks in its own order: *local* chunk j of GPU g is global chunk (j - g) mod N:

    local 0        made first and sent first,
    local j        made in stage j, during or after the arrivals for it from the GPU behind (g - 1),
    local N - 1    made last and owned.

GPU g sends its local chunk j to local chunk j + 1 of the GPU ahead, g + 1. These are the same tiles.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sim.hw.space import MAX_GPUS
from traces.errors import UserError


@dataclass(frozen=True)
class Chunks:
    """N chunks of the output.

    Attributes:
        gpus: N.
        edges: first tile of each global chunk, and the end: N + 1 rising numbers from 0.
    """

    gpus: int
    edges: tuple[int, ...]

    def __post_init__(self):
        check_gpus(self.gpus)
        if len(self.edges) != self.gpus + 1 or self.edges[0] != 0 or (np.diff(self.edges) < 1).any():
            raise UserError(
                f"chunks: found {self.edges[-1]} tiles with edges {list(self.edges)} for {self.gpus} GPUs; allowed are "
                f"{self.gpus + 1} rising numbers from 0: every GPU owns at least one tile"
            )

    @property
    def tiles(self) -> int:
        return self.edges[-1]

    def global_chunk(self, gpu: int, local: int) -> int:
        return (local - gpu) % self.gpus

    def span(self, gpu: int, local: int) -> range:
        """Tiles of a GPU's local chunk."""
        chunk = self.global_chunk(gpu, local)
        return range(self.edges[chunk], self.edges[chunk + 1])

    def start_tile(self, gpu: int) -> int:
        """First tile of the GPU's walk (staggered order)."""
        return self.span(gpu, 0).start

    def in_turn(self, gpu: int, together: int = 1) -> np.ndarray:
        """All tiles, i8: the first `together` of each local chunk, then the next of each, and so on."""
        spans = [np.array(self.span(gpu, local)) for local in range(self.gpus)]
        places = np.concatenate([np.arange(len(span)) // together for span in spans])
        return np.concatenate(spans)[np.argsort(places, kind="stable")]

    def owner_distance(self, local: int) -> int:
        """Distance from a GPU ahead to the owner of its local chunk."""
        return self.gpus - 1 - local


def check_gpus(gpus: int) -> None:
    """Refuse a number of GPUs that no collective has."""
    if not 2 <= gpus <= MAX_GPUS:
        why = "a collective needs two" if gpus < 2 else f"a set of GPUs is kept in {MAX_GPUS} bits"
        raise UserError(f"gpus: found {gpus}, allowed are 2 to {MAX_GPUS}: {why}")


class WholeBuffer(Chunks):
    """No chunks: every GPU handles the whole output, its local chunk number `gpu`. Nobody owns a part."""

    def __init__(self, tiles: int, gpus: int):
        object.__setattr__(self, "gpus", gpus)
        object.__setattr__(self, "edges", (0, *[tiles] * gpus))

    def start_tile(self, gpu: int) -> int:
        return 0


def even_chunks(tiles: int, gpus: int, together: int = 1) -> Chunks:
    """Chunks of whole clusters of `together` tiles. Their sizes differ by at most one cluster.

    Args:
        tiles: a multiple of `together`.

    Raises:
        UserError: one GPU, too many GPUs, or fewer tiles (clusters) than GPUs.
    """
    check_gpus(gpus)
    if tiles < gpus * together:
        least = "one tile per GPU" if together == 1 else f"a cluster of {together} tiles per GPU"
        raise UserError(f"gpus: found {gpus} for an output of {tiles} tiles; allowed is {least} at least")
    return Chunks(gpus, tuple(tiles // together * k // gpus * together for k in range(gpus + 1)))


def chunks_of(sizes: Sequence[int]) -> Chunks:
    """Chunks of given sizes, in tiles.

    Raises:
        UserError: a size below 1, one GPU, too many GPUs.
    """
    for size in sizes:
        if size < 1:
            raise UserError(f"chunks: found {size}, allowed are sizes from 1: every GPU owns at least one tile")
    return Chunks(len(sizes), (0, *np.cumsum(sizes).tolist()))
