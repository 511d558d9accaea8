"""An exchange of a schedule as a run: a collective of a buffer of that size, by a library or plain."""

from sim.collective.chunks import check_gpus, even_chunks
from sim.collective.library import PLAIN, choice_on, node_gpus_of
from sim.collective.topology import port_to
from sim.presets import Preset
from sim.run.gpus_run import CollectiveRun
from sim.run.library_run import BARE_PS, LibraryRun, library_preset
from sim.run.result import RunResult
from tracer.gemm.problem import EXTENT
from tracer.gemm.source import GemmKernel, GemmProblem, GemmSource
from tracer.models.schedule import Exchange
from traces.errors import UserError

ELEMENT_BYTES = 2
TILES = tuple(
    GemmKernel(tile_m=side, tile_n=side, tile_k=16, warps_m=warps, warps_n=warps)
    for side, warps in ((128, 2), (64, 2), (32, 1), (16, 1))
)
"""Tiles of a buffer, the largest first. Rows are as wide as a tile, so each tile is one run of 32 KiB to 512 bytes."""
TILES_PER_GPU = 4
"""Least number of tiles of a GPU's chunk, if there are smaller tiles: CUs work on them at once (assumed)."""
LARGEST_BYTES = 1 << 40


def buffer_of(data_bytes: int, gpus: int) -> GemmSource:
    """A buffer of at least this size, in whole tiles, at least one for each GPU.

    Raises:
        UserError: no bytes, or more than a matrix has rows for; one GPU, or too many.
    """
    check_gpus(gpus)
    rows = gpus * TILES[0].tile_m
    most = int(EXTENT.most) // rows * rows * TILES[0].tile_n * ELEMENT_BYTES
    if not 1 <= data_bytes <= most:
        raise UserError(
            f"bytes of a collective: found {data_bytes}, allowed are 1 to {most} with plain plans on {gpus} GPUs"
        )
    elements = -(-data_bytes // ELEMENT_BYTES)
    fitting = (one for one in TILES if elements >= TILES_PER_GPU * gpus * one.tile_m * one.tile_n)
    kernel = next(fitting, TILES[-1])
    each = -(-elements // (gpus * kernel.tile_m * kernel.tile_n))
    return GemmSource(GemmProblem(gpus * each * kernel.tile_m, kernel.tile_n, kernel.tile_k), kernel)


def beyond_node(preset: Preset, exchange: Exchange) -> bool:
    """Has the exchange more GPUs than a node of a machine with a library? Then its plans are plain."""
    machine = preset.machine
    return machine.collective.library != PLAIN and exchange.gpus > node_gpus_of(machine)


def exchange_run(preset: Preset, exchange: Exchange) -> CollectiveRun | LibraryRun:
    """The run of an exchange on all GPUs of its group: by the library of the preset within a node, else plain.

    Raises:
        UserError: one GPU, an impossible size, a topology that lacks the links.
    """
    if exchange.gpus < 2:
        raise UserError(f"{exchange.kind}: found {exchange.gpus} GPU, allowed are 2 and more")
    if not 1 <= exchange.bytes <= LARGEST_BYTES:
        raise UserError(f"{exchange.kind}: found {exchange.bytes} bytes, allowed are 1 to {LARGEST_BYTES}")
    return library_run(preset, exchange) or plain_run(preset, exchange)


def check_all_to_all(preset: Preset, exchange: Exchange) -> None:
    """Refuse an all-to-all without a link between all GPUs of the run.

    Raises:
        UserError: names the topology.
    """
    topology = exchange_run(preset, exchange).preset.machine.link.topology
    try:
        for distance in range(1, exchange.gpus):
            port_to(topology, exchange.gpus, distance)
    except UserError as reason:
        raise UserError(f"all_to_all: {reason}; --set link.topology=fully_connected has all links") from None


def launch_of(result: RunResult) -> int:
    """Time of the launch in a result; 0 if it is not of a library."""
    return result.time_ps - int(result.figures.get(BARE_PS) or result.time_ps)


def library_run(preset: Preset, exchange: Exchange) -> LibraryRun | None:
    """The run of an exchange by the library of the preset; None = the library does not do it."""
    if preset.machine.collective.library == PLAIN or beyond_node(preset, exchange):
        return None
    kind, size = exchange.kind, exchange.whole_bytes
    choice = choice_on(preset.machine, kind, exchange.gpus, size)
    return LibraryRun(
        preset=library_preset(preset, choice), kind=kind, gpus=exchange.gpus, data_bytes=size, choice=choice
    )


def plain_run(preset: Preset, exchange: Exchange) -> CollectiveRun:
    """The run of an exchange with the plans of `sim.collective.plans`."""
    source = buffer_of(exchange.whole_bytes, exchange.gpus)
    chunks = even_chunks(source.tiles, exchange.gpus)
    return CollectiveRun(preset=preset, source=source, chunks=chunks, kind=exchange.kind)
