"""The library's choice of a kernel: known before the run, able to run the shape, by the rule in its text."""

from dataclasses import replace

import numpy as np
import pytest

from sim.collective.chunks import even_chunks
from sim.gemm_facts import gpu_facts
from sim.presets import load_preset
from tracer.data_type import DataType
from tracer.gemm.architecture import GemmLibrary, architecture
from tracer.gemm.check import check_kernel, check_whole_sectors
from tracer.gemm.expected import expected_s
from tracer.gemm.kernel import Copy, Epilogue, GemmKernel
from tracer.gemm.library import choose_kernel, choose_piece_kernel
from tracer.gemm.order import in_turn
from tracer.gemm.problem import GemmProblem
from tracer.gemm.raster import TileOrder
from tracer.gemm.source import GemmSource
from tracer.kernels import make_gemm, make_kernel, make_kernels
from tracer.workloads import aligned_problem
from traces.errors import UserError
from traces.schema import Kind, Pipe

MACHINES = ("v100", "a100_80g", "h200", "b200", "mi210", "mi300x", "t3_2024")


def _gpu(preset):
    return gpu_facts(load_preset(preset).machine)


def _tile(kernel):
    return kernel.tile_m, kernel.tile_n


@pytest.mark.parametrize("preset", MACHINES)
def test_a_chosen_kernel_can_run_any_shape(preset):
    gpu, random = _gpu(preset), np.random.default_rng(5)
    for _ in range(12):
        problem = aligned_problem(*(int(2**extent) for extent in random.uniform(0, 15, 3)))
        kernel = choose_kernel(problem, gpu)
        check_kernel(problem, kernel)
        assert kernel.lanes == (64 if preset in ("mi210", "mi300x") else 32)


@pytest.mark.parametrize("library", GemmLibrary)
def test_every_kernel_of_a_table_runs_a_large_gemm(library):
    lanes = 64 if library in (GemmLibrary.CDNA2, GemmLibrary.CDNA3) else 32
    for kernel in architecture(library).kernels:
        check_kernel(aligned_problem(8192, 8192, 8192), replace(kernel, lanes=lanes))


@pytest.mark.parametrize("library", GemmLibrary)
@pytest.mark.parametrize("lanes", [32, 64])
def test_a_chosen_kernel_has_the_lanes_of_the_machine(library, lanes):
    changes = {"cu.library": library.name.lower(), "cu.lanes_per_warp": lanes}
    kernel = choose_kernel(aligned_problem(512, 512, 256), gpu_facts(load_preset("v100", changes).machine))
    assert kernel.lanes == lanes


def test_large_gemms_take_large_tiles_and_small_ones_small_tiles():
    gpu = _gpu("a100_80g")
    assert _tile(choose_kernel(aligned_problem(8192, 12288, 12288), gpu)) == (256, 128)
    skinny = choose_kernel(aligned_problem(16, 8192, 2048), gpu)
    assert skinny.tile_m <= 64
    assert choose_kernel(aligned_problem(512, 512, 16384), gpu).split_k > 1  # else few CUs have work


@pytest.mark.parametrize(
    ("size", "tile"), [((8192,) * 3, (224, 256)), ((4096,) * 3, (224, 256)), ((4864, 4096, 32896), (256, 256))]
)
def test_hipblaslt_runs_the_tiles_of_published_profiles(size, tile):
    kernel = choose_kernel(aligned_problem(*size), _gpu("mi300x"))
    assert _tile(kernel) == tile and kernel.split_k == 1


def test_the_order_of_tiles_suits_an_l2_per_die():
    """Workgroup i uses die i % 8: along 32 columns of tiles each die has four of them."""
    gpu = _gpu("mi300x")
    assert gpu.l2_parts == 8 and _gpu("h100_sxm").l2_parts == 1
    assert choose_kernel(aligned_problem(8192, 8192, 8192), gpu).order == TileOrder.ROW
    assert choose_kernel(aligned_problem(8192, 8192, 8192), gpu._replace(l2_parts=1)).order == TileOrder.GROUPED


@pytest.mark.parametrize(
    ("size", "tile", "cluster"),
    [
        ((512, 4096, 4096), (128, 128), (1, 2)),
        ((256, 8192, 3584), (128, 128), (1, 2)),
        ((2048, 8192, 1024), (128, 256), (2, 1)),
        ((16, 12800, 5120), (16, 128), (1, 2)),
        ((128, 13824, 5120), (128, 112), (1, 2)),
        ((1, 6144, 4096), (8, 64), (1, 2)),
    ],
)
def test_cublas_of_hopper_runs_tiles_and_clusters_that_were_measured(size, tile, cluster):
    """`references/gpu_h200_kernels.csv`; for 16 and 1 rows cuBLAS has clusters of four."""
    kernel = choose_kernel(aligned_problem(*size), _gpu("h200"))
    assert _tile(kernel) == tile and (kernel.cluster_m, kernel.cluster_n) == cluster
    assert kernel.copy == Copy.PRODUCER and kernel.warpgroup == 4


def test_a_machine_without_clusters_or_bulk_copies_gets_kernels_without_them():
    gpu, problem = _gpu("h200"), aligned_problem(2048, 8192, 1024)
    assert choose_kernel(problem, gpu._replace(clusters=False)).cluster == 1
    assert choose_kernel(problem, gpu._replace(bulk=False)).copy == Copy.ASYNC


def test_rows_that_no_bulk_copy_can_load_get_a_kernel_of_ampere():
    odd = GemmProblem(512, 512, 100)  # rows of A of 200 bytes
    kernel = choose_kernel(odd, _gpu("h200"))
    assert kernel.copy == Copy.ASYNC and kernel.warpgroup == 1 and kernel.cluster == 1


def test_groups_of_other_numbers_of_rows_have_no_clusters_along_them():
    for groups in ((5, 9, 2), (4000, 1), (128, 256, 384, 640)):
        source = make_kernel("gemm:n=1536,k=512", _gpu("h200"), groups=groups)
        assert source.kernel.cluster_m == 1 and source.info.workgroups % source.kernel.cluster == 0


def test_rocblas_runs_a_size_with_the_kernel_of_the_nearest_tuned_size():
    gpu = _gpu("mi210")
    tuned = choose_kernel(aligned_problem(1024, 8200, 15296), gpu)
    assert _tile(tuned) == (128, 128)  # 520 tiles: five full waves
    for m in (32, 512, 2048):
        assert _tile(choose_kernel(aligned_problem(m, 12288, 12288), gpu)) == (128, 128)
    deep = choose_kernel(aligned_problem(64, 64, 65536), gpu)
    assert deep.split_k == 1 < choose_kernel(aligned_problem(64, 64, 65536), _gpu("a100_80g")).split_k


def test_the_choice_has_the_shortest_expected_time():
    gpu, problem = _gpu("a100_80g"), aligned_problem(2048, 4096, 4096)
    best = choose_kernel(problem, gpu)
    slow = GemmKernel(tile_m=64, tile_n=64, tile_k=64, warps_m=2, warps_n=2, pipeline_depth=3)
    assert expected_s(problem, best, gpu, 1) < expected_s(problem, slow, gpu, 1)


def test_more_bytes_in_flight_and_more_cus_never_make_a_kernel_slower():
    gpu, problem, kernel = _gpu("a100_80g"), aligned_problem(2048, 4096, 4096), GemmKernel()
    time = expected_s(problem, kernel, gpu, 1)
    assert expected_s(problem, kernel, gpu._replace(cus=216), 1) < time
    assert expected_s(problem, kernel, gpu._replace(latency_ps=10 * gpu.latency_ps), 1) > time
    assert expected_s(problem, kernel, gpu._replace(dram_bytes_per_s=1e9), 1) > 10 * time
    assert expected_s(problem, kernel, gpu, 1, batch=108) > 30 * time


def test_the_papers_machine_keeps_the_papers_kernel_and_chooses_its_order():
    gpu = _gpu("t3_2024")
    assert make_gemm("gemm:m=1024,n=1024,k=256", gpu).source.kernel == GemmKernel()
    long = make_gemm("gemm:m=2048,n=12288,k=1536", gpu).source.kernel  # by rows each wave would read all of B
    assert long == GemmKernel(order=TileOrder.COLUMN)
    assert make_gemm("gemm:workload=gpt-3/fc2/tp32", gpu).source.kernel == GemmKernel()  # the paper's case names it


def test_a_field_of_the_kernel_names_the_kernel():
    gpu = _gpu("a100_80g")
    assert make_gemm("gemm:m=4096,n=4096,k=512,tile=64x64x32", gpu).source.kernel.tile_m == 64
    chosen = make_gemm("gemm:m=4096,n=4096,k=512", gpu)
    assert chosen.source.kernel == choose_kernel(aligned_problem(4096, 4096, 512), gpu) and chosen.by_library
    assert make_gemm("gemm:m=4096,n=4096,k=512").source.kernel == GemmKernel()


@pytest.mark.parametrize(
    ("preset", "dtype", "cost"),
    [
        ("a100_80g", "tf32", 2.0),
        ("a100_80g", "int8", 0.5),
        ("h200", "fp8", 0.5),
        ("v100", "fp32", 8.0),
        ("v100", "fp64", 16.0),
    ],
)
def test_a_type_costs_what_its_architecture_needs(preset, dtype, cost):
    source = make_kernel(f"gemm:m=256,n=256,k=256,dtype={dtype}", _gpu(preset))
    kernel = source.kernel
    events = source.workgroup(0).events
    tensor = events[(events["kind"] == Kind.COMPUTE) & (events["pipe"] == Pipe.TENSOR)]
    whole = kernel.tile_m * kernel.tile_n * -(-256 // (kernel.tile_k * kernel.split_k)) * kernel.tile_k
    assert tensor["work"].sum() == pytest.approx(cost * whole)


@pytest.mark.parametrize(("preset", "dtype"), [("a100_80g", "fp8"), ("v100", "bf16"), ("mi210", "tf32")])
def test_a_type_that_the_machine_lacks_is_refused(preset, dtype):
    with pytest.raises(UserError, match=f"dtype: found {dtype}, which the machine lacks; allowed are fp16"):
        make_kernel(f"gemm:m=256,n=256,k=256,dtype={dtype}", _gpu(preset))


def test_int8_needs_no_matrix_unit_beside_gemms():
    gpu = _gpu("v100")
    make_kernel("quantize:rows=8,cols=8,out=int8", gpu)
    for text in ("quantize:rows=8,cols=8", "rmsnorm:rows=8,cols=8,dtype=bf16"):
        with pytest.raises(UserError, match="machine lacks; allowed are fp16, fp32, fp64, int8"):
            make_kernel(text, gpu)
    with pytest.raises(UserError, match=r"dtype: found int8, .* allowed are fp16, fp32, fp64$"):
        make_kernels("attention:batch=1,heads=1,seq=64,dtype=int8", gpu)


def test_types_of_one_size_differ_only_in_cost():
    gpu, problem = _gpu("a100_80g"), aligned_problem(4096, 4096, 4096)
    assert choose_kernel(problem, gpu, DataType.FP16) == choose_kernel(problem, gpu, DataType.BF16)


@pytest.mark.parametrize("preset", ["h100_sxm", "mi300x"])
def test_the_walk_of_pieces_makes_one_piece_after_the_other(preset):
    problem, pieces = aligned_problem(2048, 5120, 1024), 8
    gpu = gpu_facts(load_preset(preset).machine)
    kernel = choose_piece_kernel(problem, gpu, pieces)
    assert replace(kernel, order=TileOrder.ROW, group=8) == replace(
        choose_kernel(replace(problem, m=256), gpu, tracked=True), order=TileOrder.ROW, group=8
    )
    rows = GemmSource(problem, kernel).output_tiles()["row"] * kernel.tile_m // 256
    assert rows.tolist() == np.repeat(np.arange(pieces), len(rows) // pieces).tolist()


@pytest.mark.parametrize(("m", "n", "k"), [(24, 64, 64), (3000, 672, 128)])
def test_a_tracked_kernel_shares_no_sectors(m, n, k):
    """The library's own kernel stores 16 bytes a warp, or tiles of 336 bytes."""
    problem, gpu = aligned_problem(m, n, k), _gpu("h100_sxm")
    with pytest.raises(UserError, match=r"(tiles|warps) would store (336|16) adjacent bytes each and share sectors"):
        check_whole_sectors(problem, choose_kernel(problem, gpu))
    check_whole_sectors(problem, choose_kernel(problem, gpu, tracked=True))


def test_the_kernel_of_pieces_runs_all_of_them():
    """A piece has 25 rows: four rows of tiles, which clusters of two divide. All pieces have 13."""
    problem, gpu = aligned_problem(100, 672, 64), _gpu("h100_sxm")
    with pytest.raises(UserError, match="cluster = 2x1: rows of tiles"):
        check_kernel(problem, choose_kernel(replace(problem, m=25), gpu))
    check_kernel(problem, choose_piece_kernel(problem, gpu, 4))


@pytest.mark.parametrize(("m", "n", "gpus"), [(8192, 4256, 8), (16384, 3072, 16), (2048, 16384, 8)])
def test_tiles_of_all_chunks_in_turn_get_the_bands_with_which_waves_read_least(m, n, gpus):
    """Naive count: the rows and columns of tiles that each wave of an H100 has, with clusters of two."""
    problem, gpu = aligned_problem(m, n, 1024), _gpu("h100_sxm")
    kernel = choose_kernel(problem, gpu, tracked=True)
    assert kernel.cluster == 2
    positions = even_chunks(GemmSource(problem, kernel).tiles, gpus, kernel.cluster).in_turn(0, kernel.cluster)
    found = in_turn(kernel, problem, gpu, positions)

    def read_bytes(group):
        tiles = GemmSource(problem, replace(kernel, group=group)).output_tiles()[positions]
        waves = [tiles[first : first + gpu.cus] for first in range(0, len(tiles), gpu.cus)]
        rows, columns = (sum(len({int(tile[axis]) for tile in wave}) for wave in waves) for axis in ("row", "column"))
        return 2 * (rows * kernel.tile_m + columns * kernel.tile_n)

    counted = {group: read_bytes(group) for group in (1, 2, 4, 8, 16)}
    assert counted[found.group] == min(counted.values()) < 0.8 * max(counted.values())
    assert in_turn(replace(kernel, order=TileOrder.ROW), problem, gpu, positions).order == TileOrder.ROW


def test_the_rate_of_a_type_is_the_machine_s_whoever_chooses_the_kernel():
    """V100 has no matrix unit for fp32: 8 times as long (`library.toml`). Without a machine all types are alike."""
    gpu = _gpu("v100")
    for text in ("gemm:m=512,n=512,k=64,dtype=fp32", "gemm:m=512,n=512,k=64,dtype=fp32,tile=128x128x32"):
        assert make_kernel(text, gpu).kernel.mac_cost == 8
    assert make_kernel("gemm:m=512,n=512,k=64,a_bytes=4,b_bytes=4,tile=64x64x32", gpu).kernel.mac_cost == 8
    assert make_kernel("gemm:m=512,n=512,k=64,dtype=fp32,mac_cost=2", gpu).kernel.mac_cost == 2
    assert make_kernel("gemm:m=512,n=512,k=64,dtype=fp32,tile=64x64x32").kernel.mac_cost == 1
    attention = "attention:batch=1,heads=1,seq=128,dtype="
    costs = [[part.kernel.mac_cost for part in make_kernels(attention + name, gpu)[::2]] for name in ("fp32", "fp16")]
    assert costs == [[8, 8], [1, 1]]


def test_sums_of_fp64_take_eight_bytes():
    gpu = _gpu("a100_80g")
    text = "gemm:m=512,n=512,k=64,dtype={},tile=64x64x16,warps=2x2"
    wide, narrow = (make_kernel(text.format(name), gpu) for name in ("fp64", "fp32"))
    assert (wide.problem.accumulate_bytes, narrow.problem.accumulate_bytes) == (8, 4)
    assert make_kernel("gemm:m=64,n=64,k=64,a_bytes=8,b_bytes=8,accumulate_bytes=4").problem.accumulate_bytes == 4
    for preset in ("v100", "mi210", "mi300x"):
        facts = _gpu(preset)
        for part in make_kernels("attention:batch=1,heads=1,seq=128,dtype=fp64", facts)[::2]:
            info = part.info
            assert part.problem.accumulate_bytes == 8
            assert facts.resident(info.block[0], info.registers, info.shared_bytes) >= 1


@pytest.mark.parametrize(("dtype", "tera_flop_per_s"), [("fp64", 37), ("fp32", 75), ("fp16", 2250), ("fp8", 4500)])
def test_b200_has_the_rates_of_its_data_sheet(dtype, tera_flop_per_s):
    """HGX B200 data sheet, dense. Odd rows have an Ampere kernel: with warpgroups, 62.9 % of the rate."""
    gpu = _gpu("b200")
    for n, older in ((4096, 1.0), (4097, 1.0 if dtype in ("fp32", "fp64") else 1 / 1.59)):
        cost = make_kernel(f"gemm:m=4096,n={n},k=4096,pad=dense,dtype={dtype}", gpu).kernel.mac_cost
        rate = 2 * gpu.macs_per_clk * gpu.cus * gpu.clock_MHz / cost / 1e6
        assert rate == pytest.approx(tera_flop_per_s * older, rel=0.01)


@pytest.mark.parametrize("on_machine", [True, False])
def test_an_impossible_size_of_elements_is_refused(on_machine):
    with pytest.raises(UserError, match=r"GEMM a_bytes = 3: must be one of \(1, 2, 4, 8\)"):
        make_kernel("gemm:m=512,n=512,k=64,a_bytes=3", _gpu("v100") if on_machine else None)


def test_a_tracker_of_wavefronts_gets_kernels_whose_warps_store_their_own_parts():
    problem = aligned_problem(1024, 512, 256)
    for granularity, epilogue in (("workgroup", Epilogue.STAGED), ("wavefront", Epilogue.DIRECT)):
        gpu = gpu_facts(load_preset("a100_80g", (f"tracker.granularity={granularity}",)).machine)
        assert choose_kernel(problem, gpu).epilogue == Epilogue.STAGED
        assert choose_kernel(problem, gpu, tracked=True).epilogue == epilogue
        assert choose_piece_kernel(problem, gpu, 4).epilogue == epilogue


def test_align_is_in_elements_of_the_operands():
    text = "gemm:m=256,n=256,k=64,dtype={},family=sm75,tile=64x64x32,warps=2x2,align={},pipeline_depth=2"
    for dtype, align, vector_bytes in (("fp16", 1, 2), ("fp16", 8, 16), ("fp32", 1, 4), ("int8", 4, 4)):
        kernel = make_kernel(text.format(dtype, align)).kernel
        assert (kernel.vector_bytes, kernel.lane_bytes, kernel.epilogue) == (vector_bytes, 16, Epilogue.STAGED)
    with pytest.raises(UserError, match="align: found with another field that gives vector_bytes"):
        make_kernel(text.format("fp16", 1) + ",vector_bytes=2")
    with pytest.raises(UserError, match="vector_bytes = 6: must be one of"):
        make_kernel(text.format("fp16", 3))
