"""The check of a plan before it runs: every contribution arrives once, where it is expected; nothing waits for ever.

`follow` checks any plan. `check_regions` also checks that it is a reduce-scatter: each tile's sum ends on one GPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sim.collective.chunks import check_gpus
from sim.collective.dry_run import play
from sim.collective.space import OUTPUT, Buffer, Region, check_spans
from sim.collective.tables import Queue, Tables, work_records
from sim.hw.request import Op
from sim.hw.space import all_gpus
from tracer.gemm.source import OUTPUT_TILE
from traces.errors import UserError


@dataclass(frozen=True)
class Limits:
    """Limits of the machine that can make a plan wait.

    Attributes:
        sets, ways: of the Tracker; ways = 0: no limit on entries.
        by_chunk: tiles are sent one chunk at a time (DmaPolicy.CHUNK).
    """

    sets: int = 1
    ways: int = 0
    by_chunk: bool = False


NO_LIMITS = Limits()


@dataclass(frozen=True)
class Flow:
    """The contributions that each tile gets.

    Attributes:
        stored: i8 [GPUs, tiles of all buffers]: set of GPUs (bit k = GPU k) whose stores come to a tile.
        sent: i8, same shape: set of GPUs whose contributions DMA engines and collectives on CUs bring.
        shares: i8, same shape: number of shares in the stores of other GPUs.
    """

    stored: np.ndarray
    sent: np.ndarray
    shares: np.ndarray


def follow(
    regions: Sequence[Sequence[Region]],
    buffers: Sequence[Buffer],
    queues: Sequence[Queue] | None = None,
    limits: Limits = NO_LIMITS,
) -> Flow:
    """Follow every contribution through a plan of all GPUs.

    Args:
        regions: regions of each GPU.
        buffers: buffers, the same on all GPUs.
        queues: kernels of all GPUs, None = all workgroups store at once.
        limits: limits of the machine.

    Raises:
        UserError: a contribution is lost, doubled or overwritten, or something waits for ever. The message names GPU,
            buffer and tile.
    """
    check_gpus(len(regions))
    tables = Tables(regions, buffers, queues)
    _check_counts(tables)
    return _play(tables, queues, limits)


def _check_counts(tables: Tables) -> None:
    """Check that the number of contributions to each tile is the number that it expects."""
    nodes = tables.nodes[:-1]
    stores, sends = tables.sources("first_store"), tables.sources("first_send")
    arrive = np.bincount(tables.stores, nodes["shares"][stores], len(nodes)).astype(np.int64)
    arrive += np.bincount(tables.sends, minlength=len(nodes)) + np.bincount(tables.carried[1], minlength=len(nodes))
    come = arrive + nodes["shares"] * nodes["stay"]
    lost = np.flatnonzero((nodes["expects"] == 0) & (arrive > 0))
    if len(lost):
        k = int(lost[0])
        edges = ((stores, tables.stores), (sends, tables.sends), tables.carried)
        senders = {int(one) // tables.tiles for source, to in edges for one in source[to == k]}
        raise UserError(
            f"plan: GPU {k // tables.tiles} expects nothing for {tables.name(k)}, so what arrives for it from GPUs "
            f"{sorted(senders)} would be lost"
        )
    wrong = np.flatnonzero((nodes["expects"] > 0) & (nodes["expects"] != come))
    if len(wrong):
        k = int(wrong[0])
        expects = int(nodes["expects"][k])
        raise UserError(
            f"plan: GPU {k // tables.tiles} waits for {expects} contributions to {tables.name(k)}, but {come[k]} come: "
            + ("it would wait for ever" if expects > come[k] else "it would continue too early")
        )
    _check_operations(tables)


def _check_operations(tables: Tables) -> None:
    """Check that updates are counted, and that stores are not overwritten and not sent too early."""
    nodes = tables.nodes[:-1]
    local = (nodes["stay"] == 1) & (nodes["shares"] > 0)
    updated, written = local & (tables.op.ravel() != Op.WRITE), local & (tables.op.ravel() == Op.WRITE)
    reached, op, slot = (
        np.concatenate(pair)
        for pair in (
            (tables.stores, tables.sends),
            (tables.store_op, tables.send_op),
            (tables.store_slot, tables.send_slot),
        )
    )
    apart = slot >= 0
    written[reached[(op == Op.WRITE) & ~apart]] = True
    in_place = nodes["expects"] - np.bincount(reached[apart], minlength=len(nodes))
    _check_slots(tables, reached[apart], op[apart], slot[apart])
    sent_on = np.diff(tables.nodes["first_send"]) > 0
    uncounted = nodes["expects"] == 0
    for wrong, words in (
        (updated & uncounted, "is updated but expects nothing: updates would not be counted"),
        (written & (in_place > 1), "is stored and gets other contributions: one would overwrite the other"),
        (local & sent_on & uncounted, "is sent on but expects nothing: it would leave before its stores"),
        ((nodes["gate"] >= 0) & uncounted, "has a gate but expects nothing: the gate would never open"),
    ):
        if wrong.any():
            raise UserError(f"plan: {tables.where(int(np.argmax(wrong)))} {words}")


def _check_slots(tables: Tables, reached: np.ndarray, op: np.ndarray, slot: np.ndarray) -> None:
    """Check that a receive buffer gets each tile once, by a plain store."""
    places, times = np.unique(np.array([reached, slot]), axis=1, return_counts=True)
    if (times > 1).any():
        node, number = places[:, np.argmax(times > 1)].tolist()
        raise UserError(
            f"plan: {tables.where(node)} comes twice to receive buffer {number}: one would overwrite the other"
        )
    if (op != Op.WRITE).any():
        node = int(reached[np.argmax(op != Op.WRITE)])
        raise UserError(f"plan: {tables.where(node)} is added to a receive buffer; allowed is a plain store")


def _play(tables: Tables, queues: Sequence[Queue] | None, limits: Limits) -> Flow:
    """Run the plan without time, and report what is left."""
    nodes = tables.nodes
    tracked = nodes["expects"][:-1] > 0
    if limits.ways:
        tags = np.arange(len(nodes) - 1) % tables.tiles
        entries = nodes["gpu"][:-1] * limits.sets + tags % limits.sets
        nodes["entry"][:-1] = np.where(nodes["entry"][:-1] >= 0, entries, -1)
        _check_entries(tables, queues, limits)
    else:
        nodes["entry"] = -1
    chunks = nodes["chunk"] + nodes["gpu"] * (1 + int(nodes["chunk"].max()))
    together = tracked & (np.diff(nodes["first_send"]) > 0) & limits.by_chunk
    nodes["chunk"][:-1] = np.where(together, chunks[:-1], -1)
    gates = 1 + int(nodes["gate"].max())
    nodes["gate"][:-1] = np.where(nodes["gate"][:-1] >= 0, nodes["gate"][:-1] + gates * nodes["gpu"][:-1], -1)
    gate_left = np.bincount(nodes["gate"][:-1][nodes["gate"][:-1] >= 0], minlength=gates * tables.gpus)
    chunk_left = np.bincount(chunks[:-1][together], minlength=1)
    work, lines = work_records(tables, queues, gates)
    used, ready = np.zeros(tables.gpus * limits.sets, np.int64), np.zeros(len(nodes) + 1, np.int64)
    state = (gate_left.astype(np.int64), chunk_left.astype(np.int64), used)
    play(nodes, tables.stores, tables.sends, work, lines, *state, limits.ways, ready)
    _check_end(tables, work, lines)
    shares = np.zeros(len(nodes) - 1, np.int64)
    shares[tables.stores] = nodes["shares"][tables.sources("first_store")]
    return Flow(*(found.reshape(tables.gpus, -1) for found in (nodes["stored"][:-1], nodes["sent"][:-1], shares)))


def _check_entries(tables: Tables, queues: Sequence[Queue] | None, limits: Limits) -> None:
    """Check that kernels cannot wait for each other's Tracker entries.

    With fewer entries than tiles, one kernel must make the tracked tiles of one buffer in the order of the walk. Other
    kernels could hold the entries, or the places on CUs, that it waits for.
    """
    entry = tables.nodes["entry"][:-1]
    most = int(np.bincount(entry[entry >= 0], minlength=1).max())
    if most <= limits.ways:
        return
    held = entry.reshape(tables.gpus, -1) >= 0
    tags = np.flatnonzero(held.any(axis=0))
    tracked = {tables.name(tag).partition(" of ")[2] for tag in tags.tolist()}
    kernels = {queue.number for queue in queues} if queues else {0}
    if len(tracked) > 1 or len(kernels) > 1:
        raise UserError(
            f"tracker.ways: found {limits.ways}, but {most} tiles share a set, of {len(tracked)} buffers and "
            f"{len(kernels)} kernels at once: they could wait for each other; allowed is an entry for each tile"
        )
    for queue in queues or ():
        for buffer in (each for each in tables.buffers if each.name in tracked):
            first_tag, tiles = tables.first[buffer.name], len(buffer.tiles)
            waits = held[queue.gpu, first_tag : first_tag + tiles]
            made = queue.tags % tiles
            _, first = np.unique(made, return_index=True)
            made = made[np.sort(first)]
            in_order = (queue.start + np.arange(tiles)) % tiles
            if not np.array_equal(made[waits[made]], in_order[waits[in_order]]):
                raise UserError(
                    f"plan: the kernel of GPU {queue.gpu} does not make the tiles of {buffer.name} in their order from "
                    f"{queue.start} on, in which the Tracker keeps entries for them; allowed is an entry for each tile"
                )


def _check_end(tables: Tables, work: np.ndarray, lines: np.ndarray) -> None:
    """Check that no contribution came twice, and that nothing is left."""
    nodes = tables.nodes[:-1]
    if nodes["doubled"].any():
        k = int(np.argmax(nodes["doubled"] != 0))
        twice = [gpu for gpu in range(tables.gpus) if nodes["doubled"][k] >> gpu & 1]
        raise UserError(
            f"plan: contributions of GPUs {twice} come twice to {tables.name(k)} on GPU {k // tables.tiles}"
        )
    left = lines[lines["next"] < lines["end"]]
    waits = ""
    if len(left):
        row = work[left[0]["next"]]
        node = int(row["node"])
        waits = "; a workgroup waits for " + ("its gate" if row["gate"] >= 0 else "an entry of the Tracker")
        waits += f" before it stores {tables.where(node)}" if node >= 0 else ""
    missing = np.flatnonzero((nodes["expects"] > 0) & (nodes["done"] == 0))
    if len(missing) or len(left):
        places = sorted({int(k) // tables.tiles for k in missing})
        first = tables.where(int(missing[0])) if len(missing) else "nothing"
        raise UserError(
            f"plan: contributions to {first} wait for each other in a circle (GPUs {places}): it would never be "
            f"complete{waits}"
        )


def check_regions(plans: Sequence[Sequence[Region]], tiles: int) -> None:
    """Follow every partial sum through a reduce-scatter of all GPUs, whose kernels store each tile once.

    Raises:
        UserError: a sum is lost, doubled, added to that of another tile, or never complete. The message names GPU and
            tile.
    """
    check_reduces(plans, Buffer(OUTPUT, np.zeros(tiles, OUTPUT_TILE)))


def check_reduces(
    plans: Sequence[Sequence[Region]],
    buffer: Buffer,
    queues: Sequence[Queue] | None = None,
    limits: Limits = NO_LIMITS,
) -> Flow:
    """Check like `follow`, and check that each GPU's part of a tile reaches, once, the one GPU where it is final."""
    tiles = len(buffer.tiles)
    final = np.zeros((len(plans), tiles), bool)
    kept = np.ones((len(plans), tiles), bool)
    for gpu, regions in enumerate(plans):
        check_spans([buffer], regions)
        for region in regions:
            span = slice(region.first, region.end)
            final[gpu, span] = region.expects > 0 and not region.sends
            kept[gpu, span] = region.plain
            for send in (*region.leaves, *region.sends):
                if send.first not in (None, region.first):
                    raise UserError(
                        f"plan: GPU {gpu} sends its part of tile {region.first} to tile {send.first}: it would be "
                        "added to another sum; allowed is the same tile"
                    )
    if kept.any():
        gpu, tile = (int(one[0]) for one in np.nonzero(kept))
        raise UserError(f"plan: GPU {gpu} keeps its part of tile {tile} to itself: the sum would lose it")
    odd = final.sum(axis=0) != 1
    if odd.any() and len(plans) > 1:
        tile = int(np.argmax(odd))
        raise UserError(
            f"plan: tile {tile} is final on GPUs {np.flatnonzero(final[:, tile]).tolist()}, allowed is exactly one"
        )
    flow = follow(plans, [buffer], queues, limits)
    lost = final & ((flow.stored | flow.sent) != all_gpus(len(plans)))
    if lost.any():
        gpu, tile = (int(one[0]) for one in np.nonzero(lost))
        held = int(flow.stored[gpu, tile] | flow.sent[gpu, tile])
        missing = [other for other in range(len(plans)) if not held >> other & 1]
        raise UserError(f"plan: the sums of GPUs {missing} never reach the final tile {tile} on GPU {gpu}")
    return flow
