"""Texts of traces of clusters: a pipeline as of CUTLASS.

In each workgroup warp 0 makes the barriers, warp 1 copies and the others consume. A workgroup loads a slice that all of
its cluster need, and a tile of its own. A stage is empty when the consumers of all workgroups have read it.
"""

from itertools import pairwise, product
from math import prod
from typing import NamedTuple

from tests.support.accelsim_texts import HEADER, block_text, read, write
from tests.support.transactions import EMPTY, EXIT, FULL, ROW_BYTES, ROWS, box_columns, coded
from traces.schema import CLUSTER_ARRIVE, Kind

BOX_BYTES = ROWS * ROW_BYTES
MEET = ["0070 ffffffff 0 UCGABAR_ARV 0 0 0 0 NoVal ", "0078 ffffffff 0 UCGABAR_WAIT 0 0 0 0 NoVal "]
DELAY = "0088 ffffffff 1 R24 HGMMA.64x256x16.F32 1 R24 1 0 0 0 NoVal "


class Pipeline(NamedTuple):
    """stages: of the ring. steps: tiles of a workgroup. consumers: warps.

    outside: ranks whose slice lies outside the tensor. late: rank whose producer starts late. early: copies
    are announced after they are started. apart: announced without an arrival, which follows;
    crossed: at the barriers of all workgroups.
    """

    shape: tuple = (2, 1, 1)
    stages: int = 2
    steps: int = 5
    consumers: int = 2
    outside: tuple = ()
    late: int = -1
    early: bool = False
    apart: bool = False
    crossed: bool = False

    @property
    def size(self):
        return prod(self.shape)


def shared(rank, place):
    return f"{(rank << 24) + place:#x}"


def load(pipe, rank, stage, tile, ranks):
    """A box of ROWS rows in transfers of 16 bytes, for a set of workgroups."""
    multicast = "0" if ranks == 0 else f"1 {ranks:#06x}"
    head = f"0030 00000001 0 UTMALDG.2D 1 UR8 16 {shared(rank, FULL + 8 * stage)} {multicast} {BOX_BYTES}"
    if ranks and rank in pipe.outside:
        return f"{head} {BOX_BYTES} 4 0x0 0 0 0 NoVal "
    return f"{head} 0 {box_columns(tile)}"


def sync(opcode, mask, address, value, stride=0):
    """A line of a transaction barrier whose second source has a value."""
    return f"0010 {mask:08x} 0 SYNCS.{opcode} 2 R255 R5 8 1 {address} {stride} 0 0 Val 1 0 1 {value} "


def warps_of(pipe, rank):
    """Lines of each warp of a workgroup."""
    first = [
        sync("EXCH.64", 1, shared(rank, FULL + 8 * s), coded(pipe.size if pipe.crossed else 1))
        for s in range(pipe.stages)
    ]
    readers = pipe.consumers * pipe.size
    first += [sync("EXCH.64", 1, shared(rank, EMPTY + 8 * s), coded(readers)) for s in range(pipe.stages)]
    producer, consumer = [*MEET], [*MEET]
    producer += [DELAY] * (64 * (rank == pipe.late))
    everybody = (1 << pipe.size) - 1
    for step in range(pipe.steps):
        stage, turn = step % pipe.stages, step // pipe.stages
        full, empty = shared(rank, FULL + 8 * stage), shared(rank, EMPTY + 8 * stage)
        producer.append(sync("PHASECHK.TRANS64.TRYWAIT", 0xFFFFFFFF, empty, f"{(turn + 1 & 1) << 31:x}"))
        kind = ".RED.A0TR" if pipe.apart else ""
        announced = [sync(f"ARRIVE.TRANS64{kind}", 1, full, f"{BOX_BYTES * (pipe.size + 1):x}")]
        loads = [load(pipe, rank, stage, (step * pipe.size + rank) * 2, everybody if pipe.size > 1 else 0)]
        loads.append(load(pipe, rank, stage, (step * pipe.size + rank) * 2 + 1, 0))
        producer += [*loads, *announced] if pipe.early else [*announced, *loads]
        told = (everybody, shared(0, FULL + 8 * stage), "1", 1 << 24) if pipe.crossed else (1, full, "1")
        producer += [sync("ARRIVE.TRANS64.RED.A1T0", *told)] * pipe.apart
        consumer.append(sync("PHASECHK.TRANS64.TRYWAIT", 0xFFFFFFFF, full, f"{(turn & 1) << 31:x}"))
        consumer.append("0038 ffffffff 1 R24 HGMMA.64x64x16.F32 1 R24 1 0 0 0 NoVal ")
        consumer.append(sync("ARRIVE.TRANS64.RED.A1T0", everybody, shared(0, EMPTY + 8 * stage), "1", 1 << 24))
    ends = [*MEET, EXIT]
    return [[*first, *MEET, *ends], [*producer, *ends], *[[*consumer, *ends]] * pipe.consumers]


def trace(pipe, clusters=(1, 1, 1), change=lambda rank, warps: warps):
    """(header, list of (thread block, cluster, place, rank, lines of warps)) of a grid of so many clusters."""
    grid = tuple(a * b for a, b in zip(clusters, pipe.shape, strict=True))
    header = HEADER.format(
        version=6, grid=",".join(map(str, grid)), block=f"{32 * (2 + pipe.consumers)},1,1", architecture=90, extra=""
    )
    blocks = []
    for z, y, x in product(*(range(size) for size in reversed(grid))):
        block = (x, y, z)
        cluster = tuple(a // b for a, b in zip(block, pipe.shape, strict=True))
        place = tuple(a % b for a, b in zip(block, pipe.shape, strict=True))
        rank = place[0] + pipe.shape[0] * (place[1] + pipe.shape[1] * place[2])
        blocks.append((block, cluster, place, rank, change(rank, warps_of(pipe, rank))))
    return header, blocks


def text_of(header, blocks):
    def triple(numbers):
        return ",".join(map(str, numbers))

    text = header
    for block, cluster, place, rank, warps in blocks:
        lines = f"cluster id = {triple(cluster)}\ncluster cta = {triple(place)}\ncluster rank = {rank}\n"
        text += block_text(warps, triple(block), lines)
    return text


def read_cluster(tmp_path, pipe, **options):
    """(events of each warp of each workgroup, problems)."""
    workgroups, problems = read(write(tmp_path, text_of(*trace(pipe, **options))))
    return [[w.events[a:b] for a, b in pairwise(w.first_event)] for w in workgroups], problems


def meets(events):
    """Arrivals and waits at the barrier of the cluster in the events of some warps."""
    return sum(int(((w["kind"] == Kind.BARRIER) & (w["space"] >= CLUSTER_ARRIVE)).sum()) for w in events)


PIPELINES = [
    Pipeline(),
    Pipeline(shape=(1, 2, 1)),
    Pipeline(shape=(2, 2, 1), stages=3, steps=7),
    Pipeline(shape=(4, 1, 1), stages=1, steps=3, consumers=1),
    Pipeline(shape=(1, 1, 2), stages=7, steps=9),
    Pipeline(outside=(1,)),
    Pipeline(early=True, outside=(0,)),
    Pipeline(shape=(1, 2, 1), apart=True),
    Pipeline(shape=(3, 1, 1), apart=True, crossed=True),
    Pipeline(shape=(16, 1, 1), steps=3, consumers=1),
    Pipeline(shape=(1, 1, 1)),
]
