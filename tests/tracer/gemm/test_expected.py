"""The expected time of a GEMM kernel where only one thing takes time: then it is a product that can be written down."""

from dataclasses import replace
from math import ceil, inf

import pytest

from sim.gemm_facts import gpu_facts
from sim.presets import load_preset
from tracer.gemm.expected import KEPT, SUM_BYTES, SUM_S, expected_s
from tracer.gemm.kernel import Copy, GemmKernel
from tracer.gemm.problem import GemmProblem
from tracer.gemm.raster import TileOrder

CUS, CLOCK_HZ = 10, 2e9
PROBLEM = GemmProblem(1000, 700, 500, a_bytes=1, b_bytes=2, c_bytes=4)
KERNEL = GemmKernel(128, 64, 32, pipeline_depth=4, mac_cost=2.5)
TILES = 8 * 11  # 9 for the busiest CU
FREE = gpu_facts(load_preset("a100_80g").machine)._replace(
    cus=CUS,
    clock_MHz=CLOCK_HZ / 1e6,
    macs_per_clk=inf,
    l2_bytes_per_clk=inf,
    port_bytes_per_clk=inf,
    dram_bytes_per_s=inf,
    latency_ps=0,
)
"""A machine on which nothing takes time."""


def clocks(gpu, problem=PROBLEM, kernel=KERNEL, resident=2, batch=1, split=1):
    return expected_s(problem, kernel, gpu, resident, batch, split, more_clk=0) * CLOCK_HZ


@pytest.mark.parametrize(("batch", "split"), [(1, 1), (3, 1), (1, 4)])
def test_arithmetic_is_that_of_the_cu_with_most_tiles(batch, split):
    gpu, steps = FREE._replace(macs_per_clk=512), ceil(500 / (32 * split))
    expected = ceil(TILES * batch * split / CUS) * steps * 128 * 64 * 32 * 2.5 / 512
    assert clocks(gpu, batch=batch, split=split) == pytest.approx(expected + (split > 1) * SUM_S * CLOCK_HZ)


def test_a_step_has_clocks_besides_its_arithmetic():
    assert expected_s(PROBLEM, KERNEL, FREE, 2, more_clk=7) * CLOCK_HZ == pytest.approx(9 * 16 * 7)


def test_a_cu_loads_its_own_part_of_what_its_cluster_shares_and_stores_its_tiles():
    gpu, stored = FREE._replace(l2_bytes_per_clk=16), 5 * 128 * 64 * 4  # five rounds of two tiles at once
    assert clocks(gpu) == pytest.approx((9 * 16 * 32 * (128 * 1 + 64 * 2) + stored) / 16)
    clustered = replace(KERNEL, copy=Copy.BULK, cluster_m=1, cluster_n=4)
    assert clocks(gpu, kernel=clustered) == pytest.approx((9 * 16 * 32 * (128 / 4 + 64 * 2) + stored) / 16)
    low = replace(PROBLEM, m=100, n=60)  # one tile; rows and columns that do not exist are not loaded
    assert clocks(gpu, low) == pytest.approx((16 * 32 * (100 * 1 + 60 * 2) + 100 * 60 * 4) / 16)


def test_what_a_cluster_shares_arrives_at_each_port_but_not_what_a_pair_shares():
    gpu = FREE._replace(port_bytes_per_clk=16)
    clustered = replace(KERNEL, copy=Copy.BULK, cluster_m=2)
    for kernel, step_bytes in (
        (clustered, 128 * 1 + 64 * 2),
        (replace(clustered, pair_m=2), 128 * 1 + 32 * 2),
        (replace(KERNEL, copy=Copy.BULK, cluster_n=2, pair_n=2), 64 * 1 + 64 * 2),
    ):
        assert clocks(gpu, kernel=kernel) == pytest.approx(9 * 16 * 32 * step_bytes / 16)


@pytest.mark.parametrize(("resident", "together"), [(1, 1), (2, 2), (20, 9)])
def test_each_step_waits_for_its_share_of_the_latency(resident, together):
    """Three steps are in flight for each workgroup; a round of workgroups has a latency before it and one behind."""
    latency_clk = 600
    gpu = FREE._replace(latency_ps=latency_clk / CLOCK_HZ * 1e12)
    expected = 9 * 16 * latency_clk / (3 * together) + ceil(9 / together) * 2 * latency_clk
    assert clocks(gpu, resident=resident) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("order", "rows", "columns"), [(TileOrder.ROW, 2, 11), (TileOrder.COLUMN, 8, 3), (TileOrder.GROUPED, 4, 5)]
)
def test_dram_reads_the_panels_of_each_wave_unless_l2_keeps_an_operand(order, rows, columns):
    """A wave has 20 tiles of 8 x 11."""
    a_bytes, b_bytes, c_bytes = 1000 * 500, 700 * 500 * 2, 1000 * 700 * 4
    kernel, gpu = replace(KERNEL, order=order, group=4), FREE._replace(dram_bytes_per_s=CLOCK_HZ)
    panels = TILES / 20 * (rows * 128 * 1 + columns * 64 * 2) * 500
    small, large = (gpu._replace(l2_bytes=a_bytes / KEPT + more) for more in (-1, 1))
    assert clocks(small, kernel=kernel) == pytest.approx(panels + c_bytes)
    assert clocks(small, kernel=kernel, batch=3) == pytest.approx(3 * (panels + c_bytes))
    assert clocks(large, kernel=kernel) == pytest.approx(a_bytes + b_bytes + c_bytes)
    one_wave = small._replace(cus=TILES)
    assert clocks(one_wave, kernel=kernel, resident=1) == pytest.approx(a_bytes + b_bytes + c_bytes)


def test_shares_of_k_are_written_and_read_as_sums():
    gpu = FREE._replace(l2_bytes_per_clk=16)
    sums = 2 * TILES * 4 * 128 * 64 * SUM_BYTES / (16 * CUS)
    busiest = ceil(TILES * 4 / CUS)
    own = (busiest * 4 * 32 * (128 + 128) + ceil(busiest / 2) * 128 * 64 * 4) / 16
    assert clocks(gpu, split=4) == pytest.approx(own + sums + SUM_S * CLOCK_HZ)
