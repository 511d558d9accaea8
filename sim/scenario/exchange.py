"""An exchange of a schedule as a run: a collective of a buffer of that size, by a library or plain."""

from sim.collective.chunks import even_chunks
from sim.collective.library import PLAIN, choose, row_of
from sim.presets import Preset
from sim.run.library_run import LibraryRun, library_preset
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


def exchange_run(preset: Preset, exchange: Exchange) -> CollectiveRun | LibraryRun:
    """The run of an exchange on all GPUs of its group: by the library of the preset within a node, else plain.

    Raises:
        UserError: one GPU, an impossible size, a topology that lacks the links.
    """
    if exchange.gpus < 2:
        raise UserError(f"{exchange.kind}: found {exchange.gpus} GPU, allowed are 2 and more")
    row = preset.machine.collective.library
    if row == PLAIN or exchange.gpus > row_of(row).gpus:
        return plain_run(preset, exchange)
    kind = "send_recv" if exchange.kind == "send" else exchange.kind
    size = whole_bytes(exchange)
    choice = choose(row, kind, exchange.gpus, size)
    return LibraryRun(
        preset=library_preset(preset, choice), kind=kind, gpus=exchange.gpus, data_bytes=size, choice=choice
    )


def plain_run(preset: Preset, exchange: Exchange) -> CollectiveRun:
    """The run of an exchange with the plans of `sim.collective.plans`."""
    source = buffer_of(whole_bytes(exchange), exchange.gpus)
    chunks = even_chunks(source.tiles, exchange.gpus)
    return CollectiveRun(preset=preset, source=source, chunks=chunks, kind=exchange.kind)


def whole_bytes(exchange: Exchange) -> int:
    """The buffer that is cut into chunks: in a send each of the two GPUs sends a half."""
    return exchange.bytes * (2 if exchange.kind == "send" else 1)
