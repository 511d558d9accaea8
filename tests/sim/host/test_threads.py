"""One run on several threads: the same bytes in every record of the machine, for any number of threads."""

from dataclasses import replace

import numpy as np
import pytest

from sim.host import team
from sim.host.gpu import Gpu
from sim.host.state import State, named_arrays
from sim.host.team import use_threads
from sim.machine.deadlock import DeadlockError
from sim.presets import load_preset
from sim.run.one_gpu import simulate
from tests.support.programs import (
    barrier,
    compute,
    kernel,
    load,
    random_cluster_kernel,
    random_kernel,
    small_preset,
)
from tests.support.t3_cases import FOUR_WARPS, NARROW, T3Case
from tracer.gemm.source import Copy, Epilogue, GemmKernel, GemmProblem, GemmSource
from tracer.kernels import make_kernel
from tracer.sequence import CommandSequence

THREADS = (2, 3, 8)
SOURCE = GemmSource(GemmProblem(512, 512, 128))
WORDS_OF_THE_HOST = {"events", "addresses"}
"""Slabs of the trace window are as the host left them, whatever the machine did."""


def records(node):
    return {name: array.tobytes() for name, array in named_arrays(node).items() if name not in WORDS_OF_THE_HOST}


def after_kernel(machine, source, threads):
    """All records of a GPU that has run a kernel, its time series and its timeline."""
    gpu = Gpu(machine, interval_ps=500_000, threads=threads)
    gpu.run_kernel(source, 0, None)
    gpu.flush_l2()
    recorded = dict(vars(gpu.recorded()))
    series = {f"series {name}": values.tobytes() for name, values in recorded.pop("series").items()}
    return {**records(gpu.node), **series, **{name: values.tobytes() for name, values in recorded.items()}}


def differing(one, other):
    assert one.keys() == other.keys()
    return [name for name in one if one[name] != other[name]]


@pytest.mark.parametrize(
    ("preset", "source"),
    [
        ("t3_2024", SOURCE),
        ("v100", SOURCE),
        ("v100", make_kernel("layernorm:rows=128,cols=1024")),
        ("h100_sxm", make_kernel("layernorm:rows=128,cols=1024")),
    ],
    ids=["gemm-t3", "gemm-v100", "layernorm-v100", "layernorm-h100"],
)
def test_a_kernel_gives_the_same_bytes(preset, source):
    machine = load_preset(preset).machine
    one = after_kernel(machine, source, 1)
    for threads in THREADS:
        assert differing(one, after_kernel(machine, source, threads)) == [], threads


MANY_CUS = ("cu.count=32", "l2.banks=16", "hbm.channels=4", "noc.bank_fifo=3")
HALVES = (*MANY_CUS, "l2.partitions=2", "l2.far_latency_clk=9", "l2.far_bytes_per_clk=9")
DIES = (*MANY_CUS, "l2.partitions=4", "l2.sharing=private", "noc.ack_bytes=8", "l2.atomics_per_clk=0.5")
STORING = ("msc.present=true", "msc.bytes=65536", "msc.ways=4", "msc.latency_clk=9", "msc.mshrs=3", "msc.fifo=2")
PARTITIONED = {
    "far home": (*HALVES, "l2.sharing=home"),
    "copies": (*HALVES, "l2.sharing=copies", "l2.atomics_per_clk=0.5"),
    "dies": (*DIES, *STORING, "msc.replacement=random", "l2.replacement=random"),
    "written back": (*DIES, *STORING, "msc.write_back=true"),
    "stores": (*MANY_CUS, "l2.write=through", "l2.write_miss=all", "l2.dram_order=in_order"),
}


@pytest.mark.parametrize("name", PARTITIONED)
def test_partitions_and_a_storing_memory_side_cache_give_the_same_bytes(name):
    machine = small_preset(*PARTITIONED[name]).machine
    stores = "msc.present=true" in PARTITIONED[name]  # in very many short windows
    source = random_kernel(5, workgroups=40 if stores else 100, events=20)
    one = after_kernel(machine, source, 1)
    for threads in THREADS:
        assert differing(one, after_kernel(machine, source, threads)) == [], threads


COPYING = (*MANY_CUS, "cu.bulk_lines_per_clk=0.7", "cu.bulk_latency_clk=11", "l1.mshrs=20")
CLUSTERS = ("cu.groups=4", "cu.peer_latency_clk=13", "cu.peer_bytes_per_clk=9")
BULK_GEMM = GemmKernel(64, 64, 32, 2, 2, 3, copy=Copy.BULK)
COPIES = {
    "bulk": (COPYING, GemmSource(GemmProblem(512, 256, 128), BULK_GEMM)),
    "clusters": ((*COPYING, *CLUSTERS), random_cluster_kernel(3, clusters=20)),
    "gemm": (
        (*COPYING, *CLUSTERS),
        GemmSource(GemmProblem(512, 256, 128), replace(BULK_GEMM, cluster_m=2, cluster_n=2)),
    ),
}


@pytest.mark.parametrize("name", COPIES)
def test_bulk_copies_and_clusters_give_the_same_bytes(name):
    settings, source = COPIES[name]
    machine = small_preset(*settings).machine
    one = after_kernel(machine, source, 1)
    for threads in THREADS:
        assert differing(one, after_kernel(machine, source, threads)) == [], threads


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["t3_2024", "v100", "a100_80g", "h200", "accelsim_qv100", "h100_sxm", "b200"])
@pytest.mark.parametrize("seed", range(3))
def test_random_kernels_of_loads_stores_and_atomics_give_the_same_bytes(preset, seed):
    machine = load_preset(preset).machine
    source = random_kernel(seed, workgroups=120, events=30)
    one = after_kernel(machine, source, 1)
    for threads in (2, 4, 8):
        assert differing(one, after_kernel(machine, source, threads)) == [], threads


def after_collective(case, part, threads):
    with use_threads(threads):
        result, cluster = case.run(part)
    found = {
        f"{number} {name}": words
        for number, gpu in enumerate(cluster.gpus)
        for name, words in records(gpu.node).items()
    }
    return {**found, "time": result.time_ps, "exactly once": result.exactly_once}


@pytest.mark.parametrize("way", [(), ("l2.fabric=through", "l2.dram_order=in_order", "hbm.turn=row")])
@pytest.mark.parametrize("part", ["t3", "all_reduce"])
@pytest.mark.parametrize("explicit", [True, False])
def test_gpus_with_links_give_the_same_bytes(part, explicit, way):
    """Several threads for several GPUs, and several threads for each of them."""
    case = T3Case(128, 128, 64, gpus=4, explicit=explicit, settings=("cu.count=32", *way))
    one = after_collective(case, part, 1)
    for threads in THREADS:
        assert differing(one, after_collective(case, part, threads)) == [], threads


def test_bulk_copies_to_other_gpus_give_the_same_bytes():
    kernel = replace(FOUR_WARPS, epilogue=Epilogue.DETACHED)
    case = T3Case(192, 192, 64, 3, kernel, settings=(*NARROW, "cu.count=32", "link.topology=switch"))
    one = after_collective(case, "t3", 1)
    assert one["exactly once"]
    for threads in THREADS:
        assert differing(one, after_collective(case, "t3", threads)) == [], threads


@pytest.mark.slow
@pytest.mark.parametrize("part", ["t3", "rs", "rs_nmc", "ag", "all_reduce"])
def test_gpus_whose_buffers_are_full_give_the_same_bytes(part):
    for explicit in (True, False):
        case = T3Case(96, 96, 32, gpus=3, explicit=explicit, settings=(*NARROW, "cu.count=32"))
        one = after_collective(case, part, 1)
        for threads in (2, 5, 12):
            assert differing(one, after_collective(case, part, threads)) == [], threads


@pytest.mark.parametrize("threads", THREADS)
def test_a_deadlock_is_told_on_any_number_of_threads(threads):
    warps = [[barrier(0, 96)], [barrier(0, 96)], [compute(3), load(1 << 20, slot=1), barrier(1, 96)]]
    with use_threads(threads), pytest.raises(DeadlockError, match=r"nothing can move .* at barriers 3"):
        simulate(CommandSequence([kernel([warps])]), small_preset("cu.count=32"))


def test_a_line_trace_is_the_same_on_several_threads():
    told = []
    for threads in (1, 3):
        seen: list[str] = []
        with use_threads(threads):
            simulate(CommandSequence([SOURCE]), load_preset("v100"), line_trace=seen.append)
        told.append(seen)
    assert told[0] == told[1] and len(told[0]) > 10


def test_a_run_continues_on_another_number_of_threads():
    machine = load_preset("v100").machine
    whole, states = Gpu(machine, threads=2), []

    def note():
        state = whole.state()
        states.append(State(state.facts, {name: array.copy() for name, array in state.arrays.items()}))

    whole.run_kernel(SOURCE, 0, None, note)
    other = Gpu(machine, threads=3)
    other.run_kernel(SOURCE, 0, None, lambda: None, states[len(states) // 2])
    assert differing(records(whole.node), records(other.node)) == []


def test_an_interrupt_between_windows_ends_a_run_on_several_threads():
    machine = load_preset("v100").machine
    gpu = Gpu(machine, threads=2)

    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gpu.run_kernel(SOURCE, 0, None, interrupt)
    again, fresh = Gpu(machine, threads=2), Gpu(machine, threads=1)
    assert again.run_kernel(SOURCE, 0, None) == fresh.run_kernel(SOURCE, 0, None)
    assert np.array_equal(again.node.banks, fresh.node.banks)


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 2), (8, 8), (64, 8)])
def test_one_gpu_has_all_cores_up_to_eight_unless_a_number_is_chosen(cores, threads, monkeypatch):
    monkeypatch.delenv("T3SIM_THREADS")
    monkeypatch.setattr(team, "cores", lambda: cores)
    machine = load_preset("v100").machine
    assert Gpu(machine).threads == threads
    with use_threads(12):
        assert Gpu(machine).threads == 12
    assert Gpu(machine, threads=3).threads == 3
