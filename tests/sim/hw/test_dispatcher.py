"""Dispatcher: which workgroup goes where and when."""

import numpy as np
import pytest

from sim.host.gpu import Gpu
from sim.hw.dispatch_record import DISPATCH, STAGED
from sim.hw.dispatcher import choose_cu, dispatch_step, free_places
from sim.hw.request import NEVER
from sim.hw.space import GATE
from sim.machine.build import build
from sim.spec import WorkgroupOrder
from tests.support.plain_records import kernel_view
from tests.support.programs import SMALL, compute, kernel, small_preset

BREADTH, DEPTH = WorkgroupOrder.BREADTH_FIRST, WorkgroupOrder.DEPTH_FIRST


class DispatchBench:
    """Four CUs, and a dispatcher with `staged` workgroups of one warp."""

    def __init__(self, staged, places=2, ended=1, **fields):
        self.node, _ = build(small_preset().machine)
        self.record, self.staged = np.zeros(1, DISPATCH), np.zeros(64, STAGED)
        fields = {
            "last_cu": 4,
            "places": places,
            "warps": 1,
            "interval_ps": 100,
            "lookahead_ps": 50,
            "cluster": 1,
            **fields,
        }
        for name, value in {**fields, "staged": staged, "ended": ended}.items():
            self.record[name] = value
        for k in range(staged):
            self.staged[k]["tag"], self.staged[k]["warps"], self.staged[k]["slab"] = k, 1, k
        arrays = (self.record, self.node.cus, self.node.warps, self.staged)
        self.dispatch, self.cus, self.warps, self.ring = map(kernel_view, arrays)
        self.gate_records = np.zeros(2, GATE)
        self.gate_records["open_ps"] = NEVER
        self.gates = kernel_view(self.gate_records)

    def step(self):
        c, start_ps = dispatch_step(self.dispatch, 0, self.cus, self.warps, self.ring, self.gates, NEVER)
        return int(c), int(start_ps)

    def deal(self):
        """CUs and start times of all that can be placed."""
        found = []
        while self.record[0]["wake_ps"] < NEVER and not self.record[0]["needs"]:
            found.append(self.step())
        return [one for one in found if one[0] >= 0]

    def end(self, c, place, now_ps):
        """The workgroup at a place of CU c ends."""
        resident = self.node.cus[c]["resident"][place]
        resident["alive"], resident["ended_ps"] = 0, now_ps
        self.node.cus[c]["residents"] -= 1


@pytest.mark.parametrize(("order", "cus"), [(BREADTH, [0, 1, 2, 3, 0, 1, 2, 3]), (DEPTH, [0, 0, 1, 1, 2, 2, 3, 3])])
def test_order(order, cus):
    bench = DispatchBench(20, order=order)
    dealt = bench.deal()
    assert [c for c, _ in dealt] == cus  # two places each, then all is full
    assert [start_ps for _, start_ps in dealt] == [100 * k for k in range(8)]
    tags = bench.node.cus["resident"]["tag"][:, :2]
    assert tags.tolist() == ([[0, 4], [1, 5], [2, 6], [3, 7]] if order == BREADTH else [[0, 1], [2, 3], [4, 5], [6, 7]])


def test_workgroups_take_turns_among_partitions():
    """Workgroup k goes to a CU c with c % 2 == k % 2; it waits for one, also while others are free."""
    bench = DispatchBench(20, order=WorkgroupOrder.BY_PARTITION, partitions=2, places=1)
    assert [c for c, _ in bench.deal()] == [0, 1, 2, 3]
    bench.end(1, 0, 1000)
    bench.record["wake_ps"] = 2000
    assert bench.deal() == []
    bench.end(2, 0, 3000)
    bench.record["wake_ps"] = 4000
    assert [c for c, _ in bench.deal()] == [2, 1]


def test_a_kernel_on_some_cus_takes_turns_among_the_partitions_of_the_machine():
    bench = DispatchBench(20, order=WorkgroupOrder.BY_PARTITION, partitions=2, places=1, first_cu=1)
    assert [c for c, _ in bench.deal()] == [2, 1]  # the third waits for CU 2


def test_a_kernel_runs_in_the_places_that_it_keeps():
    """It takes them first, one in each dispatch interval, and gives them back with its last workgroup."""
    bench = DispatchBench(3, places=1, keeps=2)
    assert bench.deal() == [(0, 200), (1, 300)]
    assert bench.node.cus["taken"].tolist() == [1, 1, 0, 0] and bench.record[0]["kept_ps"] == 100
    bench.end(1, 0, 1000)
    bench.record["wake_ps"] = 1050
    assert bench.deal() == [(1, 1050)]  # CU 2 is free, too
    assert bench.record[["placed", "keeps"]].tolist() == [(1, 0)]
    fast = DispatchBench(3, places=1, keeps=2, interval_ps=10)  # less than a lookahead: a new place is free at once
    assert fast.deal() == [(0, 20), (1, 30)]


def test_a_kernel_keeps_its_places_while_its_gates_are_closed():
    bench = DispatchBench(3, places=1, keeps=2)
    bench.staged[0]["gate"] = 1
    assert bench.deal() == [] and bench.node.cus["taken"].tolist() == [1, 1, 0, 0]
    other = np.zeros(2, DISPATCH)
    other[0], other[1] = bench.record[0], bench.record[0]
    other["keeps"][1] = 0
    assert free_places(kernel_view(other), 1, bench.cus, 10_000) == NEVER
    assert bench.node.cus["taken"].tolist() == [1, 1, 0, 0]  # another kernel does not free them
    other["keeps"] = 0
    free_places(kernel_view(other), 1, bench.cus, 10_000)
    assert bench.node.cus["taken"].tolist() == [0, 0, 0, 0]


def test_a_kernel_runs_in_no_place_that_another_one_keeps():
    bench = DispatchBench(1, places=2, keeps=1)
    bench.step()
    bench.node.cus["resident"]["queue"][0, 0] = 1
    both = kernel_view(np.repeat(bench.record, 2))
    assert dispatch_step(both, 0, bench.cus, bench.warps, bench.ring, bench.gates, NEVER) == (-1, NEVER)


def test_a_kernel_with_a_closed_gate_takes_a_place_to_keep_when_one_is_free():
    """The place of another kernel's workgroup is free a lookahead after its end, long before the gate opens."""
    bench = DispatchBench(1, places=1, keeps=1, last_cu=1, wake_ps=1000)
    resident = bench.node.cus["resident"][0]
    resident["tag"][0], resident["ended_ps"][0], resident["queue"][0] = 7, 1000, 1
    bench.node.cus["taken"][0], bench.staged[0]["gate"], bench.gate_records["open_ps"][0] = 1, 1, 9000
    both = np.repeat(bench.record, 2)
    both["keeps"][1] = 0
    dispatch_step(kernel_view(both), 0, bench.cus, bench.warps, bench.ring, bench.gates, NEVER)
    assert both["wake_ps"][0] == 1050


def test_a_workgroup_with_fewer_warps_leaves_the_others_of_its_place_free():
    bench = DispatchBench(2, warps=3, last_cu=1)
    bench.deal()
    assert bench.node.cus["resident"]["first_warp"][0, :2].tolist() == [0, 3]


def test_places_to_keep_are_taken_in_turn_among_partitions():
    bench = DispatchBench(3, order=WorkgroupOrder.BY_PARTITION, partitions=2, places=1, keeps=3)
    bench.node.cus["taken"] = [1, 0, 0, 0]
    bench.deal()
    assert bench.node.cus["taken"].tolist() == [1, 1, 1, 0]  # the third place waits for CU 0 or 2
    assert bench.record[0]["kept"] == 2


@pytest.mark.parametrize("order", [BREADTH, DEPTH])
def test_a_freed_place_is_given_to_the_next_workgroup(order):
    bench = DispatchBench(20, order=order)
    bench.deal()
    assert bench.record[0]["wake_ps"] == NEVER
    bench.end(2, 0, now_ps=4980)
    bench.end(3, 1, now_ps=5200)
    bench.record["wake_ps"] = 4990
    assert bench.step() == (-1, NEVER) and bench.record[0]["wake_ps"] == 5030  # the place is free a lookahead later
    assert bench.step() == (2, 5030)
    assert bench.deal() == [(3, 5250)]
    assert bench.node.cus[2]["resident"][0]["tag"] == 8
    warp = bench.node.warps[2]["warp"][0]
    assert (warp["slab"], warp["workgroup"]) == (8, 0)


def test_breadth_first_prefers_the_emptiest():
    bench = DispatchBench(0, places=5)
    bench.node.cus["taken"] = [3, 1, 2, 1]
    assert choose_cu(bench.dispatch, 0, bench.cus) == 1
    bench.node.cus["taken"] = [5, 5, 5, 5]
    assert choose_cu(bench.dispatch, 0, bench.cus) == -1


def test_only_the_cus_of_the_queue_are_used():
    assert [c for c, _ in DispatchBench(9, first_cu=1, last_cu=3).deal()] == [1, 2, 1, 2]


def test_it_waits_for_the_host_when_nothing_is_staged():
    bench = DispatchBench(2, ended=0)
    assert len(bench.deal()) == 2 and bench.record[0]["needs"] == 1
    wake_ps = bench.record[0]["wake_ps"]
    bench.record["staged"] = 3
    bench.staged[2]["tag"] = 7
    assert bench.step() == (2, wake_ps)  # as if it had been there in time
    bench.record["ended"] = 1
    assert bench.step() == (-1, NEVER) and bench.record[0]["needs"] == 0


def test_jitter_is_a_function_of_seed_and_workgroup():
    def starts(**fields):
        return [start_ps - 100 * k for k, (_, start_ps) in enumerate(DispatchBench(8, **fields).deal())]

    one = starts(jitter_ps=10_000, seed=1)
    assert one == starts(jitter_ps=10_000, seed=1) and one != starts(jitter_ps=10_000, seed=2)
    assert starts(jitter_ps=10_000, seed=1, order=DEPTH) == one
    bench = DispatchBench(8, jitter_ps=10_000, seed=1)
    bench.staged["tag"][:8] = np.arange(8)[::-1]  # the tile decides, not the turn
    assert [start_ps - 100 * k for k, (_, start_ps) in enumerate(bench.deal())] == one[::-1]
    assert len(set(one)) == 8 and all(0 <= delay < 10_000 for delay in one)
    many = [s for seed in range(100) for s in starts(jitter_ps=10_000, seed=seed)]
    assert abs(np.mean(many) - 5000) < 300 and abs(np.std(many) - 10_000 / 12**0.5) < 200


def test_places_follow_from_occupancy():
    """Shared memory for two workgroups per CU: no more are ever resident."""
    machine = small_preset("dispatch.workgroup_ps=1", size=SMALL).machine
    gpu, most = Gpu(machine), []
    gpu.line_trace = lambda node: most.append(int(node.cus["residents"].max()))
    gpu.run_kernel(kernel([[[compute(2000)]]] * 20, shared_bytes=machine.cu.shared_bytes // 2), 0, None)
    assert max(most) == 2 and gpu.node.cus["workgroups"].tolist() == [5, 5, 5, 5]


def test_a_workgroup_waits_for_its_gate_and_the_software_behind_it():
    bench = DispatchBench(3)
    bench.staged[1]["gate"] = 2  # gate 1
    bench.gate_records["delay_ps"] = 700
    assert bench.deal() == [(0, 0)]
    assert (bench.record[0]["wake_ps"], bench.record[0]["gated"]) == (NEVER, 1)
    bench.gate_records["open_ps"][0] = 1  # another gate
    bench.record["wake_ps"] = 4000
    assert bench.step() == (-1, NEVER) and bench.record[0]["wake_ps"] == NEVER
    bench.gate_records["open_ps"][1] = 4000
    bench.record["wake_ps"] = 4000
    assert bench.step() == (-1, NEVER) and bench.record[0]["wake_ps"] == 4750  # a lookahead and the step's overhead
    assert bench.deal() == [(1, 4750), (2, 4850)] and bench.record[0]["gated"] == 0  # those behind it waited, too


def test_a_gate_that_is_open_costs_nothing():
    bench = DispatchBench(2)
    bench.staged[1]["gate"] = 1
    bench.gate_records["open_ps"][0], bench.gate_records["delay_ps"] = 30, 20
    assert bench.deal() == [(0, 0), (1, 100)]
