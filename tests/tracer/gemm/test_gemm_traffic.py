"""Traffic of synthesised GEMMs: every element exactly as often as the tiles need it, and real hardware counters."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.gemm_cases import at_site, gemms
from tests.support.gemm_twin import naive_items, needed_operands, needed_outputs, touches
from tests.support.request_count import count_requests
from tracer.gemm.plan import Site
from tracer.gemm.source import Copy, GemmKernel, GemmProblem, GemmSource, Layout
from traces.schema import Kind

COUNTERS = Path(__file__).parents[3] / "validation" / "references" / "v100_gemm_counters.csv"


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(gemms())
def test_each_workgroup_touches_what_its_tiles_need_exactly_once(gemm):
    problem, kernel = gemm
    source = GemmSource(problem, kernel)
    for workgroup in source.workgroups():
        items = naive_items(problem, kernel, workgroup.index)
        a, b = needed_operands(problem, kernel, items)
        np.testing.assert_array_equal(touches(problem.a, at_site(workgroup, Site.LOAD_A)), a)
        np.testing.assert_array_equal(touches(problem.b, at_site(workgroup, Site.LOAD_B)), b)
        stored = touches(problem.c, at_site(workgroup, Site.STORE))
        np.testing.assert_array_equal(stored, needed_outputs(problem, kernel, items))
        first_splits = [item for item in items if item[2] == 0 and problem.with_c]
        loaded = touches(problem.c_source, at_site(workgroup, Site.LOAD_SOURCE))
        np.testing.assert_array_equal(loaded, needed_outputs(problem, kernel, first_splits))


@settings(max_examples=60, deadline=None)
@given(gemms())
def test_all_workgroups_store_all_of_c(gemm):
    problem, kernel = gemm
    source = GemmSource(problem, kernel)
    stored = sum(touches(problem.c, at_site(workgroup, Site.STORE)) for workgroup in source.workgroups())
    assert (stored == kernel.split_k).all()


@settings(max_examples=60, deadline=None)
@given(gemms())
def test_operands_of_a_step_share_the_slot_of_its_stage(gemm):
    problem, kernel = gemm
    for workgroup in GemmSource(problem, kernel).workgroups():
        for slot in range(kernel.pipeline_depth):
            for site, matrix, k_axis in ((Site.LOAD_A, problem.a, 1), (Site.LOAD_B, problem.b, 0)):
                events = at_site(workgroup, site)
                touched = touches(matrix, events[events["slot"] == slot])
                steps = np.nonzero(touched.any(axis=1 - k_axis))[0] // kernel.tile_k
                assert (steps % kernel.pipeline_depth == slot).all()


def test_aligned_rows_use_full_vectors_and_ragged_ends_narrower_ones():
    problem = GemmProblem(16, 16, 266, lda=272)  # the last K-step has 10 elements, 20 bytes
    (workgroup,) = GemmSource(problem, GemmKernel(16, 16, 32, 1, 1)).workgroups()
    loads = at_site(workgroup, Site.LOAD_A)
    assert sorted(set(loads["width_bytes"][:-2].tolist())) == [4, 16]
    last_step = (loads["base"] - problem.a.address) % 544 >= 512
    assert set(loads["width_bytes"][last_step].tolist()) == {4}
    assert set(loads["width_bytes"][~last_step].tolist()) == {16}


def test_unaligned_pitch_narrows_every_row():
    problem = GemmProblem(16, 16, 64, lda=65)
    (workgroup,) = GemmSource(problem, GemmKernel(16, 16, 32, 1, 1)).workgroups()
    assert set(at_site(workgroup, Site.LOAD_A)["width_bytes"].tolist()) == {2}
    assert set(at_site(workgroup, Site.LOAD_B)["width_bytes"].tolist()) == {16}


def measured(name):
    with COUNTERS.open() as file:
        return next(row for row in csv.DictReader(file) if row["kernel"] == name)


def sectors_of(source):
    """Sectors that a kernel asks for, by Kind."""
    lines, sectors = np.zeros((2, 5), np.int64)
    for workgroup in source.workgroups():
        count_requests(workgroup.events, workgroup.addresses, lines, sectors)
    return sectors


def hardware_case(name):
    """The kernel behind a row of the counters: B column-major as in the CUDA sample, fp32 C read by the last one."""
    row = measured(name)
    tensor_core_sample = name == "cudaTensorCoreGemm"
    problem = GemmProblem(
        int(row["M"]),
        int(row["N"]),
        int(row["K"]),
        b_layout=Layout.COLUMN,
        c_bytes=4 if tensor_core_sample else 2,
        with_c=tensor_core_sample,
    )
    tile = (int(row["tile_M"]), int(row["tile_N"]), int(row["tile_K"]))
    return row, problem, GemmKernel(*tile, persistent=80 if tensor_core_sample else None)


@pytest.mark.parametrize(
    "name", ["cutlass_perf_test_k1", "cutlass_perf_test_k2", "cutlass_perf_test_k3", "cudaTensorCoreGemm"]
)
def test_l1_read_sectors_equal_the_hardware_counters(name):
    row, problem, kernel = hardware_case(name)
    sectors = sectors_of(GemmSource(problem, kernel))
    assert sectors[Kind.LOAD] == int(row["l1_read_miss_sectors"])
    assert sectors[Kind.STORE] == problem.output_bytes // 32


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("copy", [Copy.LDG, Copy.ASYNC, Copy.LDG_SINGLE])
def test_counters_hold_for_either_layout_of_b_and_either_copy(layout, copy):
    row = measured("cutlass_perf_test_k1")
    problem = GemmProblem(2560, 16, 2560, b_layout=layout)
    sectors = sectors_of(GemmSource(problem, GemmKernel(tile_k=64, copy=copy)))
    assert sectors[Kind.LOAD] + sectors[Kind.ASYNC_COPY] == int(row["l1_read_miss_sectors"])


def test_waves_of_the_persistent_kernel_need_what_its_l2_misses():
    """Workgroups in phase miss each panel once per wave: 13 x B + 38 row panels of A + C."""
    row, problem, kernel = hardware_case("cudaTensorCoreGemm")
    tiles = GemmSource(problem, kernel).output_tiles()
    panels = 0
    for first in range(0, tiles.size, kernel.persistent):
        wave = tiles[first : first + kernel.persistent]
        panels += np.unique(wave["row"]).size + np.unique(wave["column"]).size
    panel_sectors = 128 * problem.k * 2 // 32
    assert panels * panel_sectors + problem.output_bytes // 32 == int(row["l2_read_miss_sectors"]) == 16_973_824


def k_slice(problem, rank, ranks):
    """The share of `rank` when K is cut into equal slices that stay where they are in the whole A and B."""
    a, b, k = problem.a, problem.b, problem.k // ranks
    return replace(
        problem,
        k=k,
        lda=a.leading_dimension,
        ldb=b.leading_dimension,
        a_address=a.address + rank * k * (a.element_bytes if a.layout == Layout.ROW else a.pitch_bytes),
        b_address=b.address + rank * k * (b.pitch_bytes if b.layout == Layout.ROW else b.element_bytes),
        c_address=problem.c.address,
        c_source_address=problem.c_source.address,
    )


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(gemms(), st.integers(1, 4))
def test_slices_of_k_together_read_the_whole_operands(gemm, ranks):
    problem, kernel = gemm
    problem = replace(problem, k=problem.k * ranks, lda=None, ldb=None)
    kernel = replace(kernel, split_k=1)

    def loads(part):
        events = np.concatenate([workgroup.events for workgroup in GemmSource(part, kernel).workgroups()])
        sites = (Site.LOAD_A, Site.LOAD_B)
        return [touches(m, events[events["pc"] == 16 * s]) for m, s in zip((problem.a, problem.b), sites, strict=True)]

    slices = [loads(k_slice(problem, rank, ranks)) for rank in range(ranks)]
    for whole, parts in zip(loads(problem), zip(*slices, strict=True), strict=True):
        np.testing.assert_array_equal(whole, sum(parts))
