"""Barriers of clusters in traces, in kernels that a pipeline alone does not show."""

import numpy as np
import pytest

import t3sim
from tests.support.accelsim_texts import read, write
from tests.support.cluster_texts import BOX_BYTES, MEET, Pipeline, meets, read_cluster, shared, sync, text_of, trace
from tests.support.transactions import EXIT, coded, waits_of
from traces.schema import PHASE_ARRIVE, PHASE_WAIT, Kind

ARRIVE, WAIT = MEET


def bar(threads, number=1, kind="SYNC.DEFER_BLOCKING"):
    return f"0004 ffffffff 0 BAR.{kind} 0 0 {number} {threads} NoVal "


@pytest.mark.parametrize(
    ("warps", "fits"),
    [
        ([[ARRIVE, WAIT, EXIT]] * 2, True),
        ([[ARRIVE, WAIT, EXIT], [EXIT]], True),
        ([[ARRIVE, EXIT], [WAIT, EXIT]], True),
        ([[ARRIVE, WAIT, EXIT], [ARRIVE, WAIT, ARRIVE, WAIT, EXIT]], True),
        ([[ARRIVE, EXIT], [ARRIVE, WAIT, bar(64), EXIT], [bar(64), ARRIVE, EXIT]], False),
        ([[ARRIVE, ARRIVE, EXIT], [ARRIVE, WAIT, bar(64), EXIT], [bar(64), ARRIVE, EXIT]], False),
        ([[ARRIVE, WAIT, bar(64), EXIT], [ARRIVE, bar(64), EXIT]], True),
        ([[bar(96), ARRIVE, EXIT], [bar(96), ARRIVE, WAIT, EXIT], [EXIT]], True),
        ([[bar(96, kind="ARV"), ARRIVE, WAIT, EXIT], [bar(96), ARRIVE, EXIT], [EXIT]], False),
        ([[bar(64), ARRIVE, EXIT], *[[bar(64, 2), ARRIVE, EXIT]] * 2, [ARRIVE, WAIT, bar(64), EXIT]], False),
        ([[bar(96), EXIT], [bar(96), ARRIVE, EXIT], [ARRIVE, WAIT, bar(96), EXIT]], False),
    ],
)
def test_a_barrier_of_the_cluster_awaits_the_warps_that_have_not_ended(tmp_path, warps, fits):
    """A warp that arrives twice or ends counts once, also one that ends without arriving. If not all come, none
    waits. Each of these kernels comes to its end."""
    pipe = Pipeline(consumers=len(warps) - 2)
    workgroups, problems = read_cluster(tmp_path, pipe, change=lambda rank, _: warps)
    assert any("not all warps meet" in line for line in problems) != fits and len(problems) == (not fits)
    lines = sum(line in MEET for warp in warps for line in warp)
    assert [meets(events) for events in workgroups] == [lines * fits] * 2
    path = write(tmp_path, text_of(*trace(pipe, change=lambda rank, _: warps)))
    assert t3sim.run(path, machine="h100_sxm").headline()["time_ns"] > 0


def test_two_warps_announce_bytes_at_one_barrier(tmp_path):
    """Warp 0 announces a slice of another workgroup, the producer the rest. The last one expects what came."""
    pipe = Pipeline(shape=(4, 1, 1))

    def change(rank, warps):
        maker, producer = warps[0][: 2 * pipe.stages], warps[1]
        everything, one, rest = (f"1 {BOX_BYTES * boxes:x} " for boxes in (5, 1, 4))
        others = [line.replace(everything, one) for line in producer if "UTMALDG" not in line]
        maker = [line.replace(coded(1), coded(2)) for line in maker]
        return [[*maker, *others], [line.replace(everything, rest) for line in producer], *warps[2:]]

    workgroups, problems = read_cluster(tmp_path, pipe, change=change)
    assert problems == []
    for maker, producer, *consumers in workgroups:
        told = [w[(w["kind"] == Kind.BARRIER) & (w["space"] == PHASE_ARRIVE)] for w in (maker, producer)]
        assert [len(arrivals) for arrivals in told] == [pipe.steps] * 2
        assert (told[0]["row_stride"] + told[1]["row_stride"]).tolist() == [3 * BOX_BYTES] * pipe.steps
        turns = [(step % pipe.stages, step // pipe.stages + 1) for step in range(pipe.steps)]
        assert all(waits_of(consumer) == turns for consumer in consumers)
    result = t3sim.run(write(tmp_path, text_of(*trace(pipe, change=change))), machine="h100_sxm")
    assert int(result.frame("bulk")["copies"].sum()) == 4 * 2 * pipe.steps


def test_an_arrival_behind_copies_has_no_waits_of_the_next_instruction(tmp_path):
    """The producer loads the address of each barrier at which it waits."""

    def change(rank, warps):
        load = "0028 00000001 1 R5 LDG.E 1 R2 4 1 0x7f4000100000 0 0 0 NoVal "
        producer = [line for old in warps[1] for line in ([load, old] if "PHASECHK" in old else [old])]
        return [warps[0], producer, *warps[2:]]

    workgroups, problems = read_cluster(tmp_path, Pipeline(), change=change)
    assert problems == []
    for _, producer, *_ in workgroups:
        barriers = producer[producer["kind"] == Kind.BARRIER]
        assert (barriers["wait"][barriers["space"] == PHASE_WAIT] != 0).all()
        assert not barriers["wait"][barriers["space"] == PHASE_ARRIVE].any()


def test_announcements_end_with_the_next_one_and_with_the_warp(tmp_path):
    """The producer fills each stage once, so it waits for none."""
    pipe = Pipeline(stages=5)

    def change(rank, warps):
        producer = [line for line in warps[1] if "PHASECHK" not in line and line not in MEET]
        return [[line for line in lines if line not in MEET] for lines in (warps[0], producer, *warps[2:])]

    workgroups, problems = read_cluster(tmp_path, pipe, change=change)
    assert problems == []
    for _, producer, *consumers in workgroups:
        arrivals = producer[(producer["kind"] == Kind.BARRIER) & (producer["space"] == PHASE_ARRIVE)]
        assert arrivals["slot"].tolist() == list(range(5)) and set(arrivals["row_stride"]) == {BOX_BYTES}
        assert all(waits_of(consumer) == [(stage, 1) for stage in range(5)] for consumer in consumers)


def with_private(rank, warps, count, uses):
    """The pipeline with barriers that only their workgroup knows, made first. uses: lines of the first one."""
    places = [shared(rank, 0x800 + 8 * k) for k in range(12)]
    made = [sync("EXCH.64", 1, place, coded(count)) for place in places]
    return [[*made, *(sync(opcode, mask, places[0], value) for opcode, mask, value in uses), *warps[0]], *warps[1:]]


def unchanged(rank, warps):
    return warps


def no_values(rank, warps):
    return [[line.replace(" Val ", " NoVal ") for line in warp] for warp in warps]


def arrived(rank, warps):
    return [[bar(64, kind="ARV"), *MEET, EXIT]]


def announced(rank, warps):
    return with_private(rank, warps, 2, [("ARRIVE.TRANS64", 1, "100")])


def two_lanes(rank, warps):
    return with_private(rank, warps, 2, [("ARRIVE.TRANS64.A1T0", 3, "1")])


def twice_one_lane(rank, warps):
    return with_private(rank, warps, 2, [("ARRIVE.TRANS64.A1T0", 1, "1")] * 2)


def does_not_meet(rank, warps):
    return [[ARRIVE, WAIT, bar(64), EXIT], [bar(64), ARRIVE, bar(64), EXIT]]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (no_values, unchanged),
        (does_not_meet, unchanged),
        (arrived, does_not_meet),
        (announced, announced),
        (twice_one_lane, two_lanes),
        (unchanged, two_lanes),
    ],
)
def test_a_cluster_does_not_depend_on_the_one_before(tmp_path, before, after):
    header, blocks = trace(Pipeline(), clusters=(2, 1, 1))
    first = [(*block, before(block[3], warps)) for *block, warps in blocks[:2]]
    second = [(*block, after(block[3], warps)) for *block, warps in blocks[2:]]
    alone, _ = read(write(tmp_path, text_of(header, second)))
    behind, _ = read(write(tmp_path, text_of(header, [*first, *second])))
    assert len(behind) == 4 and len(alone) == 2
    assert all(np.array_equal(a.events, b.events) for a, b in zip(alone, behind[2:], strict=True))
