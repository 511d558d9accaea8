"""How busy each unit was, as a share of its peak, and what therefore bounds a run: from counters.

A share is work done / (peak rate x time). Peaks follow from the machine. The unit with the highest share bounds the run
if it is busy for most of the time; else the run waits: for latency, or because too few workgroups fill the machine.
"""

import math
from collections.abc import Mapping

from sim.counters import DRAM_COLUMNS, l2_bytes, moved_sectors, msc_requests
from sim.hw.request import SECTOR_BYTES
from sim.presets.peaks import Peaks
from sim.results import ResultsError, RunResult
from sim.spec import Machine
from traces.units import HZ_PER_MHZ, PS_PER_S, TERA

BUSY = 0.7
"""Share of the peak from which a unit bounds a run (assumed: queues and refresh keep a saturated DRAM below 0.95)."""
FLOP_PER_MAC = 2
LATENCY, TOO_FEW = "latency", "too few workgroups"
"""What bounds a run that no unit bounds."""
VECTOR_PIPES = ("ALU", "FMA", "FP64", "SFU")
"""With `cu.one_vector_pipe` one pipe: VALU."""
SOME_KERNELS = (*VECTOR_PIPES, "VALU", "bulk copies", "ports between CUs", "memory-side cache", "DMA engines")
"""Units that many kernels do not use, or that some machines lack."""


def time_of_kernels_ps(run: RunResult) -> int:
    """Sum of the times of the kernels; flushes of L2 between them are not in it."""
    return sum(kernel.time_ps for kernel in run.kernels)


def tera_flop_per_s(run: RunResult) -> float | None:
    """Rate of the kernels' matrix work in TFLOP/s. None = no matrix work."""
    flop, time_ps = sum(operations(run)), time_of_kernels_ps(run)
    return flop * PS_PER_S / time_ps / TERA if flop and time_ps else None


def operations(run: RunResult) -> list[int]:
    """Operations of each kernel with matrix work, without what pads tiles and what causality leaves out; of others 0.

    They are those that the result states for its kernels (`flops` of its input), or those of its GEMM, divided by work
    if it has several kernels. Kernels of a trace and kernels at once, and archives of before (all but one GEMM), have
    two operations for each multiply-accumulate of the matrix pipes.
    """
    counted = [FLOP_PER_MAC * kernel.totals.get("cu.tensor_macs", 0) for kernel in run.kernels]
    if stated := run.input.get("flops"):
        return [own and (flop or own) for own, flop in zip(counted, stated, strict=True)]
    if "problem" in run.input and "parameters" not in run.input and any(counted):
        flop = FLOP_PER_MAC * math.prod(run.input["problem"][side] for side in "mnk")
        return [flop * own // sum(counted) for own in counted]
    return counted


def peak_tera_flop_per_s(run: RunResult) -> float:
    """Peak of the matrix pipes in TFLOP/s, for the data type of a GEMM; else fp16."""
    return run.preset.peaks().tensor_flop_per_s / TERA / (run.input.get("kernel") or {}).get("mac_cost", 1)


def shares(run: RunResult) -> dict[str, float]:
    """Unit -> share of its peak. A flush of L2 after a kernel is not counted.

    Of several GPUs: of GPU 0. If they are in several nodes, link and network card are those of the busiest GPU.

    Lines that the last stores evict are counted after the time of the kernel (D13): a short kernel on a dirty L2 can
    have a share of DRAM above 1. Empty if no kernel ran, or if an archive of an older version lacks a counter: the
    busiest unit is then not known.
    """
    time_ps = time_of_kernels_ps(run)
    if not time_ps:
        return {}
    try:
        found = shares_of(run.totals, run.preset.machine, time_ps)
    except ResultsError:
        return {}
    between = run.totals["cu.workgroups"] - len(run.kernels)  # two dispatches of a kernel
    if between > 0 and run.preset.machine.dispatch.workgroup_ps:
        found["dispatcher"] = between * run.preset.machine.dispatch.workgroup_ps / time_ps
    for unit in ("link", "network"):
        if f"{unit}_busy_ps" in run.figures:
            found[unit] = run.figures[f"{unit}_busy_ps"] / time_ps
    return found


def shares_of(total: Mapping[str, int], machine: Machine, time_ps: int) -> dict[str, float]:
    """Unit -> share of its peak, from the counters of a time. Units of SOME_KERNELS only if the kernels use them."""
    cu, noc, msc, dma, peaks = machine.cu, machine.noc, machine.msc, machine.dma, Peaks.of(machine)
    schedulers, cu_hz = cu.count * cu.schedulers, cu.count * cu.clock_MHz * HZ_PER_MHZ
    noc_hz = cu.count * noc.clock_MHz * HZ_PER_MHZ
    peer_bytes = max(total.get("peers.packet_bytes", 0), total.get("peers.answer_bytes", 0))
    vector_s = {pipe: total[f"cu.{pipe.lower()}_busy_ps"] / PS_PER_S for pipe in VECTOR_PIPES}
    if cu.one_vector_pipe:
        vector_s = {"VALU": sum(vector_s.values())}
    work_and_peak = {
        "matrix pipes": (total["cu.tensor_busy_ps"] / PS_PER_S, schedulers),
        **{pipe: (busy_s, schedulers) for pipe, busy_s in vector_s.items()},
        "issue": (total["cu.issue_busy_ps"] / PS_PER_S, schedulers),
        "shared memory": (total["cu.shared_busy_ps"] / PS_PER_S, cu.count),
        "LSU": (total["lsu.busy_ps"] / PS_PER_S, cu.count),
        "bulk copies": (total.get("bulk.line_requests", 0), cu_hz * cu.bulk_lines_per_clk),
        "ports between CUs": (peer_bytes, cu_hz * cu.peer_bytes_per_clk),
        "NoC to CUs": (total["noc.cu_bytes"], noc_hz * noc.response_bytes_per_clk),
        "NoC to L2": (total["noc.request_bytes"], noc_hz * noc.request_bytes_per_clk),
        "L2": (l2_bytes(total), peaks.l2_bytes_per_s),
        "DRAM": (moved_sectors(total, DRAM_COLUMNS) * SECTOR_BYTES, peaks.dram_bytes_per_s),
        "memory-side cache": (
            msc_requests(total),
            machine.hbm.channels * msc.clock_MHz * HZ_PER_MHZ * msc.lines_per_clk,
        ),
        "DMA engines": (total.get("dma.lines", 0), dma.engines * dma.clock_MHz * HZ_PER_MHZ * dma.lines_per_clk),
    }
    return {
        unit: work / peak / (time_ps / PS_PER_S)
        for unit, (work, peak) in work_and_peak.items()
        if peak and (work or unit not in SOME_KERNELS)
    }


def bounded_by(run: RunResult) -> str:
    """What bounds a run: a unit, too few workgroups, or latency (with the busiest unit); "" = no shares."""
    found = shares(run)
    if not found:
        return ""
    unit = max(found, key=lambda name: found[name])
    if found[unit] >= BUSY:
        return unit
    if 0 < run.totals["cu.workgroups"] < run.preset.machine.cu.count:
        return f"{TOO_FEW} ({run.totals['cu.workgroups']:,})"
    return f"{LATENCY} ({unit} {found[unit]:.0%})"


def kind_of(bound: str) -> str:
    """A bound (`bounded_by`) without its numbers: a unit, LATENCY or TOO_FEW."""
    return bound.partition(" (")[0]
