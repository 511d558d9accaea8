"""Clusters of workgroups on the whole machine: who runs where, the barrier, multicast, shared memory of others."""

from dataclasses import replace

import numpy as np
import pytest

from sim.host.gpu import Gpu
from sim.host.state import State
from sim.host.window import Launch
from tests.support.any_windows import counters
from tests.support.programs import (
    barrier,
    bulk,
    cluster_arrive,
    cluster_wait,
    compute,
    kernel,
    load,
    phase_arrive,
    phase_wait,
    random_cluster_kernel,
    remote,
    small_preset,
    store,
    wait,
)
from tests.support.t3_cases import T3Case
from tracer.gemm.source import Copy, GemmKernel, GemmProblem, GemmSource
from traces.errors import UserError
from traces.schema import Bulk, Kind
from traces.units import whole_period_ps

A, B = 1 << 20, 1 << 21
CLUSTERS = ("cu.groups=2", "cu.peer_latency_clk=20", "cu.peer_bytes_per_clk=16")
HAS = (*CLUSTERS, "cu.bulk_lines_per_clk=1.0", "cu.bulk_latency_clk=7", "dispatch.workgroup_ps=0")
CHANNELS = ("hbm.channels=8",)
EIGHT = ("cu.count=8", "l2.banks=4", "hbm.channels=2")


def machine_of(*overrides, size=EIGHT):
    return small_preset(*HAS, *overrides, size=size).machine


def run(source, *overrides, size=EIGHT):
    """A GPU that has run a kernel, and when this ended."""
    gpu = Gpu(machine_of(*overrides, size=size), 1_000_000)
    end_ps = gpu.run_kernel(source, 0, None)
    return gpu, end_ps


def total(gpu, unit, field):
    return int(gpu.counters()[unit][field].sum())


def spans(gpu):
    """(CU, workgroup, start, end) of every workgroup."""
    return sorted((int(s["tag"]), int(s["unit"]), int(s["start_ps"]), int(s["end_ps"])) for s in gpu.spans())


@pytest.mark.parametrize("order", ["breadth_first", "depth_first"])
@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("places", [1, 2, 3])
def test_a_cluster_starts_together_in_one_group(order, size, places):
    source = kernel([[[compute(20 * k + 5)]] for k in range(6 * size)], cluster=size)
    gpu, _ = run(source, f"dispatch.order={order}", f"cu.workgroups={places}", "dispatch.jitter_ps=5000")
    found = spans(gpu)
    assert len(found) == 6 * size
    for first in range(0, 6 * size, size):
        members = found[first : first + size]
        assert len({start_ps for _, _, start_ps, _ in members}) == 1
        assert len({cu // 4 for _, cu, _, _ in members}) == 1  # two groups of four CUs
    events = [(start_ps, 1, cu) for _, cu, start_ps, _ in found] + [(end_ps, -1, cu) for _, cu, _, end_ps in found]
    resident = np.zeros(8, int)
    for _, change, cu in sorted(events):
        resident[cu] += change
        assert resident[cu] <= places


def test_a_cluster_takes_the_dispatch_time_of_all_its_workgroups():
    gpu, _ = run(kernel([[[compute(500)]]] * 6, cluster=2), "dispatch.workgroup_ps=7000")
    assert [start_ps for _, _, start_ps, _ in spans(gpu)] == [0, 0, 14_000, 14_000, 28_000, 28_000]


def test_groups_have_whole_pairs_of_cus():
    """Six CUs in two groups are two and four."""
    gpu, _ = run(kernel([[[compute()]]] * 4, cluster=4), "cu.workgroups=1", size=("cu.count=6", *EIGHT[1:]))
    assert [cu for _, cu, *_ in spans(gpu)] == [2, 3, 4, 5]


def test_a_cluster_waits_until_all_its_workgroups_fit():
    """Three workgroups fit: the second cluster of two waits for the end of the first, though one place is free."""
    source = kernel([[[compute(500)]] for _ in range(4)], cluster=2)
    gpu, _ = run(source, "cu.groups=1", "cu.workgroups=1", size=("cu.count=3", "l2.banks=4", "hbm.channels=2"))
    found = spans(gpu)
    assert found[2][2] == found[3][2] >= max(found[0][3], found[1][3])


@pytest.mark.parametrize(
    ("cluster", "workgroups", "overrides", "message"),
    [
        (5, 10, ("cu.workgroups=1",), r"clusters of 5 workgroups, but a group of CUs \(cu.groups = 2\) has room for 4"),
        (2, 4, ("cu.groups=0",), "clusters of 2 workgroups, but the machine has none"),
        (17, 34, (), "cluster: found 17, allowed 1 to 16"),
        (2, 5, (), "cluster: found 2, which does not divide its 5 workgroups"),
    ],
)
def test_clusters_that_never_fit_are_refused(cluster, workgroups, overrides, message):
    source = kernel([[[compute()]] for _ in range(workgroups)], cluster=cluster)
    with pytest.raises(UserError, match=message):
        run(source, *overrides)


def test_clusters_need_cus_of_their_own():
    one, other = (kernel([[[compute()]] for _ in range(2)], cluster=2, name=name) for name in "ab")
    with pytest.raises(UserError, match="a beside b: found clusters of workgroups, which need CUs of their own"):
        Gpu(machine_of()).run_kernels([Launch(one), Launch(other, queue=1)], None)


def test_kernels_with_clusters_run_beside_each_other_on_cus_of_their_own():
    one, other = (kernel([[[compute(9), cluster_arrive(), cluster_wait(1)]]] * 4, cluster=2, name=n) for n in "ab")
    gpu = Gpu(machine_of())
    gpu.run_kernels([Launch(one, cus=(0, 4)), Launch(other, queue=1, cus=(4, 8))], None)
    assert total(gpu, "peers", "cluster_barriers") == 8


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (bulk(A, 1, 128, barrier=0, to=(2,)), "cycles: found 4, allowed as a set of workgroups"),
        (bulk(A, 1, 128, to=(0, 1)), "inner: found 255"),
        (bulk(A, 1, 128, kind=Bulk.STORE, to=(1,)), "cycles: found 2, allowed as a set of workgroups"),
        (bulk(A, 1, 128, kind=Bulk.SEND, barrier=0), "cycles: found 0, allowed as the set of the one workgroup"),
        (bulk(A, 1, 128, kind=Bulk.SEND, barrier=0, to=(0, 1)), "cycles: found 3, allowed as the set of the one"),
        (bulk(A, 1, 128, kind=Bulk.SEND, to=(1,)), "inner: found 255"),
        (phase_arrive(0, at=(3,)), "cycles: found 8, allowed as a set of workgroups"),
        (
            phase_arrive(0, 65),
            "work: found 65, allowed of an arrival at a transaction barrier 1 to the threads of the cl",
        ),
        (phase_arrive(0, expected_bytes=-1), "row_stride: found -1"),
        (remote(Kind.LOAD, 2), "cycles: found 4, allowed as the set of the one workgroup"),
        (remote(Kind.ASYNC_COPY, 1), "space: found 3, allowed remote"),
        (barrier(0, space=6), "space: found 6, allowed of a barrier 0 to 5"),
    ],
)
def test_impossible_events_are_refused(event, message):
    with pytest.raises(UserError, match=message):
        run(kernel([[[event]], [[compute()]]], cluster=2))


def test_the_barrier_opens_a_latency_after_the_last_arrival():
    """The last warp of all arrives late; the others store behind the barrier, at the same time."""
    late = [compute(1000), cluster_arrive(), cluster_wait(1)]
    early = [cluster_arrive(), cluster_wait(1)]
    gpu, _ = run(kernel([[early, early], [early, late], [early], [early]], cluster=4, warps=2))
    ends = [end_ps for *_, end_ps in spans(gpu)]
    clock_ps = whole_period_ps(machine_of().cu.clock_MHz)
    lone, _ = run(kernel([[[compute(1000), wait()]]] * 4, cluster=4))
    arrival_ps = spans(lone)[1][3] - clock_ps  # of the late warp
    assert min(ends) == arrival_ps + 20 * clock_ps + clock_ps
    assert max(ends) - min(ends) <= clock_ps  # two warps of a scheduler may follow each other
    assert total(gpu, "peers", "cluster_barriers") == 4


def test_a_warp_that_has_arrived_and_ended_does_not_stand_for_another():
    late = [compute(1000), cluster_arrive(), cluster_wait(1)]
    waits = [cluster_arrive(), cluster_wait(1)]
    gpu, _ = run(kernel([[[cluster_arrive()], late], [waits]], cluster=2, warps=2))
    assert min(end_ps for *_, end_ps in spans(gpu)) > 1000 * whole_period_ps(machine_of().cu.clock_MHz)


def test_a_warp_that_arrives_twice_does_not_stand_for_another():
    late = [compute(1000), cluster_arrive(), cluster_wait(1)]
    twice = [cluster_arrive(), cluster_arrive(), cluster_wait(1)]
    gpu, _ = run(kernel([[twice, late], [[cluster_arrive(), cluster_wait(1)]]], cluster=2, warps=2))
    assert min(end_ps for *_, end_ps in spans(gpu)) > 1000 * whole_period_ps(machine_of().cu.clock_MHz)


def test_phases_of_the_barrier_follow_each_other_and_ended_warps_are_not_waited_for():
    many = [row for phase in range(1, 6) for row in (compute(7), cluster_arrive(), cluster_wait(phase))]
    gone = [cluster_arrive(), cluster_wait(1)]
    only_arrives = [cluster_arrive()]
    gpu, _ = run(
        kernel([[many, gone], [many, many], [gone], [only_arrives], [[compute(3)]], [many]], cluster=6, warps=2)
    )
    assert len(spans(gpu)) == 6
    assert total(gpu, "peers", "cluster_barriers") >= 3 * 5 + 1


def test_a_warp_that_waits_for_a_phase_that_never_comes_is_a_deadlock():
    with pytest.raises(UserError, match=r"nothing can move .* at barriers 1"):
        run(kernel([[[cluster_arrive(), cluster_wait(2)]], [[compute()]]], cluster=2))


def share_of_four(rank, lines):
    """Each of four workgroups loads a quarter of a tile for all."""
    own = bulk(A + rank * lines * 128, 1, lines * 128, barrier=0, to=range(4))
    producer = [own, phase_arrive(0, expected_bytes=3 * lines * 128), phase_wait(0, 1), store(B + rank * 128)]
    return [producer, [phase_wait(0, 1), store(B + rank * 128 + 64)]]


@pytest.mark.parametrize("places", [1, 2])
def test_multicast_reads_each_line_once_and_brings_it_to_all(places):
    source = kernel([share_of_four(rank, 8) for rank in range(4)], cluster=4)
    gpu, _ = run(source, f"cu.workgroups={places}", "dispatch.order=depth_first")
    alone = [[[bulk(A, 1, 4 * 8 * 128, barrier=0), phase_arrive(0), phase_wait(0, 1), store(B + rank * 128)]]
             for rank in range(4)]  # fmt: skip
    apart, _ = run(kernel(alone), f"cu.workgroups={places}")
    assert total(gpu, "l2", "read_sectors") == 4 * 8 * 4
    assert total(apart, "l2", "read_sectors") == 4 * 4 * 8 * 4
    assert total(gpu, "hbm", "read_columns") == total(apart, "hbm", "read_columns") == 4 * 8 * 4
    # a line comes once to each CU with a workgroup of the set that has not asked for it
    assert total(gpu, "peers", "multicast_lines") == 32 * (3 if places == 1 else 2)
    assert total(gpu, "peers", "multicast_bytes") == 128 * 32 * (3 if places == 1 else 2)
    assert total(gpu, "bulk", "read_sectors") == 4 * 8 * 4 and total(gpu, "peers", "dropped") == 0
    header = gpu.machine.noc.header_bytes
    acknowledged = 8 * header  # stores
    assert total(gpu, "noc", "answer_bytes") == 32 * (128 + header) + acknowledged
    assert total(gpu, "noc", "cu_bytes") == 32 * (128 + header) * (4 if places == 1 else 2) + acknowledged


def test_a_load_for_others_only_signals_them_and_clears_the_slot():
    first = [bulk(A, 3, 100, 208, barrier=2, to=(1,), slot=4), wait(4), store(B)]
    second = [phase_arrive(2, expected_bytes=300), phase_wait(2, 1), store(B + 128)]
    gpu, _ = run(kernel([[first], [second]], cluster=2))
    assert total(gpu, "peers", "multicast_bytes") == 300 and total(gpu, "bulk", "copies") == 1
    assert total(gpu, "l2", "write_sectors") == 8
    header = gpu.machine.noc.header_bytes  # the CU that asked gets no data: answers of 3 lines and 2 stores
    assert total(gpu, "noc", "cu_bytes") == 300 // 100 * 128 + 3 * header + 5 * header


@pytest.mark.parametrize("bytes_too_many", [16, -16])
def test_a_phase_ends_only_with_exactly_the_expected_bytes(bytes_too_many):
    first = [bulk(A, 1, 128, barrier=0, to=(1,))]
    second = [phase_arrive(0, expected_bytes=128 + bytes_too_many), phase_wait(0, 1)]
    with pytest.raises(UserError, match=r"nothing can move .* at barriers 1"):
        run(kernel([[first], [second]], cluster=2))


def one_way_ps(volume, machine):
    clock_ps = whole_period_ps(machine.cu.clock_MHz)
    ports = -(-(machine.noc.header_bytes + volume) // machine.cu.peer_bytes_per_clk)
    return (ports + machine.cu.peer_latency_clk) * clock_ps


@pytest.mark.parametrize("kind", [Kind.LOAD, Kind.STORE, Kind.ATOMIC, Kind.REDUCE])
@pytest.mark.parametrize("width_bytes", [1, 4, 16])
def test_one_remote_access_takes_two_ways(kind, width_bytes):
    fields = {"width_bytes": width_bytes, "stride": width_bytes, "mask": 1, "slot": 0}
    gpu, _ = run(kernel([[[remote(kind, 1, 256, **fields), wait(0)]], [[compute()]]], cluster=2))
    local, _ = run(kernel([[[wait()]], [[compute()]]], cluster=2))
    machine = machine_of()
    there = 0 if kind == Kind.LOAD else 32
    back = 32 if kind in (Kind.LOAD, Kind.ATOMIC) else 0
    took_ps = spans(gpu)[0][3] - spans(local)[0][3]  # from issue to answer; both kernels have an event behind it
    assert took_ps == one_way_ps(there, machine) + one_way_ps(back, machine)
    assert total(gpu, "peers", "packets") == 1 and total(gpu, "noc", "request_packets") == 0
    assert total(gpu, "peers", "packet_bytes") == there and total(gpu, "peers", "answer_bytes") == back


def test_a_stream_of_remote_loads_has_the_rate_of_the_port():
    fields = {"width_bytes": 16, "stride": 16}  # four lines of 128 bytes
    loads = [remote(Kind.LOAD, 1, 512 * k, slot=0, **fields) for k in range(50)]
    gpu, _ = run(kernel([[[*loads, wait(0)]], [[compute()]]], cluster=2))
    machine = machine_of()
    clock_ps = whole_period_ps(machine.cu.clock_MHz)
    _, _, start_ps, end_ps = spans(gpu)[0]
    volume_ps = 50 * 512 // 16 * clock_ps
    assert volume_ps <= end_ps - start_ps <= volume_ps + 60 * clock_ps
    assert total(gpu, "l1", "read_sectors") == 0  # they pass L1


def test_a_bulk_copy_to_another_workgroup_ends_a_phase_there():
    first = [bulk(0, 4, 200, 208, kind=Bulk.SEND, barrier=1, to=(1,), slot=0), wait(0)]
    second = [phase_arrive(1, expected_bytes=800), phase_wait(1, 1), store(B)]
    gpu, _ = run(kernel([[first], [second]], cluster=2))
    assert total(gpu, "peers", "multicast_lines") == 0 and total(gpu, "noc", "request_packets") == 1  # the store
    assert total(gpu, "bulk", "sent_sectors") * 32 == total(gpu, "peers", "packet_bytes") > 800


def test_arrivals_at_several_workgroups():
    warps = [[compute(10 * w), phase_arrive(3, 8, at=(0, 1, 2, 3)), phase_wait(3, 1)] for w in range(2)]
    gpu, _ = run(kernel([warps] * 4, cluster=4))
    assert total(gpu, "peers", "packets") == 4 * 2 * 3 and total(gpu, "peers", "packet_bytes") == 0
    assert len(spans(gpu)) == 4


def test_messages_for_a_workgroup_that_has_ended_are_dropped():
    first = [compute(400), phase_arrive(0, at=(1,)), bulk(A, 1, 256, barrier=0, to=(1,), slot=0), wait(0)]
    gpu, _ = run(kernel([[first], [[compute()]]] * 3, cluster=2), "cu.workgroups=1")
    assert total(gpu, "peers", "dropped") == 3 * 3


def test_kernels_without_clusters_before_and_behind_change_nothing():
    plain = kernel([[[load(A + 128 * k, slot=0), wait(0)]] for k in range(20)], name="plain")
    clustered = kernel([share_of_four(rank, 8) for rank in range(4)], cluster=4)
    gpu = Gpu(machine_of())
    for source in (plain, clustered, plain):
        gpu.run_kernel(source, gpu.rest_ps, None)
    only = Gpu(small_preset(*HAS[3:], size=EIGHT).machine)
    only.run_kernel(plain, 0, None)
    before = Gpu(machine_of())
    before.run_kernel(plain, 0, None)
    found = counters(before)
    assert found.pop("peers") and found == counters(only)
    assert gpu.node.mail.size == 0


GEMM = GemmProblem(512, 512, 256)
BULK = GemmKernel(64, 64, 32, 2, 2, pipeline_depth=4, copy=Copy.BULK)
ONE_A_CU = ("cu.groups=1", "cu.workgroups=1")
TWO_BY_TWO = replace(BULK, cluster_m=2, cluster_n=2)


@pytest.mark.parametrize(
    ("cluster", "pair"),
    [
        *(((m, n), (1, 1)) for m, n in ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (4, 2))),
        *(((2, 1), (2, 1)), ((1, 2), (1, 2)), ((4, 1), (2, 1)), ((2, 2), (2, 1))),
    ],
)
def test_a_gemm_with_clusters_reads_the_shared_part_once(cluster, pair):
    """L2 reads fall by exactly what workgroups share, DRAM reads stay. Pairs bring each other nothing."""
    (cluster_m, cluster_n), (pair_m, pair_n) = cluster, pair
    shape = {"cluster_m": cluster_m, "cluster_n": cluster_n, "pair_m": pair_m, "pair_n": pair_n}
    gpu, _ = run(GemmSource(GEMM, replace(BULK, **shape)), *ONE_A_CU)
    a, b, c = (GEMM.m * GEMM.k * 2, GEMM.k * GEMM.n * 2, GEMM.m * GEMM.n * 2)
    of_a, of_b = a * (GEMM.n // 64) // cluster_n, b * (GEMM.m // 64) // cluster_m
    assert total(gpu, "l2", "read_sectors") * 32 == total(gpu, "bulk", "read_sectors") * 32 == of_a + of_b
    brought = of_a * (cluster_n // pair_n - 1) + of_b * (cluster_m // pair_m - 1)
    assert total(gpu, "peers", "multicast_bytes") == brought
    assert total(gpu, "hbm", "read_columns") * 32 == a + b
    assert total(gpu, "l2", "write_sectors") * 32 == c and total(gpu, "peers", "dropped") <= 4 * 64 * 4 * 7
    steps, size = GEMM.k // 32, cluster_m * cluster_n
    others = cluster_m // pair_m + cluster_n // pair_n - 2  # that load for a workgroup
    releases = 64 * steps * 4 * others  # of the warps of each workgroup
    assert total(gpu, "peers", "packets") == releases
    assert total(gpu, "peers", "cluster_barriers") == (64 if size > 1 else 0)


@pytest.mark.parametrize("copy", [Copy.BULK, Copy.PRODUCER])
@pytest.mark.parametrize("fields", [{"split_k": 2}, {"persistent": 16}, {"fragment_pieces": 2}, {"start_tile": 4}])
def test_other_options_of_a_gemm_go_with_clusters(fields, copy):
    gpu, _ = run(GemmSource(GEMM, replace(BULK, copy=copy, cluster_m=2, cluster_n=2, **fields)))
    assert total(gpu, "l2", "read_sectors") * 32 == 8 * (GEMM.m * GEMM.k * 2 + GEMM.k * GEMM.n * 2) // 2


def test_a_load_from_another_cu_takes_as_long_as_measured():
    """180 clocks, from which the preset has its latency."""
    machine = small_preset(
        "dispatch.workgroup_ps=0", name="h100_sxm", size=("cu.count=16", "l2.banks=32", *CHANNELS)
    ).machine
    fields = {"mask": 1, "slot": 0}
    chain = [remote(Kind.LOAD, 1, 64 * k, wait=[0], **fields) for k in range(20)]
    ends = []
    for loads in (chain[:10], chain):
        gpu = Gpu(machine, 1_000_000)
        gpu.run_kernel(kernel([[[*loads, wait(0)]], [[compute()]]], cluster=2), 0, None)
        ends.append(spans(gpu)[0][3] - spans(gpu)[0][2])
    assert ends[1] - ends[0] == 10 * 180 * whole_period_ps(machine.cu.clock_MHz)


def test_mail_that_does_not_fit_into_memory_is_refused(monkeypatch):
    monkeypatch.setattr("sim.machine.memory.available_bytes", lambda: 200_000_000)
    source = kernel([[[compute()]], [[compute()]]], cluster=2)
    with pytest.raises(UserError, match="clusters of workgroups need about"):
        run(source, "l1.mshrs=1024", "cu.groups=1", size=("cu.count=128", "l2.banks=4", "hbm.channels=2"))


@pytest.mark.parametrize("part", ["t3", "all_reduce"])
@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize("copy", [Copy.BULK, Copy.PRODUCER])
@pytest.mark.parametrize("links", [(), ("link.topology=switch", "dispatch.chunks=in_turn")])
def test_outputs_of_a_gemm_with_clusters_are_reduced(part, explicit, copy, links):
    """The Tracker and the ledger know workgroups by their tiles, whatever the order of tiles in clusters."""
    tile = GemmKernel(64, 64, 32, 2, 2, pipeline_depth=3, copy=copy, cluster_m=2, cluster_n=1)
    settings = (*HAS, *links, "tracker.entries=8", "tracker.ways=2")
    case = T3Case(256, 192, 64, 2, tile, settings=settings, explicit=explicit)
    result, joined = case.run(part)
    assert result.exactly_once, result.wrong
    barriers = sum(int(gpu.counters()["peers"]["cluster_barriers"].sum()) for gpu in joined.gpus)
    assert barriers == (12 * len(joined.gpus) if part == "t3" else 0)


@pytest.mark.parametrize("source", [random_cluster_kernel(7, clusters=12, rounds=6), GemmSource(GEMM, TWO_BY_TWO)])
def test_a_run_with_clusters_continues_from_any_state(source):
    whole, states = Gpu(machine_of()), []

    def note():
        state = whole.state()
        states.append(State(state.facts, {name: array.copy() for name, array in state.arrays.items()}))

    whole.run_kernel(source, 0, None, note)
    assert len(states) > 2
    for state in states[:: max(1, len(states) // 4)]:
        other = Gpu(machine_of())
        other.run_kernel(source, 0, None, lambda: None, state)
        assert counters(other) == counters(whole)
