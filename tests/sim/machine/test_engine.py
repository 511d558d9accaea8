"""The clock and the wiring: latencies of one access through the whole machine, and the machine without a compiler."""

import ast
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sim.host.gpu import Gpu
from sim.machine import build as wiring
from sim.machine import shares
from sim.machine.deadlock import DeadlockError, deadlock
from sim.run.many_gpus import replace_unit
from sim.run.one_gpu import simulate
from tests.support.paths import ROOT
from tests.support.plain_machine import outcome
from tests.support.programs import (
    barrier,
    compute,
    kernel,
    lines,
    load,
    random_kernel,
    row,
    small_preset,
    store,
    wait,
)
from tracer.sequence import CommandSequence
from traces.schema import Cache, Kind

A = 1 << 20


def ps(clocks, clock_MHz):
    return clocks * round(1e6 / clock_MHz)


def exit_ps(program, machine, before=()):
    """When a lone warp has ended, after its start; `before`: programs run before it, L2 keeps what they leave."""
    gpu = Gpu(machine)
    for one in before:
        gpu.run_kernel(kernel([[one]]), gpu.rest_ps, None)
    start_ps = gpu.rest_ps + 1_000_000 // 1000 * 1000
    gpu.run_kernel(kernel([[program]]), start_ps, None)
    return int(gpu.node.cus["last_exit_ps"].max()) - start_ps


def fixed_latency_ps(machine, sectors):
    """Of a load that misses L1 and hits L2: L1, crossbar, L2, crossbar; an answer takes its bank port first."""
    noc = machine.noc
    packet_clk = -(-(sectors * 32 + noc.header_bytes) // min(noc.bank_bytes_per_clk, noc.response_bytes_per_clk))
    request_clk = -(-noc.header_bytes // noc.request_bytes_per_clk)
    crossbar_ps = ps(2 * noc.latency_clk + request_clk + packet_clk, noc.clock_MHz)
    return ps(machine.l1.latency_clk, machine.cu.clock_MHz) + crossbar_ps


@pytest.mark.parametrize("preset", ["t3_2024", "v100", "accelsim_qv100"])
@pytest.mark.parametrize("sectors", [1, 4])
def test_unloaded_load_from_l2(preset, sectors):
    machine = small_preset(name=preset).machine
    program = [load(A, mask=(1 << 8 * sectors) - 1, slot=1)]
    expected = fixed_latency_ps(machine, sectors) + ps(machine.l2.latency_clk, machine.l2.clock_MHz)
    assert exit_ps(program, machine, before=[program]) == expected


@pytest.mark.parametrize("preset", ["t3_2024", "v100", "accelsim_qv100"])
def test_unloaded_load_from_dram(preset):
    """One sector: activate, read, burst; the channel works on its own clock edges."""
    machine = small_preset("hbm.timing.REFI=0", name=preset).machine
    timing, clock_ps = machine.hbm.timing, round(1e6 / machine.hbm.clock_MHz)
    dram_ps = (timing.RCD_rd + timing.CL + timing.burst) * clock_ps + machine.hbm.extra_latency_ps
    expected = fixed_latency_ps(machine, 1) + machine.hbm.request_ps + dram_ps
    found = exit_ps([load(A, mask=1, slot=1)], machine)
    assert expected <= found < expected + clock_ps


def test_compiled_code_runs_the_phases_of_the_table_in_their_order():
    names = [phase.run.__name__ for phase in wiring.PHASES]
    tree = ast.parse(Path(shares.__file__).read_text())
    called = sorted((node.lineno, node.func.id) for node in ast.walk(tree) if isinstance(node, ast.Call))
    assert [name for _, name in called if name in names] == names
    assert {phase.unit for phase in wiring.PHASES} <= {unit.name for unit in wiring.UNITS}


def test_a_store_of_a_lone_warp_is_not_waited_for():
    assert exit_ps([store(A)], small_preset().machine) == ps(1, 1400.0)


def test_a_kernel_whose_stores_are_acknowledged_ends_with_the_last_acknowledgement():
    posted, acknowledged = (small_preset(f"noc.ack_bytes={size}").machine for size in (0, 32))
    ends_ps = [Gpu(machine).run_kernel(kernel([[[store(A)]]]), 0, None) for machine in (posted, acknowledged)]
    back_clk = -(-4 * 32 // posted.noc.bank_bytes_per_clk) + posted.noc.latency_clk
    back_ps = ps(posted.l2.latency_clk, posted.l2.clock_MHz) + ps(back_clk, posted.noc.clock_MHz)
    assert ends_ps[1] - ends_ps[0] == back_ps


@pytest.mark.parametrize("cache", [Cache.DEFAULT, Cache.UNCACHED])
def test_a_fence_waits_until_its_store_is_acknowledged(cache):
    """The kernel of an acknowledged store ends when a warp behind a fence continues."""
    machine = small_preset("noc.ack_bytes=32").machine
    end_ps = Gpu(machine).run_kernel(kernel([[[store(A)]]]), 0, None)
    fenced = [store(A, slot=1, cache=cache), wait(1)]
    gpu = Gpu(machine)
    assert gpu.run_kernel(kernel([[fenced]]), 0, None) - end_ps == ps(1, machine.cu.clock_MHz)
    assert gpu.node.cus["last_exit_ps"].max() >= end_ps


def test_the_acknowledgement_of_a_fence_takes_no_bandwidth_where_stores_have_none():
    machine = small_preset().machine
    clk = -(-(4 * 32 + machine.noc.header_bytes) // machine.noc.request_bytes_per_clk) + 2 * machine.noc.latency_clk
    expected = ps(clk, machine.noc.clock_MHz) + ps(machine.l2.latency_clk, machine.l2.clock_MHz)
    fenced_ps = exit_ps([store(A, slot=1), wait(1)], machine)
    assert 0 <= fenced_ps - expected <= ps(2, machine.cu.clock_MHz)


def test_a_fence_waits_for_a_reduction_as_an_atomic_waits_for_its_value():
    machine = small_preset("noc.ack_bytes=0", "noc.header_bytes=0").machine
    reduction, atomic = (
        exit_ps([row(kind, base=A, mask=1, slot=1), wait(1)], machine) for kind in (Kind.REDUCE, Kind.ATOMIC)
    )
    data_ps = 2 * ps(1, machine.noc.clock_MHz)  # the atomic's sector on two ports
    assert 0 <= atomic - reduction <= data_ps


def test_a_barrier_that_a_warp_never_reaches_is_a_deadlock_that_names_it():
    warps = [[barrier(0, 96)], [barrier(0, 96)], [compute(3), load(A, slot=1)]]
    warps[2].append(barrier(1, 96))
    with pytest.raises(DeadlockError, match=r"stuck_kernel: nothing can move .* 1 workgroups left.* at barriers 3"):
        simulate(CommandSequence([kernel([warps], name="stuck_kernel")]), small_preset())


@pytest.fixture
def stuck_machine(monkeypatch):
    """A bank wants room for two requests towards DRAM, so with one place it never takes any. Its check is off."""
    monkeypatch.setattr("sim.host.gpu.check_machine", lambda machine: None)
    preset = small_preset("noc.bank_fifo=2", "noc.cu_fifo=1")
    return replace(preset, machine=replace_unit(preset.machine, l2={"dram_fifo": 1}))


def test_a_deadlock_counts_the_workgroups_that_are_left_and_names_fifos_from_the_first():
    """One workgroup ends, the two warps of the other two wait at different barriers."""
    ends, waits = [[compute(3)]] * 2, [[barrier(0, 64)], [barrier(1, 64)]]
    gpu = Gpu(small_preset().machine)
    with pytest.raises(DeadlockError, match=r" 2 workgroups left; .* at barriers 4, .* fifos not empty: none"):
        gpu.run_kernel(kernel([ends, waits, waits]), 0, None)
    gpu.node.fifos["tail"][[0, 2]] += 3
    assert f"not empty: {gpu.fifo_names[0]} 3 of" in str(deadlock(gpu.node, gpu.fifo_names, "k"))


def test_buffers_that_are_too_small_are_a_deadlock_that_names_the_fifos(stuck_machine):
    with pytest.raises(DeadlockError, match=r"l2.requests\d 8 of 62"):
        simulate(CommandSequence([kernel([[[lines(Kind.LOAD, A, 32, slot=1)] * 9]])]), stuck_machine)


def test_a_deadlock_under_a_line_trace_is_the_same_deadlock(stuck_machine):
    """The engine is asked for one window at a time, and still has to notice that nothing moves in several."""
    seen: list[str] = []

    def trace(line):
        seen.append(line)
        assert len(seen) < 10_000, "runs for ever"

    said = []
    for line_trace in (None, trace):
        with pytest.raises(DeadlockError, match="nothing can move") as caught:
            simulate(
                CommandSequence([kernel([[[lines(Kind.LOAD, A, 32, slot=1)] * 9]])]),
                stuck_machine,
                line_trace=line_trace,
            )
        said.append(str(caught.value))
    assert said[0] == said[1] and seen


def test_a_long_wait_is_not_a_deadlock():
    machine = small_preset("hbm.extra_latency_ps=5000000", "l1.mshrs=2", "noc.bank_fifo=2", "l2.mshrs=1")
    results = simulate(CommandSequence([kernel([[[lines(Kind.LOAD, A, 8, slot=1)]] * 2])]), machine)
    assert results.kernels[0].totals["l1.read_sectors"] == 16


def test_the_pipeline_of_a_bank_holds_all_hits_of_its_latency():
    again = [lines(Kind.LOAD, A, 32, slot=2, cache=Cache.BYPASS_L1)] * 40
    program = [lines(Kind.LOAD, A, 32, slot=1), wait(1), *again]
    machine = small_preset("l2.latency_clk=1500", "l1.mshrs=1024", "l2.banks=2")
    (result,) = simulate(CommandSequence([kernel([[program] * 8] * 8)]), machine).kernels
    assert result.totals["l1.read_sectors"] == 64 * 41 * 32


def test_the_line_trace_changes_nothing():
    one, seen = random_kernel(5), []
    plain = simulate(CommandSequence([one]), small_preset())
    traced = simulate(CommandSequence([one]), small_preset(), line_trace=seen.append)
    assert traced.kernels[0].totals == plain.kernels[0].totals and traced.kernels[0].end_ps == plain.kernels[0].end_ps
    assert len(seen) > 10 and all("cu " in line and " l2 " in line and " hbm " in line for line in seen)


@pytest.mark.slow
def test_the_compiler_changes_nothing():
    """The same kernels in plain Python, every counter and time; a few thousand accesses."""
    seeds = (0, 1)
    answer = subprocess.run(
        [sys.executable, "-m", "tests.support.plain_machine", *map(str, seeds)],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    compiled = json.loads(json.dumps([outcome(seed) for seed in seeds]))
    for plain, with_compiler in zip(json.loads(answer.stdout), compiled, strict=True):
        assert plain == with_compiler
