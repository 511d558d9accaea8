"""How busy each unit was, as a share of its peak, and what therefore bounds a run: from counters.

A share is work done / (peak rate x time). Peaks follow from the machine. The unit with the highest share bounds the run
if it is busy for most of the time; else the run waits: for latency, or because too few workgroups fill the machine.
"""

from collections.abc import Mapping

from sim.counters import DRAM_COLUMNS, l2_bytes, moved_sectors
from sim.hw.request import SECTOR_BYTES
from sim.presets.peaks import Peaks
from sim.results import RunResult
from sim.spec import Machine
from traces.units import HZ_PER_MHZ, PS_PER_S, TERA

BUSY = 0.7
"""Share of the peak from which a unit bounds a run (assumed: queues and refresh keep a saturated DRAM below 0.95)."""
FLOP_PER_MAC = 2


def time_of_kernels_ps(run: RunResult) -> int:
    """Sum of the times of the kernels; flushes of L2 between them are not in it."""
    return sum(kernel.time_ps for kernel in run.kernels)


def tera_flop_per_s(run: RunResult) -> float | None:
    """Rate of the matrix pipes in TFLOP/s; None = the run has no matrix operations."""
    macs, time_ps = run.totals.get("cu.tensor_macs", 0), time_of_kernels_ps(run)
    return FLOP_PER_MAC * macs * PS_PER_S / time_ps / TERA if macs and time_ps else None


def shares(run: RunResult) -> dict[str, float]:
    """Unit -> share of its peak. Of several GPUs: GPU 0. A flush of L2 after a kernel is not counted."""
    time_s = time_of_kernels_ps(run) / PS_PER_S
    if not time_s:
        return {}
    counted = _work_and_peak(run.totals, run.preset.machine)
    found = {unit: work / peak / time_s for unit, (work, peak) in counted.items()}
    if "link_busy_ps" in run.figures:
        found["link"] = run.figures["link_busy_ps"] / PS_PER_S / time_s
    return found


def _work_and_peak(total: Mapping[str, int], machine: Machine) -> dict[str, tuple[float, float]]:
    """Unit -> (work, work per second at the peak)."""
    cu, noc, hbm = machine.cu, machine.noc, machine.hbm
    columns = moved_sectors(total, DRAM_COLUMNS)
    dram_hz = hbm.channels * hbm.clock_MHz * HZ_PER_MHZ
    noc_hz = noc.clock_MHz * HZ_PER_MHZ
    return {
        "matrix pipes": (total["cu.tensor_busy_ps"] / PS_PER_S, cu.count * cu.schedulers),
        "issue": (total["cu.issue_busy_ps"] / PS_PER_S, cu.count * cu.schedulers),
        "shared memory": (total["cu.shared_busy_ps"] / PS_PER_S, cu.count),
        "LSU": (
            total["lsu.line_requests"],
            cu.count * cu.lsu_lines_per_clk * cu.clock_MHz * HZ_PER_MHZ,
        ),
        "NoC to CUs": (total["noc.answer_bytes"], cu.count * noc.response_bytes_per_clk * noc_hz),
        "NoC to L2": (total["noc.request_bytes"], cu.count * noc.request_bytes_per_clk * noc_hz),
        "L2": (l2_bytes(total), Peaks.of(machine).l2_bytes_per_s),
        "DRAM": (columns * SECTOR_BYTES, dram_hz * hbm.column_bytes / hbm.timing.burst),
    }


def bounded_by(run: RunResult) -> str:
    """What bounds a run: a unit, too few workgroups, or latency (with the busiest unit); "" = a run without kernels."""
    found = shares(run)
    if not found:
        return ""
    unit = max(found, key=lambda name: found[name])
    if found[unit] >= BUSY:
        return unit
    if 0 < run.totals["cu.workgroups"] < run.preset.machine.cu.count:
        return f"too few workgroups ({run.totals['cu.workgroups']:,})"
    return f"latency ({unit} {found[unit]:.0%})"
