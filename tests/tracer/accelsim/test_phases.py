"""Transaction barriers of traces with register values: warps wait for the copies of other warps.

The kernel of these tests is a pipeline: warp 0 makes the barriers, warp 1 copies, the others consume.
"""

from typing import NamedTuple

import numpy as np
import pytest

import t3sim
from sim.presets import load_preset
from tests.support.accelsim_texts import kernel_text, read, write
from tests.support.transactions import EMPTY, EXIT, FULL, MATRIX, PITCH, ROW_BYTES, ROWS, box_columns, coded, waits_of
from tracer.accelsim.dry_run import DRY, dry_run
from traces.schema import ARRIVE_ONLY, EVENT, MAX_WARPS, NO_SLOT, PHASE_ARRIVE, Bulk, Kind


class Pipeline(NamedTuple):
    """stages: of the ring. steps: tiles of a workgroup. consumers: warps. lanes: of a consumer that arrive.

    early: loads that the producer starts before it announces them, as kernels of DeepGEMM do. apart: it announces
    without an arrival, which follows.
    """

    stages: int = 2
    steps: int = 5
    consumers: int = 2
    lanes: int = 1
    loads: int = 1
    outside_bytes: int = 0
    early: int = 0
    apart: bool = False

    @property
    def bytes(self):
        return self.loads * (ROWS * ROW_BYTES + self.outside_bytes)


def init(address, count):
    return f"0000 00000001 1 UR63 SYNCS.EXCH.64 2 R255 UR6 8 1 {address:#x} 0 0 0 Val 1 0 1 0 1 {coded(count)} "


def wait(address, parity):
    return (
        f"0010 ffffffff 0 SYNCS.PHASECHK.TRANS64.TRYWAIT 2 R255 R5 8 1 {address:#x} 0 0 0 Val 1 0 1 {parity << 31:x} "
    )


def announce(address, data_bytes):
    return f"0020 00000001 1 R255 SYNCS.ARRIVE.TRANS64 2 R255 R7 8 1 {address:#x} 0 0 0 Val 1 0 1 0 1 {data_bytes:x} "


def arrive(address, lanes=1, kind="A1T0"):
    mask = (1 << lanes) - 1
    return f"0040 {mask:08x} 1 R255 SYNCS.ARRIVE.TRANS64.{kind} 2 R255 R9 8 1 {address:#x} 0 0 0 Val 1 0 1 0 1 1 "


def load(address, tile, outside_bytes=0, columns="0"):
    """A box of ROWS rows, in transfers of 16 bytes."""
    return (
        f"0030 00000001 0 UTMALDG.2D 1 UR8 16 {address:#010x} {columns} {ROWS * ROW_BYTES} {outside_bytes} "
        f"{box_columns(tile)}"
    )


def warps_of(pipe):
    """Lines of each warp."""
    first = [init(FULL + 8 * s, 1) for s in range(pipe.stages)]
    first += [init(EMPTY + 8 * s, pipe.consumers * pipe.lanes) for s in range(pipe.stages)]
    barrier = "0008 ffffffff 0 BAR.SYNC.DEFER_BLOCKING 0 0 0 0 NoVal "
    producer, consumer = [barrier], [barrier]
    for step in range(pipe.steps):
        stage, turn = step % pipe.stages, step // pipe.stages
        loads = [load(FULL + 8 * stage, step * pipe.loads + k, pipe.outside_bytes) for k in range(pipe.loads)]
        producer += [wait(EMPTY + 8 * stage, turn + 1 & 1), *loads[: pipe.early]]
        if pipe.apart:
            expected = announce(FULL + 8 * stage, pipe.bytes).replace("TRANS64", "TRANS64.RED.A0TR")
            producer += [expected, *loads[pipe.early :], arrive(FULL + 8 * stage)]
        else:
            producer += [announce(FULL + 8 * stage, pipe.bytes), *loads[pipe.early :]]
        consumer += [wait(FULL + 8 * stage, turn & 1), "0038 ffffffff 1 R24 HGMMA.64x64x16.F32 1 R24 1 0 0 0 NoVal "]
        consumer += [arrive(EMPTY + 8 * stage, pipe.lanes)]
    return [[*first, barrier, EXIT], [*producer, EXIT], *[[*consumer, EXIT]] * pipe.consumers]


def read_warps(tmp_path, warps):
    """(events of each warp, problems)."""
    text = kernel_text(warps, version=6, block=f"{32 * len(warps)},1,1", architecture=90)
    workgroups, problems = read(write(tmp_path, text))
    edges = workgroups[0].first_event
    return [workgroups[0].events[edges[w] : edges[w + 1]] for w in range(len(warps))], problems


PIPELINES = [
    Pipeline(),
    Pipeline(stages=1, steps=4),
    Pipeline(stages=4, steps=9, consumers=4),
    Pipeline(stages=3, steps=7, lanes=32, loads=2, early=2),
    Pipeline(stages=2, loads=3, early=1),
    Pipeline(stages=2, loads=2, early=1, apart=True),
    Pipeline(stages=16, steps=20, loads=2, consumers=1),
    Pipeline(outside_bytes=128),
]


@pytest.mark.parametrize("pipe", PIPELINES)
def test_waits_name_the_phases_of_the_pipeline(tmp_path, pipe):
    """A stage is full for the n-th time after n phases, and empty for the n-th time after n - 1."""
    (_, producer, *consumers), problems = read_warps(tmp_path, warps_of(pipe))
    assert problems == []
    turns = [(step % pipe.stages, step // pipe.stages) for step in range(pipe.steps)]
    assert waits_of(producer) == [(pipe.stages + stage, turn) for stage, turn in turns]
    for consumer in consumers:
        assert waits_of(consumer) == [(stage, turn + 1) for stage, turn in turns]
    arrivals = producer[producer["space"] == PHASE_ARRIVE]
    assert set(arrivals["work"]) == {1} and len(arrivals[arrivals["kind"] == Kind.BARRIER]) == pipe.steps
    lines = sum(len(warp) for warp in warps_of(pipe))
    assert sum(int(events["count"].sum()) for events in (_, producer, *consumers)) == lines


@pytest.mark.parametrize(("stages", "depth", "tiles"), [(2, 3, 4), (3, 3, 5), (4, 6, 3), (2, 4, 6)])
def test_consumers_that_take_turns_skip_the_phases_of_the_other(tmp_path, stages, depth, tiles):
    """Two consumers compute every other tile (ping-pong), in turns. A parity alone does not tell the phase."""
    turns = [0x600, 0x608]
    first = [init(address + 8 * s, 1) for address in (FULL, EMPTY) for s in range(stages)]
    first += [init(address, 1) for address in turns] + [arrive(turns[0])]
    barrier = "0008 ffffffff 0 BAR.SYNC.DEFER_BLOCKING 0 0 0 0 NoVal "
    producer, consumers = [barrier], [[barrier], [barrier]]
    expected = [[], []]
    for tile in range(tiles):
        own = tile % 2
        consumers[own].append(wait(turns[own], tile // 2 & 1))
        for step in range(tile * depth, (tile + 1) * depth):
            stage, turn = step % stages, step // stages
            producer += [wait(EMPTY + 8 * stage, turn + 1 & 1), announce(FULL + 8 * stage, ROWS * ROW_BYTES)]
            producer.append(load(FULL + 8 * stage, step))
            consumers[own] += [wait(FULL + 8 * stage, turn & 1), arrive(EMPTY + 8 * stage)]
            expected[own].append((stage, turn + 1))
        consumers[own].append(arrive(turns[1 - own]))
    warps = [[*first, barrier, EXIT], [*producer, EXIT], *[[*lines, EXIT] for lines in consumers]]
    events, problems = read_warps(tmp_path, warps)
    assert problems == []
    for found, phases in zip(events[2:], expected, strict=True):
        assert [(number, phase) for number, phase in waits_of(found) if number < stages] == phases


def test_lanes_that_always_arrive_together_are_one_arrival(tmp_path):
    (_, _, consumer, _), _ = read_warps(tmp_path, warps_of(Pipeline(lanes=32)))
    arrivals = consumer[(consumer["kind"] == Kind.BARRIER) & (consumer["space"] == PHASE_ARRIVE)]
    assert len(arrivals) == 5 and set(arrivals["work"]) == {2}


def test_lanes_that_arrive_and_announce_in_other_numbers_are_an_arrival_each(tmp_path):
    """Two lanes announce half of the bytes each, two lanes of a consumer arrive, and warp 0 arrives once at both."""
    pipe = Pipeline(lanes=2)
    maker, producer, *consumers = warps_of(pipe)
    maker = [line.replace(coded(1), coded(3)).replace(coded(4), coded(5)) for line in maker[:-1]]
    half = (f" 1 {pipe.bytes:x} ", f" 1 {pipe.bytes // 2:x} ")
    producer = [line.replace("0020 00000001", "0020 00000003").replace(*half) for line in producer]
    for step in range(pipe.steps):
        stage, turn = step % pipe.stages, step // pipe.stages
        full, empty = FULL + 8 * stage, EMPTY + 8 * stage
        maker += [wait(empty, turn + 1 & 1), arrive(full), wait(full, turn & 1), arrive(empty)]
    warps = [[*maker, EXIT], producer, *consumers]
    events, problems = read_warps(tmp_path, warps)
    assert problems == []
    found = [warp[(warp["kind"] == Kind.BARRIER) & (warp["space"] == PHASE_ARRIVE)] for warp in events]
    assert [len(arrivals) // pipe.steps for arrivals in found] == [2] * 4
    assert [set(arrivals["work"]) for arrivals in found] == [{3, 5}, {3}, {5}, {5}]
    assert [int(warp["count"].sum()) for warp in events] == [len(lines) for lines in warps]
    turns = [(step % pipe.stages, step // pipe.stages + 1) for step in range(pipe.steps)]
    assert waits_of(events[2]) == waits_of(events[3]) == turns


def test_what_is_predicated_off_is_no_part_of_a_phase(tmp_path):
    """All warps have the lines of all others, without active lanes. A copy of an old tracer tells no barrier."""
    pipe = Pipeline(steps=2)
    off = "0000 00000000 0 {} 2 R255 R6 8 1 0x0 0 0 0 NoVal "
    kinds = ("EXCH.64", "ARRIVE.TRANS64", "ARRIVE.TRANS64.A1T0", "ARRIVE.TRANS64.ART0", "PHASECHK.TRANS64.TRYWAIT")
    lines = [off.format(f"SYNCS.{kind}") for kind in kinds]
    lines.append(f"0030 00000000 0 UTMALDG.2D 1 UR8 16 {FULL:#x} 0 0 0 4 0x0 0 0 0 NoVal ")
    lines.append("0030 00000001 0 UTMALDG.2D 1 UR8 0 0 0 NoVal ")
    events, problems = read_warps(tmp_path, [[*lines, *warp] for warp in warps_of(pipe)])
    assert len(problems) == 1 and "a TMA instruction of width 0" in problems[0]
    assert [waits_of(warp) for warp in events] == [waits_of(warp) for warp in read_warps(tmp_path, warps_of(pipe))[0]]
    assert waits_of(events[1]) == [(2, 0), (3, 0)]


def test_an_announcement_of_no_bytes_is_an_arrival(tmp_path):
    warps = warps_of(Pipeline())
    told = [[announce(int(line.split()[10], 16), 0) if "A1T0" in line else line for line in lines] for lines in warps]
    events, problems = read_warps(tmp_path, told)
    expected, _ = read_warps(tmp_path, warps)
    assert problems == [] and [waits_of(warp) for warp in events] == [waits_of(warp) for warp in expected]


def test_transfers_that_make_no_rows_are_copies_of_their_own(tmp_path):
    """There are many more events than lines."""
    (_, producer, *_), problems = read_warps(tmp_path, [
        [init(FULL, 1), EXIT],
        [announce(FULL, 1000 * 16), "0030 00000001 0 UTMALDG.2D 1 UR8 16 0x00000400 0 16000 0 "
         f"4 {MATRIX:#x} 1000 " + "-32 " * 999 + "0 0 NoVal ", EXIT],
    ])  # fmt: skip
    boxes = producer[producer["kind"] == Kind.BULK]
    assert problems == [] and [MATRIX - int(box["base"]) for box in boxes] == [32 * k for k in range(1000)]


def test_a_load_is_a_box_and_its_arrival_follows(tmp_path):
    (_, producer, *_), _ = read_warps(tmp_path, warps_of(Pipeline(steps=1, loads=2)))
    boxes = producer[producer["kind"] == Kind.BULK]
    found = [(int(e["space"]), int(e["inner"]), int(e["work"]), int(e["stride"]), int(e["row_stride"])) for e in boxes]
    assert found == [(Bulk.LOAD, 0, ROWS, ROW_BYTES, PITCH)] * 2
    assert [int(e["base"]) - MATRIX for e in boxes] == [0, ROW_BYTES]
    kinds = [Kind(event["kind"]).name for event in producer[-4:]]
    assert kinds == ["BULK", "BULK", "BARRIER", "EXIT"]


def test_followed_copies_leave_no_listed_addresses(tmp_path):
    """Their transfers are rows. Other accesses of the workgroup keep their lists."""
    warps = warps_of(Pipeline())
    listed = "0038 0000000f 1 R8 LDG.E 1 R2 4 0 0x7f4000000000 0x7f4000000104 0x7f4000000018 0x7f4000000230 0 0 NoVal "
    for more, addresses in (([], 0), ([listed], 5 * ROWS * ROW_BYTES // 16 + 4)):
        text = kernel_text([*warps[:3], [*more, *warps[3]]], version=6, block="128,1,1", architecture=90)
        ((workgroup,), _) = read(write(tmp_path, text))
        assert len(workgroup.addresses) == addresses


@pytest.mark.parametrize("pitch", [1 << 29, ROW_BYTES // 2])
def test_rows_that_are_too_far_apart_or_too_near_for_a_box_are_several(tmp_path, pitch):
    """A bulk copy has a greatest pitch; a tensor may have a larger one, or rows that overlap."""
    far = [[line.replace(" 4048 ", f" {pitch - 48} ") for line in warp] for warp in warps_of(Pipeline(steps=1))]
    (_, producer, *_), problems = read_warps(tmp_path, far)
    boxes = producer[producer["kind"] == Kind.BULK]
    assert problems == [] and [int(box["base"]) - MATRIX for box in boxes] == [row * pitch for row in range(ROWS)]
    assert set(boxes["work"]) == {1} and set(boxes["stride"]) == {ROW_BYTES}


@pytest.mark.parametrize("pipe", PIPELINES[:7])
def test_consumers_wait_for_the_copies_of_the_producer(tmp_path, pipe):
    """Traffic is that of the boxes. Each turn of the ring takes the latency of a copy."""
    warps = warps_of(pipe)
    path = write(tmp_path, kernel_text(warps, version=6, block=f"{32 * len(warps)},1,1", architecture=90))
    times_ns = []
    for latency_clk in (0, 2000):
        result = t3sim.run(path, machine="h100_sxm", changes={"cu.bulk_latency_clk": latency_clk})
        assert int(result.frame("bulk")["copies"].sum()) == pipe.steps * pipe.loads
        assert int(result.frame("l2")["read_sectors"].sum()) == pipe.steps * pipe.loads * ROWS * ROW_BYTES // 32
        times_ns.append(result.headline()["time_ns"])
    turns = -(-pipe.steps // pipe.stages)
    clk_ns = 1000 / load_preset("h100_sxm").machine.cu.clock_MHz
    assert times_ns[1] - times_ns[0] == pytest.approx(turns * 2000 * clk_ns, rel=0.1)


def changed(old, new, pipe=Pipeline(), warp=None):  # noqa: B008 - a NamedTuple does not change
    """The pipeline with `old` replaced in all warps, or in one."""
    warps = warps_of(pipe)
    assert any(old in line for lines in warps for line in lines)
    return [[line.replace(old, new) for line in lines] if warp in (None, w) else lines for w, lines in enumerate(warps)]


MANY = [[*(init(0x800 + 8 * k, 1) for k in range(33)), EXIT], *warps_of(Pipeline())[1:]]
TWO_LANES = init(0x700, 1).replace("0000 00000001", "0000 00000003").replace("0x700 0", "0x700 8")
NO_VALUES, OUTSIDE, UNUSUAL, STANDS_STILL = "ALLOW_REG_VAL_TRACING", "other workgroups", "unusual", "do not fit"


@pytest.mark.parametrize(
    ("warps", "reason"),
    [
        (changed(" Val ", " NoVal "), NO_VALUES),
        (changed("1 0 1 80000000", "", warp=1), NO_VALUES),
        (changed("0x00000400 0 256", "0x00000400 1 0x0003 256"), OUTSIDE),
        (changed("8 1 0x500 0 0 0", "8 1 0x1000500 0 0 0", warp=2), OUTSIDE),
        (changed("SYNCS.ARRIVE.TRANS64.A1T0", "SYNCS.ARRIVE.TRANS64.A0TX"), UNUSUAL),
        (changed("8 1 0x500 0 0 0", "8 1 0x500 8 0 0", Pipeline(lanes=2), warp=2), STANDS_STILL),
        (changed("8 1 0x400 0 0 0 Val", f"8 0 {'0x400 ' * 16}{'0x408 ' * 16}0 0 Val", warp=2), UNUSUAL),
        (changed(coded(2), coded(0)), UNUSUAL),
        ([[init(FULL, 1), init(FULL, 1), EXIT], *warps_of(Pipeline())[1:]], UNUSUAL),
        (MANY, UNUSUAL),
        (changed("UTMALDG.2D 1 UR8 16 0x00000408", "UTMALDG.2D 1 UR8 16 0x00000400"), STANDS_STILL),
        (changed(" 4048 ", " 4056 "), STANDS_STILL),
        ([[TWO_LANES, *warps_of(Pipeline())[0]], *warps_of(Pipeline())[1:]], UNUSUAL),
        (
            [
                *warps_of(Pipeline())[:3],
                [*warps_of(Pipeline())[3][:-1], arrive(EMPTY, kind="ART0")[:-2] + "1388 ", EXIT],
            ],
            UNUSUAL,
        ),
        (changed(f"1 {256:x} ", f"1 {512:x} "), STANDS_STILL),
        (changed(f"1 {256:x} ", f"1 {128:x} "), STANDS_STILL),
        (changed(coded(2), coded(3)), STANDS_STILL),
        (changed("4 0x7f4000000000", "4 0x7f4000000004"), STANDS_STILL),
        ([*warps_of(Pipeline())[:3], [announce(FULL, 99), EXIT]], STANDS_STILL),
        ([*warps_of(Pipeline())[:3], [load(FULL, 9), EXIT]], STANDS_STILL),
        (changed(f"1 {256:x} ", f"1 {128:x} ", Pipeline(early=1)), STANDS_STILL),
        (changed(f"1 {256:x} ", f"1 {512:x} ", Pipeline(early=1)), STANDS_STILL),
        (changed(f"1 {256:x} ", f"1 {128:x} ", Pipeline(apart=True)), STANDS_STILL),
        (changed(f"1 {256:x} ", f"1 {512:x} ", Pipeline(apart=True)), STANDS_STILL),
        (changed("Val 1 0 1 0 1 100 ", "NoVal ", Pipeline(apart=True), warp=1), NO_VALUES),
        ([[init(0x700, 5000), arrive(0x700), *warps_of(Pipeline())[0]], *warps_of(Pipeline())[1:]], UNUSUAL),
        (
            [*warps_of(Pipeline())[:3], [*warps_of(Pipeline())[3][:-1], arrive(EMPTY, kind="ART0")[:-2] + "0 ", EXIT]],
            UNUSUAL,
        ),
    ],
)
def test_what_cannot_be_followed_is_as_before(tmp_path, warps, reason):
    """Then warps wait for their own copies, the copies are those of warps, and a warning says so."""
    events, problems = read_warps(tmp_path, warps)
    assert len(problems) == 1 and "transaction barriers that are not followed" in problems[0] and reason in problems[0]
    for warp in events:
        assert not set(warp["kind"]) & {Kind.BULK}
        assert not (warp["space"][warp["kind"] == Kind.BARRIER] >= PHASE_ARRIVE).any()
    assert len(events[1][events[1]["kind"] == Kind.ASYNC_COPY]) > 0


def test_copies_that_are_not_followed_move_the_same_sectors(tmp_path):
    """The same tile twice: TMA goes past L1, also where its copies are those of warps."""
    followed = changed(f"{MATRIX + ROW_BYTES:#x}", f"{MATRIX:#x}", Pipeline(steps=2))
    other = [[line.replace(" Val ", " NoVal ") for line in warp] for warp in followed]
    for warps in (followed, other):
        path = write(tmp_path, kernel_text(warps, version=6, block=f"{32 * len(warps)},1,1", architecture=90))
        result = t3sim.run(path, machine="h100_sxm")
        assert int(result.frame("l2")["read_sectors"].sum()) == 2 * ROWS * ROW_BYTES // 32


def test_warnings_of_a_workgroup_that_is_not_followed_count_once(tmp_path):
    """Warp 1 ends inside its announcement and without EXIT, warp 2 has no lines."""
    warps = warps_of(Pipeline(steps=1))
    _, problems = read_warps(tmp_path, [warps[0], warps[1][:-2], [], warps[3]])
    assert len(problems) == 3 and not any("times" in line for line in problems)
    assert any("not followed" in line for line in problems)


def test_a_copy_behind_another_barrier_is_not_followed(tmp_path):
    warps = warps_of(Pipeline(steps=1))
    place = next(k for k, line in enumerate(warps[1]) if "UTMALDG" in line)
    warps[1].insert(place, "0050 ffffffff 0 BAR.ARV 0 0 5 64 NoVal ")
    _, problems = read_warps(tmp_path, warps)
    assert len(problems) == 1 and "not followed" in problems[0]


def test_an_impossible_barrier_is_counted_nowhere():
    """The dry run comes before the check that refuses it."""
    dry, events = np.zeros(2, DRY), np.zeros(2, EVENT)
    events["kind"], events["space"] = [Kind.BARRIER, Kind.EXIT], [ARRIVE_ONLY, 0]
    events["slot"], events["work"] = NO_SLOT, 64
    first = np.zeros((1, MAX_WARPS + 1), np.int64)
    assert dry_run(dry[0], first, np.ones(1, np.int64), events)
    assert not dry[1:].view("u1").any()
