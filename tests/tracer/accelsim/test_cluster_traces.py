"""Traces of clusters: multicast loads, arrivals at barriers of other workgroups, the barrier of the cluster."""

import pytest

import t3sim
from tests.support.accelsim_texts import read, write
from tests.support.cluster_texts import (
    BOX_BYTES,
    MEET,
    PIPELINES,
    Pipeline,
    meets,
    read_cluster,
    shared,
    sync,
    text_of,
    trace,
    warps_of,
)
from tests.support.transactions import EXIT, FULL, PITCH, ROW_BYTES, coded, waits_of
from traces.schema import CLUSTER_ARRIVE, CLUSTER_WAIT, PHASE_ARRIVE, Bulk, Kind, Space


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
        assert not producer["pad"].any() and not producer["cycles"][producer["kind"] == Kind.WAIT].any()
        boxes = producer[producer["kind"] == Kind.BULK]
        sets = [everybody * (pipe.size > 1), 0] if rank not in pipe.outside else [0]
        assert boxes["cycles"].tolist() == sets * pipe.steps and set(boxes["space"]) == {Bulk.LOAD}
        arrivals = producer[(producer["kind"] == Kind.BARRIER) & (producer["space"] == PHASE_ARRIVE)]
        brought = BOX_BYTES * len(set(range(pipe.size)) - {rank} - set(pipe.outside))
        assert arrivals["row_stride"][arrivals["cycles"] == 0].tolist() == [brought] * pipe.steps
        others = arrivals["cycles"][arrivals["cycles"] > 0].tolist()
        assert others == [everybody & ~(1 << rank)] * pipe.steps * pipe.crossed
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


@pytest.mark.parametrize("pipe", [*PIPELINES[:7], PIPELINES[8]])
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


@pytest.mark.parametrize("named", ["1 {mask:#06x}", "0"])
def test_copies_to_other_workgroups_need_no_announcement_of_the_warp(tmp_path, named):
    """Each producer copies a slice to the other workgroup, by a set or by its barrier, and then announces its tile."""

    def change(rank, warps):
        place = (rank if "mask" in named else 1 - rank) << 24
        lines = [line.replace(f"1 {BOX_BYTES * 3:x} ", f"1 {BOX_BYTES * 2:x} ") for line in warps[1]]
        for k, line in enumerate(lines):
            if "0x0003" in line:
                told = line.replace("1 0x0003", named.format(mask=1 << (1 - rank)))
                lines[k - 1 : k + 1] = [told.replace(f" {rank << 24 | FULL:#x} ", f" {place | FULL:#x} "), lines[k - 1]]
        return [warps[0], lines, *warps[2:]]

    pipe = Pipeline(stages=1)
    workgroups, problems = read_cluster(tmp_path, pipe, change=change)
    assert problems == []
    for rank, (_, producer, *consumers) in enumerate(workgroups):
        boxes = producer[producer["kind"] == Kind.BULK]
        assert boxes["cycles"].tolist() == [1 << (1 - rank), 0] * pipe.steps
        arrivals = producer[(producer["kind"] == Kind.BARRIER) & (producer["space"] == PHASE_ARRIVE)]
        assert arrivals["row_stride"].tolist() == [BOX_BYTES] * pipe.steps
        assert all(waits_of(consumer) == [(0, turn + 1) for turn in range(pipe.steps)] for consumer in consumers)


def not_followed(events):
    kinds = [event for warp in events for event in warp]
    return not any(e["kind"] == Kind.BULK or (e["kind"] == Kind.BARRIER and e["space"] == PHASE_ARRIVE) for e in kinds)


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
        (replaced("TRYWAIT 2 R255 R5 8 1 0x1000400", "TRYWAIT 2 R255 R5 8 1 0x400", rank=1), "unusual"),
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
    assert len(problems) == 1 and "or one arrives twice" in problems[0]
    assert not any(meets([workgroup.events]) for workgroup in workgroups)
    assert all((workgroup.events["kind"] == Kind.BULK).any() for workgroup in workgroups)
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
