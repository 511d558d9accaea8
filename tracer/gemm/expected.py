"""Expected time of a GEMM kernel on a machine. Nothing is measured or simulated for it.

    time  = max(time of the CU with most tiles, DRAM bytes / DRAM bandwidth) + time of the reduction, with split-K
    tile  = K-steps * max(arithmetic, operands at the CU's share of L2, operands that arrive at the CU's port, operands
            in flight per latency) + latency
            (at L2 a CU counts only its own part of the operands that its cluster shares, at its port those for it)
    bytes = operands per wave of tiles, each panel once, but at least once in all and at most what L2 cannot keep

A wave is a block of tiles as nearly square as the order allows (`TileOrder.GROUPED`).
"""

from math import prod

from tracer.gemm.architecture import STEP_CLK, GpuFacts
from tracer.gemm.kernel import GemmKernel, tile_grid
from tracer.gemm.order import wave_bytes
from tracer.gemm.problem import GemmProblem
from tracer.gemm.raster import TileOrder
from traces.units import HZ_PER_MHZ, PS_PER_S

KEPT = 0.5
"""Share of L2 that keeps operands from wave to wave (assumed); the rest holds the stream of the other operand."""
SUM_BYTES = 4
"""Shares of a split-K tile are fp32 sums: written, then read and added."""
SUM_S = 4e-6
"""Time that split-K adds besides the bytes: a second kernel adds the shares in common libraries (assumed)."""


def expected_s(
    problem: GemmProblem,
    kernel: GemmKernel,
    gpu: GpuFacts,
    resident: int,
    batch: int = 1,
    split: int = 1,
    more_clk: int = STEP_CLK,
) -> float:
    """Expected time of a kernel in seconds, as in the text of this module. more_clk: `Architecture.step_clk`."""
    clock_Hz = gpu.clock_MHz * HZ_PER_MHZ
    latency_clk = gpu.latency_ps / PS_PER_S * clock_Hz
    tiles = prod(tile_grid(problem, kernel)) * split * batch
    steps = -(-problem.k // (kernel.tile_k * split))
    rows, columns = min(kernel.tile_m, problem.m), min(kernel.tile_n, problem.n)
    step_bytes = kernel.tile_k * (rows / kernel.pair_n * problem.a_bytes + columns / kernel.pair_m * problem.b_bytes)
    busiest = -(-tiles // gpu.cus)
    together = min(resident, busiest)
    arithmetic = kernel.tile_m * kernel.tile_n * kernel.tile_k * kernel.mac_cost / gpu.macs_per_clk + more_clk
    in_flight = step_bytes * max(1, kernel.pipeline_depth - 1) * together
    loaded_clk = loaded_bytes(problem, kernel) / gpu.l2_bytes_per_clk
    arrive_clk = step_bytes / gpu.port_bytes_per_clk
    step_clk = max(arithmetic, loaded_clk, arrive_clk, step_bytes * latency_clk / in_flight)
    ends_clk = 2 * latency_clk + rows * columns * problem.c_bytes / gpu.l2_bytes_per_clk
    cu_s = (busiest * steps * step_clk + -(-busiest // together) * ends_clk) / clock_Hz
    dram_s = batch * _dram_bytes(problem, kernel, gpu, resident) / gpu.dram_bytes_per_s
    if split == 1:
        return max(cu_s, dram_s)
    sum_bytes = 2 * tiles * rows * columns * SUM_BYTES
    return max(cu_s, dram_s) + SUM_S + sum_bytes / (gpu.l2_bytes_per_clk * gpu.cus * clock_Hz)


def _dram_bytes(problem: GemmProblem, kernel: GemmKernel, gpu: GpuFacts, resident: int) -> float:
    """Expected DRAM traffic: operands once if L2 keeps the smaller one, else once per wave; output once."""
    a, b = problem.m * problem.k * problem.a_bytes, problem.n * problem.k * problem.b_bytes
    output = problem.m * problem.n * problem.c_bytes
    tiles_m, tiles_n = tile_grid(problem, kernel)
    tiles = tiles_m * tiles_n
    wave = gpu.cus * resident
    if min(a, b) <= KEPT * gpu.l2_bytes or tiles <= wave:
        return a + b + output
    height = {TileOrder.ROW: 1, TileOrder.COLUMN: tiles_m, TileOrder.GROUPED: kernel.group}[kernel.order]
    return max(a + b, tiles / wave * wave_bytes(problem, kernel, wave, min(height, tiles_m)) * problem.k) + output


def loaded_bytes(problem: GemmProblem, kernel: GemmKernel) -> float:
    """Operand bytes of a K-step that a workgroup loads itself, for all of its cluster."""
    of_a = min(kernel.tile_m, problem.m) * problem.a_bytes / kernel.cluster_n
    of_b = min(kernel.tile_n, problem.n) * problem.b_bytes / kernel.cluster_m
    return kernel.tile_k * (of_a + of_b)
