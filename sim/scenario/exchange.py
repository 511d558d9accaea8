"""An exchange of a schedule as a run: a collective on CUs of a buffer of that size."""

from sim.collective.chunks import even_chunks
from sim.presets import Preset
from sim.run.run import CollectiveRun
from tracer.gemm.source import GemmKernel, GemmProblem, GemmSource
from tracer.models.schedule import Exchange
from traces.errors import UserError

ELEMENT_BYTES = 2
ROW_ELEMENTS = 4096
TILE = GemmKernel()
"""Tiles of a large buffer: 128 x 128 elements, rows of 8 KiB."""
SMALL = GemmKernel(tile_m=16, tile_n=16, tile_k=16, warps_m=1, warps_n=1)
"""Tiles of a small buffer: 16 x 16 elements, whole sectors."""
LARGEST_BYTES = 1 << 40


def buffer_of(data_bytes: int, gpus: int) -> GemmSource:
    """A buffer of at least this size, in whole tiles, at least one for each GPU.

    Raises:
        UserError: no bytes, or more than any machine has.
    """
    if not 1 <= data_bytes <= LARGEST_BYTES:
        raise UserError(f"bytes of a collective: found {data_bytes}, allowed are 1 to {LARGEST_BYTES}")
    elements = -(-data_bytes // ELEMENT_BYTES)
    whole = TILE.tile_m * ROW_ELEMENTS
    if elements >= whole and ROW_ELEMENTS // TILE.tile_n >= gpus:
        return GemmSource(GemmProblem(-(-elements // whole) * TILE.tile_m, ROW_ELEMENTS, TILE.tile_k), TILE)
    tiles = gpus * -(-elements // (gpus * SMALL.tile_m * SMALL.tile_n))
    return GemmSource(GemmProblem(SMALL.tile_m, tiles * SMALL.tile_n, SMALL.tile_k), SMALL)


def exchange_run(preset: Preset, exchange: Exchange) -> CollectiveRun:
    """The run of an exchange on all GPUs of its group.

    Raises:
        UserError: one GPU, an impossible size, a topology that lacks the links.
    """
    if exchange.gpus < 2:
        raise UserError(f"{exchange.kind}: found {exchange.gpus} GPU, allowed are 2 and more")
    data_bytes = exchange.bytes * (2 if exchange.kind == "send" else 1)  # each of the two GPUs sends a half
    source = buffer_of(data_bytes, exchange.gpus)
    chunks = even_chunks(source.tiles, exchange.gpus)
    return CollectiveRun(preset=preset, source=source, chunks=chunks, kind=exchange.kind)
