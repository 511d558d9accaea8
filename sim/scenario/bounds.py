"""Times that no simulation can undercut: the work of a scenario at the peaks of its machine. They cost nothing."""

from dataclasses import dataclass
from itertools import pairwise

from sim.collective.topology import in_one_node, is_direct
from sim.scenario.scenario import Scenario
from sim.spec import Link, Machine, Network, Topology
from traces.units import GIGA, PS_PER_S, time_text


@dataclass(frozen=True)
class Bounds:
    """Lower bounds of times in ps.

    Attributes:
        gemm_ps: of the GEMM. gemm_unit: unit that decides it.
        exchange_ps: of the reduce-scatter and of the all-gather, each: on the links or network cards. 0 = a plan of
            the user. exchange_unit: what decides it.
    """

    gemm_ps: int
    gemm_unit: str
    exchange_ps: int
    exchange_unit: str = "link"

    @property
    def sequential_ps(self) -> int:
        return self.gemm_ps + 2 * self.exchange_ps

    @property
    def t3_ps(self) -> int:
        """GEMM and reduce-scatter beside each other, then the all-gather."""
        return max(self.gemm_ps, self.exchange_ps) + self.exchange_ps

    def text(self) -> str:
        """Three lines of at most 80 columns."""
        gemm = f"GEMM {time_text(self.gemm_ps)} ({self.gemm_unit})"
        exchange = f"{time_text(self.exchange_ps)} ({self.exchange_unit})"
        links = f", RS {exchange}, AG {exchange}" if self.exchange_ps else ""
        return (
            "Before the simulation: the shortest times that the machine allows\n"
            f"    {gemm}{links}\n"
            f"    Sequential {time_text(self.sequential_ps)}, T3 {time_text(self.t3_ps)}; simulated times are longer"
        )


def bounds(scenario: Scenario) -> Bounds:
    """The bounds of a scenario. The GEMM reads A and B once; every tile but those of one chunk leaves."""
    problem, machine, peaks = scenario.problem, scenario.preset.machine, scenario.preset.peaks()
    flop = 2 * problem.m * problem.n * problem.k * scenario.kernel.mac_cost
    read_bytes = problem.k * (problem.m * problem.a_bytes + problem.n * problem.b_bytes)
    times_s = {"matrix pipes": flop / peaks.tensor_flop_per_s, "DRAM": read_bytes / peaks.dram_bytes_per_s}
    unit = max(times_s, key=lambda name: times_s[name])
    exchange_s = {"link": 0.0}
    if scenario.own is None:
        cut = scenario.cut()
        largest = max(end - begin for begin, end in pairwise(cut.edges))
        own_elements = largest * scenario.kernel.tile_m * scenario.kernel.tile_n
        sent_bytes = max(0, problem.m * problem.n - own_elements) * problem.c_bytes
        exchange_s = _exchange_s(machine, cut.gpus, sent_bytes)
    slower = max(exchange_s, key=lambda name: exchange_s[name])
    return Bounds(int(times_s[unit] * PS_PER_S), unit, int(exchange_s[slower] * PS_PER_S), slower)


def _exchange_s(machine: Machine, gpus: int, sent_bytes: int) -> dict[str, float]:
    """Unit -> least time of the GPU that needs it longest. sent_bytes: of each GPU, to all others.

    In a ring over nodes, one GPU of a node sends all over its card, the others over their links. Else each GPU sends
    every other GPU its part.
    """
    link, network, topology = machine.link, machine.network, machine.link.topology
    node_gpus = gpus if in_one_node(machine, gpus) else network.node_gpus
    near, far = (1.0 if there else 0.0 for there in (node_gpus > 1, node_gpus < gpus))
    if is_direct(topology):
        near, far = (node_gpus - 1) / (gpus - 1), (gpus - node_gpus) / (gpus - 1)
    if topology == Topology.FULLY_CONNECTED:
        near /= max(1, node_gpus - 1)
    shares: dict[str, tuple[float, Link | Network]] = {"link": (near, link), "network": (far, network)}
    return {
        unit: share * sent_bytes / (joins.GB_per_s * joins.efficiency * GIGA) for unit, (share, joins) in shares.items()
    }
