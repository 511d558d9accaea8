"""Kernels on shared CUs: random workgroups settle and end; a naive twin keeps lists of what each takes."""

import numpy as np
import pytest

from sim.host.gpu import Gpu
from sim.host.window import Launch
from sim.hw.dispatch_record import DISPATCH
from sim.hw.request import NEVER
from sim.hw.residency import RESOURCES, free_warps, give_turn, has_room, took_place, waits_for_turn
from sim.machine.build import build
from sim.occupancy import held, occupancy
from sim.spec import KernelOrder
from tests.support.plain_records import kernel_view
from tests.support.programs import compute, kernel, small_preset

CU = small_preset().machine.cu
KINDS = [(64, 32, 0), (256, 96, 16 << 10), (512, 40, 0), (32, 255, 40 << 10)]
"""Threads, registers per thread and shared bytes of a kernel's workgroups."""


class TwinCu:
    """What is on the CU, as a list of (place, queue, first warp, warps, amounts)."""

    def __init__(self):
        self.inside = []

    def has_room(self, takes, warps):
        used = [sum(one[4][k] for one in self.inside) + takes[k] for k in range(len(RESOURCES))]
        return all(mine <= limit for mine, limit in zip(used, held(CU), strict=True)) and self.first_warp(warps) >= 0

    def first_warp(self, warps):
        busy = {w for _, _, first, count, _ in self.inside for w in range(first, first + count)}
        runs = (first for first in range(65 - warps) if not busy & set(range(first, first + warps)))
        return next(runs, -1)


def bench():
    """A machine, its dispatch records with KINDS as kernels that share CU 0, and their workgroups' amounts."""
    node, _ = build(small_preset().machine)
    records = np.zeros(len(KINDS), DISPATCH)
    fits = [occupancy(CU, *kind) for kind in KINDS]
    for record, fit in zip(records, fits, strict=True):
        record["takes"], record["holds"], record["shares"], record["last_cu"] = fit.takes, held(CU), 1, 1
        record["warps"], record["places"] = fit.warps_per_workgroup, fit.workgroups
    return node, records, fits


@pytest.mark.parametrize("seed", range(4))
def test_amounts_and_warps_are_those_of_the_twin(seed):
    rng = np.random.default_rng(seed)
    node, records, fits = bench()
    records["places"][3] = 1  # fewer than fit
    dispatches, cu, resident = kernel_view(records), kernel_view(node.cus)[0], node.cus[0]["resident"]
    twin = TwinCu()
    for _ in range(300):
        queue = int(rng.integers(len(KINDS)))
        takes, warps = fits[queue].takes, fits[queue].warps_per_workgroup
        own = sum(one[1] == queue for one in twin.inside)
        fitting = own < records["places"][queue] and twin.has_room(takes, warps)
        assert bool(has_room(dispatches, queue, cu)) == fitting
        assert free_warps(cu, warps) == twin.first_warp(warps)
        if fitting:
            place = int(np.flatnonzero(resident["tag"] < 0)[0])
            first = twin.first_warp(warps)
            for name, value in {"tag": 1, "queue": queue, "first_warp": first, "warps": warps}.items():
                resident[name][place] = value
            twin.inside.append((place, queue, first, warps, takes))
        elif twin.inside:
            gone = twin.inside.pop(int(rng.integers(len(twin.inside))))
            resident["tag"][gone[0]] = -1
    assert len({one[1] for one in twin.inside}) > 1


def test_a_queue_waits_for_the_queues_before_it_on_the_same_cus():
    _, records, _ = bench()
    records["staged"], records["wake_ps"] = 2, NEVER
    records["first_cu"][2], records["last_cu"][2] = 1, 2
    dispatches = kernel_view(records)
    assert [bool(waits_for_turn(dispatches, queue)) for queue in range(4)] == [False, True, False, True]
    records["taken"][0] = 2
    assert waits_for_turn(dispatches, 1)  # the host may stage more
    records["placed"][0] = 1
    assert not waits_for_turn(dispatches, 1) and waits_for_turn(dispatches, 3)
    records["shares"][1] = 0
    assert not waits_for_turn(dispatches, 3), "queue 1 has CUs of its own"
    records["shares"][1] = 1
    give_turn(dispatches, 0, 70)
    assert records["wake_ps"].tolist() == [NEVER, 70, NEVER, 70]


def test_a_turn_is_given_to_sharing_kernels_that_want_places():
    _, records, _ = bench()
    records["staged"], records["taken"], records["wake_ps"], records["shares"][3] = 2, [1, 2, 1, 1], NEVER, 0
    for now_ps in (70, 90):
        give_turn(kernel_view(records), 0, now_ps)
        assert records["wake_ps"].tolist() == [NEVER, NEVER, 70, NEVER]


def test_a_kernel_with_all_the_places_that_it_keeps_lets_the_next_one_start():
    _, records, _ = bench()
    records["keeps"][0] = 2
    dispatches = kernel_view(records)
    waits = []
    for kept in range(3):
        records["kept"][0] = kept
        waits.append(bool(waits_for_turn(dispatches, 1)))
    assert waits == [True, True, False]


def test_kernels_that_take_turns_wait_for_none_and_the_last_one_to_get_a_place_is_the_last_in_turn():
    _, records, _ = bench()
    records["kernels"] = int(KernelOrder.IN_TURN)
    dispatches = kernel_view(records)
    assert not any(waits_for_turn(dispatches, queue) for queue in range(4))
    for queue in (2, 0, 2):
        took_place(dispatches, queue)
    assert records["turn"].tolist() == [2, 0, 3, 0]
    records["shares"][1], records["kernels"][3] = 0, int(KernelOrder.IN_ORDER)
    for queue in (1, 3):  # has no turn
        took_place(dispatches, queue)
    assert records["turn"].tolist() == [2, 0, 3, 0]


def test_l1_keeps_what_the_shared_memory_of_both_kernels_leaves():
    one = kernel([[[compute()]]], shared_bytes=20 << 10)
    ways = []
    for launches in ([Launch(one)], [Launch(one), Launch(one, queue=1)]):
        gpu = Gpu(small_preset("cu.workgroups=1").machine)
        gpu.launch(launches)
        ways.append(int(gpu.node.l1s["ways"][0]))
    assert ways[0] > ways[1] > 0


@pytest.mark.parametrize(("parts", "shares"), [((True, True), 0), ((True, False), 1), ((False, False), 1)])
def test_parts_of_one_kernel_take_no_turns(parts, shares):
    """With turns, the part that waits for data would begin after the last workgroup of the part that sends."""
    one = kernel([[[compute()]]])
    gpu = Gpu(small_preset().machine)
    gpu.launch([Launch(one, queue=queue, part=part) for queue, part in enumerate(parts)])
    assert gpu.node.dispatch["shares"][:2].tolist() == [shares, shares]
