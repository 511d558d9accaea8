"""Counters of t3sim under the names of other tools: Nsight Compute's metrics and Accel-Sim's statistics.

Names were checked against public sources: Nsight's against the sections and metric lists that come with ncu 2019 to
2024 (GV100 and later), Accel-Sim's against util/plotting/correl_mappings.py of accel-sim-framework @02100247. If the
other tool counts something different, `remark` names the difference. A counter without a line has no counterpart.
"""

import sys
from dataclasses import dataclass

from sim.counters import COUNTERS
from sim.results import KernelResult
from sim.spec import Machine
from traces.command.document import Block, Heading, Table, Text, to_markdown
from traces.command.script import without_options
from traces.schema import SECTOR_BYTES
from traces.units import HZ_PER_MHZ, PS_PER_NS, PS_PER_S

INTRODUCTION = """\
Written by `python -m sim.view.counter_names`. `t3sim show RESULT --names nsight` (or `accelsim`) prints the values of
a run under these names, per kernel. A remark describes a difference in the other tool; without a remark no difference
is known. A sector has 32 bytes. Counters that are not in the first two tables have no counterpart there."""


@dataclass(frozen=True)
class Counterpart:
    """One name of another tool.

    Attributes:
        name: name in the other tool.
        unit: unit of its values.
        ours: counters of `sim.counters` that are added, or "time_ps"; a leading "-" subtracts.
        factor: the sum is multiplied by this; "clock" = core clocks in a picosecond.
        remark: the difference between both counters; "" = none known.
    """

    name: str
    unit: str
    ours: tuple[str, ...]
    factor: float | str = 1
    remark: str = ""

    def value(self, kernel: KernelResult, machine: Machine) -> float | int:
        """The value of this kernel under the other tool's name."""
        total = 0
        for term in self.ours:
            name = term.removeprefix("-")
            value = kernel.time_ps if name == "time_ps" else kernel.totals[name]
            total += -value if term.startswith("-") else value
        factor = machine.cu.clock_MHz * HZ_PER_MHZ / PS_PER_S if self.factor == "clock" else float(self.factor)
        scaled = total * factor
        return int(scaled) if scaled == int(scaled) else scaled


LOCAL = "with local memory"
IN_FLIGHT = LOCAL + "; a sector in flight counts as l1.read_merged_sectors here; its count there is not known"
PASSING_L1 = LOCAL + "; ours includes loads that bypass L1 (LDG.E.STRONG.GPU), which do not count there"
WITHOUT_ATOMICS = LOCAL + "; without atomics, which are reads there"
FLUSH = "ours includes the flush of L2 after the kernel, except with --keep-l2"
WRITES = ("l2.write_sectors", "l2.uncached_write_sectors")
READS = ("l2.read_sectors", "l2.uncached_read_sectors")
L1_MISSES = ("l1.read_sectors", "-l1.read_hit_sectors", "-l1.read_merged_sectors")
DRAM_WRITES = ("hbm.write_columns", "hbm.update_columns")

NSIGHT = (
    Counterpart("gpu__time_duration.sum", "ns", ("time_ps",), 1 / PS_PER_NS),
    Counterpart("sm__cycles_elapsed.max", "clock", ("time_ps",), "clock", "profile with --clock-control base"),
    Counterpart("smsp__inst_executed.sum", "warp instruction", ("cu.warp_instructions",)),
    Counterpart("sm__ctas_launched.sum", "workgroup", ("cu.workgroups",)),
    Counterpart("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "sector", ("l1.read_sectors",), 1, LOCAL),
    Counterpart(
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum", "sector", ("l1.read_hit_sectors",), 1, IN_FLIGHT
    ),
    Counterpart("l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_miss.sum", "sector", L1_MISSES, 1, IN_FLIGHT),
    Counterpart("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum", "sector", ("l1.write_sectors",), 1, LOCAL),
    Counterpart("l1tex__m_xbar2l1tex_read_bytes.sum", "byte", ("noc.cu_bytes",), 1, "with noc.header_bytes"),
    Counterpart("lts__t_sectors_srcunit_tex_op_read.sum", "sector", READS),
    Counterpart(
        "lts__t_sectors_srcunit_tex_op_read_lookup_hit.sum",
        "sector",
        ("l2.read_hit_sectors", "l2.read_merged_sectors"),
        1,
        "a sector in flight counts as a hit there: only then do the sums of a GV100 match",
    ),
    Counterpart(
        "lts__t_sectors_srcunit_tex_op_read_lookup_miss.sum",
        "sector",
        ("l2.read_miss_sectors", "l2.uncached_read_sectors"),
    ),
    Counterpart("lts__t_sectors_srcunit_tex_op_write.sum", "sector", WRITES),
    Counterpart("lts__t_sectors_srcunit_tex_op_atom.sum + _op_red.sum", "sector", ("l2.atomic_sectors",)),
    Counterpart("dram__sectors_read.sum", "sector", ("hbm.read_columns",)),
    Counterpart("dram__bytes_read.sum", "byte", ("hbm.read_columns",), SECTOR_BYTES),
    Counterpart("dram__sectors_write.sum", "sector", DRAM_WRITES, 1, FLUSH),
    Counterpart("dram__bytes_write.sum", "byte", DRAM_WRITES, SECTOR_BYTES, FLUSH),
)

ACCELSIM = (
    Counterpart("gpu_sim_cycle", "clock", ("time_ps",), "clock", "includes the launch latency there"),
    Counterpart("gpgpu_n_tot_w_icount", "warp instruction", ("cu.warp_instructions",), 1, "a total over kernels there"),
    Counterpart("gpu_tot_issued_cta", "workgroup", ("cu.workgroups",), 1, "a total over kernels there"),
    Counterpart(
        "Total_core_cache_stats_breakdown[GLOBAL_ACC_R][TOTAL_ACCESS]", "sector", ("l1.read_sectors",), 1, PASSING_L1
    ),
    Counterpart("Total_core_cache_stats_breakdown[GLOBAL_ACC_R][HIT]", "sector", ("l1.read_hit_sectors",), 1, LOCAL),
    Counterpart(
        "Total_core_cache_stats_breakdown[GLOBAL_ACC_R][MSHR_HIT]", "sector", ("l1.read_merged_sectors",), 1, LOCAL
    ),
    Counterpart(
        "Total_core_cache_stats_breakdown[GLOBAL_ACC_W][TOTAL_ACCESS]", "sector", ("l1.write_sectors",), 1, LOCAL
    ),
    Counterpart(
        "L2_cache_stats_breakdown[GLOBAL_ACC_R][TOTAL_ACCESS]", "sector", (*READS, "l2.atomic_sectors"), 1, LOCAL
    ),
    Counterpart("L2_cache_stats_breakdown[GLOBAL_ACC_R][HIT]", "sector", ("l2.read_hit_sectors",), 1, WITHOUT_ATOMICS),
    Counterpart(
        "L2_cache_stats_breakdown[GLOBAL_ACC_R][MSHR_HIT]", "sector", ("l2.read_merged_sectors",), 1, WITHOUT_ATOMICS
    ),
    Counterpart("L2_cache_stats_breakdown[GLOBAL_ACC_W][TOTAL_ACCESS]", "sector", WRITES, 1, LOCAL),
    Counterpart("total dram reads", "sector", ("hbm.read_columns",), 1, "a total over kernels there"),
    Counterpart("total dram writes", "sector", DRAM_WRITES, 1, FLUSH),
)

NAMES = {"nsight": NSIGHT, "accelsim": ACCELSIM}
TITLES = {"nsight": "Nsight Compute", "accelsim": "Accel-Sim"}


def page() -> str:
    """The page docs/counters.md."""
    blocks: list[Block] = [Heading("Counters under other tools' names", 1), Text(INTRODUCTION)]
    for key, counterparts in NAMES.items():
        rows = [(f"`{theirs.name}`", theirs.unit, formula(theirs), theirs.remark) for theirs in counterparts]
        blocks += [Heading(TITLES[key], 2), Table((TITLES[key], "unit", "t3sim", "remark"), rows)]
    own = [(f"`{unit}.{name}`", text) for unit, counters in COUNTERS.items() for name, text in counters.items()]
    return to_markdown([*blocks, Heading("All counters", 2), Table(("counter", "meaning"), own)])


def formula(counterpart: Counterpart) -> str:
    """The formula of a counterpart: a sum of our counters, times its factor."""
    terms = " + ".join(counterpart.ours).replace("+ -", "- ")
    factor = ""
    if counterpart.factor == "clock":
        factor = " x cu.clock_MHz"
    elif counterpart.factor != 1:
        factor = f" x {counterpart.factor:g}"
    return f"({terms}){factor}" if factor and len(counterpart.ours) > 1 else terms + factor


if __name__ == "__main__":
    without_options(__doc__)
    sys.stdout.write(page())
