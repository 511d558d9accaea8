"""What the GEMM library needs to know of a machine (`tracer.gemm.library`)."""

from sim.occupancy import occupancy
from sim.policies import Granularity
from sim.presets.peaks import Peaks
from sim.spec import L2Sharing, Machine
from tracer.gemm.architecture import GpuFacts
from traces.errors import UserError
from traces.units import HZ_PER_MHZ, clocks_to_ps


def gpu_facts(machine: Machine) -> GpuFacts:
    """The facts of a machine, from its values."""
    cu, noc, hbm, peaks = machine.cu, machine.noc, machine.hbm, Peaks.of(machine)
    cu_Hz = cu.clock_MHz * HZ_PER_MHZ
    port_bytes_per_s = noc.response_bytes_per_clk * noc.clock_MHz * HZ_PER_MHZ
    row_clk = hbm.timing.RP + hbm.timing.RCD_rd + hbm.timing.CL + hbm.timing.burst

    def resident(threads: int, registers: int, shared: int) -> int:
        try:
            return occupancy(cu, threads, registers, shared).workgroups
        except UserError:
            return 0

    return GpuFacts(
        library=cu.library,
        lanes=cu.lanes_per_warp,
        cus=cu.count,
        clock_MHz=cu.clock_MHz,
        macs_per_clk=cu.tensor_macs_per_clk,
        l2_bytes_per_clk=min(port_bytes_per_s, peaks.l2_bytes_per_s / cu.count) / cu_Hz,
        port_bytes_per_clk=port_bytes_per_s / cu_Hz,
        l2_bytes=machine.l2.bytes,
        dram_bytes_per_s=peaks.dram_bytes_per_s,
        latency_ps=clocks_to_ps(machine.l1.latency_clk, cu.clock_MHz)
        + 2 * clocks_to_ps(noc.latency_clk, noc.clock_MHz)
        + hbm.request_ps
        + hbm.extra_latency_ps
        + clocks_to_ps(row_clk, hbm.clock_MHz),
        resident=resident,
        l2_parts=machine.l2.partitions if machine.l2.sharing == L2Sharing.PRIVATE else 1,
        bulk=cu.bulk_lines_per_clk > 0,
        clusters=cu.groups > 0,
        by_wavefront=machine.tracker.granularity == Granularity.WAVEFRONT,
    )
