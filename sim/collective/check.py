"""The check of a plan before it runs: every contribution comes where it is expected, once, and nothing waits for ever.

`follow` takes any plan. `check_regions` also asks whether it is a reduce-scatter: each tile's sum ends on one GPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sim.collective.dry_run import NODE, QUEUE, WORK, play
from sim.collective.space import OUTPUT, Buffer, Region, check_spans, first_tags
from sim.hw.request import Op
from sim.hw.space import MAX_GPUS
from tracer.gemm import OUTPUT_TILE
from traces.errors import UserError


@dataclass(frozen=True)
class Queue:
    """A kernel on one GPU, as far as a plan is concerned.

    Attributes:
        gpu: its GPU.
        number: dispatch queue.
        tags: i8 [workgroups]: share * tiles + tile of the buffers that it stores into, in launch order.
        gates: i8 [workgroups]: gate that each waits for, -1 = none.
        start: tile at which the Tracker takes the walk to begin.
    """

    gpu: int
    number: int
    tags: np.ndarray
    gates: np.ndarray
    start: int = 0


@dataclass(frozen=True)
class Limits:
    """What of the machine can make a plan wait.

    Attributes:
        sets, ways: of the Tracker; ways = 0: entries without limit.
        by_chunk: tiles are sent on a chunk at a time (DmaPolicy.CHUNK).
    """

    sets: int = 1
    ways: int = 0
    by_chunk: bool = False


NO_LIMITS = Limits()


@dataclass(frozen=True)
class Flow:
    """What comes where.

    Attributes:
        stored: i8 [GPUs, tiles of all buffers]: set of GPUs (bit k = GPU k) whose stores come to a tile.
        sent: likewise, whose contributions DMA engines bring.
        shares: likewise, of how many shares the stores are that come from others.
    """

    stored: np.ndarray
    sent: np.ndarray
    shares: np.ndarray


@dataclass
class _Tables:
    """A plan of all GPUs as records."""

    regions: Sequence[Sequence[Region]]
    buffers: Sequence[Buffer]
    nodes: np.ndarray = field(init=False)
    stores: np.ndarray = field(init=False)
    sends: np.ndarray = field(init=False)

    def __post_init__(self):
        self.gpus, self.first = len(self.regions), first_tags(self.buffers)
        sizes = [len(buffer.tiles) for buffer in self.buffers]
        self.tiles = sum(sizes)
        self.nodes = np.zeros(self.gpus * self.tiles + 1, NODE)
        own = self.nodes[:-1].reshape(self.gpus, self.tiles)
        own["gpu"] = np.arange(self.gpus)[:, None]
        own["shares"] = np.repeat([buffer.shares for buffer in self.buffers], sizes)
        own["stay"], own["own"] = 1, own["shares"] > 0
        own["entry"] = own["gate"] = own["chunk"] = -1
        self.op = np.full((self.gpus, self.tiles), Op.WRITE)
        for gpu, regions in enumerate(self.regions):
            check_spans(self.buffers, regions)
            for region in regions:
                self._write(own[gpu], gpu, region)
        self.stores, self.store_op = self._edges("first_store", "leaves")
        self.sends, self.send_op = self._edges("first_send", "sends")

    def _write(self, nodes: np.ndarray, gpu: int, region: Region) -> None:
        span = self._span(region)
        nodes["stay"][span], nodes["expects"][span] = region.stays, region.expects
        nodes["own"][span] = region.stays & (nodes["shares"][span] > 0)
        nodes["gate"][span] = -1 if region.gate is None else region.gate
        nodes["chunk"][span] = region.chunk
        self.op[gpu, span] = region.op

    def _span(self, region: Region) -> slice:
        base = self.first[region.buffer]
        return slice(base + region.first, base + region.end)

    def _edges(self, first: str, kind: str) -> tuple[np.ndarray, np.ndarray]:
        """(node, Op) that the tiles of regions reach, in the order of the tiles; writes where each tile's begin."""
        edges = [np.zeros((3, 0), np.int64)]  # from, to, Op
        for gpu, regions in enumerate(self.regions):
            for region in regions:
                here = np.arange(self.tiles)[self._span(region)]
                for send in getattr(region, kind):
                    start = region.first if send.first is None else send.first
                    there = (gpu + send.to) % self.gpus * self.tiles + self.first[send.buffer or region.buffer] + start
                    places = np.arange(len(here))
                    edges.append(np.array([gpu * self.tiles + here, there + places, 0 * places + send.op]))
        found = np.concatenate(edges, axis=1)
        found = found[:, np.argsort(found[0], kind="stable")]
        self.nodes[first] = np.searchsorted(found[0], np.arange(len(self.nodes)))
        return found[1], found[2]

    def sources(self, first: str) -> np.ndarray:
        """Node from which each edge comes."""
        return np.repeat(np.arange(len(self.nodes) - 1), np.diff(self.nodes[first]))

    def name(self, node: int) -> str:
        """Tile and buffer of a node, in words."""
        tag = node % self.tiles
        buffer = max((b for b in self.buffers if self.first[b.name] <= tag), key=lambda b: self.first[b.name])
        return f"tile {tag - self.first[buffer.name]} of {buffer.name}"

    def where(self, node: int) -> str:
        """The same with its GPU."""
        return f"GPU {node // self.tiles}, {self.name(node)}"


def follow(
    regions: Sequence[Sequence[Region]],
    buffers: Sequence[Buffer],
    queues: Sequence[Queue] | None = None,
    limits: Limits = NO_LIMITS,
) -> Flow:
    """Follow every contribution through a plan of all GPUs.

    Args:
        regions: of each GPU.
        buffers: that all of them have.
        queues: kernels of all GPUs, None = all workgroups store at once.
        limits: of the machine.

    Raises:
        UserError: a contribution that is lost, doubled or overwritten, or something that waits for ever; names GPU,
            buffer and tile.
    """
    if not 2 <= len(regions) <= MAX_GPUS:
        raise UserError(f"gpus: found {len(regions)}, allowed are 2 to {MAX_GPUS}: a collective needs two")
    tables = _Tables(regions, buffers)
    _check_counts(tables)
    return _play(tables, queues, limits)


def _check_counts(tables: _Tables) -> None:
    """Does each tile get as many contributions as it expects?"""
    nodes = tables.nodes[:-1]
    stores, sends = tables.sources("first_store"), tables.sources("first_send")
    arrive = np.bincount(tables.stores, nodes["shares"][stores], len(nodes)).astype(np.int64)
    arrive += np.bincount(tables.sends, minlength=len(nodes))
    come = arrive + nodes["shares"] * nodes["stay"]
    lost = np.flatnonzero((nodes["expects"] == 0) & (arrive > 0))
    if len(lost):
        k = int(lost[0])
        senders = {int(s) // tables.tiles for s in (*stores[tables.stores == k], *sends[tables.sends == k])}
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
            + ("it would wait for ever" if expects > come[k] else "it would go on too early")
        )
    _check_operations(tables)


def _check_operations(tables: _Tables) -> None:
    """Are updates counted, and stores neither overwritten nor sent on too early?"""
    nodes = tables.nodes[:-1]
    local = (nodes["stay"] == 1) & (nodes["shares"] > 0)
    updated, written = local & (tables.op.ravel() != Op.WRITE), local & (tables.op.ravel() == Op.WRITE)
    for reached, op in ((tables.stores, tables.store_op), (tables.sends, tables.send_op)):
        written[reached[op == Op.WRITE]] = True
    sent_on = np.diff(tables.nodes["first_send"]) > 0
    uncounted = nodes["expects"] == 0
    for wrong, words in (
        (updated & uncounted, "is updated but expects nothing: updates would not be counted"),
        (written & (nodes["expects"] > 1), "is stored and gets other contributions: one would overwrite the other"),
        (local & sent_on & uncounted, "is sent on but expects nothing: it would leave before its stores"),
        ((nodes["gate"] >= 0) & uncounted, "has a gate but expects nothing: the gate would never open"),
    ):
        if wrong.any():
            raise UserError(f"plan: {tables.where(int(np.argmax(wrong)))} {words}")


def _play(tables: _Tables, queues: Sequence[Queue] | None, limits: Limits) -> Flow:
    """Let it run, and say what is left."""
    nodes = tables.nodes
    tracked = nodes["expects"][:-1] > 0
    if limits.ways:
        entries = tracked & (nodes["own"][:-1] == 1)
        tags = np.arange(len(nodes) - 1) % tables.tiles
        nodes["entry"][:-1] = np.where(entries, nodes["gpu"][:-1] * limits.sets + tags % limits.sets, -1)
        _check_entries(tables, queues, limits)
    chunks = nodes["chunk"] + nodes["gpu"] * (1 + int(nodes["chunk"].max()))
    together = tracked & (np.diff(nodes["first_send"]) > 0) & limits.by_chunk
    nodes["chunk"][:-1] = np.where(together, chunks[:-1], -1)
    gates = 1 + int(nodes["gate"].max())
    nodes["gate"][:-1] = np.where(nodes["gate"][:-1] >= 0, nodes["gate"][:-1] + gates * nodes["gpu"][:-1], -1)
    gate_left = np.bincount(nodes["gate"][:-1][nodes["gate"][:-1] >= 0], minlength=gates * tables.gpus)
    chunk_left = np.bincount(chunks[:-1][together], minlength=1)
    work, lines = _work(tables, queues, gates)
    used, ready = np.zeros(tables.gpus * limits.sets, np.int64), np.zeros(len(nodes) + 1, np.int64)
    state = (gate_left.astype(np.int64), chunk_left.astype(np.int64), used)
    play(nodes, tables.stores, tables.sends, work, lines, *state, limits.ways, ready)
    _check_end(tables, work, lines)
    shares = np.zeros(len(nodes) - 1, np.int64)
    shares[tables.stores] = nodes["shares"][tables.sources("first_store")]
    return Flow(*(found.reshape(tables.gpus, -1) for found in (nodes["stored"][:-1], nodes["sent"][:-1], shares)))


def _work(tables: _Tables, queues: Sequence[Queue] | None, gates: int) -> tuple[np.ndarray, np.ndarray]:
    """WORK and QUEUE records."""
    if queues is None:
        queues = [
            Queue(gpu, number, np.arange(tiles), np.full(tiles, -1))
            for gpu in range(tables.gpus)
            for number, tiles in _tiles_of_queues(tables.buffers).items()
        ]
    launched = {(queue.gpu, queue.number) for queue in queues}
    for number in _tiles_of_queues(tables.buffers):
        if missing := [gpu for gpu in range(tables.gpus) if (gpu, number) not in launched]:
            raise UserError(f"plan: GPUs {missing} have no kernel in queue {number}, which is to store into a buffer")
    parts = [np.zeros(0, WORK)]
    lines = np.zeros(len(queues), QUEUE)
    for line, queue in zip(lines, queues, strict=True):
        rows = _rows(tables, queue, gates)
        line["next"] = sum(len(part) for part in parts)
        line["end"] = line["next"] + len(rows)
        parts.append(rows)
    return np.concatenate(parts), lines


def _rows(tables: _Tables, queue: Queue, gates: int) -> np.ndarray:
    """WORK of a kernel: for each workgroup a record for each buffer that it stores into."""
    if not set(queue.gates[queue.gates >= 0].tolist()) <= _gates(tables, queue.gpu, gates):
        raise UserError(f"plan: workgroups of GPU {queue.gpu} wait for a gate that no region opens")
    own = [b for b in tables.buffers if b.queue == queue.number and b.shares > 0]
    rows = np.zeros((len(queue.tags), max(1, len(own))), WORK)
    rows["node"], rows["gate"] = -1, np.where(queue.gates < 0, -1, queue.gates + queue.gpu * gates)[:, None]
    for k, buffer in enumerate(own):
        tiles = len(buffer.tiles)
        rows["node"][:, k] = queue.gpu * tables.tiles + tables.first[buffer.name] + queue.tags % tiles
        rows["share"][:, k] = queue.tags // tiles
        if not np.array_equal(np.sort(queue.tags), np.arange(buffer.shares * tiles)):
            raise UserError(
                f"plan: the kernel of queue {queue.number}, GPU {queue.gpu}, has {len(queue.tags)} workgroups, allowed "
                f"is one for each of {buffer.shares} shares of the {tiles} tiles of {buffer.name}"
            )
    return rows.ravel()


def _gates(tables: _Tables, gpu: int, gates: int) -> set[int]:
    """Gates that regions of a GPU open."""
    found = tables.nodes["gate"][gpu * tables.tiles : (gpu + 1) * tables.tiles]
    return set((found[found >= 0] - gpu * gates).tolist())


def _tiles_of_queues(buffers: Sequence[Buffer]) -> dict[int, int]:
    """Dispatch queue -> workgroups of its kernel."""
    return {b.queue: b.shares * len(b.tiles) for b in buffers if b.shares > 0}


def _check_entries(tables: _Tables, queues: Sequence[Queue] | None, limits: Limits) -> None:
    """Tiles must be made in the order of the walk, and several kernels at once must find an entry for each tile: one
    could hold those that the other waits for."""
    number = len({queue.number for queue in queues}) if queues else 1
    entry = tables.nodes["entry"][:-1]
    most = int(np.bincount(entry[entry >= 0], minlength=1).max())
    if number > 1 and most > limits.ways:
        raise UserError(
            f"tracker.ways: found {limits.ways}, but {most} tiles of {number} kernels that run at once share a set: "
            "they could wait for each other for ever; allowed is an entry for each tile"
        )
    for queue in queues or ():
        for buffer in (b for b in tables.buffers if b.queue == queue.number and b.shares > 0):
            made = queue.tags % len(buffer.tiles)
            _, first = np.unique(made, return_index=True)
            in_order = (queue.start + np.arange(len(buffer.tiles))) % len(buffer.tiles)
            if most > limits.ways and not np.array_equal(made[np.sort(first)], in_order):
                raise UserError(
                    f"plan: the kernel of GPU {queue.gpu} does not make the tiles of {buffer.name} in their order from "
                    f"{queue.start} on, in which the Tracker keeps entries for them; allowed is an entry for each tile"
                )


def _check_end(tables: _Tables, work: np.ndarray, lines: np.ndarray) -> None:
    """Nothing came twice, and nothing is left."""
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
        UserError: a sum that is lost, doubled or never complete; names GPU and tile.
    """
    check_reduces(plans, Buffer(OUTPUT, np.zeros(tiles, OUTPUT_TILE)))


def check_reduces(
    plans: Sequence[Sequence[Region]],
    buffer: Buffer,
    queues: Sequence[Queue] | None = None,
    limits: Limits = NO_LIMITS,
) -> Flow:
    """`follow`, and the sums of all GPUs meet, each once, on the one GPU where a tile is final."""
    tiles = len(buffer.tiles)
    final = np.zeros((len(plans), tiles), bool)
    kept = np.ones((len(plans), tiles), bool)
    for gpu, regions in enumerate(plans):
        check_spans([buffer], regions)
        for region in regions:
            span = slice(region.first, region.end)
            final[gpu, span] = region.expects > 0 and not region.sends
            kept[gpu, span] = region.plain
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
    lost = final & ((flow.stored | flow.sent) != (1 << len(plans)) - 1)
    if lost.any():
        gpu, tile = (int(one[0]) for one in np.nonzero(lost))
        held = int(flow.stored[gpu, tile] | flow.sent[gpu, tile])
        missing = [other for other in range(len(plans)) if not held >> other & 1]
        raise UserError(f"plan: the sums of GPUs {missing} never reach the final tile {tile} on GPU {gpu}")
    return flow
