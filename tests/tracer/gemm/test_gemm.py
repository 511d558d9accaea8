"""Programs, order, resources and errors of synthesised GEMMs."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.gemm_cases import LOADS, SMALL, STEP, at_site, gemms, program
from tests.support.gemm_twin import naive_walk
from tests.support.lane_twin import lane_addresses
from tracer.gemm.plan import Site, Slot
from tracer.gemm.raster import walk
from tracer.gemm.source import Copy, Epilogue, GemmKernel, GemmProblem, GemmSource, Layout, TileOrder
from traces.errors import UserError
from traces.schema import NO_SLOT, Kind, Pipe, Space

ONE_WARP = GemmKernel(32, 32, 32, 1, 1, registers=128)  # three K-steps


def test_double_buffered_program_loads_one_step_ahead():
    share = ["SHARE", "STAGE_BARRIER"]
    steps = [*share, *LOADS, *STEP, *share, *LOADS, *STEP, *share, *STEP]
    assert program(ONE_WARP) == ["SETUP", *LOADS, *steps, "CONVERT", "STORE", "EXIT"]


def test_program_without_pipeline_waits_for_every_step():
    kernel = GemmKernel(32, 32, 32, 1, 1, pipeline_depth=1, registers=128)
    step = [*LOADS, "SHARE", "STAGE_BARRIER", *STEP]
    steps = [*step, "REUSE_BARRIER", *step, "REUSE_BARRIER", *step]
    assert program(kernel) == ["SETUP", *steps, "CONVERT", "STORE", "EXIT"]


def test_async_program_of_depth_three_fills_two_stages_first():
    kernel = GemmKernel(32, 32, 32, 1, 1, pipeline_depth=3, copy=Copy.ASYNC, registers=128)
    steps = ["STAGE_BARRIER", *LOADS, *STEP, "STAGE_BARRIER", *STEP, "STAGE_BARRIER", *STEP]
    assert program(kernel) == ["SETUP", *LOADS, *LOADS, *steps, "CONVERT", "STORE", "EXIT"]


def test_fragments_in_pieces_are_asked_for_one_piece_ahead():
    kernel = GemmKernel(32, 32, 32, 1, 1, pipeline_depth=3, fragment_pieces=2, copy=Copy.ASYNC, registers=128)
    first = ["STAGE_BARRIER", *STEP, *LOADS]  # loads of the third step, behind the first arithmetic
    steps = [*first, "STAGE_BARRIER", *STEP, *STEP, "STAGE_BARRIER", *STEP, *STEP]
    assert program(kernel) == ["SETUP", *LOADS, *LOADS, *steps, "CONVERT", "STORE", "EXIT"]


def test_one_buffer_is_written_when_all_warps_have_read_it():
    kernel = GemmKernel(32, 32, 32, 1, 1, pipeline_depth=3, copy=Copy.LDG_SINGLE, registers=128)
    share = ["SHARE", "STAGE_BARRIER"]
    steps = [*share, *LOADS, *STEP, "REUSE_BARRIER", *share, *STEP, "REUSE_BARRIER", *share, *STEP]
    assert program(kernel) == ["SETUP", *LOADS, *LOADS, *steps, "CONVERT", "STORE", "EXIT"]
    pieces = replace(kernel, fragment_pieces=2)
    first = [*share, *STEP, *LOADS]
    steps = [*first, "REUSE_BARRIER", *share, *STEP, *STEP, "REUSE_BARRIER", *share, *STEP, *STEP]
    assert program(pieces) == ["SETUP", *LOADS, *LOADS, *steps, "CONVERT", "STORE", "EXIT"]
    reuse = at_site(GemmSource(SMALL, pieces).workgroup(0), Site.REUSE_BARRIER)
    assert reuse["wait"].astype(bool).all()  # its own reads have come
    sizes = [GemmSource(SMALL, replace(kernel, copy=copy)).info.shared_bytes for copy in Copy]
    assert sizes == [2 * sizes[2], 3 * sizes[2], 2 * 2 * 32 * 32, *[3 * sizes[2]] * 2]


def test_pieces_add_up_to_the_work_and_bytes_of_the_whole():
    def sums(pieces):
        kernel = GemmKernel(32, 32, 32, 1, 1, pipeline_depth=3, fragment_pieces=pieces, registers=128)
        workgroup = GemmSource(SMALL, kernel).workgroup(0)
        fragments, tensor = at_site(workgroup, Site.FRAGMENTS), at_site(workgroup, Site.TENSOR)
        return int(fragments["count"].sum()), int(tensor["work"].sum()), int(tensor["count"].sum())

    assert sums(1) == sums(2) == sums(4)


def test_staged_epilogue_with_c_passes_through_shared_memory():
    kernel = GemmKernel(32, 32, 96, 1, 1, epilogue=Epilogue.STAGED, registers=128)
    with_c = GemmProblem(32, 32, 96, with_c=True)
    a_pass = ["REUSE_BARRIER", "STAGE_OUT", "STAGE_BARRIER", "STAGE_IN", "CONVERT", "STORE"]
    assert program(kernel, with_c)[-26:-1] == ["LOAD_SOURCE", *a_pass * 4]  # 8 of 32 rows each


@pytest.mark.slow
@settings(deadline=None)
@given(gemms())
def test_warps_agree_on_barriers_and_end_with_exit(gemm):
    source = GemmSource(*gemm)
    for workgroup in source.workgroups():
        assert workgroup.first_event[0] == 0
        assert workgroup.first_event[-1] == workgroup.events.size
        assert workgroup.warp.tolist() == list(range(source.info.warps_per_workgroup))
        ends = workgroup.first_event[1:] - 1
        assert (workgroup.events["kind"][ends] == Kind.EXIT).all()
        assert (workgroup.events["kind"] == Kind.EXIT).sum() == ends.size
        warps = np.split(workgroup.events, workgroup.first_event[1:-1])
        barriers = [warp["pc"][warp["kind"] == Kind.BARRIER].tolist() for warp in warps]
        assert all(b == barriers[0] for b in barriers)


@pytest.mark.slow
@settings(deadline=None)
@given(gemms())
def test_every_slot_that_is_set_is_waited_for_before_it_is_set_for_another_step(gemm):
    """A wait that comes too late would let a step read the data of another."""
    problem, kernel = gemm
    for workgroup in GemmSource(problem, kernel).workgroups():
        for warp in np.split(workgroup.events, workgroup.first_event[1:-1]):
            busy = {}
            for event in warp:
                busy = {s: place for s, place in busy.items() if not int(event["wait"]) >> s & 1}
                loads = event["kind"] in (Kind.LOAD, Kind.ASYNC_COPY) and event["space"] == Space.GLOBAL
                if event["slot"] < kernel.pipeline_depth and loads:
                    # a stage's loads of B follow those of A; A after B means a new step, or another portion
                    pc, portions = busy.get(int(event["slot"]), (None, 1))
                    portions += pc == Site.LOAD_B and event["pc"] == 16 * Site.LOAD_A
                    assert portions <= max(1, kernel.fragment_pieces - 1)
                    busy[int(event["slot"])] = event["pc"] // 16, portions
            stages = [s for s in busy if s < kernel.pipeline_depth]
            assert not stages, "loads that nobody waits for"


def test_arithmetic_is_that_of_whole_tiles():
    problem = GemmProblem(100, 70, 45)
    kernel = GemmKernel(64, 64, 32, 2, 2)
    source = GemmSource(problem, kernel)
    tensor = np.concatenate([w.events[w.events["pipe"] == Pipe.TENSOR] for w in source.workgroups()])
    assert tensor["work"].sum() == 128 * 128 * 64
    assert set((tensor["work"] // tensor["count"]).tolist()) == {2048}


def test_shared_memory_volume_follows_from_count_lanes_and_width():
    workgroup = GemmSource(GemmProblem(128, 128, 64), GemmKernel()).workgroup(0)

    def volume(site):
        events = at_site(workgroup, site)
        return sum(int(e["count"]) * int(e["mask"]).bit_count() * int(e["width_bytes"]) for e in events)

    assert volume(Site.SHARE) == 2 * (128 * 32 + 32 * 128) * 2  # two K-steps of both operands
    assert volume(Site.FRAGMENTS) == 2 * 8 * 32 * (32 + 64) * 2  # 8 warps, parts of 32 x 64


@pytest.mark.parametrize("warps, passes", [((4, 2), 4), ((2, 4), 8), ((2, 2), 8), ((8, 1), 2)])
def test_a_staged_epilogue_moves_all_sums_in_passes_of_eight_rows_of_a_warp(warps, passes):
    problem, kernel = GemmProblem(128, 128, 64), GemmKernel(128, 128, 32, *warps, epilogue=Epilogue.STAGED)
    source = GemmSource(problem, replace(kernel, registers=200))
    workgroup = source.workgroup(0)
    assert source.info.shared_bytes == max(2 * 32 * 256 * 2, 128 * 128 * 4 // passes)
    for site in (Site.STAGE_OUT, Site.STAGE_IN):
        events = at_site(workgroup, site)
        assert events.size == kernel.warps * passes
        assert int(events["count"].sum()) * 32 * 16 == 128 * 128 * 4
    assert int(at_site(workgroup, Site.CONVERT)["count"].sum()) * 32 == 128 * 128
    warp = workgroup.events[: workgroup.first_event[1]]
    before = np.flatnonzero(warp["pc"] == 16 * Site.STAGE_OUT)
    for first, end in pairwise([*before, warp.size]):
        stores = warp[first:end][warp[first:end]["pc"] == 16 * Site.STORE]
        assert (
            int(sum(int(mask).bit_count() for mask in stores["mask"])) * 16 == 128 * 128 * 2 // kernel.warps // passes
        )


@pytest.mark.parametrize("pieces", [1, 2, 4])
def test_instructions_beside_accesses_and_before_the_stores(pieces):
    program = {"setup": 240, "setup_out": 560, "access": 6, "fragment_pieces": pieces}
    kernel = GemmKernel(64, 64, 32, 2, 2, vector_bytes=2, lane_bytes=16, **program)
    workgroup = GemmSource(GemmProblem(64, 64, 64), kernel).workgroup(0)
    accesses = at_site(workgroup, Site.LOAD_A, Site.LOAD_B, Site.STORE).size
    assert accesses == (2 * 2 * 64 * 32 + 64 * 64) // 32
    plain = GemmSource(GemmProblem(64, 64, 64), replace(kernel, access=0)).workgroup(0)
    between = [int(at_site(each, Site.TENSOR)["count"].sum()) for each in (workgroup, plain)]
    first, second = 6 * 2 * 64 * 32 // 32, between[0] - between[1]
    assert second == first  # those of the second step stand between matrix instructions
    assert int(at_site(workgroup, Site.ADDRESSES)["count"].sum()) == 4 * 560 + 6 * accesses - second
    assert at_site(workgroup, Site.SETUP)["count"].tolist() == [240] * 4
    assert set(at_site(workgroup, Site.ADDRESSES)["pipe"].tolist()) == {Pipe.ALU}


def test_a_lane_keeps_its_vector_if_accesses_are_narrower():
    """Rows of 65 elements: eight accesses of two bytes; in each of them the lanes are 16 bytes apart."""
    problem = GemmProblem(32, 32, 65)
    kernel = GemmKernel(32, 32, 32, 1, 1, lane_bytes=16, registers=128)
    workgroup = GemmSource(problem, kernel).workgroup(0)
    loads = at_site(workgroup, Site.LOAD_A)
    assert set(loads["width_bytes"].tolist()) == {2} and set(loads["stride"].tolist()) == {16}
    first = loads[:8]
    assert (first["base"] - problem.a.address).tolist() == list(range(0, 16, 2))
    assert set(first["inner"].tolist()) == {4} and set(first["row_stride"].tolist()) == {130}
    plain = GemmSource(problem, replace(kernel, lane_bytes=0)).workgroup(0)
    # Two whole steps alike; of the column that is left, 8 rows at a time instead of one.
    assert (len(loads), len(at_site(plain, Site.LOAD_A))) == (64 + 4, 64 + 32)
    aligned = GemmProblem(32, 32, 64)
    same = [GemmSource(aligned, replace(kernel, lane_bytes=size)).workgroup(0).events for size in (0, 16)]
    assert np.array_equal(*same)


@pytest.mark.parametrize("tile_k", [4, 12])
def test_a_vector_of_a_lane_must_fit_the_rows_of_a_tile(tile_k):
    kernel = GemmKernel(32, 32, tile_k, 1, 1, vector_bytes=2, lane_bytes=8, registers=128)
    assert GemmSource(SMALL, kernel).workgroup(0).events.size
    with pytest.raises(UserError, match=rf"lane_bytes = 16 does not fit A: {2 * tile_k} adjacent bytes per tile"):
        GemmSource(SMALL, replace(kernel, lane_bytes=16))


def test_last_tensor_instructions_guard_the_epilogue():
    workgroup = GemmSource(SMALL, ONE_WARP).workgroup(0)
    assert at_site(workgroup, Site.TENSOR)["slot"].tolist() == [NO_SLOT, NO_SLOT, Slot.ACCUMULATORS]
    assert int(at_site(workgroup, Site.CONVERT)["wait"][0]) >> Slot.ACCUMULATORS & 1
    assert (at_site(workgroup, Site.STORE)["wait"] == 1 << Slot.OUTPUT).all()


def test_split_k_adds_with_reductions():
    source = GemmSource(SMALL, GemmKernel(32, 32, 32, 1, 1, split_k=3, registers=128))
    assert source.info.workgroups == 3
    assert source.info.grid == (1, 1, 3)
    for workgroup in source.workgroups():
        assert (at_site(workgroup, Site.STORE)["kind"] == Kind.REDUCE).all()


@pytest.mark.parametrize("epilogue, run_bytes", [(Epilogue.DIRECT, 128), (Epilogue.STAGED, 256)])
def test_staging_widens_the_rows_of_a_store(epilogue, run_bytes):
    workgroup = GemmSource(GemmProblem(128, 128, 32), GemmKernel(epilogue=epilogue)).workgroup(0)
    stores = at_site(workgroup, Site.STORE)
    assert set((stores["inner"].astype(int) * stores["width_bytes"]).tolist()) == {run_bytes}


@settings(deadline=None)
@given(st.sampled_from(TileOrder), st.integers(1, 9), st.integers(1, 12), st.integers(1, 12), st.data())
def test_walks_are_permutations_and_stagger_rotates_them(order, group, tiles_m, tiles_n, data):
    start = data.draw(st.integers(0, tiles_m * tiles_n - 1))
    plain = [tuple(tile) for tile in walk(int(order), group, tiles_m, tiles_n, 0).tolist()]
    assert sorted(plain) == [(r, c) for r in range(tiles_m) for c in range(tiles_n)]
    assert plain == naive_walk(order, group, tiles_m, tiles_n)
    rotated = [tuple(tile) for tile in walk(int(order), group, tiles_m, tiles_n, start).tolist()]
    assert rotated == plain[start:] + plain[:start]


@pytest.mark.slow
@settings(deadline=None)
@given(gemms())
def test_output_tiles_are_what_workgroups_store(gemm):
    problem, kernel = gemm
    source = GemmSource(problem, kernel)
    tiles = source.output_tiles()
    assert (tiles["runs"] * tiles["run_bytes"]).sum() == problem.output_bytes
    if kernel.persistent is None:
        for workgroup in source.workgroups():
            tile = tiles[workgroup.index % source.tiles]
            stores = at_site(workgroup, Site.STORE)
            assert stores["base"].min() == tile["address"]
            lanes = np.array([int(mask).bit_count() for mask in stores["mask"]])
            assert (lanes * stores["width_bytes"]).sum() == tile["runs"] * tile["run_bytes"]


@pytest.mark.slow
@settings(deadline=None)
@given(gemms())
def test_the_parts_of_output_tiles_are_what_each_warp_stores(gemm):
    """Byte by byte, at the edges too, direct and staged."""
    problem, kernel = gemm
    source = GemmSource(problem, replace(kernel, persistent=None))
    tiles = source.output_tiles()
    for workgroup in source.workgroups():
        tile = tiles[workgroup.index % source.tiles]
        height, width, run_step, byte_step, warps = tile["parts"].tolist()
        assert warps == kernel.warps
        for warp in range(warps):
            events = workgroup.events[workgroup.first_event[warp] : workgroup.first_event[warp + 1]]
            for event in events[events["pc"] == 16 * Site.STORE]:
                for address in lane_addresses(event, ()):
                    offset = address - int(tile["address"])
                    run, byte = divmod(offset, int(tile["pitch_bytes"])) if tile["runs"] > 1 else (0, offset)
                    for place in (byte, byte + int(event["width_bytes"]) - 1):
                        assert (run // height * run_step + place // width * byte_step) % warps == warp


def test_workgroups_can_start_anywhere_and_repeat_exactly():
    source = GemmSource(GemmProblem(300, 200, 100), GemmKernel(64, 64, 32, 2, 2))
    every = list(source.workgroups())
    assert [w.index for w in every] == list(range(source.info.workgroups))
    late = list(source.workgroups(start=7))
    assert [w.index for w in late] == list(range(7, source.info.workgroups))
    assert all((a.events == b.events).all() for a, b in zip(every[7:], late, strict=True))


def test_fingerprint_identifies_problem_and_kernel():
    base = GemmSource(SMALL, ONE_WARP).fingerprint()
    assert base == GemmSource(SMALL, ONE_WARP).fingerprint()
    assert base != GemmSource(GemmProblem(32, 32, 95), ONE_WARP).fingerprint()
    assert base != GemmSource(SMALL, GemmKernel(32, 32, 32, 1, 1)).fingerprint()


def test_default_kernel_leaves_room_for_two_workgroups_per_compute_unit():
    info = GemmSource(GemmProblem(1024, 1024, 1024)).info
    assert info.registers * info.block[0] * 4 * 2 <= 256 << 10
    assert info.shared_bytes * 2 <= 128 << 10


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"m": 0}, "m = 0"),
        ({"k": -3}, "k = -3"),
        ({"n": 1.5}, "n = 1.5"),
        ({"a_bytes": 3}, "a_bytes = 3"),
        ({"lda": 95}, "leading dimension 95, must be >= 96"),
        ({"b_layout": Layout.COLUMN, "ldb": 64}, "must be >= 96"),
        ({"c_address": 4097}, "multiple of 2"),
        ({"a_address": 4096, "c_address": 4096}, "overlaps A"),
        ({"m": 1 << 60}, "m = .* 1 to 16,777,216"),
        ({"lda": 1 << 60}, "62-bit"),
    ],
)
def test_impossible_problems_are_refused(fields, message):
    with pytest.raises(UserError, match=message):
        GemmProblem(**({"m": 32, "n": 32, "k": 96} | fields))


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"tile_m": 0}, "tile_m = 0"),
        ({"warps_m": 3}, "tile_m = 128 cannot be cut"),
        ({"vector_bytes": 12}, "vector_bytes = 12"),
        ({"vector_bytes": 1}, "does not fit A"),
        ({"tile_k": 4}, "does not fit A"),
        ({"lanes": 48}, "lanes = 48"),
        ({"warps_m": 8, "warps_n": 8}, "at most 1024 threads"),
        ({"pipeline_depth": 33}, "pipeline_depth = 33"),
        ({"fragment_pieces": 3}, "must divide tile_k = 32"),
        ({"fragment_pieces": 2, "pipeline_depth": 1}, "pipeline_depth of at least 2"),
        ({"tile_m": 512, "tile_n": 512}, "registers per thread"),
        ({"copy": Copy.ASYNC, "pipeline_depth": 30}, "shared memory"),
        ({"shared_bytes": 100}, "its tiles need 32768"),
        ({"split_k": 4}, "only 3 steps"),
        ({"start_tile": 1}, "start_tile = 1: must be < 1"),
        ({"persistent": 0}, "persistent = 0"),
        ({"tile_m": 1 << 31}, "tile_m = .* 1 to 1,024: a larger tile"),
    ],
)
def test_impossible_kernels_are_refused(fields, message):
    with pytest.raises(UserError, match=message):
        GemmSource(SMALL, GemmKernel(**fields))
