"""Configurations: which runs they need, what a run depends on, and the phases put together."""

from dataclasses import replace

import numpy as np
import pytest

from sim.collective.chunks import chunks_of
from sim.gemm_facts import gpu_facts
from sim.presets import load_preset
from sim.run.result import KernelResult, RunResult
from sim.scenario.asked import ALL, asked_configurations
from sim.scenario.result import (
    ALL_CONFIGURATIONS,
    CONFIGURATIONS,
    COPY_ENGINES,
    DECOMPOSED,
    FLUX,
    IDEAL,
    IDEAL_NMC,
    LIBRARY,
    NVLS,
    RUNS,
    SEQUENTIAL,
    SOFTWARE,
    SWITCH_CONFIGURATIONS,
    T3,
    T3_MCA,
    TRAFFIC,
)
from sim.scenario.scenario import Scenario, assemble, check_scenario, runs_of, simulate_scenario
from tests.support.programs import small_preset
from tests.support.t3_cases import TILE, fp16_problem
from tracer.gemm.raster import TileOrder
from tracer.kernels import make_gemm
from tracer.workloads import aligned_problem
from traces.errors import UserError

LIBRARY_ROW = "collective.library=nccl_v100"
CASE = Scenario(small_preset(LIBRARY_ROW), fp16_problem(96, 80, 32), TILE, 3)


def made(number):
    """A result whose every figure tells which run it is."""
    traffic = np.arange(4) + 10 * number
    kernel = KernelResult("", 0, 1000 * number, {}, {})
    return RunResult(CASE.preset, {}, {}, [kernel], mean_dram_bytes=traffic, link_bytes=7 * number)


MADE = {name: made(number) for number, name in enumerate(RUNS, 1)}  # gemm 1, rs 2, rs_nmc 3, ag 4, t3 5, t3_mca 6


def test_runs_that_configurations_need():
    assert runs_of(CONFIGURATIONS) == list(RUNS[:6]) and runs_of(ALL_CONFIGURATIONS) == list(RUNS)
    assert runs_of([FLUX, COPY_ENGINES]) == ["ag", "copy_engines", "flux", "add", "ag_copies"]
    assert runs_of([T3]) == ["ag", "t3"] and runs_of([IDEAL_NMC, SEQUENTIAL]) == ["gemm", "rs", "rs_nmc", "ag"]


def test_phases_and_traffic_are_those_of_the_runs():
    found = assemble(CASE, MADE).configurations
    times = {name: (one.time_ps, one.gemm_ps, one.rs_ps, one.ag_ps) for name, one in found.items()}
    assert times == {
        SEQUENTIAL: (7000, 1000, 2000, 4000),
        T3: (9000, 5000, 5000, 4000),
        T3_MCA: (10000, 6000, 6000, 4000),
        IDEAL: (6000, 1000, 2000, 4000),
        IDEAL_NMC: (7000, 1000, 3000, 4000),
    }
    # Columns of TRAFFIC: each stream of the GEMM or fused kernel, then what RS and AG read and write in all streams.
    scattered, gathered = [12 + 20 + 22, 13 + 21 + 23], [40 + 42, 41 + 43]
    assert list(found[SEQUENTIAL].dram_bytes.values()) == [10, 11, *scattered, *gathered]
    assert list(found[T3].dram_bytes) == list(TRAFFIC)
    assert list(found[T3].dram_bytes.values()) == [50, 51, 52, 53, *gathered]
    assert (found[SEQUENTIAL].link_bytes, found[T3_MCA].link_bytes) == (7 * 7, 7 * 10)


def test_lines_of_a_collective_that_leave_l2_later_are_its_writes():
    """The chunk that arrives and the sum; then the chunks that arrive."""
    case = replace(CASE, problem=fp16_problem(96, 96, 32), preset=small_preset("collective.cache=allocate"))
    found = simulate_scenario(case, [SEQUENTIAL])
    moved, output_bytes = found.configurations[SEQUENTIAL].dram_bytes, 96 * 96 * 2
    assert sum(moved.values()) == sum(int(run.dram_bytes.sum()) for run in found.runs.values())
    assert (moved["gemm_writes"], moved["rs_writes"]) == (output_bytes, output_bytes)
    assert moved["ag_writes"] == output_bytes * 2 // 3


def test_software_needs_no_tracker_whatever_the_preset_has():
    """Parts of wavefronts are a feature of the Tracker; software has flags for whole tiles."""
    changes = ("tracker.granularity=wavefront", "link.topology=switch", "link.in_switch=true")
    case = replace(CASE, preset=small_preset(LIBRARY_ROW, *changes))
    check_scenario(case, [T3, *SOFTWARE])
    assert case.run("flux").execute().exactly_once and case.run("copy_engines").execute().exactly_once


def test_what_the_owner_adds_follows_the_gemm():
    found = assemble(CASE, MADE, SOFTWARE).configurations
    times = {name: (one.time_ps, one.gemm_ps, one.rs_ps, one.ag_ps) for name, one in found.items()}
    gemms, add, ag, copies = (7000, 8000, 9000), 10000, 4000, 11000
    gathers = (ag, copies, ag)
    assert list(times.values()) == [(g + add + a, g, g + add, a) for g, a in zip(gemms, gathers, strict=True)]
    assert list(found[FLUX].dram_bytes.values()) == [90, 91, 92 + 100 + 102, 93 + 101 + 103, 40 + 42, 41 + 43]
    assert found[COPY_ENGINES].link_bytes == 7 * (8 + 10 + 11)


def test_an_all_reduce_in_one_kernel_follows_the_gemm():
    found = assemble(CASE, MADE, (LIBRARY, NVLS)).configurations
    times = {name: (one.time_ps, one.gemm_ps, one.rs_ps, one.ag_ps) for name, one in found.items()}
    assert times == {LIBRARY: (16000, 1000, 0, 15000), NVLS: (13000, 1000, 0, 12000)}
    assert found[LIBRARY].link_bytes == 7 * (1 + 15)


def test_a_machine_without_a_library_is_refused():
    plain = replace(CASE, preset=small_preset())
    with pytest.raises(UserError, match=r"collective\.library: found plain .*, allowed for Library is a row of"):
        check_scenario(plain, (LIBRARY,))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("collective.warps=64", r"warps = 64, .* = 0: workgroup of 2048 threads, allowed are 1 to cu.workgroup_thr"),
        ("collective.shared_bytes=1048576", r"collective.shared_bytes = 1048576: .*not fit on a CU: cu.shared_bytes ="),
    ],
)
def test_a_collective_that_fits_no_cu_is_refused_before_the_gemm_runs(value, words):
    large = replace(CASE, preset=small_preset(value))
    with pytest.raises(UserError, match=words):
        check_scenario(large, (SEQUENTIAL,))


def test_one_cu_for_the_two_halves_of_nvls_is_refused_before_the_gemm_runs():
    """On a machine whose switch adds."""
    one = ("collective.cus=1", "link.topology=switch", "link.in_switch=true")
    with pytest.raises(UserError, match=r"collective.cus: found 1, allowed for NVLS are 2 and more"):
        check_scenario(replace(CASE, preset=small_preset(*one)), (NVLS,))


def test_one_run_whose_ledger_disagrees_spoils_those_that_need_it():
    bad = {**MADE, "rs": replace(MADE["rs"], exactly_once=False, wrong=("GPU 1: triggers",))}
    found = assemble(CASE, bad)
    assert {name for name, one in found.configurations.items() if not one.exactly_once} == {SEQUENTIAL, IDEAL}
    assert found.as_dict()["configurations"][IDEAL]["ledger"] == {
        "exactly_once": False,
        "wrong": ["rs: GPU 1: triggers"],
    }


def test_output_and_zeroing_bytes_count_whole_sectors():
    """96 x 80 in tiles of 32 x 32: nine tiles of 2048 bytes or, the narrow third column, 1024."""
    found = assemble(CASE, MADE)
    assert found.output_bytes == 96 * 80 * 2 and found.zeroing_bytes == found.output_bytes * 2 // 3


def test_without_a_ring_only_the_own_chunk_is_cleared():
    """The stores add to it in place; all others leave."""
    straight = replace(CASE, preset=small_preset(LIBRARY_ROW, "link.topology=fully_connected"))
    found = assemble(straight, MADE)
    assert found.zeroing_bytes == found.output_bytes // 3


def test_zeroing_is_the_mean_of_gpus_with_chunks_of_different_sizes():
    """Each GPU clears all but its first chunk, and each chunk is the first of one GPU."""
    found = assemble(replace(CASE, chunks=chunks_of((1, 1, 7))), MADE)
    assert found.zeroing_bytes == found.output_bytes * 2 // 3


@pytest.mark.parametrize("arbiter", ["mca_fixed", "compute_first"])
def test_an_arbiter_in_place_of_mca_is_that_of_t3_mca_only(arbiter):
    other = replace(CASE, preset=small_preset(LIBRARY_ROW, f"hbm.arbiter={arbiter}"))
    changed = [name for name in RUNS if CASE.run(name).key != other.run(name).key]
    assert changed == ["t3_mca"] and other.run("t3_mca").arbiter().name.lower() == arbiter


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"gpus": 2}, {"gemm"}),
        (
            {"problem": fp16_problem(96, 80, 64)},
            {"rs", "rs_nmc", "ar_nvls", "rs_nvls", "ag", "ag_nvls", "add", "ag_copies", "ar_library"},
        ),  # K does not concern collectives
        (
            {"kernel": replace(TILE, pipeline_depth=3)},
            {"rs", "rs_nmc", "ar_nvls", "rs_nvls", "ag", "ag_nvls", "add", "ar_library"},
        ),
        ({"kernel": replace(TILE, tile_m=16)}, {"ar_library"}),  # a library knows no tiles
        ({"preset": small_preset(LIBRARY_ROW, "hbm.queue_entries=32")}, set()),
        ({"explicit": True}, {"gemm", "ar_library"}),
        ({"chunks": chunks_of((2, 3, 4))}, {"gemm", "ar_library"}),
        ({"chunks": chunks_of((3, 3, 3))}, set(RUNS)),  # what even chunks are
        ({"interval_ps": 5}, set()),
    ],
)
def test_what_a_run_depends_on(change, same):
    other = replace(CASE, **change)
    assert {name for name in RUNS if CASE.run(name).key == other.run(name).key} == same
    assert len({CASE.run(name).key for name in RUNS}) == len(RUNS)


def test_a_gemm_that_sends_its_tiles_may_have_a_kernel_of_its_own():
    """Four runs use it; their keys change, and no other."""
    switch = small_preset(LIBRARY_ROW, "link.topology=switch", "link.in_switch=true")
    own = replace(CASE, preset=switch, fused_kernel=replace(TILE, order=TileOrder.COLUMN))
    plain = replace(own, fused_kernel=None)
    changed = [name for name in RUNS if own.run(name).key != plain.run(name).key]
    assert changed == ["t3", "t3_mca", "flux", "t3_nvls"] and own.run("flux").source.kernel == own.fused_kernel
    assert own.input()["fused_kernel"] != plain.run("flux").input()["kernel"] and "fused_kernel" not in plain.input()
    assert simulate_scenario(own, [T3, FLUX]).configurations[FLUX].exactly_once


@pytest.mark.parametrize(("overrides", "group"), [([], 1), (["dispatch.chunks=one_by_one"], None)])
def test_the_library_chooses_bands_for_tiles_of_all_chunks_in_turn(overrides, group):
    scenario = Scenario.of_library(load_preset("h100_sxm", overrides), aligned_problem(8192, 4096, 1024), 8)
    assert scenario.kernel.group == 16
    assert scenario.fused_kernel == (replace(scenario.kernel, group=group) if group else None)
    ring = load_preset("h100_sxm", ["link.topology=ring", "link.in_switch=false", *overrides])
    assert Scenario.of_library(ring, aligned_problem(8192, 4096, 1024), 8).fused_kernel is None


@pytest.mark.parametrize(
    "text", ["gemm:m=24,n=64,k=64", "gemm:m=100,n=672,k=64", "gemm:m=200,n=336,k=64", "gemm:m=3000,n=672,k=128"]
)
def test_every_configuration_can_run_the_kernels_that_the_library_chooses(text):
    """With warps of 16 bytes, tiles of 336 bytes, clusters that do not divide all pieces, and pieces of both kinds."""
    preset = load_preset("h100_sxm")
    own = make_gemm(text, gpu_facts(preset.machine)).source
    scenario = Scenario(preset, own.problem, own.kernel, 2 if "m=24," in text else 4).with_library()
    check_scenario(scenario, asked_configurations([ALL], preset))
    assert scenario.input()["gpus"] == scenario.gpus and scenario.alone().kernel == own.kernel


def test_pieces_have_a_kernel_of_their_own():
    """Only Decomposed uses it; its key changes, and no other."""
    small = replace(TILE, tile_m=TILE.tile_m // 2)
    pieces = replace(CASE, preset=small_preset(LIBRARY_ROW, "link.topology=switch"), piece_kernel=small)
    plain = replace(pieces, piece_kernel=None)
    changed = [name for name in RUNS[:-2] if pieces.run(name).key != plain.run(name).key]
    assert changed == ["decomposed"] and pieces.run("decomposed").source.kernel == small
    assert (
        pieces.input()["piece_kernel"] != plain.run("decomposed").input()["kernel"]
        and "piece_kernel" not in plain.input()
    )
    result = simulate_scenario(pieces, [DECOMPOSED])
    assert result.configurations[DECOMPOSED].exactly_once
    assert result.runs["decomposed"].link_bytes > 0


@pytest.mark.parametrize("topology", ["ring", "fully_connected"])
def test_all_has_nothing_in_the_switch_where_there_is_no_switch(topology):
    preset = load_preset("h100_sxm", [f"link.topology={topology}"])
    assert preset.machine.link.in_switch and not {*SWITCH_CONFIGURATIONS} & {*asked_configurations([ALL], preset)}
