"""Collectives whose receivers load over the links (NCCL between A100): traffic, ledger, order, no circle of waits."""

import re
from dataclasses import replace

import pytest

from sim.collective.check import follow
from sim.collective.on_cus import steps_queue
from sim.host.team import use_threads
from sim.presets import load_preset
from sim.run.library_run import PULLED
from sim.run.many_gpus import run_plan
from sim.scenario.collective import Collective, simulate_collective
from tests.support.any_windows import windows
from tests.support.rings import PULLS, ring
from traces.errors import UserError

SCARCE = (
    *("link.credits=1", "link.egress_fifo=1", "noc.cu_fifo=1", "noc.bank_fifo=2", "l2.dram_fifo=2"),
    *("l1.mshrs=1", "l2.mshrs=1", "l2.mshr_merges=1", "cu.loads_outstanding=1"),
)
OF_MANY = tuple(kind for kind in PULLED if kind != "send_recv")
CASES = [(kind, gpus) for kind in OF_MANY for gpus in (2, 3, 5)] + [("send_recv", 2)]


def facts(result):
    return result.time_ps, result.exactly_once, [kernel.totals for kernel in result.kernels]


@pytest.mark.parametrize(("kind", "gpus"), CASES)
def test_one_gpu_stands_for_all(kind, gpus):
    run = ring(kind, gpus)
    one = run.execute()
    launch_ps = run.preset.machine.collective.launch_ps
    every = run_plan(run.preset.machine, run.plans(), run.launches, name=kind, explicit=True)
    assert one.exactly_once and every.exactly_once
    assert one.time_ps - launch_ps == pytest.approx(every.time_ps, rel=0.01)  # chunks are in other banks of the DRAM
    for name in ("link.load_bytes", "link.bytes", "link.arrived_bytes", "lsu.line_requests"):
        assert one.totals[name] == every.totals[name], name  # of each GPU


STEPS = {"reduce_scatter": 1, "all_gather": 1, "all_to_all": 1, "all_reduce": 2}


@pytest.mark.parametrize(("kind", "steps"), STEPS.items())
def test_data_cross_the_links_as_answers_to_loads_and_flags_as_stores(kind, steps):
    run = ring(kind, 4)
    result = run.execute()
    data = steps * 3 * run.padded_bytes // 4
    flags = steps * 3 * len(run.buffer[0]) // 4 * 32
    assert result.totals["link.load_bytes"] == data
    assert result.totals["link.bytes"] == result.totals["link.arrived_bytes"] == data + flags


def test_the_first_step_stays_within_the_gpu():
    """So data leave later than if senders store."""
    first = {}
    for pulls in ("true", "false"):
        run = ring("all_gather", 2, f"collective.pulls={pulls}", data_bytes=1 << 20, channels=8)
        first[pulls] = replace(run, interval_ps=1_000_000).execute()
    assert first["true"].link_bytes > first["false"].link_bytes == 1 << 19
    series = {pulls: result.series["link_bytes"] for pulls, result in first.items()}
    begins = {pulls: (values > 32 * 1000).argmax() for pulls, values in series.items()}
    assert begins["true"] > begins["false"]


def test_a_flag_waits_for_the_acknowledgements_of_the_stores():
    """An uncached store is acknowledged a latency of L2 later. Uncached loads do not hit and have no such latency.

    A channel waits for it in both slices of the first step."""
    machine = ring("all_gather", 2).preset.machine
    latencies_clk = (machine.l2.latency_clk, machine.l2.latency_clk + 1000)
    near, far = (ring("all_gather", 2, f"l2.latency_clk={clk}").execute() for clk in latencies_clk)
    assert far.time_ps - near.time_ps == pytest.approx(2 * 1000 * 1e6 / machine.l2.clock_MHz, rel=0.01)


@pytest.mark.parametrize("kind", OF_MANY)
def test_windows_threads_and_rounds_change_nothing(kind):
    run = ring(kind, 3, "noc.bank_fifo=3", "link.credits=5")
    expected = facts(run.execute())
    for ways in ({"length": 0.0}, {"seed": 3}, {"calls": 0.1}):
        with windows(**ways):
            assert facts(run.execute()) == expected
    use_threads(2)
    try:
        assert facts(run.execute()) == expected
    finally:
        use_threads(None)


@pytest.mark.parametrize("kind", OF_MANY)
@pytest.mark.parametrize("explicit", [False, True])
def test_no_gpus_wait_for_each_other_in_a_circle(kind, explicit):
    """Every queue has one place, and a CU one load in flight."""
    run = ring(kind, 3, *SCARCE, data_bytes=12_000)
    result = run_plan(run.preset.machine, run.plans(), run.launches, name=kind, explicit=explicit)
    assert result.exactly_once


@pytest.mark.parametrize("overrides", [("l2.fabric=through",), ("collective.cache=allocate",), ("collective.warps=1",)])
def test_through_the_caches_and_with_one_warp(overrides):
    assert ring("all_reduce", 3, *overrides).execute().exactly_once


def test_on_halves_of_an_l2_that_keep_copies():
    assert ring("all_reduce", 2, machine="a100_80g_halves").execute().exactly_once


def test_a_step_that_tells_nobody_is_refused():
    run = ring("reduce_scatter", 3)
    plans = run.plans()
    for plan in plans:
        told = next(step for step in plan.steps if step.flags)
        plan.steps[plan.steps.index(told)] = replace(told, flags=None)
    with pytest.raises(UserError, match=r"waits for 1 contributions to tile .*, but 0 come: it would wait for ever"):
        follow([plan.regions for plan in plans], plans[0].buffers, [steps_queue(plan) for plan in plans])


def test_the_ledger_finds_a_load_that_comes_too_early():
    """Without gates and in the other order, steps load what the GPU before has not got yet."""
    run = ring("all_gather", 3)
    plans = run.plans()
    for plan in plans:
        plan.steps[:] = [replace(step, gates=()) for step in reversed(plan.steps)]
    result = run_plan(run.preset.machine, plans, run.launches, name="all_gather", explicit=False)
    assert not result.exactly_once


@pytest.mark.parametrize(
    ("kind", "chosen"),
    [
        ("all_gather", {"protocol": "ll"}),
        ("all_to_all", {"protocol": "ll"}),
        ("broadcast", {"protocol": "simple"}),
        ("all_reduce", {"protocol": "simple", "gpus": 16}),
    ],
)
def test_loads_where_there_are_none_are_refused(kind, chosen):
    asked = {"preset": load_preset("a100_80g", [PULLS]), "kind": kind, "gpus": 2, "data_bytes": 65536, **chosen}
    with pytest.raises(UserError, match=re.escape("collective.pulls: found true") + ".*allowed is false"):
        simulate_collective(Collective(**asked))


@pytest.mark.parametrize(("node_gpus", "pulls"), [(0, True), (2, False), (4, True), (8, True)])
def test_no_receiver_loads_from_another_node_that_the_user_sets(node_gpus, pulls):
    given = [f"network.node_gpus={node_gpus}"]
    run = Collective(load_preset("a100_80g", given), "all_gather", 4, 65536, protocol="simple").run()
    assert run.pulls == pulls


def test_kernels_of_the_t3_paper_store_to_the_receiver():
    asked = Collective(load_preset("t3_2024", [PULLS]), "all_gather", 2, 65536)
    with pytest.raises(UserError, match=r"collective\.pulls: found true, allowed is false"):
        simulate_collective(asked)
