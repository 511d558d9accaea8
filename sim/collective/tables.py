"""A plan of all GPUs as flat records, for its check (`sim.collective.check`): tiles, edges between them, workgroups."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sim.collective.dry_run import NODE, QUEUE, WORK
from sim.collective.space import Buffer, Region, check_spans, first_tags
from sim.hw.request import Op
from traces.errors import UserError


@dataclass(frozen=True)
class Queue:
    """A kernel on one GPU, for the check of a plan.

    Attributes:
        gpu: its GPU.
        number: dispatch queue.
        tags: i8 [workgroups]: share * tiles + tile of the buffers that it stores into, in launch order.
        gates: i8 [workgroups]: gate that each workgroup waits for, -1 = none.
        start: first tile of the walk for the Tracker.
        to: for a collective on CUs, i8 [workgroups]: distance ahead to which each workgroup sends its tile's sum, 0 =
            no GPU; `tags` are then numbers among all tiles. None = any other kernel, which makes and stores tiles.
    """

    gpu: int
    number: int
    tags: np.ndarray
    gates: np.ndarray
    start: int = 0
    to: np.ndarray | None = None


@dataclass
class Tables:
    """A plan of all GPUs as records.

    Attributes:
        nodes: NODE [GPUs x tiles + 1].
        stores, sends: nodes that stores and DMA engines reach; `store_op`, `send_op`: operations there; `store_slot`,
            `send_slot`: receive buffers there, -1 = the tile itself.
        carried: source and target nodes of collectives on CUs, i8 [2, edges].
    """

    regions: Sequence[Sequence[Region]]
    buffers: Sequence[Buffer]
    queues: Sequence[Queue] | None = None
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
        self.carried = np.concatenate([np.zeros((2, 0), np.int64), *map(self.carried_by, self.queues or ())], axis=1)
        self.stores, self.store_op, self.store_slot = self._edges("first_store", "leaves")
        self.sends, self.send_op, self.send_slot = self._edges("first_send", "sends")

    def _write(self, nodes: np.ndarray, gpu: int, region: Region) -> None:
        span = self._span(region)
        nodes["stay"][span], nodes["expects"][span] = region.stays, region.expects
        local = region.stays & (nodes["shares"][span] > 0)
        nodes["own"][span], nodes["alone"][span] = local | region.adds, region.alone
        nodes["entry"][span] = np.where(local & (region.expects > 0), 0, -1)
        nodes["gate"][span] = -1 if region.gate is None else region.gate
        nodes["chunk"][span] = region.chunk
        self.op[gpu, span] = region.op

    def _span(self, region: Region) -> slice:
        base = self.first[region.buffer]
        return slice(base + region.first, base + region.end)

    def _edges(self, first: str, kind: str) -> tuple[np.ndarray, ...]:
        """(node, Op, receive buffer) that tiles of regions reach, in tile order. Writes first edges to the nodes."""
        edges = [np.zeros((4, 0), np.int64)]  # from, to, Op, receive buffer
        for gpu, regions in enumerate(self.regions):
            for region in regions:
                here = np.arange(self.tiles)[self._span(region)]
                for send in getattr(region, kind):
                    start = region.first if send.first is None else send.first
                    there = (gpu + send.to) % self.gpus * self.tiles + self.first[send.buffer or region.buffer] + start
                    slot, places = -1 if send.slot is None else send.slot, np.arange(len(here))
                    to = (there + places, 0 * places + send.op, 0 * places + slot)
                    edges.append(np.array([gpu * self.tiles + here, *to]))
        found = np.concatenate(edges, axis=1)
        found = found[:, np.argsort(found[0], kind="stable")]
        self.nodes[first] = np.searchsorted(found[0], np.arange(len(self.nodes)))
        return found[1], found[2], found[3]

    def carried_by(self, queue: Queue) -> np.ndarray:
        """Source and target nodes of a collective on CUs, i8 [2, workgroups that send]."""
        if queue.to is None:
            return np.zeros((2, 0), np.int64)
        sends = queue.to > 0
        there = (queue.gpu + queue.to) % self.gpus
        return np.array([queue.gpu * self.tiles + queue.tags, there * self.tiles + queue.tags])[:, sends]

    def sources(self, first: str) -> np.ndarray:
        """Source node of each edge."""
        return np.repeat(np.arange(len(self.nodes) - 1), np.diff(self.nodes[first]))

    def name(self, node: int) -> str:
        """Tile and buffer of a node, in words."""
        tag = node % self.tiles
        buffer = max((b for b in self.buffers if self.first[b.name] <= tag), key=lambda b: self.first[b.name])
        return f"tile {tag - self.first[buffer.name]} of {buffer.name}"

    def where(self, node: int) -> str:
        """GPU, tile and buffer of a node, in words."""
        return f"GPU {node // self.tiles}, {self.name(node)}"


def work_records(tables: Tables, queues: Sequence[Queue] | None, gates: int) -> tuple[np.ndarray, np.ndarray]:
    """WORK and QUEUE records of all kernels. gates: number of gates of a GPU."""
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


def _rows(tables: Tables, queue: Queue, gates: int) -> np.ndarray:
    """WORK of a kernel: one record for each workgroup and each buffer that it stores into."""
    if not set(queue.gates[queue.gates >= 0].tolist()) <= _gates(tables, queue.gpu, gates):
        raise UserError(f"plan: workgroups of GPU {queue.gpu} wait for a gate that no region opens")
    own = [b for b in tables.buffers if b.queue == queue.number and b.shares > 0] if queue.to is None else []
    rows = np.zeros((len(queue.tags), max(1, len(own))), WORK)
    rows["node"], rows["gate"] = -1, np.where(queue.gates < 0, -1, queue.gates + queue.gpu * gates)[:, None]
    rows["to"] = -1
    if queue.to is not None:
        rows = rows[:, 0]
        rows["node"][queue.to > 0], rows["to"][queue.to > 0] = tables.carried_by(queue)
        return rows
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


def _gates(tables: Tables, gpu: int, gates: int) -> set[int]:
    """Gates that regions of a GPU open."""
    found = tables.nodes["gate"][gpu * tables.tiles : (gpu + 1) * tables.tiles]
    return set((found[found >= 0] - gpu * gates).tolist())


def _tiles_of_queues(buffers: Sequence[Buffer]) -> dict[int, int]:
    """Dispatch queue -> number of workgroups of its kernel."""
    return {b.queue: b.shares * len(b.tiles) for b in buffers if b.shares > 0}
