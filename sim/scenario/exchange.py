"""An exchange of a schedule as a run: a collective of a buffer of that size, by a library or plain.

A group that does not fit in a node has the network cards between nodes. With a library one GPU represents all there,
too: all links are alike (`over_nodes`, D62). Else every GPU is simulated. A smaller group stands for one of more than
MAX_GPUS (`simulated`, D63). If 1 % suffices, a long exchange is simulated with two shorter buffers (`sizes`).
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from sim.collective.chunks import check_gpus, even_chunks
from sim.collective.library import ALGORITHMS, NVLS, PLAIN, RING, choice_on, choose, node_gpus_of, row_of
from sim.collective.topology import port_to
from sim.hw.space import MAX_GPUS
from sim.presets import Preset
from sim.run.gpus_run import CollectiveRun
from sim.run.library_preset import cards_GB_per_s, library_preset, with_values
from sim.run.library_run import BARE_PS, LibraryRun
from sim.run.result import RunResult
from sim.spec import Topology
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
LONG_BYTES = 512 << 20
"""Longest buffer that is simulated where times need not be exact. Behind it the time goes on as from half of it on."""
LINE_ERROR = 0.01
"""Stated error of such a time: the largest of seven, against whole runs of 1 and 2 GiB (docs/models.md)."""
LARGEST_BYTES = 1 << 40
LARGEST_GROUP = 1 << 20


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


def together(preset: Preset, exchange: Exchange) -> int:
    """GPUs of the group in a node; all of them if they fit."""
    node_gpus = node_gpus_of(preset.machine)
    return min(exchange.gpus, -(-node_gpus // exchange.stride)) if node_gpus else exchange.gpus


def simulated(preset: Preset, exchange: Exchange) -> Exchange:
    """The exchange of a run. In place of a group that is too large it has a smaller one, in whole nodes, whose messages
    are as large (D63). With additions in the switch it has the whole buffer: each link carries it once, whatever the
    number of GPUs; the switch is one of MAX_GPUS."""
    if exchange.gpus >= MAX_GPUS and _in_switch(preset, exchange):
        return replace(exchange, gpus=MAX_GPUS - 1)
    if exchange.gpus <= MAX_GPUS:
        return exchange
    near = _near(preset, exchange)
    gpus = MAX_GPUS // near * near
    return replace(exchange, gpus=gpus, bytes=-(-exchange.bytes * gpus // exchange.gpus))


def messages(preset: Preset, exchange: Exchange) -> Fraction:
    """Messages of a GPU of the group, over those of the exchange that is simulated."""
    if _in_switch(preset, exchange):
        return Fraction(1)
    return Fraction(exchange.gpus - 1, simulated(preset, exchange).gpus - 1)


def _in_switch(preset: Preset, exchange: Exchange) -> bool:
    """Does the library add and copy in the switch of the node (NVLS)?"""
    machine, kind, gpus = preset.machine, exchange.kind, exchange.gpus
    if machine.collective.library == PLAIN or NVLS not in ALGORITHMS[kind] or together(preset, exchange) < gpus:
        return False
    return choice_on(machine, kind, gpus, exchange.whole_bytes).algorithm == NVLS


def _near(preset: Preset, exchange: Exchange) -> int:
    """GPUs of a node in the exchange that is simulated, at least two nodes of them; all if the group is in a node."""
    near, gpus = together(preset, exchange), exchange.gpus
    if near == gpus:
        return simulated(preset, exchange).gpus if _in_switch(preset, exchange) else min(gpus, MAX_GPUS)
    return near if gpus <= MAX_GPUS else min(near, MAX_GPUS // 2)


def over_nodes(preset: Preset, gpus: int, near: int, ring: bool, GB_per_s: float) -> Preset:
    """The machine with one node for all GPUs of a group, whose links are all alike (D62). near: those in a node.
    GB_per_s: of the cards that carry it: in a ring those of the GPUs in the node with fewest, else one.

    In a ring each link has the rate of the slowest one, and the mean latency of all. Else a GPU sends all over one
    port. The rate of the port is such that this takes as long as the bytes for other nodes take on the card.
    """
    link, network = preset.machine.link, preset.machine.network
    if not ring:
        GB_per_s *= (gpus - 1) / (gpus - (gpus % near or near))
    slow = GB_per_s * network.efficiency < link.GB_per_s * link.efficiency
    nodes = -(-gpus // near)
    mean_ps = (nodes * network.latency_ps + (gpus - nodes) * link.latency_ps) // gpus
    values = {
        "link.topology": link.topology if ring else Topology.SWITCH,
        "link.GB_per_s": GB_per_s if slow else link.GB_per_s,
        "link.efficiency": network.efficiency if slow else link.efficiency,
        "link.header_bytes": network.header_bytes,
        "link.latency_ps": mean_ps if ring else network.latency_ps,
        "link.credits": max(link.credits, network.credits),
        "network.node_gpus": 0,
    }
    derived = {field: (value, "derived") for field, value in values.items()}
    return with_values(preset, derived, "a group over nodes (D62)")


def sizes(preset: Preset, exchange: Exchange, exact: bool) -> tuple[int, ...]:
    """Bytes of the buffers that are simulated: that of `simulated`, or if it is long LONG_BYTES and half of it."""
    whole = simulated(preset, exchange).whole_bytes
    return (whole,) if exact or whole <= LONG_BYTES else (LONG_BYTES, LONG_BYTES // 2)


def figure_of_whole(preset: Preset, exchange: Exchange, figures: Sequence[int]) -> Fraction:
    """A figure of the exchange from those of its `sizes`: on a line through two, and for all messages."""
    first, *others = figures
    beyond = Fraction(simulated(preset, exchange).whole_bytes - LONG_BYTES, LONG_BYTES // 2)
    whole = first + sum((first - half) * beyond for half in others)
    return whole * messages(preset, exchange)


def exchange_run(preset: Preset, exchange: Exchange, data_bytes: int = 0) -> CollectiveRun | LibraryRun:
    """The run of an exchange on all GPUs of its group, by the library of the preset or plain.

    data_bytes: of the buffer that is simulated (`sizes`); 0 = all of it. The library chooses for all of it.

    Raises:
        UserError: one GPU or too many, an impossible size, a topology that lacks the links.
    """
    if not 2 <= exchange.gpus <= LARGEST_GROUP:
        raise UserError(f"{exchange.kind}: found {exchange.gpus} GPUs, allowed are 2 to {LARGEST_GROUP}")
    if not 1 <= exchange.bytes <= LARGEST_BYTES:
        raise UserError(f"{exchange.kind}: found {exchange.bytes} bytes, allowed are 1 to {LARGEST_BYTES}")
    if run := library_run(preset, exchange, data_bytes):
        return run
    if together(preset, exchange) < exchange.gpus:
        node_gpus = (_near(preset, exchange), "derived")
        preset = with_values(preset, {"network.node_gpus": node_gpus}, "GPUs of a group in a node")
    small = simulated(preset, exchange)
    return plain_run(
        preset, replace(small, bytes=small.bytes * data_bytes // small.whole_bytes) if data_bytes else small
    )


def check_all_to_all(preset: Preset, exchange: Exchange) -> None:
    """Refuse an all-to-all without a link between all GPUs of the run.

    Raises:
        UserError: names the topology.
    """
    topology, gpus = exchange_run(preset, exchange).preset.machine.link.topology, simulated(preset, exchange).gpus
    try:
        for distance in range(1, gpus):
            port_to(topology, gpus, distance)
    except UserError as reason:
        raise UserError(f"all_to_all: {reason}; --set link.topology=fully_connected has all links") from None


def launch_of(result: RunResult) -> int:
    """Time of the launch in a result; 0 if it is not of a library."""
    return result.time_ps - int(result.figures.get(BARE_PS) or result.time_ps)


def library_run(preset: Preset, exchange: Exchange, data_bytes: int = 0) -> LibraryRun | None:
    """The run of an exchange by the library of the preset; None = it has none. A group that leaves a node partly empty
    has the protocol of one that fills it. data_bytes: as of `exchange_run`."""
    name, gpus, near = preset.machine.collective.library, exchange.gpus, together(preset, exchange)
    kind, size, small = exchange.kind, exchange.whole_bytes, simulated(preset, exchange)
    if name == PLAIN:
        return None
    ring = RING in ALGORITHMS[kind]
    if near == gpus:
        choice = choice_on(preset.machine, kind, gpus, size)
    elif not ring:  # as in a node
        choice = choose(name, kind, gpus, size, node_gpus=gpus)
    else:
        full = -(-gpus // near) * near
        choice = choose(name, kind, full, size, RING, node_gpus=near, most_nodes=LARGEST_GROUP)
    own = _near(preset, exchange)
    choice = replace(choice, nodes=-(-small.gpus // own), together=own)
    chosen = library_preset(preset, choice)
    if near < gpus:
        rate_GB_per_s = cards_GB_per_s(preset, row_of(name), (gpus % near or near) if ring else 1)
        chosen = over_nodes(chosen, gpus, near, ring, rate_GB_per_s)
    data_bytes = data_bytes or small.whole_bytes
    return LibraryRun(preset=chosen, kind=kind, gpus=small.gpus, data_bytes=data_bytes, choice=choice)


def plain_run(preset: Preset, exchange: Exchange) -> CollectiveRun:
    """The run of an exchange with the plans of `sim.collective.plans`, on the machine as it is."""
    source = buffer_of(exchange.whole_bytes, exchange.gpus)
    chunks = even_chunks(source.tiles, exchange.gpus)
    return CollectiveRun(preset=preset, source=source, chunks=chunks, kind=exchange.kind)
