"""Times that no simulation can undercut: the work of a scenario at the peaks of its machine. They cost nothing."""

from dataclasses import dataclass
from itertools import pairwise

from sim.scenario.scenario import Scenario
from sim.spec import Topology
from traces.units import GIGA, PS_PER_S, time_text


@dataclass(frozen=True)
class Bounds:
    """Lower bounds of times in ps.

    Attributes:
        gemm_ps: of the GEMM. gemm_unit: unit that decides it.
        exchange_ps: of the reduce-scatter and of the all-gather, each: on the links. 0 = a plan of the user.
    """

    gemm_ps: int
    gemm_unit: str
    exchange_ps: int

    @property
    def sequential_ps(self) -> int:
        return self.gemm_ps + 2 * self.exchange_ps

    @property
    def t3_ps(self) -> int:
        """GEMM and reduce-scatter beside each other, then the all-gather."""
        return max(self.gemm_ps, self.exchange_ps) + self.exchange_ps

    def text(self) -> str:
        """Three lines of at most 80 columns."""
        gemm, exchange = f"GEMM {time_text(self.gemm_ps)} ({self.gemm_unit})", time_text(self.exchange_ps)
        links = f", RS {exchange} (link), AG {exchange} (link)" if self.exchange_ps else ""
        return (
            "Before the simulation: the shortest times that the machine allows\n"
            f"    {gemm}{links}\n"
            f"    Sequential {time_text(self.sequential_ps)}, T3 {time_text(self.t3_ps)}; simulated times are longer"
        )


def bounds(scenario: Scenario) -> Bounds:
    """The bounds of a scenario. The GEMM reads A and B once; every tile but those of one chunk crosses a link."""
    problem, machine, peaks = scenario.problem, scenario.preset.machine, scenario.preset.peaks()
    flop = 2 * problem.m * problem.n * problem.k * scenario.kernel.mac_cost
    read_bytes = problem.k * (problem.m * problem.a_bytes + problem.n * problem.b_bytes)
    times_s = {"matrix pipes": flop / peaks.tensor_flop_per_s, "DRAM": read_bytes / peaks.dram_bytes_per_s}
    unit = max(times_s, key=lambda name: times_s[name])
    exchange_s = 0.0
    if scenario.own is None:
        cut, link = scenario.cut(), machine.link
        largest = max(end - begin for begin, end in pairwise(cut.edges))
        own_elements = largest * scenario.kernel.tile_m * scenario.kernel.tile_n
        sent_bytes = max(0, problem.m * problem.n - own_elements) * problem.c_bytes
        ports = cut.gpus - 1 if link.topology == Topology.FULLY_CONNECTED else 1
        exchange_s = sent_bytes / ports / (link.GB_per_s * link.efficiency * GIGA)
    return Bounds(int(times_s[unit] * PS_PER_S), unit, int(exchange_s * PS_PER_S))
