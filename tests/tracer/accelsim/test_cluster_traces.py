"""Traces of clusters: multicast loads, arrivals at barriers of other workgroups, the barrier of the cluster.

The kernel of these tests is a pipeline as of CUTLASS. In each workgroup warp 0 makes the barriers, warp 1 copies and
the others consume. A workgroup loads a slice that all of its cluster need, and a tile of its own. A stage is empty
when the consumers of all workgroups have read it.
"""

from itertools import pairwise, product
from math import prod
from typing import NamedTuple

import numpy as np
import pytest

import t3sim
from tests.support.accelsim_texts import HEADER, block_text, read, write
from tests.support.tracez_writer import tracez
from tests.support.transactions import EMPTY, EXIT, FULL, PITCH, ROW_BYTES, ROWS, box_columns, coded, waits_of
from tracer.accelsim.clusters import SINGLE, Clusters, shape_of
from tracer.accelsim.reader import open_accelsim
from traces.schema import CLUSTER_ARRIVE, CLUSTER_WAIT, PHASE_ARRIVE, Bulk, Kind, Space

BOX_BYTES = ROWS * ROW_BYTES
MEET = ["0070 ffffffff 0 UCGABAR_ARV 0 0 0 0 NoVal ", "0078 ffffffff 0 UCGABAR_WAIT 0 0 0 0 NoVal "]
DELAY = "0088 ffffffff 1 R24 HGMMA.64x256x16.F32 1 R24 1 0 0 0 NoVal "


class Pipeline(NamedTuple):
    """stages: of the ring. steps: tiles of a workgroup. consumers: warps.

    outside: ranks whose slice lies outside the tensor. late: rank whose producer starts late. early: copies
    are announced after they are started. apart: announced without an arrival, which follows.
    """

    shape: tuple = (2, 1, 1)
    stages: int = 2
    steps: int = 5
    consumers: int = 2
    outside: tuple = ()
    late: int = -1
    early: bool = False
    apart: bool = False

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
    first = [sync("EXCH.64", 1, shared(rank, FULL + 8 * s), coded(1)) for s in range(pipe.stages)]
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
        producer += [sync("ARRIVE.TRANS64.RED.A1T0", 1, full, "1")] * pipe.apart
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


PIPELINES = [
    Pipeline(),
    Pipeline(shape=(1, 2, 1)),
    Pipeline(shape=(2, 2, 1), stages=3, steps=7),
    Pipeline(shape=(4, 1, 1), stages=1, steps=3, consumers=1),
    Pipeline(shape=(1, 1, 2), stages=7, steps=9),
    Pipeline(outside=(1,)),
    Pipeline(early=True, outside=(0,)),
    Pipeline(shape=(1, 2, 1), apart=True),
    Pipeline(shape=(16, 1, 1), steps=3, consumers=1),
    Pipeline(shape=(1, 1, 1)),
]


@pytest.mark.parametrize("pipe", PIPELINES)
def test_waits_name_the_phases_of_the_pipeline(tmp_path, pipe):
    """In each workgroup a stage is full for the n-th time after n phases, and empty after n - 1."""
    workgroups, problems = read_cluster(tmp_path, pipe)
    assert problems == [] and len(workgroups) == pipe.size
    turns = [(step % pipe.stages, step // pipe.stages) for step in range(pipe.steps)]
    for _, producer, *consumers in workgroups:
        assert waits_of(producer) == [(pipe.stages + stage, turn) for stage, turn in turns]
        for consumer in consumers:
            assert waits_of(consumer) == [(stage, turn + 1) for stage, turn in turns]


@pytest.mark.parametrize("pipe", PIPELINES)
def test_copies_and_arrivals_name_the_workgroups_that_are_meant(tmp_path, pipe):
    workgroups, _ = read_cluster(tmp_path, pipe)
    everybody = (1 << pipe.size) - 1
    for rank, (_, producer, *consumers) in enumerate(workgroups):
        boxes = producer[producer["kind"] == Kind.BULK]
        sets = [everybody * (pipe.size > 1), 0] if rank not in pipe.outside else [0]
        assert boxes["cycles"].tolist() == sets * pipe.steps and set(boxes["space"]) == {Bulk.LOAD}
        arrivals = producer[(producer["kind"] == Kind.BARRIER) & (producer["space"] == PHASE_ARRIVE)]
        brought = BOX_BYTES * len(set(range(pipe.size)) - {rank} - set(pipe.outside))
        assert arrivals["row_stride"].tolist() == [brought] * pipe.steps
        for consumer in consumers:
            told = consumer[(consumer["kind"] == Kind.BARRIER) & (consumer["space"] == PHASE_ARRIVE)]
            assert told["cycles"].tolist() == [everybody * (pipe.size > 1)] * pipe.steps
            assert set(told["work"]) == {pipe.size * pipe.consumers}
        for warp in (producer, *consumers):
            meets = warp[(warp["kind"] == Kind.BARRIER) & (warp["space"] >= CLUSTER_ARRIVE)]
            expected = [(CLUSTER_ARRIVE, 0), (CLUSTER_WAIT, 1), (CLUSTER_ARRIVE, 0), (CLUSTER_WAIT, 2)]
            found = [(int(event["space"]), int(event["work"])) for event in meets]
            assert found == (expected if pipe.size > 1 else [])


def test_instructions_are_counted_once(tmp_path):
    for pipe in PIPELINES:
        for rank, warps in enumerate(read_cluster(tmp_path, pipe)[0]):
            lines = [len(lines) for lines in warps_of(pipe, rank)]
            assert [int(events["count"].sum()) for events in warps] == lines


@pytest.mark.parametrize("pipe", PIPELINES[:7])
def test_multicast_lines_are_read_once_and_consumers_wait_for_all(tmp_path, pipe):
    """Each box crosses L2 once. A producer that starts late holds back the consumers of all workgroups."""
    times_ns = []
    for late in (-1, pipe.size - 1):
        path = write(tmp_path, text_of(*trace(pipe._replace(late=late), clusters=(3, 2, 1))))
        result = t3sim.run(path, machine="h100_sxm")
        boxes = 6 * pipe.steps * (2 * pipe.size - len(pipe.outside))
        assert int(result.frame("bulk")["copies"].sum()) == boxes
        assert int(result.frame("l2")["read_sectors"].sum()) == boxes * BOX_BYTES // 32
        times_ns.append(result.headline()["time_ns"])
    assert times_ns[1] > times_ns[0] + 3000


def test_a_multicast_box_of_several_events_belongs_to_one_phase(tmp_path):
    """Behind its second row each box has a gap, so it is two events. Both come before the phase ends."""

    def change(rank, warps):
        step = PITCH - ROW_BYTES + 16
        rows, gap = (f" {step} 16 16 16 {further} 16 16 16 {step} " for further in (step, step + 100 * PITCH))
        return [[line.replace(rows, gap) for line in lines] for lines in warps]

    pipe = Pipeline()
    workgroups, problems = read_cluster(tmp_path, pipe, change=change)
    assert problems == []
    for _, producer, *_ in workgroups:
        assert (producer["kind"] == Kind.BULK).sum() == 4 * pipe.steps
        arrivals = producer[(producer["kind"] == Kind.BARRIER) & (producer["space"] == PHASE_ARRIVE)]
        assert arrivals["row_stride"].tolist() == [BOX_BYTES] * pipe.steps
    result = t3sim.run(write(tmp_path, text_of(*trace(pipe, change=change))), machine="h100_sxm")
    assert int(result.frame("l2")["read_sectors"].sum()) == 2 * pipe.size * pipe.steps * BOX_BYTES // 32


@pytest.mark.parametrize("pipe", PIPELINES[:6])
def test_clusters_come_whole_and_in_order(tmp_path, pipe):
    """Workgroups of a cluster are next to each other, by rank, whatever their place in the grid."""
    path = write(tmp_path, text_of(*trace(pipe, clusters=(3, 2, 2))))
    kernel = next(iter(open_accelsim(path).commands()))
    assert kernel.info.cluster == pipe.size
    clusters = Clusters(kernel.info.grid, pipe.shape)
    places = [clusters.place(workgroup.index) for workgroup in kernel.workgroups()]
    assert [place.rank for place in places] == list(range(pipe.size)) * 12
    assert sorted(set(places)) == [(c, r) for c in range(12) for r in range(pipe.size)]
    assert all(clusters.index(*clusters.place(index)) == index for index in range(kernel.info.workgroups))
    later = [workgroup.index for workgroup in kernel.workgroups(5)]
    assert later == [clusters.index(*place) for place in places[5:]]


def test_a_tracez_gives_the_same_clusters(tmp_path):
    pipe = Pipeline(shape=(2, 2, 1))
    header, blocks = trace(pipe, clusters=(2, 1, 1))
    text, _ = read(write(tmp_path, text_of(header, blocks)))
    tails = [(*cluster, *place, rank) for _, cluster, place, rank, _ in blocks]
    packed = tracez(header, [(block, warps) for block, *_, warps in blocks], tails=tails)
    other, problems = read(write(tmp_path, packed, "kernel-1.tracez"))
    assert problems == [] and [w.index for w in text] == [w.index for w in other]
    assert all(np.array_equal(a.events, b.events) for a, b in zip(text, other, strict=True))


def not_followed(events):
    kinds = [event for warp in events for event in warp]
    return not any(e["kind"] == Kind.BULK or (e["kind"] == Kind.BARRIER and e["space"] == PHASE_ARRIVE) for e in kinds)


def meets(events):
    return sum(int(((w["kind"] == Kind.BARRIER) & (w["space"] >= CLUSTER_ARRIVE)).sum()) for w in events)


def replaced(old, new, rank=None):
    def change(own, warps):
        return [[line.replace(old, new) for line in lines] if rank in (None, own) else lines for lines in warps]

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (replaced(" Val ", " NoVal "), "ALLOW_REG_VAL_TRACING"),
        (replaced("1 0x0003 256", "1 0x0001 256", rank=1), "do not fit"),
        (replaced("1 0x0003 256", "1 0x0007 256"), "other workgroups"),
        (replaced(f"1 {BOX_BYTES * 3:x} ", f"1 {BOX_BYTES * 4:x} ", rank=0), "do not fit"),
        (replaced(coded(4), coded(5), rank=1), "do not fit"),
        (replaced("8 1 0x400 0", "8 1 0x480 0", rank=0), "unusual"),
        (replaced("8 1 0x500 16777216", "8 1 0x500 33554432", rank=1), "other workgroups"),
        (replaced("8 1 0x500 16777216", "8 1 0x500 -16777216", rank=1), "other workgroups"),
        (replaced("8 1 0x500 16777216", "8 1 0x8000000000000500 16777216", rank=1), "other workgroups"),
        (replaced("UTMALDG.2D 1 UR8 16 0x1000400 0", "UTMALDG.2D 1 UR8 16 0xff000400 0", rank=1), "other workgroups"),
        (replaced("8 1 0x1000400 0", "8 1 0x400 0", rank=1), "unusual"),
        (replaced("8 1 0x1000500 0", "8 1 0x500 0", rank=1), "unusual"),
    ],
)
def test_what_cannot_be_followed_waits_for_its_own_copies(tmp_path, change, reason):
    """The warps still meet at the barrier of the cluster."""
    workgroups, problems = read_cluster(tmp_path, Pipeline(), change=change)
    assert len(problems) == 1 and "not followed" in problems[0] and reason in problems[0]
    assert all(not_followed(warps) and meets(warps) == 16 for warps in workgroups)


def test_a_barrier_at_which_not_all_meet_only_takes_its_slot(tmp_path):
    def change(rank, warps):
        """A warp of rank 1 waits first for the others of its workgroup, which wait for it at the cluster's."""
        bar = ["0004 ffffffff 0 BAR.SYNC.DEFER_BLOCKING 0 0 0 0 NoVal "]
        return [[*bar * (rank == 1 and w == 1), *lines] for w, lines in enumerate(warps)]

    workgroups, problems = read_cluster(tmp_path, Pipeline(), change=change)
    assert any("not all warps meet" in line for line in problems)
    assert all(meets(warps) == 0 for warps in workgroups)


def test_a_warp_that_arrives_twice_at_the_barrier_of_the_cluster_does_not_meet(tmp_path):
    """The last warp, whose first arrival opens the barrier in the dry run."""

    def change(rank, warps):
        return [*warps[:-1], [*MEET[: rank == 1], *warps[-1]]]

    path = write(tmp_path, text_of(*trace(Pipeline(), change=change)))
    workgroups, problems = read(path)
    assert any("or one arrives twice" in line for line in problems)
    assert not any(meets([workgroup.events]) for workgroup in workgroups)
    assert t3sim.run(path, machine="h100_sxm").headline()["time_ns"] > 0


def test_other_workgroups_can_signal_sixteen_barriers(tmp_path):
    _, problems = read_cluster(tmp_path, Pipeline(stages=8, steps=9))
    assert problems == []
    _, problems = read_cluster(tmp_path, Pipeline(stages=9, steps=9))
    assert len(problems) == 1 and "unusual" in problems[0]


def test_barriers_that_others_signal_have_numbers_below_sixteen(tmp_path):
    """Twelve barriers of each workgroup are made before those of the pipeline, and one is used."""

    def change(rank, warps):
        places = [shared(rank, 0x800 + 8 * k) for k in range(12)]
        made = [sync("EXCH.64", 1, place, coded(1)) for place in places]
        used = [sync("ARRIVE.TRANS64.A1T0", 1, places[9], "1")]
        used += [sync("PHASECHK.TRANS64.TRYWAIT", 0xFFFFFFFF, places[9], "0")]
        return [[*made, *warps[0][:-1], *used, EXIT], *warps[1:]]

    pipe = Pipeline(stages=7, steps=8)
    workgroups, problems = read_cluster(tmp_path, pipe, change=change)
    assert problems == []
    for maker, producer, *_ in workgroups:
        assert len({number for number, _ in waits_of(producer)} & set(range(16))) == 7
        assert [phase for _, phase in waits_of(maker)] == [1]
    result = t3sim.run(write(tmp_path, text_of(*trace(pipe, change=change))), machine="h100_sxm")
    assert int(result.frame("bulk")["copies"].sum()) == 2 * 2 * pipe.steps


def test_missing_workgroups_of_a_cluster_do_nothing(tmp_path):
    header, blocks = trace(Pipeline(), clusters=(4, 1, 1))
    path = write(tmp_path, text_of(header, [block for n, block in enumerate(blocks) if n not in (2, 7)]))
    workgroups, problems = read(path)
    assert [w.index for w in workgroups] == [0, 1, 4, 5, 2, 3, 6, 7]
    assert [len(w.events) == 1 for w in workgroups] == [False] * 4 + [True, False, False, True]
    assert any("2 of 8 thread blocks are missing" in line for line in problems)
    assert any("workgroups of the cluster are missing" in line and "2 times" in line for line in problems)
    result = t3sim.run(path, machine="h100_sxm")
    assert result.headline()["time_ns"] > 0


def test_a_damaged_workgroup_does_not_hold_its_cluster(tmp_path):
    """Lenient: what cannot be simulated is left out. The others of the cluster do not wait for it."""
    impossible = "0038 ffffffff 0 BAR.SYNC 0 0 77 0 NoVal "

    def change(rank, warps):
        return [[*[impossible] * rank, *lines] for lines in warps]

    path = write(tmp_path, text_of(*trace(Pipeline(), change=change)))
    workgroups, problems = read(path, lenient=True)
    assert any("allowed of a barrier 0 to 15" in line for line in problems)
    assert [len(w.events) > 1 for w in workgroups] == [True, False]


def test_traces_of_clusters_need_a_machine_with_clusters(tmp_path):
    path = write(tmp_path, text_of(*trace(Pipeline())))
    with pytest.raises(t3sim.UserError, match=r"clusters of 2 workgroups, but the machine has none \(cu.groups = 0\)"):
        t3sim.run(path, machine="a100_80g")


def test_shared_memory_of_another_workgroup_is_remote(tmp_path):
    """Windows of the cluster follow each other from the base of shared memory on."""
    base = 0x7F0000000000

    def change(rank, warps):
        lines = [
            f"0050 0000ffff 1 R8 LD.E 2 R2 R3 4 1 {base + (other << 24) + 0x800:#x} 4 0 0 NoVal " for other in range(3)
        ]
        lines.append(f"0058 0000000f 0 ST.E 3 R2 R3 R8 4 2 {base + (1 << 24) + 0x800:#x} 4 64 12 0 0 NoVal ")
        return [[*warp[:-1], *lines * (w == 0), EXIT] for w, warp in enumerate(warps)]

    path = write(tmp_path, text_of(*trace(Pipeline(), change=change)))
    for rank, workgroup in enumerate(read(path)[0]):
        events = workgroup.events[workgroup.events["kind"] <= Kind.STORE]
        remote = [(Space.SHARED, 0) if other == rank else (Space.REMOTE, 1 << other) for other in range(2)]
        found = [(int(event["space"]), int(event["cycles"])) for event in events]
        assert found == [*remote, (Space.GLOBAL, 0), (Space.SHARED, 0)]
    assert int(t3sim.run(path, machine="h100_sxm").frame("peers")["packets"].sum()) > 0


def test_an_unknown_size_of_clusters_is_said(tmp_path):
    header, blocks = trace(Pipeline(), clusters=(4, 1, 1))
    workgroups, problems = read(write(tmp_path, text_of(header, blocks[1:2])))
    assert len(workgroups) == 1 and any("size of its clusters cannot be told" in line for line in problems)


@pytest.mark.parametrize("seed", range(200))
def test_the_shape_follows_from_the_places_of_the_workgroups(seed):
    """In any order. With some workgroups missing it is right or unknown."""
    random = np.random.default_rng(seed)
    shape = tuple(int(n) for n in random.permutation([int(random.integers(1, 5)), int(random.integers(1, 4)), 1]))
    grid = tuple(int(n * random.integers(1, 5)) for n in shape)
    blocks = [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]
    places = [(block, tuple(b % s for b, s in zip(block, shape, strict=True))) for block in blocks]
    if seed % 2:
        random.shuffle(places)
    assert shape_of(grid, places) == shape
    kept = places[: int(random.integers(1, len(places) + 1))] if seed % 4 else places[::2]
    guess = SINGLE if all(place == (0, 0, 0) for _, place in kept) else None
    assert shape_of(grid, kept) in (shape, guess)


def test_a_text_without_places_has_no_clusters_and_is_read_no_further():
    def found():
        yield from ()

    assert shape_of((64, 64, 1), found()) == SINGLE
    read_places = iter([((0, 0, 0), (0, 0, 0)), ((1, 0, 0), (0, 0, 0)), ((9, 9, 9), (9, 9, 9))])
    assert shape_of((64, 1, 1), read_places) == SINGLE and next(read_places) == ((9, 9, 9), (9, 9, 9))
